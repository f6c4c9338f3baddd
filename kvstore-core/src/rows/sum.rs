//! [`RowSum`]: a sum of rows whose result is row-sparse.

use std::sync::Arc;

use super::plan::RowPlan;
use super::row_sparse::{RowSparse, check, row_len};
use super::value::Value;
use crate::backend::registry::Backends;
use crate::backend::{RowIds, RowSumJob, Span};
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{Error, Result, Shape, TensorSpec};

/// A prepared sum of rows.
#[derive(Debug)]
pub(crate) struct RowSum {
    /// The shape and dtype of the dense sum.
    spec: TensorSpec,
    plan: RowPlan,
    addends: Vec<Tensor>,
    sum: Tensor,
}

impl RowSum {
    /// Prepares the sum of row-sparse values of one shape. It has every row that a value has.
    pub(crate) fn union(values: &[&RowSparse]) -> Result<Self> {
        let first = values.first().ok_or_else(lost)?;
        let plan = RowPlan::union(values, &**first.rows().backend()?)?;
        let addends = fallible::collect(values.iter().map(|value| value.rows().clone()))?;
        Self::new(first.spec().clone(), plan, addends, first.rows())
    }

    /// Prepares the sum of the rows with equal ids.
    pub(crate) fn of_ids(shape: Shape, ids: &[i64], rows: &Tensor) -> Result<Self> {
        let plan = RowPlan::of_ids(ids)?;
        Self::new(TensorSpec::new(shape, rows.dtype()), plan, Vec::from([rows.clone()]), rows)
    }

    /// Prepares to copy rows of a value. Rows that the value does not have are 0.
    pub(crate) fn pick(value: &Value, ids: Arc<RowIds>) -> Result<Self> {
        let (plan, memory) = (RowPlan::pick(value, ids)?, value.memory());
        Self::new(value.spec().clone(), plan, Vec::from([memory.clone()]), memory)
    }

    fn new(spec: TensorSpec, plan: RowPlan, addends: Vec<Tensor>, beside: &Tensor) -> Result<Self> {
        let shape = spec.shape().with_num_rows(plan.ids().len());
        let sum = beside.allocate_like(TensorSpec::new(shape, spec.dtype()))?;
        Ok(Self { spec, plan, addends, sum })
    }

    fn job<'a>(&'a mut self, addends: &'a [Span<'a>]) -> Result<RowSumJob<'a>> {
        Ok(RowSumJob {
            device: self.sum.device(),
            dtype: self.sum.dtype(),
            addends: self.plan.addends(row_len(self.spec.shape()), addends),
            ids: self.plan.ids(),
            dst: self.sum.span_mut()?,
        })
    }

    fn finish(self) -> RowSparse {
        RowSparse::from_parts(self.spec, self.plan.into_ids(), self.sum)
    }

    /// Computes the sum on the backend of `beside`.
    pub(crate) fn run_alone(mut self, beside: &Tensor) -> Result<RowSparse> {
        let addends = fallible::copied(&self.addends)?;
        let spans: Vec<_> = fallible::collect(addends.iter().map(Tensor::span))?;
        beside.backend()?.sum_rows(&mut [self.job(&spans)?])?;
        Ok(self.finish())
    }

    /// Computes all sums as one batch.
    pub(crate) fn run(backends: &Backends, mut sums: Vec<Self>) -> Result<Vec<RowSparse>> {
        let addends = fallible::try_collect(sums.iter().map(|sum| fallible::copied(&sum.addends)))?;
        let spans =
            addends.iter().map(|addends| fallible::collect(addends.iter().map(Tensor::span)));
        let spans: Vec<Vec<Span<'_>>> = fallible::try_collect(spans)?;
        let jobs = sums.iter_mut().zip(&spans).map(|(sum, spans)| sum.job(spans));
        backends.run(&mut fallible::try_collect(jobs)?, |backend, jobs| backend.sum_rows(jobs))?;
        fallible::collect(sums.into_iter().map(Self::finish))
    }
}

impl RowSparse {
    /// Returns the value of this shape with these rows, for example for a batch of token ids. `ids`
    /// are the row indices in any order. Rows with equal ids are summed in the order of `ids`.
    ///
    /// ```
    /// use kvstore_core::{Backends, CpuBackend, Device, RowSparse, Tensor};
    /// let backends = Backends::new(vec![CpuBackend::new()]);
    /// let rows = Tensor::from_slice(&backends, Device::cpu(0), [3, 1], &[1f32, 2.0, 4.0])?;
    /// let value = RowSparse::from_ids([10, 1], &[7, 2, 7], rows)?;
    /// assert_eq!(value.indices(), [2, 7]);
    /// assert_eq!(value.rows().to_vec::<f32>()?, [2.0, 5.0]);
    /// # Ok::<(), kvstore_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`RowSparse::new`], except that the ids may have any order.
    pub fn from_ids(shape: impl Into<Shape>, ids: &[i64], rows: Tensor) -> Result<Self> {
        let shape = shape.into();
        check("a row-sparse value", &shape, ids, &rows)?;
        if ids.is_sorted_by(|a, b| a < b) {
            let ids = Arc::new(RowIds::new(fallible::copied(ids)?));
            return Ok(Self::from_parts(TensorSpec::new(shape, rows.dtype()), ids, rows));
        }
        RowSum::of_ids(shape, ids, &rows)?.run_alone(&rows)
    }
}

fn lost() -> Error {
    Error::Internal("a sum of rows without values".to_owned())
}

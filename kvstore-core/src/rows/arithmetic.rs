//! Arithmetic of a [`Value`]. The result is row-sparse if absent rows remain 0.

use std::sync::Arc;

use super::merge_indices::merge;
use super::row_sparse::RowSparse;
use super::sum::RowSum;
use super::value::Value;
use crate::backend::RowIds;
use crate::fallible;
use crate::tensor::Tensor;
use crate::types::{BinaryOp, DType, Error, Reduction, Result, Scalar, TensorSpec, UnaryOp};

impl Value {
    /// Returns `self op other` on the device of `self`.
    ///
    /// The sum, difference and product of two row-sparse values have the rows of either. The
    /// product of a row-sparse `self` and a dense `other` has the rows of `self`. Its other rows
    /// are 0, even where `other` is NaN or infinite. Every other result is dense.
    ///
    /// ```
    /// use kvstore_core::{Backends, BinaryOp, CpuBackend, Device, RowSparse, Tensor, Value};
    /// let backends = Backends::new(vec![CpuBackend::new()]);
    /// let row = |x: f32| Tensor::from_slice(&backends, Device::cpu(0), [1, 1], &[x]);
    /// let left = Value::from(RowSparse::new([9, 1], vec![2], row(5.0)?)?);
    /// let right = Value::from(RowSparse::new([9, 1], vec![7], row(1.0)?)?);
    /// let difference = left.binary(BinaryOp::Sub, &right)?;
    /// assert_eq!(difference.rows().map(RowSparse::indices), Some(&[2, 7][..]));
    /// # Ok::<(), kvstore_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Tensor::binary`].
    /// - The errors of [`Value::to_dense`].
    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        if !op.is_comparison() && self.spec() != other.spec() {
            return Err(Error::operand_mismatch(op.name(), self.spec(), other.spec()));
        }
        match (self, other, op) {
            (
                Self::Rows(left),
                Self::Rows(right),
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul,
            ) => {
                let ids = Arc::new(RowIds::new(union(left.indices(), right.indices())?));
                let (left, right) = (pick(left, &ids)?, pick(right, &ids)?);
                left.with_rows(left.rows().binary(op, right.rows())?).map(Self::Rows)
            }
            (Self::Rows(left), Self::Dense(right), BinaryOp::Mul) => {
                let picked = RowSum::pick(other, Arc::clone(left.ids()))?.run_alone(right)?;
                left.with_rows(left.rows().binary(op, picked.rows())?).map(Self::Rows)
            }
            _ => self.to_dense()?.binary(op, &other.to_dense()?).map(Self::Dense),
        }
    }

    /// Returns `self op number`, or `number op self` if `reversed` is true.
    ///
    /// A row-sparse value stays row-sparse in these cases:
    ///
    /// - It is multiplied or divided by a number (also 0, infinity and NaN).
    /// - 0 is added to it or subtracted from it.
    /// - It is compared, and the comparison is false for 0.
    ///
    /// Every other result is dense.
    ///
    /// # Errors
    /// - The errors of [`Tensor::binary_scalar`].
    /// - The errors of [`Value::to_dense`].
    pub fn binary_scalar(&self, op: BinaryOp, number: Scalar, reversed: bool) -> Result<Self> {
        let apply = |tensor: &Tensor| tensor.binary_scalar(op, number, reversed);
        let Self::Rows(rows) = self else { return apply(&self.to_dense()?).map(Self::Dense) };
        let keeps_zeros = match op {
            BinaryOp::Mul => true,
            BinaryOp::Div => !reversed,
            BinaryOp::Sub if reversed => false,
            BinaryOp::Rem | BinaryOp::Pow | BinaryOp::Maximum | BinaryOp::Minimum => false,
            _ => apply(&zero_beside(rows)?)?.to_scalar()? == 0.0,
        };
        self.by_rows(keeps_zeros, apply)
    }

    /// Returns the result of `op` for each element. It is row-sparse if `self` is and `op(0)` is 0.
    ///
    /// # Errors
    /// - The errors of [`Tensor::unary`].
    /// - The errors of [`Value::to_dense`].
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        self.by_rows(op.keeps_zero(), |tensor| tensor.unary(op))
    }

    /// Clips every element to `[low, high]`. The result is row-sparse if `self` is and the interval
    /// contains 0.
    ///
    /// # Errors
    /// - The errors of [`Tensor::clip`].
    /// - The errors of [`Value::to_dense`].
    pub fn clip(&self, low: Scalar, high: Scalar) -> Result<Self> {
        let apply = |tensor: &Tensor| tensor.clip(low, high);
        let keeps_zeros = match self {
            Self::Rows(rows) => apply(&zero_beside(rows)?)?.to_scalar()? == 0.0,
            Self::Dense(_) => false,
        };
        self.by_rows(keeps_zeros, apply)
    }

    /// Converts the value to another dtype. A row-sparse value stays row-sparse.
    ///
    /// # Errors
    /// - The errors of [`Tensor::cast`].
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        Ok(match self {
            Self::Dense(tensor) => Self::Dense(tensor.cast(dtype)?),
            Self::Rows(rows) => Self::Rows(rows.cast(dtype)?),
        })
    }

    /// Reduces all elements to a tensor of shape `[1]`. Absent rows count as 0.
    ///
    /// # Errors
    /// - The errors of [`Tensor::reduce`].
    /// - The errors of [`Value::to_dense`].
    pub fn reduce(&self, op: Reduction) -> Result<Tensor> {
        match (self, op) {
            (Self::Rows(rows), Reduction::Sum | Reduction::Norm) => rows.rows().reduce(op),
            _ => self.to_dense()?.reduce(op),
        }
    }

    /// Converts the value to a row-sparse one. A dense value keeps every row.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the value has no axes.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the row indices.
    pub fn into_rows(self) -> Result<RowSparse> {
        match self {
            Self::Rows(rows) => Ok(rows),
            Self::Dense(tensor) => {
                let num_rows = tensor.shape().num_rows();
                let mut indices = fallible::with_capacity(num_rows)?;
                indices.extend((0_i64..).take(num_rows));
                RowSparse::new(tensor.shape().clone(), indices, tensor)
            }
        }
    }

    /// Applies `apply` to the stored rows only if `keeps_zeros` is true, otherwise to the dense
    /// value.
    fn by_rows(
        &self,
        keeps_zeros: bool,
        apply: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Self> {
        match self {
            Self::Rows(rows) if keeps_zeros => rows.with_rows(apply(rows.rows())?).map(Self::Rows),
            _ => apply(&self.to_dense()?).map(Self::Dense),
        }
    }
}

impl RowSparse {
    /// Converts the value to another dtype.
    ///
    /// # Errors
    /// - The errors of [`Tensor::cast`].
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        self.with_rows(self.rows().cast(dtype)?)
    }
}

impl UnaryOp {
    /// Returns whether the operation maps 0 to 0.
    const fn keeps_zero(self) -> bool {
        match self {
            Self::Negate
            | Self::Abs
            | Self::Sign
            | Self::Square
            | Self::Sqrt
            | Self::Sin
            | Self::Tanh
            | Self::Relu
            | Self::Ceil
            | Self::Floor
            | Self::Round
            | Self::Rint
            | Self::Fix => true,
            Self::Rsqrt | Self::Exp | Self::Log | Self::Cos | Self::Sigmoid => false,
        }
    }
}

/// Returns the sorted union of two ascending lists.
fn union(left: &[i64], right: &[i64]) -> Result<Vec<i64>> {
    let mut indices = fallible::with_capacity(left.len().saturating_add(right.len()))?;
    merge(&[left, right], |index, _| {
        if indices.last() != Some(&index) {
            indices.push(index);
        }
    })?;
    Ok(indices)
}

/// Returns the rows of a value with these indices. Rows that the value does not have are 0.
fn pick(value: &RowSparse, ids: &Arc<RowIds>) -> Result<RowSparse> {
    if value.indices() == ids.indices() {
        return Ok(value.clone());
    }
    RowSum::pick(&Value::Rows(value.clone()), Arc::clone(ids))?.run_alone(value.rows())
}

/// Returns a tensor of shape `[1]` that contains 0, in the dtype and on the device of the rows.
fn zero_beside(rows: &RowSparse) -> Result<Tensor> {
    let mut zero = rows.rows().allocate_like(TensorSpec::new([1], rows.dtype()))?;
    zero.fill(Scalar::Float(0.0))?;
    Ok(zero)
}

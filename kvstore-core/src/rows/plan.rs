//! [`RowPlan`]: for each row of a result, the rows of the addends to sum.
//!
//! A plan depends on the row indices alone. Afterwards, a backend only adds rows up, so one kernel
//! serves three operations: the sum of several values, the sum of rows with equal ids, and copying
//! rows out of a value. Some backends plan the most frequent sums themselves.

use std::sync::Arc;

use super::count_union::count_union;
use super::merge_indices::merge;
use super::row_sparse::RowSparse;
use super::value::Value;
use crate::backend::{Backend, RowAddends, RowIds, RowSource, RowSources, Span};
use crate::fallible;
use crate::types::Result;

/// For each row of a result, its sources in the addends.
#[derive(Debug)]
pub(crate) struct RowPlan {
    /// The row indices of the result.
    ids: Arc<RowIds>,
    sources: Sources,
    /// The number of sources of a complete row. A row with fewer sources also adds `+0.0`.
    full: usize,
}

/// The fields of [`RowSources`].
#[derive(Debug)]
enum Sources {
    Listed { starts: Vec<usize>, sources: Vec<RowSource> },
    Union(Vec<Arc<RowIds>>),
    InOrder,
    Gathered,
}

/// The lists of a plan while they grow.
#[derive(Debug)]
struct Lists {
    indices: Vec<i64>,
    /// The index in `sources` of each row's first source, and at the end the number of sources.
    starts: Vec<usize>,
    sources: Vec<RowSource>,
    full: usize,
}

impl RowPlan {
    /// Plans the sum of row-sparse values of one shape, for `backend`. The sum has the rows of all
    /// values, with the same bits as in the dense sum, where an absent row counts as `+0.0`.
    pub(crate) fn union(values: &[&RowSparse], backend: &dyn Backend) -> Result<Self> {
        let lists: Vec<_> = fallible::collect(values.iter().map(|value| Arc::clone(value.ids())))?;
        if backend.plans_rows() {
            return Self::union_by_backend(values, lists);
        }
        if let [only] = values {
            let mut rows = 0..;
            return Lists::of_one_source(Arc::clone(only.ids()), 1, |_| rows.next());
        }
        // The rows of a value are ascending, so the next source is the row after the previous one.
        let mut num_rows = fallible::zeroed::<usize>(values.len())?;
        let num_sources = lists.iter().map(|list| list.len()).sum();
        let mut plan = Lists::with_capacity(num_sources, values.len())?;
        merge(&slices(&lists)?, |index, addend| {
            if let Some(row) = num_rows.get_mut(addend) {
                plan.add(index, RowSource { addend, row: *row });
                *row += 1;
            }
        })?;
        Ok(plan.finish())
    }

    fn union_by_backend(values: &[&RowSparse], lists: Vec<Arc<RowIds>>) -> Result<Self> {
        let full = values.len();
        if let [only] = lists.as_slice() {
            return Ok(Self { ids: Arc::clone(only), sources: Sources::InOrder, full });
        }
        let num_rows = values.first().map_or(0, |first| first.shape().num_rows());
        let len = count_union(&slices(&lists)?, num_rows)?;
        let ids = Arc::new(RowIds::union(&lists, len)?);
        Ok(Self { ids, sources: Sources::Union(lists), full })
    }

    /// Plans the sum of `num_values` dense values.
    pub(crate) fn of_all_rows(num_rows: usize, num_values: usize) -> Result<Self> {
        let mut plan = Lists::with_capacity(0, num_values)?;
        fallible::reserve(&mut plan.indices, num_rows)?;
        fallible::reserve(&mut plan.starts, num_rows + 1)?;
        fallible::reserve(&mut plan.sources, num_rows.saturating_mul(num_values))?;
        for (row, index) in (0..num_rows).zip(0..) {
            plan.indices.push(index);
            plan.starts.push(plan.sources.len());
            plan.sources.extend((0..num_values).map(|addend| RowSource { addend, row }));
        }
        Ok(plan.finish())
    }

    /// Plans the sum of the rows with equal ids.
    pub(crate) fn of_ids(ids: &[i64]) -> Result<Self> {
        let mut numbered = fallible::collect(ids.iter().copied().zip(0..usize::MAX))?;
        // Rows with equal ids keep their order, because the position is the second sort key.
        numbered.sort_unstable();
        let mut plan = Lists::with_capacity(numbered.len(), 0)?;
        for (index, row) in numbered {
            plan.add(index, RowSource { addend: 0, row });
        }
        Ok(plan.finish())
    }

    /// Plans to copy rows out of a value, for its backend. Rows that the value does not have are 0.
    pub(crate) fn pick(value: &Value, ids: Arc<RowIds>) -> Result<Self> {
        match value {
            Value::Dense(dense) if dense.backend()?.plans_rows() => {
                Ok(Self { ids, sources: Sources::Gathered, full: 0 })
            }
            Value::Dense(_) => Lists::of_one_source(ids, 0, |index| usize::try_from(index).ok()),
            Value::Rows(rows) => {
                Lists::of_one_source(ids, 0, |index| rows.indices().binary_search(&index).ok())
            }
        }
    }

    /// Returns the row indices.
    pub(crate) fn ids(&self) -> &RowIds {
        &self.ids
    }

    /// Returns the row indices.
    pub(crate) fn into_ids(self) -> Arc<RowIds> {
        self.ids
    }

    /// Returns the plan in the form for a backend, with the memory of the addends.
    pub(crate) fn addends<'a>(&'a self, row_len: usize, spans: &'a [Span<'a>]) -> RowAddends<'a> {
        let sources = match &self.sources {
            Sources::Listed { starts, sources } => RowSources::Listed { starts, sources },
            Sources::Union(lists) => RowSources::Union(lists),
            Sources::InOrder => RowSources::InOrder,
            Sources::Gathered => RowSources::Gathered,
        };
        RowAddends { row_len, sources, full: self.full, spans }
    }
}

impl Lists {
    fn of_one_source(
        ids: Arc<RowIds>,
        full: usize,
        mut row_of: impl FnMut(i64) -> Option<usize>,
    ) -> Result<RowPlan> {
        let mut plan = Self::with_capacity(0, full)?;
        fallible::reserve(&mut plan.starts, ids.len() + 1)?;
        fallible::reserve(&mut plan.sources, ids.len())?;
        for &index in ids.indices() {
            plan.starts.push(plan.sources.len());
            plan.sources.extend(row_of(index).map(|row| RowSource { addend: 0, row }));
        }
        Ok(RowPlan { ids, ..plan.finish() })
    }

    fn with_capacity(num_sources: usize, full: usize) -> Result<Self> {
        Ok(Self {
            indices: fallible::with_capacity(num_sources)?,
            starts: fallible::with_capacity(num_sources + 1)?,
            sources: fallible::with_capacity(num_sources)?,
            full,
        })
    }

    /// Adds a source to the last row, or to a new row if `index` differs.
    fn add(&mut self, index: i64, source: RowSource) {
        if self.indices.last() != Some(&index) {
            self.indices.push(index);
            self.starts.push(self.sources.len());
        }
        self.sources.push(source);
    }

    /// Completes the last row.
    fn finish(mut self) -> RowPlan {
        self.starts.push(self.sources.len());
        let Self { indices, starts, sources, full } = self;
        let sources = Sources::Listed { starts, sources };
        RowPlan { ids: Arc::new(RowIds::new(indices)), sources, full }
    }
}

fn slices(lists: &[Arc<RowIds>]) -> Result<Vec<&[i64]>> {
    fallible::collect(lists.iter().map(|list| list.indices()))
}

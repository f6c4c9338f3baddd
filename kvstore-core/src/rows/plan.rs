//! [`RowPlan`]: for each row of a result, the rows of the addends to sum.
//!
//! The plan is computed here from the row indices alone. A backend only adds rows up, so one kernel
//! serves three operations: the sum of several values, the sum of rows with equal ids, and copying
//! rows out of a value.

use super::merge_indices::merge;
use super::row_sparse::RowSparse;
use crate::backend::{RowAddends, RowSource, Span};
use crate::fallible;
use crate::types::Result;

/// For each row of a result, its sources in the addends.
#[derive(Debug, Default)]
pub(crate) struct RowPlan {
    /// The row indices of the result.
    indices: Vec<i64>,
    /// The index in `sources` of each row's first source, and at the end the number of sources.
    starts: Vec<usize>,
    sources: Vec<RowSource>,
    /// The number of sources of a complete row. A row with fewer sources also adds `+0.0`.
    full: usize,
}

impl RowPlan {
    /// Plans the sum of row-sparse values of one shape. The sum has the rows of all values,
    /// with the same bits as in the dense sum, where an absent row counts as `+0.0`.
    pub(crate) fn union(values: &[&RowSparse]) -> Result<Self> {
        if let [only] = values {
            let mut rows = 0..;
            return Self::of_one_source(fallible::copied(only.indices())?, 1, |_| rows.next());
        }
        let lists = fallible::collect(values.iter().map(|value| value.indices()))?;
        // The rows of a value are ascending, so the next source is the row after the previous one.
        let mut num_rows = fallible::zeroed::<usize>(values.len())?;
        let num_sources = lists.iter().map(|list| list.len()).sum();
        let mut plan = Self::with_capacity(num_sources, values.len())?;
        merge(&lists, |index, addend| {
            if let Some(row) = num_rows.get_mut(addend) {
                plan.add(index, RowSource { addend, row: *row });
                *row += 1;
            }
        })?;
        Ok(plan.finish())
    }

    /// Plans the sum of `num_values` dense values.
    pub(crate) fn of_all_rows(num_rows: usize, num_values: usize) -> Result<Self> {
        let mut plan = Self::with_capacity(0, num_values)?;
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
        let mut plan = Self::with_capacity(numbered.len(), 0)?;
        for (index, row) in numbered {
            plan.add(index, RowSource { addend: 0, row });
        }
        Ok(plan.finish())
    }

    /// Plans to copy rows out of a value. `row_of` returns the position of an index in the value,
    /// or `None` for a row of zeros.
    pub(crate) fn pick(indices: Vec<i64>, row_of: impl Fn(i64) -> Option<usize>) -> Result<Self> {
        Self::of_one_source(indices, 0, row_of)
    }

    fn of_one_source(
        indices: Vec<i64>,
        full: usize,
        mut row_of: impl FnMut(i64) -> Option<usize>,
    ) -> Result<Self> {
        let mut plan = Self::with_capacity(0, full)?;
        fallible::reserve(&mut plan.starts, indices.len() + 1)?;
        fallible::reserve(&mut plan.sources, indices.len())?;
        for &index in &indices {
            plan.starts.push(plan.sources.len());
            plan.sources.extend(row_of(index).map(|row| RowSource { addend: 0, row }));
        }
        Ok(Self { indices, ..plan.finish() })
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
    fn finish(mut self) -> Self {
        self.starts.push(self.sources.len());
        self
    }

    /// Returns the row indices.
    pub(crate) fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Returns the row indices.
    pub(crate) fn into_indices(self) -> Vec<i64> {
        self.indices
    }

    /// Returns the plan in the form for a backend, with the memory of the addends.
    pub(crate) fn addends<'a>(&'a self, row_len: usize, spans: &'a [Span<'a>]) -> RowAddends<'a> {
        let Self { starts, sources, full, .. } = self;
        RowAddends { row_len, starts, sources, full: *full, spans }
    }
}

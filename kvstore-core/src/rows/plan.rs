//! [`RowPlan`]: which row of a result is the sum of which rows of some addends.
//!
//! It is made here, from row numbers alone; what a backend does is to add rows up. So the sum of several values,
//! the sum of rows with the same number and picking rows out are one kernel.

use super::merge_indices::merge;
use super::row_sparse::RowSparse;
use crate::backend::{RowAddends, RowSource, Span};
use crate::fallible;
use crate::types::Result;

/// Rows of a result, and what they are made of.
#[derive(Debug, Default)]
pub(crate) struct RowPlan {
    /// The numbers of the rows.
    indices: Vec<i64>,
    /// Where the sources of each row begin, and after the last one where they all end.
    starts: Vec<usize>,
    sources: Vec<RowSource>,
    /// A row of fewer sources has `+0.0` among its addends.
    full: usize,
}

impl RowPlan {
    /// Plans the sum of values of one shape: the rows that any of them has. The bits are those of the sum of whole
    /// values, where a row that is not there counts as `+0.0`.
    pub(crate) fn union(values: &[&RowSparse]) -> Result<Self> {
        if let [only] = values {
            let mut rows = 0..;
            return Self::of_one_source(fallible::copied(only.indices())?, 1, |_| rows.next());
        }
        let lists = fallible::collect(values.iter().map(|value| value.indices()))?;
        // The rows of a value ascend, so each comes after the one before it.
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

    /// Plans the sum of so many whole values.
    pub(crate) fn whole(num_rows: usize, num_values: usize) -> Result<Self> {
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

    /// Plans the sum of the rows that have the same number.
    pub(crate) fn of_ids(ids: &[i64]) -> Result<Self> {
        let mut numbered = fallible::collect(ids.iter().copied().zip(0..usize::MAX))?;
        // By their places, where numbers are the same.
        numbered.sort_unstable();
        let mut plan = Self::with_capacity(numbered.len(), 0)?;
        for (index, row) in numbered {
            plan.add(index, RowSource { addend: 0, row });
        }
        Ok(plan.finish())
    }

    /// Plans to take rows out of a value: of each number the row that `row_of` gives, and 0 where it gives none.
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

    /// Adds a source of the last row, or of a new one if that has another number.
    fn add(&mut self, index: i64, source: RowSource) {
        if self.indices.last() != Some(&index) {
            self.indices.push(index);
            self.starts.push(self.sources.len());
        }
        self.sources.push(source);
    }

    /// Ends the last row.
    fn finish(mut self) -> Self {
        self.starts.push(self.sources.len());
        self
    }

    /// Returns the row indices.
    pub(crate) fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Returns the row indices, and drops the rest.
    pub(crate) fn into_indices(self) -> Vec<i64> {
        self.indices
    }

    /// Returns the plan for a backend, with where the addends are.
    pub(crate) fn addends<'a>(&'a self, row_len: usize, spans: &'a [Span<'a>]) -> RowAddends<'a> {
        let Self { starts, sources, full, .. } = self;
        RowAddends { row_len, starts, sources, full: *full, spans }
    }
}

//! [`RowPlan`]: which row of a result is the sum of which rows of some addends.
//!
//! It is made here, from row numbers alone; what a backend does is to add rows up. So the sum of several values,
//! the sum of rows with the same number and picking rows out are one kernel.

use crate::backend::{RowAddends, RowSource};
use crate::row_sparse::RowSparse;
use crate::storage::Span;

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
    pub(crate) fn union(values: &[&RowSparse]) -> Self {
        if let [only] = values {
            let mut rows = 0..;
            return Self::of_one_source(only.indices().to_vec(), 1, |_| rows.next());
        }
        let mut numbered = Vec::with_capacity(values.iter().map(|value| value.num_rows()).sum());
        for (addend, value) in values.iter().enumerate() {
            numbered.extend(value.indices().iter().map(|&index| (index, addend)));
        }
        // The rows of a value ascend, so each comes after the one before it.
        let mut num_rows = vec![0; values.len()];
        Self::by_number(numbered, values.len(), |addend| {
            let row = num_rows.get(addend).copied().unwrap_or_default();
            if let Some(num_rows) = num_rows.get_mut(addend) {
                *num_rows += 1;
            }
            RowSource { addend, row }
        })
    }

    /// Plans the sum of the rows that have the same number.
    pub(crate) fn of_ids(ids: &[i64]) -> Self {
        let numbered = ids.iter().copied().zip(0..).collect();
        Self::by_number(numbered, 0, |row| RowSource { addend: 0, row })
    }

    /// Plans to take rows out of a value: of each number the row that `row_of` gives, and 0 where it gives none.
    pub(crate) fn pick(indices: Vec<i64>, row_of: impl Fn(i64) -> Option<usize>) -> Self {
        Self::of_one_source(indices, 0, row_of)
    }

    /// Brings rows of the same number together, in the order in which they stand. With each number comes where it is
    /// from, of which `source_of` makes a source; it is called for one after the other in the order of the sources.
    fn by_number(
        mut numbered: Vec<(i64, usize)>,
        full: usize,
        mut source_of: impl FnMut(usize) -> RowSource,
    ) -> Self {
        // A stable sort keeps their order, and finds runs that ascend: it merges them.
        numbered.sort_by_key(|(index, _)| *index);
        let mut plan = Self::with_capacity(numbered.len(), full);
        plan.indices.reserve_exact(numbered.len());
        let mut last = None;
        for (index, origin) in numbered {
            if last != Some(index) {
                plan.indices.push(index);
                plan.starts.push(plan.sources.len());
                last = Some(index);
            }
            plan.sources.push(source_of(origin));
        }
        plan.starts.push(plan.sources.len());
        plan
    }

    fn of_one_source(
        indices: Vec<i64>,
        full: usize,
        mut row_of: impl FnMut(i64) -> Option<usize>,
    ) -> Self {
        let mut plan = Self::with_capacity(indices.len(), full);
        for &index in &indices {
            plan.starts.push(plan.sources.len());
            plan.sources.extend(row_of(index).map(|row| RowSource { addend: 0, row }));
        }
        plan.starts.push(plan.sources.len());
        Self { indices, ..plan }
    }

    fn with_capacity(num_rows: usize, full: usize) -> Self {
        Self {
            indices: Vec::new(),
            starts: Vec::with_capacity(num_rows + 1),
            sources: Vec::with_capacity(num_rows),
            full,
        }
    }

    /// Returns the numbers of the rows.
    pub(crate) fn indices(&self) -> &[i64] {
        &self.indices
    }

    /// Returns the plan for a backend, with where the addends are.
    pub(crate) fn addends<'a>(&'a self, row_len: usize, spans: &'a [Span<'a>]) -> RowAddends<'a> {
        let Self { starts, sources, full, .. } = self;
        RowAddends { row_len, starts, sources, full: *full, spans }
    }
}

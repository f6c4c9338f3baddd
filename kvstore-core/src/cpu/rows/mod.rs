//! Operations on row-sparse values: sums, conversion to dense values, and optimizer steps on rows.
//!
//! Threads divide the elements of the stored rows among themselves. A row may be split.

pub(super) mod rowwise;
mod scatter;
mod sum;
mod update;

use std::ops::Range;

use super::memory::bytes;
use super::sum::BLOCK;
use crate::backend::{RowAddends, RowSumJob, RowUpdateJob};
use crate::fallible;
use crate::types::{Error, Result};

/// A job that sums rows.
pub(super) trait RowJob<'a> {
    fn addends(&self) -> RowAddends<'a>;
}

impl<'a> RowJob<'a> for RowSumJob<'a> {
    fn addends(&self) -> RowAddends<'a> {
        self.addends
    }
}

impl<'a> RowJob<'a> for RowUpdateJob<'a> {
    fn addends(&self) -> RowAddends<'a> {
        self.addends
    }
}

/// A job with the bytes of its addends.
pub(super) struct WithRanges<'j, J> {
    job: &'j mut J,
    ranges: &'j [&'j [u8]],
}

/// Returns the bytes of the addends of all jobs.
///
/// The lists of a batch are complete before its first job runs: if memory is missing, no job has
/// changed a value.
pub(super) fn ranges<'a>(jobs: &[impl RowJob<'a>]) -> Result<Vec<&'a [u8]>> {
    let count = jobs.iter().map(|job| job.addends().spans.len()).sum();
    let mut ranges = fallible::with_capacity(count)?;
    for span in jobs.iter().flat_map(|job| job.addends().spans) {
        ranges.push(bytes(*span)?);
    }
    Ok(ranges)
}

/// Returns each job with its part of the `ranges` of all jobs.
pub(super) fn with_ranges<'j, 'a: 'j, J: RowJob<'a>>(
    jobs: &'j mut [J],
    mut ranges: &'j [&'a [u8]],
) -> Result<Vec<WithRanges<'j, J>>> {
    fallible::try_collect(jobs.iter_mut().map(|job| {
        let count = job.addends().spans.len();
        let (own, rest) = ranges.split_at_checked(count).ok_or_else(wrong_rows)?;
        ranges = rest;
        Ok(WithRanges { job, ranges: own })
    }))
}

/// A range of elements of one row, at most a block.
struct RowPart {
    row: usize,
    /// The position of the first element in the row.
    column: usize,
    /// The positions of the elements in the piece of work.
    range: Range<usize>,
}

/// Iterates over a range of elements row by row. The first and last row may be incomplete.
#[derive(Clone)]
struct RowParts {
    row: usize,
    column: usize,
    row_len: usize,
    rest: Range<usize>,
}

impl RowParts {
    /// Returns an iterator over `len` elements that start at element `start`.
    fn new(start: usize, len: usize, row_len: usize) -> Self {
        let row = start.checked_div(row_len).unwrap_or_default();
        Self { row, column: start - row * row_len, row_len, rest: 0..len }
    }
}

impl Iterator for RowParts {
    type Item = RowPart;

    #[inline]
    fn next(&mut self) -> Option<RowPart> {
        let count = BLOCK.min(self.rest.len()).min(self.row_len - self.column);
        let (row, column) = (self.row, self.column);
        let range = self.rest.start..self.rest.start + count;
        (self.rest.start, self.column) = (range.end, column + count);
        if self.column == self.row_len {
            (self.row, self.column) = (row + 1, 0);
        }
        (count > 0).then_some(RowPart { row, column, range })
    }
}

/// How many rows to prefetch before they are processed. The rows of a large value are far
/// apart in memory, and waiting for each of them in turn would dominate the run time.
const AHEAD: usize = 16;
/// The number of bytes to prefetch at the start of a row. The hardware prefetcher loads the rest.
const LONG_BYTES: usize = 512;
/// The size of a cache line. Reading one element loads the line.
const LINE_BYTES: usize = 64;

/// Prefetches the start of a row, so that the memory accesses of several rows overlap.
fn read_ahead<T: Copy>(part: &RowPart, elements: &[T]) {
    if part.column > 0 {
        return;
    }
    let elements = elements.iter().take(LONG_BYTES / size_of::<T>());
    for element in elements.step_by(LINE_BYTES / size_of::<T>()) {
        std::hint::black_box(*element);
    }
}

fn wrong_rows() -> Error {
    Error::Internal("row indices outside of their value".to_owned())
}

//! Rows: sums of them, whole values made of them, and steps of an optimizer on nothing else.
//!
//! What is cut for threads is the elements of the rows that are there, also within a row.

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
        let (of_job, rest) = ranges.split_at_checked(count).ok_or_else(wrong_rows)?;
        ranges = rest;
        Ok(WithRanges { job, ranges: of_job })
    }))
}

/// Some elements of a row, a block at most.
struct RowPart {
    row: usize,
    /// The first element, counted from where the row begins.
    column: usize,
    /// The elements, counted from where the piece of work begins.
    range: Range<usize>,
}

/// The rows of some elements, the first and the last one perhaps in part.
#[derive(Clone)]
struct RowParts {
    row: usize,
    column: usize,
    row_len: usize,
    rest: Range<usize>,
}

impl RowParts {
    /// Returns the rows of `len` elements from `start` on.
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

/// How many rows are read at once before they are worked on. Rows stand anywhere in a large value: waiting
/// for the memory of one after the other would be most of the time.
const AHEAD: usize = 16;
/// No more of a row is read ahead: processors see that it goes on and read the rest by themselves.
const LONG_BYTES: usize = 512;
/// A row is read by one element of each line of the cache.
const LINE_BYTES: usize = 64;

/// Reads where a row begins that is about to be needed, so that it comes while others do.
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
    Error::Internal("rows that do not lie within their value".to_owned())
}

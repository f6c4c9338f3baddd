//! Rows: sums of them, whole values made of them, and steps of an optimizer on nothing else.
//!
//! What is cut for threads is the elements of the rows that are there, also within a row.

mod scatter;
mod sum;
mod update;

use std::ops::Range;

use super::memory::bytes;
use super::sum::BLOCK;
use super::workers::{Job, Workers};
use crate::backend::{RowAddends, RowSumJob, RowUpdateJob};
use crate::error::{Error, Result};
use crate::fallible;

/// A job that adds up rows.
pub(super) trait AddsRows<'a> {
    fn addends(&self) -> RowAddends<'a>;
}

impl<'a> AddsRows<'a> for RowSumJob<'a> {
    fn addends(&self) -> RowAddends<'a> {
        self.addends
    }
}

impl<'a> AddsRows<'a> for RowUpdateJob<'a> {
    fn addends(&self) -> RowAddends<'a> {
        self.addends
    }
}

/// A job, with the bytes of its addends.
pub(super) struct Opened<'j, J> {
    job: &'j mut J,
    ranges: &'j [&'j [u8]],
}

/// Does every job. All memory that the jobs need is reserved before the first one changes a value.
pub(super) fn for_each_job<'a, J: AddsRows<'a>>(workers: &Workers, jobs: &mut [J]) -> Result<()>
where
    for<'j> Opened<'j, J>: Job,
{
    let num_ranges = jobs.iter().map(|job| job.addends().spans.len()).sum();
    let mut ranges = fallible::with_capacity(num_ranges)?;
    for span in jobs.iter().flat_map(|job| job.addends().spans) {
        ranges.push(bytes(*span)?);
    }
    let mut opened = fallible::with_capacity(jobs.len())?;
    let mut rest = ranges.as_slice();
    for job in jobs {
        let (ranges, after) = rest.split_at(job.addends().spans.len());
        rest = after;
        opened.push(Opened { job, ranges });
    }
    workers.for_each_job(&mut opened)
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

//! Finds the changes of tensors between two snapshots.

use std::ops::Range;

use crate::fallible;
use crate::rows::RowSparse;
use crate::tensor::Tensor;
use crate::types::Result;

/// The number of bytes to compare at once. A device whose memory the host cannot access copies as
/// many bytes.
const WINDOW: usize = if cfg!(miri) { 1 << 6 } else { 1 << 24 };
/// The number of bytes that are compared before single rows, because most rows are equal.
const BLOCK: usize = if cfg!(miri) { 1 << 4 } else { 1 << 12 };
/// The size of a row index in a file.
const INDEX_BYTES: usize = size_of::<i64>();

/// The difference between a tensor and the same tensor of the base.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The bits are the same.
    None,
    /// The rows at these ascending positions differ. Writing them takes fewer bytes than writing
    /// the complete tensor.
    Rows(Vec<i64>),
    /// The complete tensor must be written.
    All,
}

/// Compares a tensor with the one of the base. Does not read memory that they share.
///
/// # Errors
/// - The error of a device whose memory cannot be read.
/// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
pub(super) fn change_of(new: &Tensor, old: &Tensor) -> Result<Change> {
    if new.spec() != old.spec() {
        return Ok(Change::All);
    }
    if new.is_same(old) {
        return Ok(Change::None);
    }
    let num_rows = new.shape().num_rows();
    let row_bytes = new.num_bytes() / num_rows.max(1);
    if num_rows < 2 || row_bytes == 0 {
        return Ok(if new.is_identical(old)? { Change::None } else { Change::All });
    }
    let mut changed = Changed::new(new.num_bytes(), row_bytes);
    for rows in windows(num_rows, row_bytes) {
        let [left, right] = [new, old].map(|tensor| rows_of(tensor, &rows));
        let (left, right) = (left?, right?);
        let (left, right) = (left.seen_bytes()?, right.seen_bytes()?);
        let block_rows = (BLOCK / row_bytes).max(1);
        let blocks = left.chunks(block_rows * row_bytes).zip(right.chunks(block_rows * row_bytes));
        let first_rows = rows.clone().step_by(block_rows);
        for ((left, right), first) in
            blocks.zip(first_rows).filter(|((left, right), _)| left != right)
        {
            let pairs = left.chunks(row_bytes).zip(right.chunks(row_bytes)).zip(first..);
            for (_, row) in pairs.filter(|((left, right), _)| left != right) {
                if !changed.add(row)? {
                    return Ok(Change::All);
                }
            }
        }
    }
    Ok(changed.into())
}

/// Compares a row-sparse value with the one of the base. The positions of [`Change::Rows`] are
/// those of the stored rows, which differ or are not in the base.
///
/// # Errors
/// - The errors of [`change_of`].
pub(super) fn change_of_rows(new: &RowSparse, old: &RowSparse) -> Result<Change> {
    if new.is_same(old) {
        return Ok(Change::None);
    }
    // A delta cannot express that a row is no longer stored.
    if new.spec() != old.spec() || !is_subset(old.indices(), new.indices()) {
        return Ok(Change::All);
    }
    if new.rows().is_same(old.rows()) {
        return Ok(Change::None);
    }
    let row_bytes = new.rows().num_bytes() / new.num_rows().max(1);
    let mut changed = Changed::new(new.num_bytes(), row_bytes);
    let mut old_position = 0;
    for rows in windows(new.num_rows(), row_bytes) {
        let indices = new.indices().get(rows.clone()).unwrap_or_default();
        let old_indices = old.indices().get(old_position..).unwrap_or_default();
        let num_old = indices.last().map_or(0, |last| old_indices.partition_point(|i| i <= last));
        let old_rows = old_position..old_position + num_old;
        let [left, right] =
            [(new, &rows), (old, &old_rows)].map(|(value, rows)| rows_of(value.rows(), rows));
        let (left, right) = (left?, right?);
        let (left, right) = (left.seen_bytes()?, right.seen_bytes()?);
        let mut old_rows = old_indices.iter().zip(right.chunks(row_bytes.max(1))).peekable();
        let new_rows = indices.iter().zip(left.chunks(row_bytes.max(1))).zip(rows);
        for (row, position) in new_rows {
            let is_equal =
                old_rows.next_if(|(index, _)| *index == row.0).is_some_and(|old| old == row);
            if !is_equal && !changed.add(position)? {
                return Ok(Change::All);
            }
        }
        old_position += num_old;
    }
    Ok(changed.into())
}

/// Changed rows, up to the number whose file would be as large as the complete tensor.
struct Changed {
    positions: Vec<i64>,
    max_rows: usize,
}

impl Changed {
    fn new(num_bytes: usize, row_bytes: usize) -> Self {
        Self { positions: Vec::new(), max_rows: num_bytes.div_ceil(row_bytes + INDEX_BYTES) }
    }

    /// Adds a row. Returns `false` if there are too many.
    fn add(&mut self, position: usize) -> Result<bool> {
        let Some(position) = i64::try_from(position).ok() else { return Ok(false) };
        fallible::push(&mut self.positions, position)?;
        Ok(self.positions.len() < self.max_rows)
    }
}

impl From<Changed> for Change {
    fn from(changed: Changed) -> Self {
        if changed.positions.is_empty() { Self::None } else { Self::Rows(changed.positions) }
    }
}

/// Splits rows into ranges of about [`WINDOW`] bytes.
fn windows(num_rows: usize, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let window = (WINDOW / row_bytes.max(1)).max(1);
    (0..num_rows).step_by(window).map(move |first| first..num_rows.min(first + window))
}

fn rows_of(tensor: &Tensor, rows: &Range<usize>) -> Result<Tensor> {
    let first_element = rows.start * tensor.shape().row().num_elements();
    tensor.view(first_element, tensor.shape().with_num_rows(rows.len()))
}

/// Returns whether all numbers of an ascending list are in another one.
fn is_subset(part: &[i64], all: &[i64]) -> bool {
    if std::ptr::eq(part, all) {
        return true;
    }
    let mut all = all.iter();
    part.iter().all(|number| all.any(|other| other == number))
}

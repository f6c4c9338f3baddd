//! Converts row-sparse values to dense values: copies the stored rows and writes 0 between them.

use super::wrong_rows;
use crate::backend::RowScatterJob;
use crate::cpu::memory::{bytes, bytes_mut};
use crate::cpu::threads::{Job, Split};
use crate::types::Result;

impl Job for RowScatterJob<'_> {
    type Piece<'j>
        = Scattered<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.dst.num_bytes / self.dtype.size()
    }

    fn open(&mut self) -> Result<Scattered<'_>> {
        Ok(Scattered {
            size: self.dtype.size(),
            row_len: self.row_len,
            indices: self.ids.indices(),
            rows: bytes(self.rows)?,
            dst: bytes_mut(self.dst.reborrow())?,
            start: 0,
        })
    }

    fn run(piece: Scattered<'_>) -> Result<()> {
        piece.run()
    }
}

/// A range of elements of a dense value, as bytes. In every dtype, 0 is represented by zero bytes.
pub(in crate::cpu) struct Scattered<'a> {
    size: usize,
    row_len: usize,
    indices: &'a [i64],
    rows: &'a [u8],
    dst: &'a mut [u8],
    start: usize,
}

impl Split for Scattered<'_> {
    fn len(&self) -> usize {
        self.dst.len() / self.size
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left, right) = self.dst.split_at_mut(middle * self.size);
        let start = self.start + middle;
        (Self { dst: left, ..self }, Self { dst: right, start, ..self })
    }
}

impl Scattered<'_> {
    fn run(self) -> Result<()> {
        let (first, end) = (self.start, self.start + self.len());
        // The number of bytes that are written.
        let mut done = 0;
        let place = |index: i64| Some(usize::try_from(index).ok()? * self.row_len);
        // Skip the rows that end before the piece.
        let from = self.indices.partition_point(|&index| {
            place(index).is_some_and(|start| start + self.row_len <= first)
        });
        for (row, &index) in self.indices.iter().enumerate().skip(from) {
            let start = place(index).ok_or_else(wrong_rows)?;
            if start >= end {
                break;
            }
            // The part of the row that is in the piece, in elements of the dense value.
            let (low, high) = (start.max(first), end.min(start + self.row_len));
            let source = row * self.row_len + (low - start);
            let source = source * self.size..(source + high - low) * self.size;
            let (low, high) = ((low - first) * self.size, (high - first) * self.size);
            self.dst.get_mut(done..low).ok_or_else(wrong_rows)?.fill(0);
            let dst = self.dst.get_mut(low..high).ok_or_else(wrong_rows)?;
            dst.copy_from_slice(self.rows.get(source).ok_or_else(wrong_rows)?);
            done = high;
        }
        self.dst.get_mut(done..).unwrap_or_default().fill(0);
        Ok(())
    }
}

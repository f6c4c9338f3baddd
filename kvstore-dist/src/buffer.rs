//! [`Buffer`] and [`Slices`]: bytes that are given away while they travel.
//!
//! A library that moves bytes in the background goes on doing so when nobody wants to wait any longer. So a buffer is
//! owned, not borrowed: a call takes it, and one that fails may keep it for ever.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

/// Bytes that a collective owns while it moves them. They begin at a multiple of 8, so that numbers may lie in them.
#[derive(Clone, Default)]
pub struct Buffer {
    /// More than are used, where there were more before.
    words: Vec<u64>,
    num_bytes: usize,
}

impl Buffer {
    /// Returns so many zeros.
    pub fn zeroed(num_bytes: usize) -> Self {
        Self { words: vec![0; num_words(num_bytes)], num_bytes }
    }

    /// Changes how many bytes there are. Memory is kept for later, and bytes that are new have any value.
    pub fn resize(&mut self, num_bytes: usize) {
        // Shrinking would have to be paid for with zeros at the next growth.
        if self.words.len() < num_words(num_bytes) {
            self.words.resize(num_words(num_bytes), 0);
        }
        self.num_bytes = num_bytes;
    }
}

fn num_words(num_bytes: usize) -> usize {
    num_bytes.div_ceil(size_of::<u64>())
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.num_bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.num_bytes]
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer[{} bytes]", self.num_bytes)
    }
}

/// A buffer with a slice for each rank, one behind the other. Slices may be empty, and of different lengths.
///
/// ```
/// let mut slices = kvstore_dist::Slices::zeroed(&[1, 0, 2]);
/// slices.slice_mut(2).copy_from_slice(&[5, 6]);
/// assert_eq!((slices.whole(), slices.range(2)), (&[0, 5, 6][..], 1..3));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Slices {
    buffer: Buffer,
    ends: Vec<usize>,
}

impl Slices {
    /// Returns slices of so many zeros each.
    pub fn zeroed(counts: &[usize]) -> Self {
        let mut slices = Self::default();
        slices.recount(counts);
        slices
    }

    /// Cuts the memory anew. The bytes are those that are there, or any.
    pub fn recount(&mut self, counts: &[usize]) {
        self.ends.clear();
        let end = |end: &mut usize, count: &usize| {
            *end += count;
            Some(*end)
        };
        self.ends.extend(counts.iter().scan(0, end));
        self.buffer.resize(self.ends.last().copied().unwrap_or_default());
    }

    /// Returns how many slices there are: none after a call that has failed.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no slice.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns where the slice of a rank lies in the whole.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn range(&self, rank: usize) -> Range<usize> {
        Self::range_of(&self.ends, rank)
    }

    /// Returns where the slice of a rank lies that ends there.
    pub(crate) fn range_of(ends: &[usize], rank: usize) -> Range<usize> {
        rank.checked_sub(1).map_or(0, |previous| ends[previous])..ends[rank]
    }

    /// Returns the slice of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn slice(&self, rank: usize) -> &[u8] {
        &self.buffer[self.range(rank)]
    }

    /// Returns the slice of a rank, to be written.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn slice_mut(&mut self, rank: usize) -> &mut [u8] {
        let range = self.range(rank);
        &mut self.buffer[range]
    }

    /// Returns the slices in the order of ranks, to be written.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest = &mut *self.buffer;
        let mut begin = 0;
        self.ends.iter().map(move |end| {
            let slice;
            (slice, rest) = std::mem::take(&mut rest).split_at_mut(end - begin);
            begin = *end;
            slice
        })
    }

    /// Returns all slices as one.
    pub fn whole(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns all slices as one, to be written.
    pub fn whole_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Returns the buffer, for somebody who keeps it, and how it is cut.
    pub(crate) fn into_parts(self) -> (Buffer, Vec<usize>) {
        (self.buffer, self.ends)
    }

    /// Puts together what [`Slices::into_parts`] took apart.
    pub(crate) fn from_parts((buffer, ends): (Buffer, Vec<usize>)) -> Self {
        Self { buffer, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_one_behind_the_other() {
        let mut slices = Slices::zeroed(&[3, 0, 6]);
        slices.slice_mut(0).fill(1);
        slices.slice_mut(2).fill(3);
        assert_eq!(slices.whole(), [1, 1, 1, 3, 3, 3, 3, 3, 3]);
        assert_eq!((slices.len(), slices.range(1)), (3, 3..3));
        slices.recount(&[1]);
        assert_eq!(slices.whole(), [1]);
        slices.recount(&[2, 7]);
        assert_eq!(slices.whole(), [1, 1, 1, 3, 3, 3, 3, 3, 3]);
        assert_eq!(slices.slice(1).len(), 7);
    }

    #[test]
    fn numbers_may_lie_in_a_buffer() {
        for num_bytes in [0, 1, 7, 8, 4096] {
            let buffer = Buffer::zeroed(num_bytes);
            assert_eq!(buffer.len(), num_bytes);
            assert_eq!(buffer.as_ptr().align_offset(8), 0);
        }
    }
}

//! [`Buffer`] and [`Slices`]: bytes that are given away while they travel; and [`SharedSlices`], which are only read.
//!
//! A library that moves bytes in the background goes on doing so when nobody wants to wait any longer. So a buffer is
//! owned, not borrowed: a call takes it, and one that fails may keep it for ever.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use kvstore_core::{Error, Result, Tensor, fallible};

/// Bytes that a collective owns while it moves them. They begin at a multiple of 8, so that numbers may lie in them, or
/// are those of a tensor, so that nothing has to be copied behind or before the journey.
#[derive(Clone)]
pub struct Buffer {
    memory: Memory,
    num_bytes: usize,
}

#[derive(Clone)]
enum Memory {
    /// More than are used, where there were more before.
    Words(Vec<u64>),
    Elements(Tensor),
}

impl Buffer {
    /// Returns so many zeros.
    ///
    /// # Panics
    /// If memory is missing. [`Buffer::resize`] returns an error instead.
    pub fn zeroed(num_bytes: usize) -> Self {
        #[expect(clippy::expect_used, reason = "only for a few bytes")]
        let words = fallible::zeroed(num_words(num_bytes)).expect("memory for a few bytes");
        Self { memory: Memory::Words(words), num_bytes }
    }

    /// Returns the elements of a tensor. Where somebody else has them too, a change of the buffer makes other ones.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the host does not see them.
    pub fn of_tensor(tensor: Tensor) -> Result<Self> {
        let num_bytes = tensor.host_bytes()?.len();
        Ok(Self { memory: Memory::Elements(tensor), num_bytes })
    }

    /// Returns the tensor whose elements they are, if there is one.
    pub fn into_tensor(self) -> Option<Tensor> {
        match self.memory {
            Memory::Words(_) => None,
            Memory::Elements(tensor) => Some(tensor),
        }
    }

    /// Changes how many bytes there are. Memory is kept for later, unless it is a tensor's, and bytes that are new have
    /// any value.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. The buffer is then unchanged, or empty if it held a tensor.
    pub fn resize(&mut self, num_bytes: usize) -> Result<()> {
        if let Memory::Elements(_) = self.memory {
            *self = Self::default();
        }
        // Shrinking would have to be paid for with zeros at the next growth.
        if let Memory::Words(words) = &mut self.memory
            && words.len() < num_words(num_bytes)
        {
            let more = num_words(num_bytes) - words.len();
            if words.is_empty() {
                // New memory of the system is zero already.
                *words = fallible::zeroed(more)?;
            } else {
                fallible::reserve(words, more)?;
                words.extend(std::iter::repeat_n(0, more));
            }
        }
        self.num_bytes = num_bytes;
        Ok(())
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

fn num_words(num_bytes: usize) -> usize {
    num_bytes.div_ceil(size_of::<u64>())
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Words(words) => &bytemuck::cast_slice(words)[..self.num_bytes],
            Memory::Elements(tensor) => tensor.host_bytes().unwrap_or_default(),
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Words(words) => &mut bytemuck::cast_slice_mut(words)[..self.num_bytes],
            Memory::Elements(tensor) => tensor.host_bytes_mut().unwrap_or_default(),
        }
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
/// assert_eq!((slices.bytes(), slices.range(2)), (&[0, 5, 6][..], 1..3));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Slices {
    buffer: Buffer,
    ends: Vec<usize>,
}

impl Slices {
    /// Returns slices of so many zeros each.
    ///
    /// # Panics
    /// If memory is missing. [`Slices::with_counts`] returns an error instead.
    pub fn zeroed(counts: &[usize]) -> Self {
        let ends = ends(counts);
        Self { buffer: Buffer::zeroed(ends.last().copied().unwrap_or_default()), ends }
    }

    /// Cuts the memory anew. The bytes are those that are there, or any.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the slices are as before.
    pub fn recount(&mut self, counts: &[usize]) -> Result<()> {
        let ends = ends(counts);
        self.buffer.resize(ends.last().copied().unwrap_or_default())?;
        self.ends = ends;
        Ok(())
    }

    /// Returns slices of these lengths, with unspecified contents.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn with_counts(counts: &[usize]) -> Result<Self> {
        let mut slices = Self::default();
        slices.recount(counts)?;
        Ok(slices)
    }

    /// Returns the elements of a tensor as slices of so many bytes each.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when it has another number of bytes, and as [`Buffer::of_tensor`].
    pub fn of_tensor(tensor: Tensor, counts: &[usize]) -> Result<Self> {
        let buffer = Buffer::of_tensor(tensor)?;
        let (expected, ends) = (counts.iter().sum(), ends(counts));
        if buffer.len() != expected {
            let what = "slices of a tensor: bytes".to_owned();
            return Err(Error::LengthMismatch { what, expected, found: buffer.len() });
        }
        Ok(Self { buffer, ends })
    }

    /// Returns the tensor whose elements they are, if there is one.
    pub fn into_tensor(self) -> Option<Tensor> {
        self.buffer.into_tensor()
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
    pub fn range_of(ends: &[usize], rank: usize) -> Range<usize> {
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
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns all slices as one, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Returns the buffer, for somebody who keeps it, and how it is cut.
    pub fn into_parts(self) -> (Buffer, Vec<usize>) {
        (self.buffer, self.ends)
    }

    /// Puts together what [`Slices::into_parts`] took apart.
    pub fn from_parts((buffer, ends): (Buffer, Vec<usize>)) -> Self {
        Self { buffer, ends }
    }
}

/// Returns where slices of so many bytes end that lie one behind the other.
fn ends(counts: &[usize]) -> Vec<usize> {
    let end = |end: &mut usize, count: &usize| {
        *end += count;
        Some(*end)
    };
    counts.iter().scan(0, end).collect()
}

/// Bytes that are sent, of which each rank gets a slice. They are shared and only read, however long that takes; slices may
/// overlap.
#[derive(Clone, Debug)]
pub struct SharedSlices {
    buffer: Arc<Buffer>,
    ranges: Vec<Range<usize>>,
}

impl SharedSlices {
    /// Returns a slice for each rank, in the order of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a slice that does not lie in the buffer.
    pub fn new(buffer: Arc<Buffer>, ranges: Vec<Range<usize>>) -> Result<Self> {
        let len = buffer.len();
        match ranges.iter().find(|range| range.start > range.end || range.end > len) {
            Some(range) => Err(Error::invalid(format!("slice {range:?} of {len} bytes"))),
            None => Ok(Self { buffer, ranges }),
        }
    }

    /// Returns how many slices there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there is no slice.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns where the slice of a rank lies in the buffer.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn range(&self, rank: usize) -> Range<usize> {
        self.ranges[rank].clone()
    }

    /// Returns the slice of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn slice(&self, rank: usize) -> &[u8] {
        &self.buffer[self.range(rank)]
    }

    /// Returns the buffer in which they lie.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }
}

impl From<Slices> for SharedSlices {
    fn from(slices: Slices) -> Self {
        let ranges = (0..slices.len()).map(|rank| slices.range(rank)).collect();
        Self { buffer: Arc::new(slices.buffer), ranges }
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
        assert_eq!(slices.bytes(), [1, 1, 1, 3, 3, 3, 3, 3, 3]);
        assert_eq!((slices.len(), slices.range(1)), (3, 3..3));
        slices.recount(&[1]).unwrap();
        assert_eq!(slices.bytes(), [1]);
        slices.recount(&[2, 7]).unwrap();
        assert_eq!(slices.bytes(), [1, 1, 1, 3, 3, 3, 3, 3, 3]);
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

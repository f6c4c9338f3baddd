//! The bytes of a call: [`Buffer`] and [`Slices`] for sending and receiving, and [`SharedSlices`]
//! for sending.
//!
//! A library that moves bytes in the background does not stop when a deadline passes. So a call
//! takes ownership of its buffers instead of borrowing them. A failed call may keep a buffer
//! forever.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use kvstore_core::{Error, Result, Tensor, fallible};

/// Bytes that a call of a collective owns while it runs.
///
/// The bytes are aligned to 8, so that they can contain numbers. Or they are the elements of a
/// tensor, so that sending and receiving the tensor needs no copy.
#[derive(Clone)]
pub struct Buffer {
    memory: Memory,
    num_bytes: usize,
}

#[derive(Clone)]
enum Memory {
    /// May be longer than the buffer, after the buffer has been shortened.
    Words(Vec<u64>),
    Elements(Tensor),
}

impl Buffer {
    /// Returns a buffer of zeros.
    ///
    /// # Panics
    /// - If there is not enough memory. [`Buffer::resize`] returns an error instead.
    pub fn zeroed(num_bytes: usize) -> Self {
        #[expect(clippy::expect_used, reason = "only for a few bytes")]
        let words = fallible::zeroed(num_words(num_bytes)).expect("memory for a few bytes");
        Self { memory: Memory::Words(words), num_bytes }
    }

    /// Returns the elements of a tensor as a buffer. If the tensor shares its memory, the first
    /// write to the buffer copies the elements.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the host cannot access the tensor's memory.
    pub fn of_tensor(tensor: Tensor) -> Result<Self> {
        let num_bytes = tensor.host_bytes()?.len();
        Ok(Self { memory: Memory::Elements(tensor), num_bytes })
    }

    /// Returns the tensor of a buffer from [`Buffer::of_tensor`], or `None` for other buffers.
    pub fn into_tensor(self) -> Option<Tensor> {
        match self.memory {
            Memory::Words(_) => None,
            Memory::Elements(tensor) => Some(tensor),
        }
    }

    /// Changes the number of bytes. New bytes have unspecified values. Keeps the memory when the
    /// buffer becomes shorter. Releases the memory of a tensor.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory. The buffer is then unchanged, or
    ///   empty if it held a tensor.
    pub fn resize(&mut self, num_bytes: usize) -> Result<()> {
        if let Memory::Elements(_) = self.memory {
            *self = Self::default();
        }
        // Never shrinks the vector, because growing it again would write zeros.
        if let Memory::Words(words) = &mut self.memory
            && words.len() < num_words(num_bytes)
        {
            let more = num_words(num_bytes) - words.len();
            if words.is_empty() {
                // New memory from the system is already zero.
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

/// A buffer with one slice per rank, in the order of ranks. Slices may be empty, and may differ in
/// length.
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
    /// Returns slices of zeros with these lengths.
    ///
    /// # Panics
    /// - If there is not enough memory. [`Slices::with_counts`] returns an error instead.
    pub fn zeroed(counts: &[usize]) -> Self {
        let ends = ends(counts);
        Self { buffer: Buffer::zeroed(ends.last().copied().unwrap_or_default()), ends }
    }

    /// Changes the number of slices and their lengths. The contents are unspecified.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory. There are no slices then.
    pub fn recount(&mut self, counts: &[usize]) -> Result<()> {
        self.ends = Vec::new();
        let ends = ends(counts);
        self.buffer.resize(ends.last().copied().unwrap_or_default())?;
        self.ends = ends;
        Ok(())
    }

    /// Returns slices of these lengths, with unspecified contents.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub fn with_counts(counts: &[usize]) -> Result<Self> {
        let mut slices = Self::default();
        slices.recount(counts)?;
        Ok(slices)
    }

    /// Returns the elements of a tensor as slices of these lengths in bytes.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`] if the lengths do not add up to the size of the tensor.
    /// - The errors of [`Buffer::of_tensor`].
    pub fn of_tensor(tensor: Tensor, counts: &[usize]) -> Result<Self> {
        let buffer = Buffer::of_tensor(tensor)?;
        let (expected, ends) = (counts.iter().sum(), ends(counts));
        if buffer.len() != expected {
            let what = "slices of a tensor: bytes".to_owned();
            return Err(Error::LengthMismatch { what, expected, found: buffer.len() });
        }
        Ok(Self { buffer, ends })
    }

    /// Returns the tensor of slices from [`Slices::of_tensor`], or `None` for other slices.
    pub fn into_tensor(self) -> Option<Tensor> {
        self.buffer.into_tensor()
    }

    /// Returns the number of slices. It may be 0 after a failed call.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no slices.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the range of a rank's slice within the buffer.
    ///
    /// # Panics
    /// - If there is no slice for the rank.
    pub fn range(&self, rank: usize) -> Range<usize> {
        Self::range_of(&self.ends, rank)
    }

    /// Returns the range of a rank's slice within the buffer, given the ends of all slices.
    ///
    /// # Panics
    /// - If there is no end for the rank.
    pub fn range_of(ends: &[usize], rank: usize) -> Range<usize> {
        rank.checked_sub(1).map_or(0, |previous| ends[previous])..ends[rank]
    }

    /// Returns the slice of a rank.
    ///
    /// # Panics
    /// - If there is no slice for the rank.
    pub fn slice(&self, rank: usize) -> &[u8] {
        &self.buffer[self.range(rank)]
    }

    /// Returns the slice of a rank, for writing.
    ///
    /// # Panics
    /// - If there is no slice for the rank.
    pub fn slice_mut(&mut self, rank: usize) -> &mut [u8] {
        let range = self.range(rank);
        &mut self.buffer[range]
    }

    /// Returns the slices in the order of ranks, for writing.
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

    /// Returns the bytes of all slices.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the bytes of all slices, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Returns the buffer and the end of each slice.
    pub fn into_parts(self) -> (Buffer, Vec<usize>) {
        (self.buffer, self.ends)
    }

    /// Returns the slices that [`Slices::into_parts`] was called on.
    pub fn from_parts((buffer, ends): (Buffer, Vec<usize>)) -> Self {
        Self { buffer, ends }
    }
}

/// Returns the end of each slice, given the lengths of consecutive slices.
fn ends(counts: &[usize]) -> Vec<usize> {
    let end = |end: &mut usize, count: &usize| {
        *end += count;
        Some(*end)
    };
    counts.iter().scan(0, end).collect()
}

/// Bytes to send: a slice for each rank of a shared, read-only buffer. Slices may overlap.
#[derive(Clone, Debug)]
pub struct SharedSlices {
    buffer: Arc<Buffer>,
    ranges: Vec<Range<usize>>,
}

impl SharedSlices {
    /// Returns a slice for each rank, in the order of ranks.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a range is not within the buffer.
    pub fn new(buffer: Arc<Buffer>, ranges: Vec<Range<usize>>) -> Result<Self> {
        let len = buffer.len();
        match ranges.iter().find(|range| range.start > range.end || range.end > len) {
            Some(range) => Err(Error::invalid(format!("slice {range:?} of {len} bytes"))),
            None => Ok(Self { buffer, ranges }),
        }
    }

    /// Returns the number of slices.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no slices.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the range of a rank's slice within the buffer.
    ///
    /// # Panics
    /// - If there is no slice for the rank.
    pub fn range(&self, rank: usize) -> Range<usize> {
        self.ranges[rank].clone()
    }

    /// Returns the slice of a rank.
    ///
    /// # Panics
    /// - If there is no slice for the rank.
    pub fn slice(&self, rank: usize) -> &[u8] {
        &self.buffer[self.range(rank)]
    }

    /// Returns the buffer of all slices.
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
    fn slices_are_adjacent() {
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
    fn buffers_are_aligned_for_numbers() {
        for num_bytes in [0, 1, 7, 8, 4096] {
            let buffer = Buffer::zeroed(num_bytes);
            assert_eq!(buffer.len(), num_bytes);
            assert_eq!(buffer.as_ptr().align_offset(8), 0);
        }
    }
}

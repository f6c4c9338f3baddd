//! Values on the GPU. They are random, because a GPU computes faster on zeros.

use std::borrow::Cow;
use std::cell::Cell;

use kvstore::{DType, Device, NDArray, Result, TensorSpec, from_bytes, random};

/// The device of all values.
pub(crate) const CARD: Device = Device::gpu(0);

/// The sizes of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The bytes that a call reads and writes together. At least 256 MiB for meaningful times.
    pub(crate) set_bytes: usize,
    /// The number of sets of this size. With several sets in turn, no cache helps.
    pub(crate) sets: usize,
    /// The bytes of the copy that all cases are compared with.
    pub(crate) copy_bytes: usize,
    /// The number of rows of the embedding.
    pub(crate) rows: usize,
    /// The number of small keys in a call.
    pub(crate) keys: usize,
}

impl Sizes {
    pub(crate) const FULL: Self =
        Self { set_bytes: 512 << 20, sets: 3, copy_bytes: 1 << 30, rows: 1 << 20, keys: 4096 };
    /// Sizes for a functional test.
    pub(crate) const SMALL: Self =
        Self { set_bytes: 192 << 10, sets: 3, copy_bytes: 1 << 20, rows: 1 << 10, keys: 64 };

    /// Returns the number of elements of a value, if a set has this number of bytes per element.
    pub(crate) fn len(&self, bytes_per_element: usize) -> usize {
        (self.set_bytes / bytes_per_element).next_multiple_of(1024)
    }
}

/// Random bytes on the host, the contents of values.
#[derive(Debug)]
pub(crate) struct Random {
    /// The same numbers in each dtype.
    of_dtypes: Vec<(DType, Vec<u8>)>,
    next: Cell<usize>,
}

impl Random {
    /// Returns enough numbers for the largest value.
    pub(crate) fn new(sizes: &Sizes) -> Result<Self> {
        random::seed(1);
        let len = sizes.set_bytes / 5;
        let numbers = random::uniform(-1.0, 1.0, [len], DType::F32, Device::cpu(0))?;
        let of_dtype = |dtype| Ok((dtype, numbers.as_type(dtype)?.to_bytes()?));
        let dtypes = [DType::F32, DType::F16, DType::Bf16];
        let of_dtypes = dtypes.into_iter().map(of_dtype).collect::<Result<_>>()?;
        Ok(Self { of_dtypes, next: Cell::new(0) })
    }

    /// Returns some of the bytes, other ones at each call. Repeats the bytes if there are too few.
    pub(crate) fn bytes(&self, dtype: DType, num_bytes: usize) -> Cow<'_, [u8]> {
        let of_dtype = self.of_dtypes.iter().find(|(found, _)| *found == dtype);
        let bytes = of_dtype.map_or(&[][..], |(_, bytes)| bytes);
        let room = bytes.len().saturating_sub(num_bytes) / 256 + 1;
        let start = self.next.get() % room * 256;
        // Far away, and not at the same place again soon.
        self.next.set(self.next.get() + 7919);
        if let Some(bytes) = bytes.get(start..start + num_bytes) {
            return bytes.into();
        }
        let mut longer = bytes.repeat(num_bytes / bytes.len().max(1) + 1);
        longer.truncate(num_bytes);
        longer.into()
    }

    /// Returns an array on the GPU.
    pub(crate) fn array(&self, len: usize, dtype: DType) -> Result<NDArray> {
        self.shaped(&[len], dtype)
    }

    /// Returns an array of this shape on the GPU.
    pub(crate) fn shaped(&self, shape: &[usize], dtype: DType) -> Result<NDArray> {
        let num_bytes = shape.iter().product::<usize>() * dtype.size();
        from_bytes(&self.bytes(dtype, num_bytes), TensorSpec::new(shape, dtype), CARD)
    }
}

/// A sequence of pseudo-random numbers. `peers.py` has the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence(u64);

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let (factor, addend) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(factor).wrapping_add(addend);
        usize::try_from(self.0 >> 33).unwrap_or_default() % end
    }
}

/// Returns the lengths of small keys, from 64 to 131071 elements. Small and large lengths are
/// equally frequent on a logarithmic scale.
pub(crate) fn small_lengths(count: usize) -> Vec<usize> {
    let mut sequence = Sequence::new(1);
    let mut length = || {
        let least = 64 << sequence.below(11);
        least + sequence.below(least)
    };
    (0..count).map(|_| length()).collect()
}

#[cfg(test)]
mod tests {
    use super::small_lengths;

    #[test]
    fn small_keys_equal_the_keys_of_the_peers() {
        assert_eq!(small_lengths(4), [217, 1766, 499, 1270]);
        assert_eq!(small_lengths(4096).iter().sum::<usize>(), 71_768_495);
    }
}

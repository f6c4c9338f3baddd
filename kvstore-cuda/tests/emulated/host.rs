//! The backend of the host, whose bits are expected, and bytes to give to both.

use std::sync::{Arc, OnceLock};

use kvstore_core::storage::{Span, SpanMut, Storage};
use kvstore_core::{Backend, Backends, CpuBackend, DType, Device, Tensor, TensorSpec};

/// Bytes that look random; a third of the half-precision ones are no numbers, zeros, or the largest.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        let word = next();
        bytes.extend(match word[0] % 12 {
            0 => [0; 8],
            1 => [0xff; 8],
            2 => [0, 0x7c, 0xff, 0x7b, 1, 0, 0x80, 0x3f],
            3 => [0x80, 0x7f, 0x80, 0xff, 0x7f, 0x7f, 1, 0x80],
            _ => word,
        });
    }
    bytes.truncate(len);
    bytes
}

/// Returns the backend of the host.
fn backends() -> &'static Backends {
    static HOST: OnceLock<Backends> = OnceLock::new();
    HOST.get_or_init(|| Backends::new(vec![CpuBackend::new()]))
}

/// Checks that both are the same bits; any that are no number are equal.
pub(crate) fn assert_same(dtype: DType, expected: &[u8], found: &[u8]) {
    let is_nan = |element: &[u8]| {
        let spec = TensorSpec::new([1], dtype);
        let tensor = Tensor::from_bytes(backends(), Device::cpu(0), spec, element).unwrap();
        dtype.is_float() && tensor.read_as::<f64>().unwrap()[0].is_nan()
    };
    let elements = expected.chunks(dtype.size()).zip(found.chunks(dtype.size()));
    for (index, (expected, found)) in elements.enumerate() {
        assert!(
            expected == found || (is_nan(expected) && is_nan(found)),
            "{dtype}, element {index}: expected {expected:02x?}, found {found:02x?}"
        );
    }
}

/// Returns the backend.
pub(crate) fn backend() -> &'static dyn Backend {
    &**backends().of(Device::cpu(0)).unwrap()
}

/// Some of its memory.
pub(crate) struct Block {
    storage: Arc<dyn Storage>,
    num_bytes: usize,
}

impl Block {
    pub(crate) fn new(content: &[u8]) -> Self {
        let storage = backend().allocate(Device::cpu(0), content.len()).unwrap();
        let mut block = Self { storage, num_bytes: content.len() };
        backend().write(block.span_mut(), content).unwrap();
        block
    }

    pub(crate) fn span(&self) -> Span<'_> {
        Span { storage: &*self.storage, start: 0, num_bytes: self.num_bytes }
    }

    pub(crate) fn span_mut(&mut self) -> SpanMut<'_> {
        let num_bytes = self.num_bytes;
        SpanMut { storage: Arc::get_mut(&mut self.storage).unwrap(), start: 0, num_bytes }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.num_bytes];
        backend().read(self.span(), &mut content).unwrap();
        content
    }
}

/// Returns numbers of a float type in [-2, 2], some of them 0.
pub(crate) fn numbers(dtype: DType, len: usize, seed: u64) -> Vec<u8> {
    let words = bytes(8 * len, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let numbers: Vec<f64> = words
        .chunks_exact(8)
        .map(|word| {
            f64::from(i32::from_le_bytes(*word.first_chunk().unwrap())) / f64::from(1 << 30)
        })
        .collect();
    let wide = Tensor::from_slice(backends(), Device::cpu(0), [len], &numbers).unwrap();
    wide.cast(dtype).unwrap().to_bytes().unwrap()
}

/// Returns the bytes of a number.
pub(crate) fn number(dtype: DType, number: f64) -> Vec<u8> {
    let wide = Tensor::from_slice(backends(), Device::cpu(0), [1], &[number]).unwrap();
    wide.cast(dtype).unwrap().to_bytes().unwrap()
}

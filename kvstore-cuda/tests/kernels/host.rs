//! The host's backend, which gives the expected bits, and test data.

use std::sync::{Arc, OnceLock};

use kvstore_core::storage::{Span, SpanMut, Storage};
use kvstore_core::{Backend, Backends, CpuBackend, DType, Device, Tensor, TensorSpec};
use proptest::prelude::*;

/// Returns pseudorandom bytes. A third of the half-precision elements are NaN, 0 or the largest
/// number.
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

/// Returns lengths: short ones, long ones, and ones around the ends of tiles. For every dtype and
/// kernel, the ends of tiles are multiples of 512 elements.
pub(crate) fn lengths() -> impl Strategy<Value = usize> {
    let around = (1_usize..21, 0_usize..7).prop_map(|(tiles, beyond)| 512 * tiles + beyond - 3);
    prop_oneof![0_usize..40, around, 4000_usize..12_000]
}

/// Returns the floating-point dtypes, which optimizers support.
pub(crate) fn floats() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_float())
}

/// Returns the integer dtypes.
pub(crate) fn integers() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| !dtype.is_float())
}

/// Returns the dtypes that are computed in `f32` and rounded.
pub(crate) fn halves() -> impl Iterator<Item = DType> {
    floats().filter(|dtype| dtype.arithmetic() != Some(*dtype))
}

/// Returns the host's backend.
fn backends() -> &'static Backends {
    static HOST: OnceLock<Backends> = OnceLock::new();
    HOST.get_or_init(|| Backends::new(vec![CpuBackend::new()]))
}

/// Returns the elements as numbers.
pub(crate) fn doubles(dtype: DType, elements: &[u8]) -> Vec<f64> {
    let spec = TensorSpec::new([elements.len() / dtype.size()], dtype);
    let tensor = Tensor::from_bytes(backends(), Device::cpu(0), spec, elements).unwrap();
    tensor.read_as::<f64>().unwrap()
}

/// Checks that both have the same bits. Any two NaNs are equal.
pub(crate) fn assert_same(dtype: DType, expected: &[u8], found: &[u8]) {
    let is_nan = |element: &[u8]| dtype.is_float() && doubles(dtype, element)[0].is_nan();
    let elements = expected.chunks(dtype.size()).zip(found.chunks(dtype.size()));
    for (index, (expected, found)) in elements.enumerate() {
        assert!(
            expected == found || (is_nan(expected) && is_nan(found)),
            "{dtype}, element {index}: expected {expected:02x?}, found {found:02x?}"
        );
    }
}

/// Returns the host's backend.
pub(crate) fn backend() -> &'static dyn Backend {
    &**backends().of(Device::cpu(0)).unwrap()
}

/// A block of its memory.
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

/// Returns floating-point numbers in [-2, 2]. Some of them are 0.
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

/// Returns a number as the bytes of an element.
pub(crate) fn number(dtype: DType, number: f64) -> Vec<u8> {
    let wide = Tensor::from_slice(backends(), Device::cpu(0), [1], &[number]).unwrap();
    wide.cast(dtype).unwrap().to_bytes().unwrap()
}

/// Numbers around which the results of operations change, for one dtype or another.
const EDGES: [f64; 26] = [
    0.0,
    0.5,
    1.0,
    1.5,
    2.5,
    3.0,
    127.0,
    128.0,
    65_504.0,
    65_519.0,
    2_147_483_647.0,
    2_147_483_648.0,
    8_388_607.5,
    8_388_609.0,
    4_503_599_627_370_495.5,
    9_223_372_036_854_775_807.0,
    5e-324,
    f64::MIN_POSITIVE,
    1.5e-45,
    f32::MIN_POSITIVE as f64,
    9.2e-41,
    6e-8,
    6.104e-5,
    f32::MAX as f64,
    f64::MAX,
    f64::INFINITY,
];

/// Returns these numbers, their negatives, and NaN.
pub(crate) fn edges() -> impl Iterator<Item = f64> {
    EDGES.into_iter().flat_map(|edge| [edge, -edge]).chain([f64::NAN])
}

/// Returns elements that are edge cases, small numbers, or random bits. Some random bits are
/// shifted right, which gives subnormal floats.
pub(crate) fn elements(dtype: DType, len: usize, seed: u64) -> Vec<u8> {
    let halves = (-20..20).map(|n| f64::from(n) / 2.0);
    let known: Vec<Vec<u8>> = edges().chain(halves).map(|it| number(dtype, it)).collect();
    let words = bytes(16 * len, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let element = |word: &[u8]| {
        let (choice, shift) = (usize::from(word[0]), usize::from(word[1]) % (8 * dtype.size()));
        if choice < 150 {
            return known[choice % known.len()].clone();
        }
        let bits = u64::from_le_bytes(*word.last_chunk().unwrap());
        let bits = if choice < 200 { bits >> (64 - 8 * dtype.size()) >> shift } else { bits };
        bits.to_le_bytes()[..dtype.size()].to_vec()
    };
    words.chunks_exact(16).flat_map(element).collect()
}

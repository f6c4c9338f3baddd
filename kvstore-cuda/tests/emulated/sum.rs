//! Sums: any lengths, any places, any bits, in place or not.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;
use std::sync::{Arc, OnceLock};

use kvstore_core::backend;
use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{Backends, CpuBackend, DType, Device, Tensor, TensorSpec};
use kvstore_cuda::sum::{SumArgs, SumJob, SumPlan, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};

/// One sum of a batch.
#[derive(Clone, Debug)]
struct Case {
    len: usize,
    /// How many elements each range begins beyond an aligned one: of the sum, then of the addends.
    beyond: Vec<usize>,
    is_in_place: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Vec<Case>> {
    let len = prop_oneof![0_usize..40, 4000_usize..4200, 16_000_usize..20_000];
    let same =
        (0_usize..16).prop_flat_map(|beyond| (2_usize..19).prop_map(move |n| vec![beyond; n]));
    let beyond = prop_oneof![3 => same, 1 => prop::collection::vec(0_usize..16, 2..19)];
    let case = (len, beyond, any::<bool>(), any::<u64>());
    let case =
        case.prop_map(|(len, beyond, is_in_place, seed)| Case { len, beyond, is_in_place, seed });
    prop::collection::vec(case, 1..4)
}

/// Bytes that look random; a third of the half-precision ones are no numbers, zeros, or the largest.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
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
fn host() -> &'static Backends {
    static HOST: OnceLock<Backends> = OnceLock::new();
    HOST.get_or_init(|| Backends::new(vec![CpuBackend::new()]))
}

/// Returns what the host's backend makes of it.
fn expected(dtype: DType, len: usize, addends: &[Vec<u8>]) -> Vec<u8> {
    let backends = host();
    let backend = backends.of(Device::cpu(0)).unwrap();
    let (device, spec) = (Device::cpu(0), TensorSpec::new([len], dtype));
    let tensors: Vec<Tensor> = addends
        .iter()
        .map(|bytes| Tensor::from_bytes(backends, device, spec.clone(), bytes).unwrap())
        .collect();
    let spans: Vec<_> = tensors.iter().map(Tensor::span).collect();
    let mut storage = backend.allocate(device, len * dtype.size()).unwrap();
    let storage = Arc::get_mut(&mut storage).unwrap();
    let num_bytes = len * dtype.size();
    let dst = SpanMut { storage: &mut *storage, start: 0, num_bytes };
    backend.sum(&mut [backend::SumJob { device, dtype, dst, addends: &spans }]).unwrap();
    let mut found = vec![0; num_bytes];
    backend.read(Span { storage, start: 0, num_bytes }, &mut found).unwrap();
    found
}

/// Checks that both are the same bits; any that are no number are equal.
fn assert_same(dtype: DType, expected: &[u8], found: &[u8]) {
    let is_nan = |element: &[u8]| {
        let spec = TensorSpec::new([1], dtype);
        let tensor = Tensor::from_bytes(host(), Device::cpu(0), spec, element).unwrap();
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

fn check(dtype: DType, cases: &[Case], num_blocks: u32, order: u32) {
    let size = dtype.size();
    let mut plan = SumPlan::default();
    let mut memory = Vec::new();
    for case in cases {
        let num_addends = case.beyond.len() - 1;
        let contents: Vec<Vec<u8>> = (0..num_addends)
            .map(|n| bytes(case.len * size, case.seed.wrapping_add(977 * n as u64)))
            .collect();
        let expected =
            if case.len == 0 { Vec::new() } else { expected(dtype, case.len, &contents) };
        let place = |content: &[u8], beyond: usize| Memory::new(content, beyond * size % 16);
        let mut addends: Vec<Memory> =
            contents.iter().zip(&case.beyond[1..]).map(|(it, beyond)| place(it, *beyond)).collect();
        let mut own = place(&vec![0; case.len * size], case.beyond[0]);
        let addresses: Vec<u64> = addends.iter_mut().map(Memory::address).collect();
        let dst = if case.is_in_place { addresses[0] } else { own.address() };
        plan.push(dst, &addresses, (case.len * size) as u64, size as u64);
        memory.push((expected, own, addends, case.is_in_place, contents));
    }
    let args = plan.args(plan.jobs().as_ptr() as u64, plan.addends().as_ptr() as u64);
    // SAFETY: the plan was made of memory that is there, and of lists that are.
    unsafe { launch(kernel(dtype), &args, num_blocks, order) };
    for (expected, mut own, mut addends, is_in_place, contents) in memory {
        let found = if is_in_place { addends[0].content() } else { own.content() };
        assert_same(dtype, &expected, &found);
        let unchanged = addends.iter_mut().zip(&contents).skip(usize::from(is_in_place));
        for (addend, content) in unchanged {
            assert_eq!(addend.content(), *content);
        }
    }
}

#[test]
fn structs_are_laid_out_alike() {
    let expected = [
        size_of::<SumJob>(),
        offset_of!(SumJob, first_tile),
        offset_of!(SumJob, dst),
        offset_of!(SumJob, len),
        offset_of!(SumJob, first_addend),
        offset_of!(SumJob, num_addends),
        offset_of!(SumJob, head),
        size_of::<SumArgs>(),
        offset_of!(SumArgs, jobs),
        offset_of!(SumArgs, addends),
        offset_of!(SumArgs, num_tiles),
        offset_of!(SumArgs, num_jobs),
    ];
    assert_eq!(layout::<12>("kv_sum_layout"), expected.map(|number| number as u64));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_those_of_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        cases in cases(),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(dtype, &cases, num_blocks, order);
    }
}

/// Every half, from a sum of one: widening and rounding are those of the host.
#[test]
fn every_half_survives() {
    for dtype in [DType::F16, DType::Bf16] {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let shifted: Vec<u8> =
            all.iter().copied().cycle().skip(2 * 12_345).take(all.len()).collect();
        let expected = expected(dtype, 1 << 16, &[all.clone(), shifted.clone()]);
        let (mut one, mut other) = (Memory::new(&all, 0), Memory::new(&shifted, 0));
        let mut dst = Memory::new(&vec![0; all.len()], 0);
        let mut plan = SumPlan::default();
        plan.push(dst.address(), &[one.address(), other.address()], all.len() as u64, 2);
        let args = plan.args(plan.jobs().as_ptr() as u64, plan.addends().as_ptr() as u64);
        // SAFETY: as above.
        unsafe { launch(kernel(dtype), &args, 3, 0) };
        assert_same(dtype, &expected, &dst.content());
    }
}

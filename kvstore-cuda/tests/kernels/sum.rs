//! Sums: any lengths, alignments and bits, in place or not.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::iter::once;
use std::mem::offset_of;
use std::ops::Range;

use kvstore_core::{DType, Device, backend};
use kvstore_cuda::batch::{Args, Batch};
use kvstore_cuda::fan::FanJob;
use kvstore_cuda::sum::{is_pair, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, halves, lengths};

/// One sum of a batch.
#[derive(Clone, Debug)]
struct Case {
    len: usize,
    /// The offset of each range from an aligned address, in elements: of the sum, then of the
    /// addends.
    beyond: Vec<usize>,
    /// Whether the sum is written to one of the addends.
    is_in_place: bool,
    seed: u64,
}

/// Returns sums of these numbers of addends.
fn cases(num_addends: Range<usize>) -> impl Strategy<Value = Vec<Case>> {
    // The sum is a range as well.
    let num_ranges = num_addends.start + 1..num_addends.end + 1;
    let numbers = num_ranges.clone();
    let same = (0_usize..16)
        .prop_flat_map(move |beyond| numbers.clone().prop_map(move |n| vec![beyond; n]));
    let beyond = prop_oneof![3 => same, 1 => prop::collection::vec(0_usize..16, num_ranges)];
    let case = (lengths(), beyond, any::<bool>(), any::<u64>());
    let case =
        case.prop_map(|(len, beyond, is_in_place, seed)| Case { len, beyond, is_in_place, seed });
    prop::collection::vec(case, 1..4)
}

/// Returns the result of the host's backend.
fn expected(dtype: DType, len: usize, addends: &[Vec<u8>]) -> Vec<u8> {
    let addends: Vec<Block> = addends.iter().map(|bytes| Block::new(bytes)).collect();
    let spans: Vec<_> = addends.iter().map(Block::span).collect();
    let mut sum = Block::new(&vec![0; len * dtype.size()]);
    let (device, dst) = (Device::cpu(0), sum.span_mut());
    let job = backend::SumJob { device, dtype, dst, addends: &spans };
    backend().sum(&mut once(Ok(job))).unwrap();
    sum.content()
}

fn check(dtype: DType, cases: &[Case], is_pair: bool, (num_blocks, order): (u32, u32)) {
    let size = dtype.size();
    let mut plan = Batch::<FanJob>::default();
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
        let any = usize::try_from(case.seed % num_addends as u64).unwrap();
        let place = case.is_in_place.then_some(any);
        let dst = place.map_or_else(|| own.address(), |place| addresses[place]);
        plan.push(dst, &addresses, (case.len * size) as u64, size as u64).unwrap();
        memory.push((expected, own, addends, place, contents));
    }
    let args = plan.args(plan.jobs().as_ptr() as u64, plan.addends().as_ptr() as u64);
    // SAFETY: the batch was built from memory and lists that exist.
    unsafe { launch(&kernel(dtype, is_pair), &args, num_blocks, order) };
    for (expected, mut own, mut addends, place, contents) in memory {
        let found = place.map_or_else(|| own.content(), |place| addends[place].content());
        assert_same(dtype, &expected, &found);
        for (n, (addend, content)) in addends.iter_mut().zip(&contents).enumerate() {
            assert!(place == Some(n) || addend.content() == *content, "addend {n} was changed");
        }
    }
}

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<FanJob>(),
        offset_of!(FanJob, first_tile),
        offset_of!(FanJob, one),
        offset_of!(FanJob, len),
        offset_of!(FanJob, first_other),
        offset_of!(FanJob, num_others),
        offset_of!(FanJob, head),
        size_of::<Args>(),
        offset_of!(Args, jobs),
        offset_of!(Args, addends),
        offset_of!(Args, num_tiles),
        offset_of!(Args, num_jobs),
    ];
    assert_eq!(layout::<12>("kv_fan_layout"), expected.map(|number| number as u64));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        cases in cases(1..21),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        check(dtype, &cases, false, (num_blocks, order));
    }

    #[test]
    fn sums_of_two_halves_agree_with_the_host(
        dtype in prop::sample::select(halves().collect::<Vec<_>>()),
        cases in cases(2..3),
        num_blocks in 1_u32..6,
        order in 0_u32..1000,
    ) {
        prop_assert!(is_pair(dtype, 2) && !is_pair(dtype, 1) && !is_pair(dtype, 3));
        check(dtype, &cases, true, (num_blocks, order));
    }
}

#[test]
fn each_of_many_keys_is_summed_once() {
    for num_keys in [1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 300] {
        // Sums of one tile and of three tiles, aligned and not.
        let case = |key: usize| Case {
            len: if key.is_multiple_of(7) { 2050 } else { 1 + key % 50 },
            beyond: vec![key % 4; 3],
            is_in_place: false,
            seed: key as u64,
        };
        check(DType::F32, &(0..num_keys).map(case).collect::<Vec<_>>(), false, (5, 3));
    }
}

/// Sums every half-precision number with another one: widening and rounding agree with the host.
#[test]
fn every_half_precision_number_is_summed_like_on_the_host() {
    for (dtype, is_pair) in halves().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let size = dtype.size();
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let shifted: Vec<u8> =
            all.iter().copied().cycle().skip(2 * 12_345).take(all.len()).collect();
        let expected = expected(dtype, all.len() / size, &[all.clone(), shifted.clone()]);
        let (mut one, mut other) = (Memory::new(&all, 0), Memory::new(&shifted, 0));
        let mut dst = Memory::new(&vec![0; all.len()], 0);
        let mut plan = Batch::<FanJob>::default();
        let addends = [one.address(), other.address()];
        plan.push(dst.address(), &addends, all.len() as u64, size as u64).unwrap();
        let args = plan.args(plan.jobs().as_ptr() as u64, plan.addends().as_ptr() as u64);
        // SAFETY: as above.
        unsafe { launch(&kernel(dtype, is_pair), &args, 3, 0) };
        assert_same(dtype, &expected, &dst.content());
    }
}

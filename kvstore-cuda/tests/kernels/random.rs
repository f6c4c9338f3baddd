//! Random numbers: every floating-point dtype, both distributions, any stream and call.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::{DType, Distribution};
use kvstore_cuda::random::{RandomArgs, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, floats, integers};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<RandomArgs>(),
        offset_of!(RandomArgs, to),
        offset_of!(RandomArgs, len),
        offset_of!(RandomArgs, call),
        offset_of!(RandomArgs, offset),
        offset_of!(RandomArgs, scale),
        offset_of!(RandomArgs, stream),
    ];
    assert_eq!(layout::<7>("kv_random_layout"), expected.map(|number| number as u64));
}

fn check(
    dtype: DType,
    distribution: Distribution,
    len: usize,
    (stream, call): ([u32; 2], u64),
    (beyond, num_blocks, order): (usize, u32, u32),
) {
    let mut expected = Block::new(&vec![0; len * dtype.size()]);
    backend().random(dtype, expected.span_mut(), distribution, stream, call).unwrap();
    let mut found = Memory::new(&vec![1; len * dtype.size()], beyond * dtype.size() % 16);
    let args = RandomArgs::new(found.address(), len as u64, distribution, stream, call);
    // SAFETY: the range has the length in the argument.
    unsafe { launch(&kernel(distribution, dtype).unwrap(), &args, num_blocks, order) };
    assert_same(dtype, &expected.content(), &found.content());
}

fn distributions() -> impl Strategy<Value = Distribution> {
    let number = || prop_oneof![-4.0..4.0, Just(0.0), Just(-1e300), Just(1e5), Just(3e-42)];
    let uniform = (number(), number())
        .prop_map(|(a, b)| Distribution::Uniform { low: f64::min(a, b), high: f64::max(a, b) });
    let normal = (number(), number())
        .prop_map(|(mean, number)| Distribution::Normal { mean, deviation: number.abs() });
    prop_oneof![uniform, normal]
}

#[test]
fn long_sequences_agree_with_the_host() {
    let uniform = Distribution::Uniform { low: -1.0, high: 3.0 };
    let normal = Distribution::Normal { mean: 0.5, deviation: 2.0 };
    for dtype in floats() {
        for distribution in [uniform, normal] {
            check(dtype, distribution, 40_000, ([7, 9], 3), (0, 5, 2));
            check(dtype, distribution, 40_000, ([u32::MAX, 1], u64::MAX), (1, 200, 5));
        }
    }
}

#[test]
fn integers_have_no_kernel() {
    for dtype in integers() {
        assert_eq!(kernel(Distribution::Uniform { low: 0.0, high: 1.0 }, dtype), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequences_agree_with_the_host(
        dtype in prop::sample::select(floats().collect::<Vec<_>>()),
        distribution in distributions(),
        len in 0_usize..2000,
        place in (any::<[u32; 2]>(), any::<u64>()),
        run in (0_usize..16, 1_u32..4, 0_u32..1000),
    ) {
        check(dtype, distribution, len, place, run);
    }
}

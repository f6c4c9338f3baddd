//! Conversions from every dtype to every other one, with any bits.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::DType;
use kvstore_cuda::cast::{CastArgs, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, doubles, halves, number};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<CastArgs>(),
        offset_of!(CastArgs, from),
        offset_of!(CastArgs, to),
        offset_of!(CastArgs, len),
        offset_of!(CastArgs, is_aligned),
    ];
    assert_eq!(layout::<5>("kv_cast_layout"), expected.map(|number| number as u64));
}

fn check(from: DType, to: DType, content: &[u8], beyond: usize, (num_blocks, order): (u32, u32)) {
    let len = content.len() / from.size();
    let mut dst = Block::new(&vec![0; len * to.size()]);
    backend().cast(from, Block::new(content).span(), to, dst.span_mut()).unwrap();
    let mut source = Memory::new(content, beyond * from.size() % 16);
    let mut found = Memory::new(&vec![0; len * to.size()], beyond * to.size() % 16);
    let args = CastArgs::new((source.address(), from), (found.address(), to), len as u64);
    // SAFETY: both ranges have the length in the argument.
    unsafe { launch(&kernel(from, to), &args, num_blocks, order) };
    assert_same(to, &dst.content(), &found.content());
    assert_eq!(source.content(), content);
}

/// Numbers around which the results of conversions change.
const EDGES: [f64; 24] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    127.5,
    128.0,
    255.9,
    256.0,
    -129.0,
    65_504.0,
    65_519.9,
    65_520.0,
    3e9,
    2_147_483_648.0,
    9.2e18,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    1e30,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    5.9e-8,
    1.000_488_281_25,
];

/// Returns numbers halfway between two half-precision numbers, and their nearest neighbours.
/// Rounding them twice would give the wrong result.
fn halfway() -> Vec<f64> {
    let mut all = Vec::new();
    for dtype in halves() {
        let bits = 0..1_u64 << (8 * dtype.size() - 1);
        let bytes = bits.map(u64::to_le_bytes).flat_map(|it| it.into_iter().take(dtype.size()));
        let positive = doubles(dtype, &bytes.collect::<Vec<_>>());
        for pair in positive.windows(2).step_by((positive.len() / 300).max(1)) {
            let middle = f64::midpoint(pair[0], pair[1]);
            all.extend([middle, middle.next_up(), middle.next_down(), -middle.next_up()]);
        }
    }
    all
}

/// Returns integers halfway between two half-precision numbers, and their neighbours.
fn halfway_integers() -> impl Iterator<Item = i64> {
    (9..62).flat_map(|power| {
        let middle = (1_i64 << power) + (1 << (power - 8));
        [middle, middle + 1, middle - 1, -middle - 1]
    })
}

#[test]
fn every_pair_of_dtypes_agrees_with_the_host() {
    for from in DType::ALL {
        let mut content: Vec<u8> = EDGES.iter().flat_map(|edge| number(from, *edge)).collect();
        match from {
            DType::F64 => content.extend(halfway().iter().flat_map(|it| it.to_le_bytes())),
            DType::I64 => content.extend(halfway_integers().flat_map(i64::to_le_bytes)),
            _ => {}
        }
        content.extend(bytes(3000 * from.size(), 7));
        for to in DType::ALL.into_iter().filter(|to| *to != from) {
            check(from, to, &content, 0, (2, 3));
            check(from, to, &content, 1, (1, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conversions_of_any_bits_agree_with_the_host(
        from in prop::sample::select(DType::ALL.to_vec()),
        to in prop::sample::select(DType::ALL.to_vec()),
        len in 1_usize..2000,
        seed in any::<u64>(),
        beyond in 0_usize..5,
        grid in (1_u32..4, 0_u32..1000),
    ) {
        if from != to {
            check(from, to, &bytes(len * from.size(), seed), beyond, grid);
        }
    }
}

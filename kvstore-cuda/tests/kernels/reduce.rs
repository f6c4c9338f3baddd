//! Reductions: every dtype, any lengths and alignments, with NaN and infinities.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::{DType, Reduction};
use kvstore_cuda::reduce::{FOLD_BYTES, ReduceArgs, blocks_kernel, kernel, num_blocks};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, bytes, edges, elements, number, numbers};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<ReduceArgs>(),
        offset_of!(ReduceArgs, from),
        offset_of!(ReduceArgs, folds),
        offset_of!(ReduceArgs, to),
        offset_of!(ReduceArgs, len),
        offset_of!(ReduceArgs, op),
        offset_of!(ReduceArgs, is_aligned),
    ];
    assert_eq!(layout::<7>("kv_reduce_layout"), expected.map(|number| number as u64));
}

/// Compares all reductions of these elements with the host's. Returns the results.
fn check(dtype: DType, content: &[u8], beyond: usize, (num_blocks_run, order): (u32, u32)) {
    let len = content.len() / dtype.size();
    let source = Block::new(content);
    for op in Reduction::ALL.iter().copied() {
        let mut expected = Block::new(&vec![1; dtype.size()]);
        if backend().reduce(op, dtype, expected.span_mut(), source.span()).is_err() {
            assert!(len == 0 && matches!(op, Reduction::Max | Reduction::Min));
            continue;
        }
        let mut from = Memory::new(content, beyond * dtype.size() % 16);
        let mut folds = Memory::new(&vec![1; num_blocks(len) * FOLD_BYTES], 8);
        let mut to = Memory::new(&vec![1; dtype.size()], 0);
        let args = ReduceArgs::new(op, from.address(), folds.address(), to.address(), len);
        // SAFETY: the ranges have the lengths in the argument.
        unsafe { launch(&blocks_kernel(dtype), &args, num_blocks_run, order) };
        // SAFETY: as above.
        unsafe { launch(&kernel(dtype), &args, 1, order) };
        assert_same(dtype, &expected.content(), &to.content());
        assert_eq!(from.content(), content);
        folds.content();
    }
}

/// Returns numbers of very different sizes, with which another order of additions gives other bits.
fn mixed(dtype: DType, len: usize, seed: u64) -> Vec<u8> {
    let size = dtype.size();
    let mut content =
        if dtype.is_float() { numbers(dtype, len, seed) } else { bytes(len * size, seed) };
    for (index, element) in content.chunks_exact_mut(size).enumerate() {
        if dtype.is_float() && (index as u64 ^ seed).is_multiple_of(5) {
            let large = if index.is_multiple_of(2) { 3000.25 } else { -3001.0 };
            element.copy_from_slice(&number(dtype, large));
        }
    }
    content
}

#[test]
fn numbers_of_several_blocks_agree_with_the_host() {
    for dtype in DType::ALL {
        for len in [0, 1, 4095, 4096, 4097, 8192, 50_000, 9 * 4096 + 1] {
            check(dtype, &mixed(dtype, len, len as u64), 0, (2, 3));
            check(dtype, &mixed(dtype, len, 7), 1, (1, 0));
        }
    }
}

/// The largest of equal zeros is the last one, and the first NaN wins.
#[test]
fn zeros_of_both_signs_and_nan_agree_with_the_host() {
    for dtype in DType::ALL {
        for edge in edges() {
            for index in [0, 1, 63, 64, 4095, 4096, 8999] {
                let mut content = number(dtype, 0.0).repeat(9000);
                for place in [index, (index + 4097) % 9000] {
                    let start = place * dtype.size();
                    content[start..start + dtype.size()].copy_from_slice(&number(dtype, edge));
                }
                check(dtype, &content, 0, (1, 0));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_elements_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        len in prop_oneof![0_usize..200, 4000_usize..4200, 8000_usize..20_000],
        (is_finite, seed) in (any::<bool>(), any::<u64>()),
        beyond in prop_oneof![Just(0_usize), 0_usize..16],
        grid in (1_u32..4, 0_u32..1000),
    ) {
        let content = if is_finite { mixed(dtype, len, seed) } else { elements(dtype, len, seed) };
        check(dtype, &content, beyond, grid);
    }
}

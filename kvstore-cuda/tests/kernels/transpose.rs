//! Transposes of matrices: every size of elements, any shapes and alignments.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::DType;
use kvstore_cuda::transpose::{TransposeArgs, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, backend, bytes};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<TransposeArgs>(),
        offset_of!(TransposeArgs, from),
        offset_of!(TransposeArgs, to),
        offset_of!(TransposeArgs, rows),
        offset_of!(TransposeArgs, columns),
        offset_of!(TransposeArgs, is_aligned),
    ];
    assert_eq!(layout::<6>("kv_transpose_layout"), expected.map(|number| number as u64));
}

/// Returns whether the kernel moved vectors.
fn check(
    dtype: DType,
    (rows, columns): (usize, usize),
    (from, to): (usize, usize),
    (num_blocks, order): (u32, u32),
    seed: u64,
) -> bool {
    let content = bytes(rows * columns * dtype.size(), seed);
    let mut expected = Block::new(&vec![0; content.len()]);
    let source = Block::new(&content);
    backend().transpose(dtype, expected.span_mut(), source.span(), rows).unwrap();
    let place = |beyond: usize| beyond * dtype.size() % 16;
    let mut source = Memory::new(&content, place(from));
    let mut found = Memory::new(&vec![0; content.len()], place(to));
    let (from, to) = (source.address(), found.address());
    let args = TransposeArgs::new(dtype, from, to, rows as u64, columns as u64);
    // SAFETY: both ranges have as many elements as the matrix.
    unsafe { launch(&kernel(dtype), &args, num_blocks, order) };
    assert_eq!(found.content(), expected.content(), "{dtype}, {rows} x {columns}");
    assert_eq!(source.content(), content);
    args.is_aligned == 1
}

#[test]
fn matrices_of_several_tiles_are_transposed() {
    for dtype in DType::ALL {
        assert!(check(dtype, (264, 136), (0, 0), (3, 7), 1));
        assert!(!check(dtype, (263, 136), (0, 0), (2, 4), 2));
        assert!(!check(dtype, (136, 265), (0, 0), (1, 0), 3));
        assert!(!check(dtype, (128, 64), (1, 0), (1, 0), 4));
        assert!(!check(dtype, (128, 64), (0, 1), (1, 0), 5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matrices_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        shape in prop_oneof![(1_usize..40, 1_usize..400), (1_usize..400, 1_usize..40)],
        (is_multiple, seed) in (any::<bool>(), any::<u64>()),
        beyond in prop_oneof![Just((0_usize, 0_usize)), (0_usize..16, 0_usize..16)],
        grid in (1_u32..4, 0_u32..1000),
    ) {
        let shape = if is_multiple {
            (shape.0.next_multiple_of(8), shape.1.next_multiple_of(8))
        } else {
            shape
        };
        check(dtype, shape, beyond, grid, seed);
    }
}

//! The largest element of each row: every dtype, any shapes, with equal elements and NaN.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::DType;
use kvstore_cuda::argmax::{ArgmaxArgs, Matrix, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::{Block, assert_same, backend, elements, floats, number};

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<ArgmaxArgs>(),
        offset_of!(ArgmaxArgs, from),
        offset_of!(ArgmaxArgs, candidates),
        offset_of!(ArgmaxArgs, to),
        offset_of!(ArgmaxArgs, rows),
        offset_of!(ArgmaxArgs, columns),
        offset_of!(ArgmaxArgs, len),
        offset_of!(ArgmaxArgs, is_last),
    ];
    assert_eq!(layout::<8>("kv_argmax_layout"), expected.map(|number| number as u64));
}

/// Returns the number of launches.
fn check(dtype: DType, rows: usize, content: &[u8], (num_blocks, order): (u32, u32)) -> usize {
    let columns = content.len() / dtype.size() / rows;
    let source = Block::new(content);
    let mut expected = Block::new(&vec![1; rows * dtype.size()]);
    backend().argmax(dtype, expected.span_mut(), source.span(), rows).unwrap();
    let mut from = Memory::new(content, dtype.size());
    let mut to = Memory::new(&vec![1; rows * dtype.size()], dtype.size());
    let (rows, columns) = (rows as u64, columns as u64);
    let matrix = Matrix { from: from.address(), to: to.address(), rows, columns };
    let mut scratch = Memory::new(&vec![1; usize::try_from(matrix.scratch_bytes()).unwrap()], 8);
    let launches = matrix.launches(scratch.address()).unwrap();
    for args in &launches {
        // SAFETY: the ranges have the lengths in the argument.
        unsafe { launch(&kernel(dtype), args, num_blocks, order) };
    }
    assert_same(dtype, &expected.content(), &to.content());
    assert_eq!(from.content(), content);
    scratch.content();
    launches.len()
}

#[test]
fn rows_of_any_length_agree_with_the_host() {
    for dtype in DType::ALL {
        for (rows, columns, num_launches) in
            [(1, 1, 1), (3, 256, 1), (600, 7, 1), (3, 257, 2), (2, 3000, 2), (1, 66_000, 3)]
        {
            let content = elements(dtype, rows * columns, columns as u64);
            assert_eq!(check(dtype, rows, &content, (2, 3)), num_launches);
        }
    }
}

/// The first of equal elements wins. The host keeps column 0 if its element is NaN.
#[test]
fn equal_elements_and_nan_agree_with_the_host() {
    for dtype in floats() {
        let [zero, one, nan] = [0.0, 1.0, f64::NAN].map(|it| number(dtype, it));
        for (fill, other) in [(&zero, &one), (&zero, &nan), (&nan, &zero), (&one, &one)] {
            for places in [[0, 0], [0, 300], [255, 256], [511, 999], [256, 767], [999, 999]] {
                let mut content = fill.repeat(1000);
                for place in places {
                    let start = place * dtype.size();
                    content[start..start + dtype.size()].copy_from_slice(other);
                }
                check(dtype, 1, &content, (1, 0));
            }
        }
        check(dtype, 1, &nan.repeat(1000), (1, 0));
        check(dtype, 1, &number(dtype, f64::NEG_INFINITY).repeat(1000), (1, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_elements_agree_with_the_host(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        (rows, columns) in prop_oneof![
            (1_usize..5, 1_usize..2000),
            (1_usize..600, 1_usize..20),
            (1_usize..3, 1_usize..300),
        ],
        seed in any::<u64>(),
        grid in (1_u32..4, 0_u32..1000),
    ) {
        check(dtype, rows, &elements(dtype, rows * columns, seed), grid);
    }
}

//! Copies of strided elements: of any size, with any axes, forwards and backwards.
#![expect(unsafe_code, reason = "launches kernels on memory of this process")]

use std::mem::offset_of;

use kvstore_core::{Axis, Layout};
use kvstore_cuda::strided::{StridedArgs, kernel};
use proptest::prelude::*;

use crate::device::{Memory, launch, layout};
use crate::host::bytes;

#[test]
fn structs_have_the_same_layout_as_in_c() {
    let expected = [
        size_of::<StridedArgs>(),
        offset_of!(StridedArgs, packed),
        offset_of!(StridedArgs, strided),
        offset_of!(StridedArgs, len),
        offset_of!(StridedArgs, num_axes),
        offset_of!(StridedArgs, lengths),
        offset_of!(StridedArgs, strides),
    ];
    assert_eq!(layout::<7>("kv_strided_layout"), expected.map(|number| number as u64));
}

/// Returns axes as (length, gap, is backwards). The elements are stored in another order of the
/// axes.
fn axes() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
    let axis = (1_usize..7, 0_usize..3, any::<bool>());
    prop::collection::vec(axis, 0..8).prop_filter("at most 20 000 elements", |axes| {
        axes.iter().map(|(length, gap, _)| length * (gap + 1)).product::<usize>() <= 20_000
    })
}

/// Returns the layout, the offset of its first element, and the number of bytes that it spans.
fn laid_out(size: usize, axes: &[(usize, usize, bool)], order: &[usize]) -> (Layout, usize, usize) {
    let mut found = vec![Axis { length: 0, stride: 0 }; axes.len()];
    let (mut reach, mut first) = (size, 0);
    for &place in order {
        let (length, gap, is_backwards) = axes[place];
        let stride = reach * (gap + 1);
        reach = stride * length;
        let stride = isize::try_from(stride).unwrap();
        if is_backwards {
            first += (length - 1) * stride.unsigned_abs();
        }
        found[place] = Axis { length, stride: if is_backwards { -stride } else { stride } };
    }
    (Layout { size, axes: found }, first, reach)
}

/// Returns the offsets of the elements in order, by a simpler algorithm than the kernel's.
fn places(layout: &Layout, first: usize) -> Vec<usize> {
    let mut places = vec![first];
    for axis in &layout.axes {
        let steps = |place: usize| {
            (0..axis.length).map(move |step| {
                place.wrapping_add_signed(axis.stride * isize::try_from(step).unwrap())
            })
        };
        places = places.into_iter().flat_map(steps).collect();
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn elements_are_gathered_and_scattered(
        log_size in 0_usize..4,
        axes in axes(),
        mix in any::<u64>(),
        grid in (1_u32..6, 0_u32..1000),
    ) {
        let size = 1 << log_size;
        let mut order: Vec<usize> = (0..axes.len()).collect();
        order.sort_by_key(|place| mix.rotate_left(7 * u32::try_from(*place).unwrap()) % 64);
        let (layout, first, reach) = laid_out(size, &axes, &order);
        let places = places(&layout, first);
        let content = bytes(reach, mix);
        let mut strided = Memory::new(&content, size % 16);
        let mut packed = Memory::new(&vec![0; places.len() * size], size % 16);
        let args = StridedArgs::new(packed.address(), strided.address() + first as u64, &layout);
        let mut args = args.unwrap();
        // SAFETY: both ranges have the length in the argument.
        unsafe { launch(&kernel(size, true), &args, grid.0, grid.1) };
        let expected: Vec<u8> =
            places.iter().flat_map(|place| content[*place..place + size].to_vec()).collect();
        prop_assert_eq!(packed.content(), expected.clone());
        prop_assert_eq!(&strided.content(), &content);

        let mut target = Memory::new(&vec![7; reach], size % 16);
        args.strided = target.address() + first as u64;
        // SAFETY: as above.
        unsafe { launch(&kernel(size, false), &args, grid.0, grid.1) };
        let mut written = vec![7; reach];
        for (place, element) in places.iter().zip(expected.chunks(size)) {
            written[*place..place + size].copy_from_slice(element);
        }
        prop_assert_eq!(target.content(), written);
        prop_assert_eq!(packed.content(), expected);
    }
}

#[test]
fn contiguous_axes_are_merged() {
    let axes = |axes: &[(usize, isize)]| {
        let axes = axes.iter().map(|&(length, stride)| Axis { length, stride }).collect();
        StridedArgs::new(0, 0, &Layout { size: 4, axes })
    };
    let one = axes(&[(5, 120), (1, 7), (3, 40), (10, 4)]).unwrap();
    assert_eq!((one.num_axes, one.len), (1, 150));
    assert_eq!((one.lengths[0], one.strides[0]), (150, 4));
    let two = axes(&[(5, 200), (3, 40), (10, 4)]).unwrap();
    assert_eq!((two.num_axes, two.lengths[1], two.strides[0]), (2, 30, 200));
    assert_eq!(axes(&[(2, 8); 9]).map(|args| args.num_axes), None);
    assert_eq!(axes(&[(1, 8); 9]).map(|args| (args.num_axes, args.len)), Some((0, 1)));
}

//! Strided layouts of external memory.

/// The maximum number of element offsets that [`Layout::overlaps`] compares.
const MAX_COMPARED: usize = 1 << 20;

/// The layout of a strided array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of an element in bytes.
    pub size: usize,
    /// The axes of the array.
    pub axes: Vec<Axis>,
}

/// An axis of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The number of elements.
    pub length: usize,
    /// The distance between neighbouring elements, in bytes. It may be negative.
    pub stride: isize,
}

impl Layout {
    /// Returns whether two elements share a byte.
    ///
    /// The result is exact in these cases:
    ///
    /// - Each stride is at least the extent of the axes with smaller strides, as in slices and
    ///   transposes of row-major arrays.
    /// - A stride is smaller than an element.
    /// - The interleaved axes have at most 2^20 elements.
    ///
    /// In all other cases, the result is `true`.
    pub fn overlaps(&self) -> bool {
        let mut axes: Vec<Axis> =
            self.axes.iter().filter(|axis| axis.length != 1).copied().collect();
        if self.size == 0 || axes.iter().any(|axis| axis.length == 0) {
            return false;
        }
        axes.sort_unstable_by_key(|axis| axis.stride.unsigned_abs());
        if axes.first().is_some_and(|axis| axis.stride.unsigned_abs() < self.size) {
            return true;
        }
        // The number of bytes that the previous axes span.
        let mut extent = self.size;
        let mut num_interleaved = 0;
        for (index, axis) in axes.iter().enumerate() {
            let stride = axis.stride.unsigned_abs();
            if stride < extent {
                num_interleaved = index + 1;
            }
            extent = extent.saturating_add(stride.saturating_mul(axis.length - 1));
        }
        // An axis whose stride is at least the extent of all smaller axes cannot cause an overlap.
        num_interleaved > 0 && self.has_near(axes.get(..num_interleaved).unwrap_or_default())
    }

    /// Returns whether two elements along these axes overlap, by comparing all their offsets.
    /// Returns `true` if there are too many.
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved first")]
    fn has_near(&self, axes: &[Axis]) -> bool {
        let num_elements = axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.length));
        let mut places: Vec<usize> = Vec::new();
        if num_elements > MAX_COMPARED || places.try_reserve_exact(num_elements).is_err() {
            return true;
        }
        places.push(0);
        for axis in axes {
            // The sign of a stride does not affect overlap.
            let (stride, num_places) = (axis.stride.unsigned_abs(), places.len());
            for index in 1..axis.length {
                let distance = stride.saturating_mul(index);
                places.extend_from_within(..num_places);
                let moved = places.iter_mut().rev().take(num_places);
                moved.for_each(|place| *place = place.saturating_add(distance));
            }
        }
        places.sort_unstable();
        places.windows(2).any(|pair| matches!(pair, [a, b] if b - a < self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Layout};
    use std::collections::HashSet;

    /// Checks every byte of every element.
    fn shares_bytes(layout: &Layout) -> bool {
        let mut starts = vec![0_isize];
        for axis in &layout.axes {
            let along = |start: &isize| {
                let (start, axis) = (*start, *axis);
                (0..axis.length.cast_signed()).map(move |index| start + index * axis.stride)
            };
            starts = starts.iter().flat_map(along).collect();
        }
        let mut bytes = HashSet::new();
        let all = starts.iter().flat_map(|start| (0..layout.size).map(move |at| (start, at)));
        all.into_iter().any(|(start, at)| !bytes.insert(start + at.cast_signed()))
    }

    #[test]
    fn overlaps_matches_a_count_of_bytes() {
        let lengths = if cfg!(miri) { 2..4 } else { 0..4 };
        let strides: Vec<isize> = if cfg!(miri) { vec![-2, 3] } else { (-5..=7).collect() };
        let axes: Vec<Axis> = lengths
            .flat_map(|length| strides.iter().map(move |&stride| Axis { length, stride }))
            .collect();
        let (mut num_overlapping, mut num_layouts) = (0, 0);
        let sizes = if cfg!(miri) { &[2][..] } else { &[1, 2, 4] };
        for &size in sizes {
            for (a, b) in axes.iter().flat_map(|a| axes.iter().map(move |b| (*a, *b))) {
                for c in axes.iter().step_by(3) {
                    let layout = Layout { size, axes: vec![a, b, *c] };
                    let overlaps = layout.overlaps();
                    assert_eq!(overlaps, shares_bytes(&layout), "{layout:?}");
                    (num_overlapping, num_layouts) =
                        (num_overlapping + u32::from(overlaps), num_layouts + 1);
                }
            }
        }
        // Miri tests too few layouts to have both results.
        assert!(cfg!(miri) || (num_overlapping > 0 && num_overlapping < num_layouts));
    }

    #[test]
    fn overlaps_handles_layouts_of_any_size() {
        let overlaps = |axes: &[(usize, isize)]| {
            let axes = axes.iter().map(|&(length, stride)| Axis { length, stride });
            Layout { size: 4, axes: axes.collect() }.overlaps()
        };
        let many = 1 << 30;
        assert!(!overlaps(&[(many, -4), (many, 4 << 30)]), "transposed and reversed");
        let interleaved = [(many, 32), (2, 12), (3, 8)];
        assert!(!overlaps(&interleaved), "few elements that interleave, many times");
        assert!(overlaps(&[(many, 4), (3, 4)]), "sliding windows");
        assert!(overlaps(&[(usize::MAX, isize::MAX), (usize::MAX, isize::MIN)]));
    }
}

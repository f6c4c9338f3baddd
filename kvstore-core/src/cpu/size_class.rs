//! [`SizeClass`]: the possible lengths of a block of host memory.

use super::memory::{ALIGNMENT, LONG, PAGE, WORD};

/// The length of a block. There are eight lengths per doubling, so that a freed block fits the next
/// tensor of about the same size. The length includes room to align the first byte.
#[derive(Clone, Copy)]
pub(super) struct SizeClass {
    /// The index of the class. Longer classes have higher indices.
    pub(super) index: usize,
    /// The length of a block in words.
    pub(super) words: usize,
}

impl SizeClass {
    const STEPS: usize = 8;
    pub(super) const COUNT: usize = Self::STEPS * (usize::BITS as usize + 1);

    /// Returns the shortest class whose blocks hold `num_bytes` aligned bytes.
    pub(super) fn of(num_bytes: usize) -> Self {
        if num_bytes == 0 {
            return Self { index: 0, words: 0 };
        }
        let room = if num_bytes < LONG { ALIGNMENT } else { PAGE };
        let needed = num_bytes.saturating_add(room).div_ceil(WORD);
        let above = needed.next_power_of_two();
        let step = (above / (2 * Self::STEPS)).max(1);
        let steps = needed.div_ceil(step);
        let index = Self::STEPS * above.ilog2() as usize + steps - above / 2 / step;
        Self { index, words: steps * step }
    }

    /// Returns the length of a block in bytes.
    pub(super) fn num_bytes(self) -> usize {
        self.words.saturating_mul(WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_wastes_at_most_an_eighth() {
        for num_bytes in (4096..1_000_000).step_by(997) {
            let class = SizeClass::of(num_bytes).words * WORD;
            let room = if num_bytes < LONG { ALIGNMENT } else { PAGE };
            assert!(class >= num_bytes + room);
            assert!(class <= num_bytes + num_bytes / 8 + 2 * room, "{num_bytes}: {class}");
        }
    }

    #[test]
    fn each_size_class_has_one_length_and_one_index() {
        let mut last = SizeClass::of(1);
        let dense = if cfg!(miri) { 1_000 } else { 100_000 };
        for num_bytes in (2..dense).chain((dense..1 << 40).step_by(1 << 31)) {
            let class = SizeClass::of(num_bytes);
            let grows = (class.words > last.words, class.index > last.index);
            assert!(grows.0 == grows.1 && class.words >= last.words, "{num_bytes}");
            last = class;
        }
        assert!(SizeClass::of(usize::MAX).index < SizeClass::COUNT);
    }
}

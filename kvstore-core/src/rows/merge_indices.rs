//! Merges the row indices of several values in ascending order.
//!
//! One thread plans a sum while the others are idle, so merging must be fast. An index and its list
//! are packed into one integer. Two lists are merged from both ends at once, which a processor
//! executes in parallel.

use crate::fallible;
use crate::types::Result;

/// Calls `visit` with every index and its list, ascending. Equal indices come in the order of their
/// lists. Each list must be strictly ascending, without negative indices.
pub(crate) fn merge(lists: &[&[i64]], mut visit: impl FnMut(i64, usize)) -> Result<()> {
    let Some(packing) = Packing::of(lists) else {
        return sort(lists, visit);
    };
    let mut lens: Vec<usize> = fallible::collect(lists.iter().map(|list| list.len()))?;
    let mut merged = fallible::with_capacity(lens.iter().sum())?;
    for (list, indices) in lists.iter().enumerate() {
        merged.extend(indices.iter().map(|&index| packing.pack(index, list)));
    }
    let mut room = fallible::zeroed(merged.len())?;
    while lens.len() > 1 {
        lens = merge_neighbours(&merged, &lens, &mut room)?;
        std::mem::swap(&mut merged, &mut room);
    }
    for packed in merged {
        let (index, list) = packing.unpack(packed);
        visit(index, list);
    }
    Ok(())
}

/// Merges indices that are too large to be packed with their list.
fn sort(lists: &[&[i64]], mut visit: impl FnMut(i64, usize)) -> Result<()> {
    let mut pairs = fallible::with_capacity(lists.iter().map(|list| list.len()).sum())?;
    for (list, indices) in lists.iter().enumerate() {
        pairs.extend(indices.iter().map(|&index| (index, list)));
    }
    pairs.sort_unstable();
    for (index, list) in pairs {
        visit(index, list);
    }
    Ok(())
}

/// Packs an index and its list into one integer, which is never 0 or `u64::MAX`.
#[derive(Clone, Copy)]
struct Packing {
    list_bits: u32,
}

impl Packing {
    /// Returns the packing for these lists, or `None` if an index is too large.
    fn of(lists: &[&[i64]]) -> Option<Self> {
        // These bits can represent `lists.len()`, and every list is below it. So adding 1 in `pack`
        // never carries into the index.
        let list_bits = usize::BITS - lists.len().leading_zeros();
        let index_bits = u64::BITS.checked_sub(list_bits)?;
        let largest = lists.iter().filter_map(|indices| indices.last()).max();
        let fits = largest.is_none_or(|&largest| largest.unsigned_abs() >> index_bits == 0);
        fits.then_some(Self { list_bits })
    }

    fn pack(self, index: i64, list: usize) -> u64 {
        (index.unsigned_abs() << self.list_bits | list as u64) + 1
    }

    #[allow(
        clippy::cast_possible_wrap,
        clippy::cast_possible_truncation,
        reason = "`pack` received these types"
    )]
    fn unpack(self, packed: u64) -> (i64, usize) {
        let packed = packed - 1;
        let list = packed & ((1 << self.list_bits) - 1);
        ((packed >> self.list_bits) as i64, list as usize)
    }
}

/// Merges each pair of neighbouring lists into `room`. Returns the new lengths.
fn merge_neighbours(mut lists: &[u64], lens: &[usize], mut room: &mut [u64]) -> Result<Vec<usize>> {
    let merge_pair = |pair: &[usize]| {
        let len = pair.iter().sum();
        let (both, rest) = lists.split_at(len);
        let (target, rest_of_room) = std::mem::take(&mut room).split_at_mut(len);
        // The last list of an odd number has no neighbour, so its right half is empty.
        let (left, right) = both.split_at(pair.first().copied().unwrap_or_default());
        merge_two(left, right, target);
        (lists, room) = (rest, rest_of_room);
        len
    };
    fallible::collect(lens.chunks(2).map(merge_pair))
}

/// Merges two lists without common elements: the lower half from their starts, the upper half from
/// their ends. Computes each choice without a branch, because a processor would mispredict half of
/// the branches.
fn merge_two(left: &[u64], right: &[u64], merged: &mut [u64]) {
    let (mut left_start, mut right_start) = (0, 0);
    let (mut left_end, mut right_end) = (left.len(), right.len());
    let mut lowest = || {
        let from_left = left.get(left_start).copied().unwrap_or(u64::MAX);
        let from_right = right.get(right_start).copied().unwrap_or(u64::MAX);
        let is_right = usize::from(from_right < from_left);
        right_start += is_right;
        left_start += 1 - is_right;
        from_left.min(from_right)
    };
    let mut highest = || {
        let from_left = left.get(left_end.wrapping_sub(1)).copied().unwrap_or(u64::MIN);
        let from_right = right.get(right_end.wrapping_sub(1)).copied().unwrap_or(u64::MIN);
        let is_left = usize::from(from_left > from_right);
        left_end -= is_left;
        right_end -= 1 - is_left;
        from_left.max(from_right)
    };
    let (lower, upper) = merged.split_at_mut(merged.len() / 2);
    let (middle, upper) = upper.split_at_mut(upper.len() - lower.len());
    for (low, high) in lower.iter_mut().zip(upper.iter_mut().rev()) {
        *low = lowest();
        *high = highest();
    }
    // `middle` has one element if the number of elements is odd, otherwise none.
    middle.fill_with(lowest);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::merge;
    use crate::noise::Distribution;

    fn assert_merges(lists: &[Vec<i64>]) {
        let mut expected = Vec::new();
        for (list, indices) in lists.iter().enumerate() {
            expected.extend(indices.iter().map(|&index| (index, list)));
        }
        expected.sort_unstable();
        let slices: Vec<&[i64]> = lists.iter().map(Vec::as_slice).collect();
        let mut merged = Vec::new();
        merge(&slices, |index, list| merged.push((index, list))).unwrap();
        assert_eq!(merged, expected);
    }

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "keeps the integer part")]
    fn merge_visits_every_index_in_order() {
        let draw = |below: f64, call: u64, index: u64| {
            let distribution = Distribution::Uniform { low: 0.0, high: below };
            distribution.sample([1, 2], call, index) as i64
        };
        let (most_lists, num_calls) = if cfg!(miri) { (4, 2) } else { (9, 100) };
        for num_lists in 0..=most_lists {
            for call in 0..num_calls {
                let random_list = |list: u64| {
                    let len = draw(20.0, call, 1000 * list).unsigned_abs();
                    let indices = (1..=len).map(|index| draw(40.0, call, 1000 * list + index));
                    let mut indices: Vec<i64> = indices.collect();
                    indices.sort_unstable();
                    indices.dedup();
                    indices
                };
                let mut lists: Vec<_> = (0..num_lists).map(random_list).collect();
                assert_merges(&lists);
                // Some of these are too large to be packed with their list.
                lists.iter_mut().flatten().for_each(|index| *index += i64::MAX - 40);
                assert_merges(&lists);
            }
        }
    }

    #[test]
    fn merge_distinguishes_the_largest_packed_indices() {
        // A list takes two bits, so 2^62 - 1 is the largest index that can be packed.
        for largest in [(1 << 62) - 1, 1 << 62] {
            assert_merges(&[vec![0, largest], vec![largest - 1, largest], vec![0]]);
        }
    }
}

//! Counts the row indices that at least one of several values has.
//!
//! A backend that computes the union itself needs only its length. Counting is faster than merging,
//! because it marks each index in a map of all rows.

use super::merge_indices::merge;
use crate::fallible;
use crate::types::Result;

/// With at most this many rows for each index, the map has a byte for each row. A map of bits would
/// be smaller, but setting a bit must wait for the previous bit of the same word.
const ROWS_PER_BYTE_INDEX: usize = 16;
/// With more rows than this for each index, clearing the map would take longer than merging.
const ROWS_PER_INDEX: usize = 64;
/// The number of bits in a word of the map of bits.
const WORD_BITS: usize = 64;

/// Returns the number of different indices. Each list must be strictly ascending, with indices from
/// 0 to `num_rows - 1`.
pub(super) fn count_union(lists: &[&[i64]], num_rows: usize) -> Result<usize> {
    let num_indices: usize = lists.iter().map(|list| list.len()).sum();
    if num_rows <= num_indices.saturating_mul(ROWS_PER_BYTE_INDEX) {
        count_bytes(lists, num_rows)
    } else if num_rows <= num_indices.saturating_mul(ROWS_PER_INDEX) {
        count_bits(lists, num_rows)
    } else {
        count_merged(lists)
    }
}

fn for_each_row(lists: &[&[i64]], mut visit: impl FnMut(usize)) {
    for list in lists {
        // An invalid index becomes the largest number, which is outside of every map.
        list.iter().for_each(|index| visit(usize::try_from(*index).unwrap_or(usize::MAX)));
    }
}

fn count_bytes(lists: &[&[i64]], num_rows: usize) -> Result<usize> {
    let mut words = fallible::zeroed::<u64>(num_rows.div_ceil(size_of::<u64>()))?;
    let marks: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for_each_row(lists, |row| {
        if let Some(mark) = marks.get_mut(row) {
            *mark = 1;
        }
    });
    // Adds up to 255 words as eight numbers of eight bits, which no sum exceeds.
    let sums = words.chunks(usize::from(u8::MAX)).map(|words| words.iter().sum::<u64>());
    Ok(sums.flat_map(u64::to_ne_bytes).map(usize::from).sum())
}

fn count_bits(lists: &[&[i64]], num_rows: usize) -> Result<usize> {
    let mut words = fallible::zeroed::<u64>(num_rows.div_ceil(WORD_BITS))?;
    for_each_row(lists, |row| {
        if let Some(word) = words.get_mut(row / WORD_BITS) {
            *word |= 1 << (row % WORD_BITS);
        }
    });
    Ok(words.iter().map(|word| word.count_ones() as usize).sum())
}

fn count_merged(lists: &[&[i64]]) -> Result<usize> {
    let (mut count, mut previous) = (0, None);
    merge(lists, |index, _| {
        count += usize::from(previous != Some(index));
        previous = Some(index);
    })?;
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::noise::Distribution;

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "keeps the integer part")]
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn all_maps_count_every_index_once() {
        let (most_lists, num_calls, most_indices) =
            if cfg!(miri) { (3, 1, 20.0) } else { (17, 20, 600.0) };
        for num_lists in 0..=most_lists {
            for call in 0..num_calls {
                for num_rows in [1, 64, 300, 5000, 1 << 33] {
                    let draw = |below: f64, index: u64| {
                        let distribution = Distribution::Uniform { low: 0.0, high: below };
                        distribution.sample([5, 6], call, index) as i64
                    };
                    let random_list = |list: u64| -> Vec<i64> {
                        let len = draw(most_indices, 1000 * list).unsigned_abs();
                        let index = |index: u64| draw(num_rows as f64, 1000 * list + index);
                        let indices: BTreeSet<i64> = (1..=len).map(index).collect();
                        indices.into_iter().collect()
                    };
                    let lists: Vec<Vec<i64>> = (0..num_lists).map(random_list).collect();
                    let expected: BTreeSet<&i64> = lists.iter().flatten().collect();
                    let slices: Vec<&[i64]> = lists.iter().map(Vec::as_slice).collect();
                    let counts =
                        [count_union(&slices, num_rows).unwrap(), count_merged(&slices).unwrap()];
                    assert_eq!(counts, [expected.len(); 2]);
                    if num_rows <= 5000 {
                        let counts = [
                            count_bytes(&slices, num_rows).unwrap(),
                            count_bits(&slices, num_rows).unwrap(),
                        ];
                        assert_eq!(counts, [expected.len(); 2]);
                    }
                }
            }
        }
    }
}

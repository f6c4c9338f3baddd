//! Sums of squares over a dense value. The order of the additions is the same for every backend,
//! number of threads and device.
//!
//! A value is divided into blocks of [`BLOCK`] elements. In a block, element `i` belongs to column
//! `i % COLUMNS`. Each column adds its squares in order. Then neighbouring columns are added in
//! pairs, and the results again, until one number is left. The blocks are added in the same way.
//! All computations use `f64`.

use crate::fallible;
use crate::types::Result;

/// The number of elements in a block.
pub const BLOCK: usize = 4096;
/// The number of columns in a block.
pub const COLUMNS: usize = 128;

/// Returns the number of blocks of a value with this number of elements.
pub const fn num_blocks(num_elements: usize) -> usize {
    num_elements.div_ceil(BLOCK)
}

/// Adds neighbouring numbers in pairs, and the results again, until one number is left. A last
/// number without a neighbour moves to the next round.
///
/// Overwrites `numbers`. Returns 0 for an empty list.
#[allow(clippy::indexing_slicing, reason = "every index is below `len`")]
pub fn add_in_pairs(numbers: &mut [f64]) -> f64 {
    let mut len = numbers.len();
    while len > 1 {
        for pair in 0..len / 2 {
            numbers[pair] = numbers[2 * pair] + numbers[2 * pair + 1];
        }
        if len % 2 == 1 {
            numbers[len / 2] = numbers[len - 1];
        }
        len = len.div_ceil(2);
    }
    numbers.first().copied().unwrap_or(0.0)
}

/// Adds numbers in the order of [`add_in_pairs`], without storing them all. The level for each
/// power of two holds the sum of that many numbers until it gets a neighbour.
#[derive(Debug)]
pub(crate) struct PairSum {
    levels: [f64; usize::BITS as usize],
    count: usize,
}

impl PairSum {
    /// Returns an empty sum, which is 0.
    pub(crate) fn new() -> Self {
        Self { levels: [0.0; _], count: 0 }
    }

    /// Adds the next number.
    pub(crate) fn push(&mut self, number: f64) {
        let mut sum = number;
        let mut rest = self.count;
        for level in &mut self.levels {
            if rest.is_multiple_of(2) {
                *level = sum;
                break;
            }
            sum += *level;
            rest /= 2;
        }
        self.count += 1;
    }

    /// Returns the sum.
    pub(crate) fn total(&self) -> f64 {
        let used = self.levels.iter().enumerate().filter(|(power, _)| self.count >> power & 1 == 1);
        used.map(|(_, level)| *level).reduce(|right, left| left + right).unwrap_or(0.0)
    }
}

/// Returns the sum of squares of a dense value whose only non-zero rows are these, in the order of
/// the dense value. `numbers` has the rows in order, each with `row_len` numbers.
#[allow(clippy::indexing_slicing, reason = "a remainder by `COLUMNS` is below `COLUMNS`")]
pub(crate) fn sum_of_rows(
    indices: &[i64],
    numbers: &[f64],
    row_len: usize,
    num_elements: usize,
) -> f64 {
    let mut blocks = PairSum::new();
    let mut columns = [0.0; COLUMNS];
    // The block that `columns` belongs to. A block without a stored row still counts, as a sum of
    // zeros.
    let mut block = 0;
    let mut close_until = |columns: &mut [f64; COLUMNS], blocks: &mut PairSum, end: usize| {
        while block < end {
            blocks.push(add_in_pairs(columns));
            columns.fill(0.0);
            block += 1;
        }
    };
    for (index, row) in indices.iter().zip(numbers.chunks_exact(row_len.max(1))) {
        let first = usize::try_from(*index).unwrap_or(0) * row_len;
        for (element, number) in (first..).zip(row) {
            if element.is_multiple_of(BLOCK) || element == first {
                close_until(&mut columns, &mut blocks, element / BLOCK);
            }
            columns[element % COLUMNS] += number * number;
        }
    }
    close_until(&mut columns, &mut blocks, num_blocks(num_elements));
    blocks.total()
}

/// Returns the two sums of a value, given the two sums of each block.
///
/// # Errors
/// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
pub(crate) fn add_blocks(blocks: &[[f64; 2]]) -> Result<[f64; 2]> {
    let mut firsts = fallible::collect(blocks.iter().map(|[first, _]| *first))?;
    let mut seconds = fallible::collect(blocks.iter().map(|[_, second]| *second))?;
    Ok([add_in_pairs(&mut firsts), add_in_pairs(&mut seconds)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_in_pairs_adds_neighbours_first() {
        assert_eq!(add_in_pairs(&mut []), 0.0);
        assert_eq!(add_in_pairs(&mut [3.0]), 3.0);
        // A single 1 would be lost in a sum with 2^53.
        let large = 9_007_199_254_740_992.0;
        assert_eq!(add_in_pairs(&mut [large, 0.0, 1.0, 1.0]), large + 2.0);
        assert_eq!(add_in_pairs(&mut [1.0, 2.0, 3.0, 4.0, 5.0]), 15.0);
    }

    #[test]
    fn pair_sum_equals_add_in_pairs() {
        for len in 0..if cfg!(miri) { 40 } else { 200 } {
            // Different orders of addition round these numbers differently.
            let mut numbers: Vec<f64> =
                (0..len).map(|n| f64::from(n * n % 97 + 1).sqrt().exp()).collect();
            let mut sum = PairSum::new();
            for number in &numbers {
                sum.push(*number);
            }
            assert_eq!(sum.total().to_bits(), add_in_pairs(&mut numbers).to_bits(), "{len}");
        }
    }
}

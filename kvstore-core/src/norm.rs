//! Sums of squares over a complete value, with one order of additions for every backend, number of
//! threads and device.
//!
//! The value is cut into blocks of [`BLOCK`] elements. Within a block, element `i` belongs to column
//! `i % COLUMNS`, and each column adds its squares in order. Then neighbouring columns are added in pairs,
//! the results again in pairs, until one number is left. The blocks are added in the same way.
//! Everything is computed in `f64`.

use crate::fallible;
use crate::types::Result;

/// The elements of a block.
pub const BLOCK: usize = 4096;
/// The columns of a block.
pub const COLUMNS: usize = 128;

/// Returns the number of blocks of a value with so many elements.
pub const fn num_blocks(num_elements: usize) -> usize {
    num_elements.div_ceil(BLOCK)
}

/// Adds numbers up: neighbours in pairs, until one is left. A last one without a neighbour is kept for the
/// next round. Overwrites the numbers. Returns 0 for an empty list.
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

/// Adds numbers up as [`add_in_pairs`] does, without keeping them: a level for each power of two holds the
/// sum of that many numbers, while it has no neighbour yet.
#[derive(Debug)]
pub(crate) struct PairSum {
    levels: [f64; usize::BITS as usize],
    count: usize,
}

impl PairSum {
    /// Returns the sum of nothing, which is 0.
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

/// Returns the sum of squares over a value of which only these rows are not zero, in the order of the dense
/// value. `numbers` has the rows one after the other, each of `row_len` numbers.
#[allow(clippy::indexing_slicing, reason = "a remainder by the number of columns is one of them")]
pub(crate) fn sum_of_rows(
    indices: &[i64],
    numbers: &[f64],
    row_len: usize,
    num_elements: usize,
) -> f64 {
    let mut blocks = PairSum::new();
    let mut columns = [0.0; COLUMNS];
    // The block that `columns` belongs to. Blocks without a row are sums of zeros.
    let mut block = 0;
    let mut close_until = |columns: &mut [f64; COLUMNS], end: usize| {
        while block < end {
            blocks.push(add_in_pairs(columns));
            columns.fill(0.0);
            block += 1;
        }
        blocks.total()
    };
    for (index, row) in indices.iter().zip(numbers.chunks_exact(row_len.max(1))) {
        let first = usize::try_from(*index).unwrap_or(0) * row_len;
        for (element, number) in (first..).zip(row) {
            if element.is_multiple_of(BLOCK) || element == first {
                close_until(&mut columns, element / BLOCK);
            }
            columns[element % COLUMNS] += number * number;
        }
    }
    close_until(&mut columns, num_blocks(num_elements))
}

/// Returns the two sums over a value from those over its blocks.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub(crate) fn add_blocks(blocks: &[[f64; 2]]) -> Result<[f64; 2]> {
    let mut firsts = fallible::collect(blocks.iter().map(|[first, _]| *first))?;
    let mut seconds = fallible::collect(blocks.iter().map(|[_, second]| *second))?;
    Ok([add_in_pairs(&mut firsts), add_in_pairs(&mut seconds)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_added_first() {
        assert_eq!(add_in_pairs(&mut []), 0.0);
        assert_eq!(add_in_pairs(&mut [3.0]), 3.0);
        // Alone, 1 would be lost next to 2^53.
        let large = 9_007_199_254_740_992.0;
        assert_eq!(add_in_pairs(&mut [large, 0.0, 1.0, 1.0]), large + 2.0);
        assert_eq!(add_in_pairs(&mut [1.0, 2.0, 3.0, 4.0, 5.0]), 15.0);
    }

    #[test]
    fn pairs_are_the_same_when_numbers_come_one_by_one() {
        for len in 0..200 {
            // Each order of additions rounds these differently.
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

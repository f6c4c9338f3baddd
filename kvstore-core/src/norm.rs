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
}

//! Clipping by the global norm. Adds in the order that the store promises.

use kvstore::DType;

use crate::arithmetic::{Operator, is_half};
use crate::value::{Number, Value};

/// The number of elements in a block, and the number of columns in a block.
const BLOCK: usize = 4096;
const COLUMNS: usize = 128;

/// Scales all sums so that their norm is at most `bound`. Does nothing if the norm is smaller or
/// not finite.
pub fn clip(sums: &mut [Value], bound: f64) {
    let sum_of_squares = |sum: &Value| {
        let numbers: Vec<f64> = sum.numbers.iter().map(|number| number.to_f64()).collect();
        in_pairs(&sums_of_blocks(&numbers))
    };
    let squares: Vec<f64> = sums.iter().map(sum_of_squares).collect();
    let norm = in_pairs(&squares).sqrt();
    let factor = bound / (norm + 1e-8);
    if norm.is_finite() && factor < 1.0 {
        for sum in sums {
            // The factor may be too small for half precision, so these sums are scaled in f32 and
            // rounded once.
            let dtype = sum.spec.dtype;
            let scaled_in = if is_half(dtype) { DType::F32 } else { dtype };
            let wide = sum.cast(scaled_in).operate_scalar(Operator::Mul, Number::Float(factor));
            *sum = wide.cast(dtype);
        }
    }
}

/// Returns the sum of the squares of each block.
pub fn sums_of_blocks(numbers: &[f64]) -> Vec<f64> {
    numbers.chunks(BLOCK).map(sum_of_block).collect()
}

fn sum_of_block(block: &[f64]) -> f64 {
    let mut columns = [0.0; COLUMNS];
    for (index, number) in block.iter().enumerate() {
        columns[index % COLUMNS] += number * number;
    }
    in_pairs(&columns)
}

/// Adds neighbours, then their sums, until one number is left.
fn in_pairs(numbers: &[f64]) -> f64 {
    match numbers {
        [] => 0.0,
        [number] => *number,
        _ => in_pairs(&numbers.chunks(2).map(|pair| pair.iter().sum()).collect::<Vec<_>>()),
    }
}

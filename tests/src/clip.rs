//! Clipping by the global norm, with the additions in the order that the store promises.

use crate::arithmetic::Operator;
use crate::value::{Number, Value};

/// The elements of a block, and the columns that they are dealt to.
const BLOCK: usize = 4096;
const COLUMNS: usize = 128;

/// The sum of a key. If all of its values are rows: which rows they have.
pub type Merged = (Value, Option<Vec<i64>>);

/// Scales all sums so that the norm over them is at most `bound`, if it is larger and finite.
pub fn clip(sums: &mut [Merged], bound: f64) {
    let of_key = |sum| in_pairs(&sums_of_blocks(&present(sum)));
    let squares: Vec<f64> = sums.iter().map(of_key).collect();
    let norm = in_pairs(&squares).sqrt();
    let factor = bound / (norm + 1e-8);
    if norm.is_finite() && factor < 1.0 {
        for (sum, _) in sums {
            *sum = sum.operate_scalar(Operator::Mul, Number::Float(factor));
        }
    }
}

/// Returns the numbers of a value, of rows those of the rows that are there.
fn present((value, rows): &Merged) -> Vec<f64> {
    let numbers: Vec<f64> = value.numbers.iter().map(|number| number.to_f64()).collect();
    let Some(rows) = rows else { return numbers };
    let mut rows = rows.clone();
    rows.sort_unstable();
    rows.dedup();
    let row_len: usize = value.spec.shape.iter().skip(1).product();
    let row = |row: &i64| {
        let first = usize::try_from(*row).expect("a row of the value") * row_len;
        numbers[first..first + row_len].to_vec()
    };
    rows.iter().flat_map(row).collect()
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

/// Adds neighbours up, then their sums, until one number is left.
fn in_pairs(numbers: &[f64]) -> f64 {
    match numbers {
        [] => 0.0,
        [number] => *number,
        _ => in_pairs(&numbers.chunks(2).map(|pair| pair.iter().sum()).collect::<Vec<_>>()),
    }
}

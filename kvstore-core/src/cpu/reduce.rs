//! Reductions. They fold blocks of fixed length in order, so the bits of a result do not depend on
//! the number of threads.

use super::arithmetic::Ordered;
use super::threads::{Split, Workers};
use crate::fallible;
use crate::types::{Element, Error, Reduction, Result, Scalar};

/// The number of elements per block.
const BLOCK: usize = 4096;

/// Reduces all elements to one.
pub(super) fn reduce<T: Ordered>(workers: &Workers, op: Reduction, elements: &[T]) -> Result<T> {
    match op {
        Reduction::Sum => Ok(total(workers, elements)?.to_element()),
        Reduction::Mean => Ok(Scalar::Float(mean(workers, elements)?).to_element()),
        Reduction::Norm => {
            let squares = fold(workers, elements, 0.0, |sum, x: T| sum + x.to_f64() * x.to_f64())?;
            Ok(Scalar::Float(squares.into_iter().fold(0.0, |a, b| a + b).sqrt()).to_element())
        }
        Reduction::Max => extreme(workers, op, elements, T::larger),
        Reduction::Min => extreme(workers, op, elements, T::smaller),
    }
}

/// Returns the sum of all elements: integers as wrapping `i64`, floats as `f64`.
fn total<T: Element>(workers: &Workers, elements: &[T]) -> Result<Scalar> {
    if T::DTYPE.is_float() {
        let sums = fold(workers, elements, 0.0, |sum, x: T| sum + x.to_f64())?;
        Ok(Scalar::Float(sums.into_iter().fold(0.0, |a, b| a + b)))
    } else {
        let sums = fold(workers, elements, 0i64, |sum, x: T| sum.wrapping_add(x.to_i64()))?;
        Ok(Scalar::Int(sums.into_iter().fold(0, i64::wrapping_add)))
    }
}

#[allow(clippy::cast_precision_loss, reason = "a mean is rounded anyway")]
fn mean<T: Element>(workers: &Workers, elements: &[T]) -> Result<f64> {
    let total = match total(workers, elements)? {
        Scalar::Float(sum) => sum,
        Scalar::Int(sum) => sum as f64,
    };
    Ok(total / elements.len() as f64)
}

fn extreme<T: Element>(
    workers: &Workers,
    op: Reduction,
    elements: &[T],
    choose: impl Fn(T, T) -> T + Sync,
) -> Result<T> {
    let &first = elements
        .first()
        .ok_or_else(|| Error::invalid(format!("{}: the array has no elements", op.name())))?;
    let blocks = fold(workers, elements, first, &choose)?;
    Ok(blocks.into_iter().fold(first, choose))
}

/// Returns the fold of each block.
fn fold<T: Element, R: Copy + Send + Sync>(
    workers: &Workers,
    elements: &[T],
    start: R,
    step: impl Fn(R, T) -> R + Sync,
) -> Result<Vec<R>> {
    let mut folded = fallible::filled(start, elements.len().div_ceil(BLOCK))?;
    workers.for_each_piece(Blocks { elements, folded: &mut folded }, |piece| {
        for (block, folded) in piece.elements.chunks(BLOCK).zip(piece.folded) {
            *folded = block.iter().fold(start, |folded, &element| step(folded, element));
        }
    });
    Ok(folded)
}

/// Elements, and the destination for the fold of each block.
struct Blocks<'a, T, R> {
    elements: &'a [T],
    folded: &'a mut [R],
}

impl<T: Element, R: Send> Split for Blocks<'_, T, R> {
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let blocks = middle.div_ceil(BLOCK).min(self.folded.len());
        let (left, right) = self.folded.split_at_mut(blocks);
        let middle = (blocks * BLOCK).min(self.elements.len());
        let (left_elements, right_elements) = self.elements.split_at(middle);
        (
            Self { elements: left_elements, folded: left },
            Self { elements: right_elements, folded: right },
        )
    }
}

/// Writes the column of the largest element of each row. NaN is never larger.
pub(super) fn argmax<T: Element>(dst: &mut [T], src: &[T], rows: usize) {
    let columns = src.len().checked_div(rows).unwrap_or(0).max(1);
    for (dst, row) in dst.iter_mut().zip(src.chunks(columns)) {
        let mut best = 0;
        for (column, element) in row.iter().enumerate() {
            if row.get(best).is_some_and(|largest| element > largest) {
                best = column;
            }
        }
        *dst = T::from_i64(i64::try_from(best).unwrap_or(i64::MAX));
    }
}

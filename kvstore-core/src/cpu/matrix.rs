//! Matrix product, transpose, and repetition along axes.

use ::ndarray::linalg::general_mat_mul;
use ::ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use super::memory::{elements, elements_mut};
use super::workers::{Split, Workers};
use crate::backend::MatmulSize;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::storage::{Span, SpanMut};

/// Rows of the product that are computed together. Fixed, so that the bits do not depend on the
/// number of threads.
const ROWS: usize = 64;

/// Writes the product of `[m, k]` and `[k, n]`.
pub(super) fn product<T: Element + LinalgScalar>(
    workers: &Workers,
    dst: SpanMut<'_>,
    lhs: Span<'_>,
    rhs: Span<'_>,
    size: MatmulSize,
) -> Result<()> {
    let MatmulSize { m, k, n } = size;
    let (lhs, rhs) = (elements::<T>(lhs)?, elements::<T>(rhs)?);
    let dst = elements_mut::<T>(dst)?;
    let shape = |error: ::ndarray::ShapeError| Error::Internal(format!("matrix product: {error}"));
    let rhs = ArrayView2::from_shape((k, n), rhs).map_err(shape)?;
    let lhs = ArrayView2::from_shape((m, k), lhs).map_err(shape)?;
    let dst = ArrayViewMut2::from_shape((m, n), dst).map_err(shape)?;
    let work = k.saturating_mul(n).max(1);
    workers.for_each_piece(Product { lhs, dst, work }, &|piece| {
        let Product { lhs, mut dst, .. } = piece;
        let lhs_blocks = lhs.axis_chunks_iter(::ndarray::Axis(0), ROWS);
        let dst_blocks = dst.axis_chunks_iter_mut(::ndarray::Axis(0), ROWS);
        for (lhs, mut dst) in lhs_blocks.zip(dst_blocks) {
            general_mat_mul(T::one(), &lhs, &rhs, T::zero(), &mut dst);
        }
    });
    Ok(())
}

/// Rows of a product. Its length is counted in blocks of rows times the work in one of them, so
/// that a piece is worth a thread.
struct Product<'a, T> {
    lhs: ArrayView2<'a, T>,
    dst: ArrayViewMut2<'a, T>,
    work: usize,
}

impl<T: Element> Split for Product<'_, T> {
    fn len(&self) -> usize {
        if self.dst.nrows() <= ROWS {
            return 0;
        }
        self.dst.nrows().saturating_mul(self.work)
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let last = self.dst.nrows().saturating_sub(1) / ROWS * ROWS;
        let middle = (middle / self.work).max(1).next_multiple_of(ROWS).min(last);
        let (left_lhs, right_lhs) = self.lhs.split_at(::ndarray::Axis(0), middle);
        let (left_dst, right_dst) = self.dst.split_at(::ndarray::Axis(0), middle);
        let work = self.work;
        (Self { lhs: left_lhs, dst: left_dst, work }, Self { lhs: right_lhs, dst: right_dst, work })
    }
}

/// Writes the transpose of a matrix of `rows` rows, tile by tile so that both sides stay in cache.
pub(super) fn transpose<T: Element>(dst: &mut [T], src: &[T], rows: usize) {
    const TILE: usize = 32;
    let columns = src.len().checked_div(rows).unwrap_or(0);
    for row_tile in (0..rows).step_by(TILE) {
        for column_tile in (0..columns).step_by(TILE) {
            for row in row_tile..rows.min(row_tile + TILE) {
                for column in column_tile..columns.min(column_tile + TILE) {
                    let element = src.get(row * columns + column).copied();
                    if let (Some(dst), Some(element)) = (dst.get_mut(column * rows + row), element)
                    {
                        *dst = element;
                    }
                }
            }
        }
    }
}

//! Matrix product and transpose.

use std::sync::OnceLock;
use std::thread::{self, ThreadId};

use ::ndarray::linalg::general_mat_mul;
use ::ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar};

use super::memory::{elements, elements_mut};
use super::threads::{Split, Workers};
use crate::backend::{Check, MatmulSize, Span, SpanMut};
use crate::types::{Element, Error, Result};

/// The row count of a block of the product. It is fixed, so that the bits do not depend on the
/// number of threads.
const ROWS: usize = 64;
/// The maximum number of multiplications between two checks. They take about 0.1 s. A block of 64
/// columns, the smallest, may need more.
const WORK_PER_CHECK: usize = 1 << 30;

/// Writes the product of `[m, k]` and `[k, n]`. The calling thread calls `check` at the start and
/// before each block that it computes itself. Other threads may compute all the blocks.
pub(super) fn product<T: Element + LinalgScalar>(
    workers: &Workers,
    dst: SpanMut<'_>,
    lhs: Span<'_>,
    rhs: Span<'_>,
    size: MatmulSize,
    check: &Check<'_>,
) -> Result<()> {
    let MatmulSize { m, k, n } = size;
    let (lhs, rhs) = (elements::<T>(lhs)?, elements::<T>(rhs)?);
    let dst = elements_mut::<T>(dst)?;
    let shape = |error: ::ndarray::ShapeError| Error::Internal(format!("matrix product: {error}"));
    let rhs = ArrayView2::from_shape((k, n), rhs).map_err(shape)?;
    let lhs = ArrayView2::from_shape((m, k), lhs).map_err(shape)?;
    let dst = ArrayViewMut2::from_shape((m, n), dst).map_err(shape)?;
    let work = k.saturating_mul(n).max(1);
    let stop = Stop { check, caller: thread::current().id(), error: OnceLock::new() };
    let num_columns = columns_per_check(k);
    // The other threads may compute all the blocks. Then this is the only check.
    check()?;
    workers.for_each_piece(Product { lhs, dst, work }, |piece| {
        let Product { lhs, mut dst, .. } = piece;
        let lhs_blocks = lhs.axis_chunks_iter(::ndarray::Axis(0), ROWS);
        let dst_blocks = dst.axis_chunks_iter_mut(::ndarray::Axis(0), ROWS);
        for (lhs, dst) in lhs_blocks.zip(dst_blocks) {
            multiply(&lhs, &rhs, dst, num_columns, &stop);
        }
    });
    stop.error.into_inner().map_or(Ok(()), Err)
}

/// Returns the number of columns of a block of [`ROWS`] rows to compute between two checks.
fn columns_per_check(k: usize) -> usize {
    let columns = WORK_PER_CHECK / ROWS.saturating_mul(k).max(1);
    (columns / ROWS).max(1) * ROWS
}

/// Writes the product of some rows, `num_columns` columns at a time, until `stop` is set. Does not
/// split the sum of an element, so the bits do not depend on `num_columns`.
fn multiply<T: LinalgScalar>(
    lhs: &ArrayView2<'_, T>,
    rhs: &ArrayView2<'_, T>,
    mut dst: ArrayViewMut2<'_, T>,
    num_columns: usize,
    stop: &Stop<'_>,
) {
    let rhs_blocks = rhs.axis_chunks_iter(::ndarray::Axis(1), num_columns);
    let dst_blocks = dst.axis_chunks_iter_mut(::ndarray::Axis(1), num_columns);
    for (rhs, mut dst) in rhs_blocks.zip(dst_blocks) {
        if stop.is_set() {
            return;
        }
        general_mat_mul(T::one(), lhs, &rhs, T::zero(), &mut dst);
    }
}

/// Stops all threads of a product once the check has failed.
struct Stop<'a> {
    check: &'a Check<'a>,
    /// The only thread that calls the check.
    caller: ThreadId,
    error: OnceLock<Error>,
}

impl Stop<'_> {
    /// Returns whether the check has failed. The calling thread runs the check first.
    fn is_set(&self) -> bool {
        if self.error.get().is_none()
            && thread::current().id() == self.caller
            && let Err(error) = (self.check)()
        {
            let _ = self.error.set(error);
        }
        self.error.get().is_some()
    }
}

/// Some rows of a product. Its length is the row count times the work per row, so that each piece
/// is worth a thread.
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

/// Writes the transpose of a matrix of `rows` rows. Works in tiles, so that both matrices stay in
/// cache.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::ndarray::Array2;

    use crate::backend::Storage;
    use crate::cpu::memory::Memory;
    use crate::types::{Device, Error, ErrorCode};

    use super::*;

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn column_blocks_keep_the_bits_and_are_checked_one_at_a_time() {
        // Factors with many digits, because another order of additions then changes the bits.
        let generator = |seed: u32| {
            let mut state = seed;
            move || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from_bits(0x3f80_0000 | state >> 9) - 1.4
            }
        };
        for (m, k, n) in [(64, 300, 200), (1, 1000, 129), (7, 1, 65), (64, 64, 64), (3, 0, 70)] {
            let (mut left, mut right) = (generator(1), generator(2));
            let lhs = Array2::from_shape_simple_fn((m, k), &mut left);
            let rhs = Array2::from_shape_simple_fn((k, n), &mut right);
            let run = |num_columns: usize, last: usize| {
                let calls = AtomicUsize::new(0);
                let check = || {
                    let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
                    if number < last { Ok(()) } else { Err(Error::Internal("stop".to_owned())) }
                };
                let caller = thread::current().id();
                let stop = Stop { check: &check, caller, error: OnceLock::new() };
                let mut dst = Array2::from_elem((m, n), 9.0_f32);
                multiply(&lhs.view(), &rhs.view(), dst.view_mut(), num_columns, &stop);
                let bits: Vec<u32> = dst.iter().map(|element| element.to_bits()).collect();
                (bits, calls.load(Ordering::Relaxed))
            };
            let (unblocked, num_calls) = run(n, usize::MAX);
            assert_eq!(num_calls, 1);
            assert_eq!(run(64, usize::MAX), (unblocked, n.div_ceil(64)), "{m} x {k} x {n}");
            assert_eq!(run(64, 1), (vec![9.0_f32.to_bits(); m * n], 1));
        }
        assert_eq!(columns_per_check(1 << 20), 64);
        assert_eq!(columns_per_check(1 << 30), 64);
        assert_eq!(columns_per_check(1 << 10), 1 << 14);
        assert!(columns_per_check(0) > 0);
    }

    fn all_of(storage: &dyn Storage) -> Span<'_> {
        Span { storage, start: 0, num_bytes: storage.num_bytes() }
    }

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn a_failed_check_ends_the_product() {
        let blocks = 200;
        for threads in [1, 3] {
            let (memory, workers) = (Memory::new(), Workers::new(threads));
            let ones = |num_elements: usize| {
                let num_bytes = num_elements * size_of::<f32>();
                let mut storage = memory.allocate(Device::cpu(0), num_bytes).unwrap();
                let dst = Arc::get_mut(&mut storage).unwrap();
                elements_mut::<f32>(SpanMut { storage: dst, start: 0, num_bytes })
                    .unwrap()
                    .fill(1.0);
                storage
            };
            // All factors are 1, so every element of a complete product is 32.
            let size = MatmulSize { m: blocks * ROWS, k: 32, n: 32 };
            let (tall, square) = (ones(size.m * size.k), ones(size.k * size.n));
            let product = |check: &Check<'_>| -> Result<bool> {
                let mut storage = ones(size.m * size.n);
                let dst = Arc::get_mut(&mut storage).unwrap();
                let dst = SpanMut { num_bytes: dst.num_bytes(), storage: dst, start: 0 };
                product::<f32>(&workers, dst, all_of(&*tall), all_of(&*square), size, check)?;
                let found = elements::<f32>(all_of(&*storage))?;
                Ok(found.iter().all(|element| *element == 32.0))
            };
            let calls = Arc::new(AtomicUsize::new(0));
            let caller = thread::current().id();
            let ends_at = |last: usize| {
                let calls = Arc::clone(&calls);
                calls.store(0, Ordering::Relaxed);
                move || {
                    assert_eq!(thread::current().id(), caller);
                    let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
                    if number < last { Ok(()) } else { Err(Error::Internal("stop".to_owned())) }
                }
            };
            let stopped = product(&ends_at(1)).unwrap_err();
            assert_eq!(stopped.code(), ErrorCode::Internal);
            assert_eq!(calls.load(Ordering::Relaxed), 1, "no call follows the one that fails");
            assert!(product(&ends_at(usize::MAX)).unwrap());
            let found = calls.load(Ordering::Relaxed);
            assert!((1..=blocks + 1).contains(&found), "{found} calls for {blocks} blocks");
            if threads == 1 {
                assert_eq!(found, blocks + 1);
                assert!(product(&ends_at(3)).is_err());
                assert_eq!(calls.load(Ordering::Relaxed), 3);
            }
        }
    }
}

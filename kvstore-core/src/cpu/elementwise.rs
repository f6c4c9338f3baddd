//! Elementwise operations. Each is one pass over the elements, with pieces in parallel.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::arithmetic::{Arithmetic, truth, with_binary, with_unary};
use super::half::{self, Half};
use super::in_out::InOutSlice;
use super::lanes::{Lanes, Map, Zip};
use super::memory::elements;
use super::rounding::Rounding;
use super::threads::{Split, Workers};
use crate::backend::{InOut, Operand};
use crate::types::{BinaryOp, Element, Error, Result, Scalar, UnaryOp};

/// Computes `lhs = lhs op rhs`, or `lhs = rhs op lhs` if `reversed`.
pub(super) fn binary<T: Lanes>(
    workers: &Workers,
    op: BinaryOp,
    lhs: InOut<'_>,
    rhs: Operand<'_>,
    reversed: bool,
) -> Result<()> {
    let lhs = InOutSlice::<T>::open(lhs)?;
    match rhs {
        Operand::Span(span) => {
            let rhs = elements::<T>(span)?;
            if rhs.len() != lhs.len() {
                return Err(Error::Internal("operands of different lengths".to_owned()));
            }
            // Checks every divisor before the first write, so that a failed call changes nothing.
            reject_zero_divisor::<T>(workers, op, if reversed { lhs.src() } else { rhs })?;
            let zip = zip_of::<T::Compute>(op, reversed);
            workers.for_each_piece(Pair { lhs, rhs }, |pair| T::zip(pair.lhs, pair.rhs, zip));
        }
        Operand::Scalar(number) => {
            let number: T = Scalar::to_element(number);
            let divisors = if reversed { lhs.src() } else { std::slice::from_ref(&number) };
            reject_zero_divisor::<T>(workers, op, divisors)?;
            let map = map_with(op, number.widened(), reversed);
            workers.for_each_piece(lhs, |piece| T::map(piece, map));
        }
    }
    Ok(())
}

/// Computes `operand = op(operand)`.
pub(super) fn unary<T: Lanes>(workers: &Workers, op: UnaryOp, operand: InOut<'_>) -> Result<()> {
    let operand = InOutSlice::<T>::open(operand)?;
    let map = map_of::<T::Compute>(op);
    workers.for_each_piece(operand, |piece| T::map(piece, map));
    Ok(())
}

/// Replaces each element with the nearest number in `[low, high]`.
pub(super) fn clip<T: Lanes>(
    workers: &Workers,
    operand: InOut<'_>,
    low: Scalar,
    high: Scalar,
) -> Result<()> {
    let (low, high): (T, T) = (low.to_element(), high.to_element());
    let (low, high) = (low.widened(), high.widened());
    let map = map_clip(low, high);
    workers.for_each_piece(InOutSlice::<T>::open(operand)?, |piece| T::map(piece, map));
    Ok(())
}

/// Replaces each element `x` with `f(x)`.
fn for_each<C: Copy>(elements: InOutSlice<'_, C>, f: impl Fn(C) -> C) {
    match elements {
        InOutSlice::InPlace(elements) => {
            for x in elements {
                *x = f(*x);
            }
        }
        InOutSlice::Into(src, dst) => {
            for (dst, x) in dst.iter_mut().zip(src) {
                *dst = f(*x);
            }
        }
    }
}

/// Replaces each element `x` with `f(x, y)`, where `y` is the element of `others` at its index.
fn for_each_pair<C: Copy>(elements: InOutSlice<'_, C>, others: &[C], f: impl Fn(C, C) -> C) {
    match elements {
        InOutSlice::InPlace(elements) => {
            for (x, y) in elements.iter_mut().zip(others) {
                *x = f(*x, *y);
            }
        }
        InOutSlice::Into(src, dst) => {
            for ((dst, x), y) in dst.iter_mut().zip(src).zip(others) {
                *dst = f(*x, *y);
            }
        }
    }
}

// The functions below return the loop of each operation as a function pointer, so that dtypes with
// the same compute type share it.

fn map_of<C: Arithmetic>(op: UnaryOp) -> Map<C> {
    let run = with_unary!(op, f => |elements: InOutSlice<'_, C>, _: C, _: C| for_each(elements, f));
    Map { numbers: (C::default(), C::default()), run }
}

fn map_with<C: Arithmetic>(op: BinaryOp, number: C, reversed: bool) -> Map<C> {
    let run: fn(InOutSlice<'_, C>, C, C) = with_binary!(op, f => if reversed {
        |elements, number, _| for_each(elements, |x| f(number, x))
    } else {
        |elements, number, _| for_each(elements, |x| f(x, number))
    });
    Map { numbers: (number, number), run }
}

fn map_clip<C: Arithmetic>(low: C, high: C) -> Map<C> {
    // Both comparisons are false for NaN, so NaN stays NaN.
    let run = |elements: InOutSlice<'_, C>, low: C, high: C| {
        for_each(elements, |x| {
            let x = if low > x { low } else { x };
            if high < x { high } else { x }
        });
    };
    Map { numbers: (low, high), run }
}

fn zip_of<C: Arithmetic>(op: BinaryOp, reversed: bool) -> Zip<C> {
    with_binary!(op, f => if reversed {
        |elements, others| for_each_pair(elements, others, |x, y| f(y, x))
    } else {
        |elements, others| for_each_pair(elements, others, f)
    })
}

/// Sets every element to `element(index)`.
pub(super) fn fill_by_index<T: Element>(
    workers: &Workers,
    dst: &mut [T],
    element: impl Fn(u64) -> T + Sync,
) {
    workers.for_each_piece(IndexedSlice { dst, start: 0 }, |piece| {
        for (index, dst) in (piece.start as u64..).zip(piece.dst) {
            *dst = element(index);
        }
    });
}

/// Broadcasts `src` from shape `from` to shape `to`: repeats it along its axes of length 1.
pub(super) fn expand<T: Element>(
    workers: &Workers,
    dst: &mut [T],
    to: &[usize],
    src: &[T],
    from: &[usize],
) {
    let (Some((&width, to)), Some((&from_width, from))) = (to.split_last(), from.split_last())
    else {
        return dst.copy_from_slice(src);
    };
    workers.for_each_piece(IndexedSlice { dst, start: 0 }, |piece| {
        let (mut index, mut rest) = (piece.start, piece.dst);
        // Writes one run along the last axis at a time: a copy of a run of `src`, or one repeated
        // element. A piece may begin and end within a run.
        while !rest.is_empty() {
            let column = index % width;
            let (run, after) = rest.split_at_mut(rest.len().min(width - column));
            let row = source_row(index / width, to, from) * from_width;
            let start = row + if from_width == 1 { 0 } else { column };
            match src.get(start..).unwrap_or_default() {
                [element, ..] if from_width == 1 => run.fill(*element),
                source => run.copy_from_slice(source.get(..run.len()).unwrap_or_default()),
            }
            (index, rest) = (index + run.len(), after);
        }
    });
}

/// Returns the row of shape `from` that is broadcast to `row` of shape `to`.
fn source_row(mut row: usize, to: &[usize], from: &[usize]) -> usize {
    let (mut source, mut stride) = (0, 1);
    for (&to, &from) in to.iter().zip(from).rev() {
        source += stride * if from == 1 { 0 } else { row % to };
        row /= to;
        stride *= from;
    }
    source
}

/// Some elements, and the index of the first.
struct IndexedSlice<'a, T> {
    dst: &'a mut [T],
    start: usize,
}

impl<T: Element> Split for IndexedSlice<'_, T> {
    fn len(&self) -> usize {
        self.dst.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left, right) = self.dst.split_at_mut(middle);
        let start = self.start;
        (Self { dst: left, start }, Self { dst: right, start: start + middle })
    }
}

/// Converts every element.
pub(super) fn cast<S: Element, D: Element>(workers: &Workers, src: &[S], dst: &mut [D]) {
    // Baseline processors convert to 64-bit integers one by one, so `truncate` would be no faster.
    let to_integers = S::DTYPE.is_float() && !D::DTYPE.is_float() && size_of::<D>() <= 4;
    workers.for_each_piece(Conversion { src, dst }, |piece| {
        if to_integers {
            return truncate(piece.src, piece.dst);
        }
        for (dst, &src) in piece.dst.iter_mut().zip(piece.src) {
            *dst = crate::types::cast(src);
        }
    });
}

/// Converts `f32` to half precision.
pub(super) fn narrow<D: Half>(workers: &Workers, src: &[f32], dst: &mut [D]) {
    workers.for_each_piece(Conversion { src, dst }, |piece| half::narrow(piece.src, piece.dst));
}

/// Converts half precision to `f32`.
pub(super) fn widen<S: Half>(workers: &Workers, src: &[S], dst: &mut [f32]) {
    workers.for_each_piece(Conversion { src, dst }, |piece| half::widen(piece.src, piece.dst));
}

/// Converts floats to integers, 64 at a time. Uses the fast conversion if all 64 are short, as is
/// usual.
fn truncate<S: Element, D: Element>(src: &[S], dst: &mut [D]) {
    for (src, dst) in src.chunks(64).zip(dst.chunks_mut(64)) {
        let pairs = dst.iter_mut().zip(src);
        if !src.iter().fold(true, |all, &x| all & is_short(x)) {
            pairs.for_each(|(dst, &src)| *dst = crate::types::cast(src));
        } else if S::NEEDS_F64 {
            pairs.for_each(|(dst, src)| *dst = D::from_i64(src.to_f64().to_integer()));
        } else {
            pairs.for_each(|(dst, src)| *dst = D::from_i64(src.to_f32().to_integer()));
        }
    }
}

#[inline]
fn is_short<S: Element>(float: S) -> bool {
    if S::NEEDS_F64 { float.to_f64().is_short() } else { float.to_f32().is_short() }
}

/// Returns an error if an integer would be divided by zero.
fn reject_zero_divisor<T: Lanes>(workers: &Workers, op: BinaryOp, divisors: &[T]) -> Result<()> {
    if op != BinaryOp::Div || !T::Compute::ZERO_DIVISOR_IS_ERROR {
        return Ok(());
    }
    let found = AtomicBool::new(false);
    workers.for_each_piece(divisors, |piece| {
        if piece.contains(&T::default()) {
            found.store(true, Relaxed);
        }
    });
    if found.into_inner() {
        return Err(Error::invalid(format!("division by zero of {} values", T::DTYPE)));
    }
    Ok(())
}

/// The operands of a binary operation.
struct Pair<'a, T> {
    lhs: InOutSlice<'a, T>,
    rhs: &'a [T],
}

impl<T: Element> Split for Pair<'_, T> {
    fn len(&self) -> usize {
        self.rhs.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left, right) = self.lhs.split_at(middle);
        let (left_rhs, right_rhs) = self.rhs.split_at(middle);
        (Self { lhs: left, rhs: left_rhs }, Self { lhs: right, rhs: right_rhs })
    }
}

/// The source and the destination of a conversion.
struct Conversion<'a, S, D> {
    src: &'a [S],
    dst: &'a mut [D],
}

impl<S: Element, D: Element> Split for Conversion<'_, S, D> {
    fn len(&self) -> usize {
        self.dst.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left_src, right_src) = self.src.split_at(middle);
        let (left_dst, right_dst) = self.dst.split_at_mut(middle);
        (Self { src: left_src, dst: left_dst }, Self { src: right_src, dst: right_dst })
    }
}

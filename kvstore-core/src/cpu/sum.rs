//! The sum of `n` ranges: a left fold over the addends. Reads up to eight addends at once, so that
//! each element is summed in a register and written once.

use super::half::{Half, narrow, widen};
use super::memory::{bytes_mut, cast_mut, elements};
use super::threads::{Job, Split};
use crate::backend::{Span, SumJob};
use crate::types::{
    DType, Element, Error, Result, full_types, half_types, integer_types, with_element,
};

/// The number of elements per block. Buffers of this length stay in the first-level cache.
pub(super) const BLOCK: usize = if cfg!(miri) { 1 << 8 } else { 1 << 11 };
/// The number of addends that are read at once.
const WIDTH: usize = 8;

impl Job for SumJob<'_> {
    type Piece<'j>
        = Sum<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.dst.num_bytes / self.dtype.size()
    }

    fn open(&mut self) -> Result<Sum<'_>> {
        let addends = Addends::open(self.addends, self.dst.num_bytes)?;
        Ok(Sum { dtype: self.dtype, dst: bytes_mut(self.dst.reborrow())?, addends, start: 0 })
    }

    fn run(piece: Sum<'_>) -> Result<()> {
        with_element!(piece.dtype, T => {
            T::fold(piece.addends, piece.start, cast_mut(piece.dst)?)
        })
    }
}

/// Some elements of a sum.
pub(super) struct Sum<'a> {
    dtype: DType,
    dst: &'a mut [u8],
    addends: Addends<'a>,
    start: usize,
}

impl Split for Sum<'_> {
    fn len(&self) -> usize {
        self.dst.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { dtype, addends, start, .. } = self;
        let (left, right) = self.dst.split_at_mut(middle * dtype.size());
        let right = Self { dtype, dst: right, addends, start: start + middle };
        (Self { dtype, dst: left, addends, start }, right)
    }
}

/// The addends of a sum: at least one range, all of the same length.
#[derive(Clone, Copy)]
pub(super) struct Addends<'a>(&'a [Span<'a>]);

impl<'a> Addends<'a> {
    /// Checks that there is an addend, and that each has `num_bytes` bytes.
    pub(super) fn open(spans: &'a [Span<'a>], num_bytes: usize) -> Result<Self> {
        if spans.is_empty() || spans.iter().any(|span| span.num_bytes != num_bytes) {
            return Err(wrong_addends());
        }
        Ok(Self(spans))
    }

    /// Returns the elements `start..start + len` of the addends `first..first + N`.
    fn part<T: Element, const N: usize>(
        &self,
        first: usize,
        start: usize,
        len: usize,
    ) -> Result<[&'a [T]; N]> {
        let mut parts = [&[][..]; N];
        let spans = self.0.get(first..).unwrap_or_default();
        for (part, span) in parts.iter_mut().zip(spans) {
            let all = elements::<T>(*span)?;
            *part = all.get(start..start + len).ok_or_else(wrong_addends)?;
        }
        Ok(parts)
    }
}

fn wrong_addends() -> Error {
    Error::Internal("addends of another length than their sum".to_owned())
}

/// Element types that can be summed.
pub(super) trait Fold: Element {
    /// Writes `((x0 + x1) + x2) + ..` to every element of `dst`. The first element of `dst` is the
    /// sum of the elements at index `start`.
    fn fold(addends: Addends<'_>, start: usize, dst: &mut [Self]) -> Result<()>;
}

/// Element types whose sums use their own arithmetic.
pub(super) trait Add: Element {
    fn add(self, other: Self) -> Self;
}

macro_rules! add {
    ($add:expr; $($type:ty),+) => {
        $(
            impl Add for $type {
                #[inline]
                fn add(self, other: Self) -> Self {
                    let add: fn(Self, Self) -> Self = $add;
                    add(self, other)
                }
            }
            impl Fold for $type {
                fn fold(addends: Addends<'_>, start: usize, dst: &mut [Self]) -> Result<()> {
                    fold_wide(addends, start, dst)
                }
            }
        )+
    };
}
macro_rules! add_full {
    ($($Variant:ident: $type:ty),+) => { add!(|a, b| a + b; $($type),+); };
}
macro_rules! add_integer {
    ($($Variant:ident: $type:ty),+) => { add!(|a, b| a.wrapping_add(b); $($type),+); };
}
full_types!(add_full);
integer_types!(add_integer);

macro_rules! half_fold {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Fold for $type {
            fn fold(addends: Addends<'_>, start: usize, dst: &mut [Self]) -> Result<()> {
                fold_half(addends, start, dst)
            }
        })+
    };
}
half_types!(half_fold);

/// Sums in the arithmetic of the element type.
fn fold_wide<T: Add>(addends: Addends<'_>, start: usize, dst: &mut [T]) -> Result<()> {
    let num_addends = addends.0.len();
    if num_addends <= WIDTH {
        return fold_first(addends, num_addends, start, dst);
    }
    // Adds the other addends block by block, while the sums of the block are in cache.
    for (block, dst) in dst.chunks_mut(BLOCK).enumerate() {
        let start = start + block * BLOCK;
        fold_first(addends, WIDTH, start, dst)?;
        let mut first = WIDTH;
        while first < num_addends {
            let count = WIDTH.min(num_addends - first);
            with_width!(count, N => add_up::<T, N, true>(
                dst,
                addends.part::<T, N>(first, start, dst.len())?,
            ));
            first += count;
        }
    }
    Ok(())
}

/// Writes the sums of the first `count` addends.
fn fold_first<T: Add>(
    addends: Addends<'_>,
    count: usize,
    start: usize,
    dst: &mut [T],
) -> Result<()> {
    with_width!(count, N => add_up::<T, N, false>(
        dst,
        addends.part::<T, N>(0, start, dst.len())?,
    ));
    Ok(())
}

/// Evaluates an expression in which `$N` is a constant equal to `$count`, from 1 to 8.
macro_rules! with_width {
    ($count:expr, $N:ident => $body:expr) => {
        match $count {
            1 => {
                const $N: usize = 1;
                $body
            }
            2 => {
                const $N: usize = 2;
                $body
            }
            3 => {
                const $N: usize = 3;
                $body
            }
            4 => {
                const $N: usize = 4;
                $body
            }
            5 => {
                const $N: usize = 5;
                $body
            }
            6 => {
                const $N: usize = 6;
                $body
            }
            7 => {
                const $N: usize = 7;
                $body
            }
            _ => {
                const $N: usize = 8;
                $body
            }
        }
    };
}
use with_width;

/// Writes the sums of `N` sources. With `GOES_ON`, adds them to the old elements of `dst`.
///
/// Compilers vectorise this plain loop over elements. With an inner loop over the lanes of a chunk,
/// they loaded elements one by one.
#[inline(never)]
#[allow(clippy::indexing_slicing, reason = "all slices have the length `len`")]
fn add_up<T: Add, const N: usize, const GOES_ON: bool>(dst: &mut [T], sources: [&[T]; N]) {
    let len = dst.len();
    let sources = sources.map(|source| &source[..len]);
    for index in 0..len {
        let mut sum = if GOES_ON { dst[index].add(sources[0][index]) } else { sources[0][index] };
        for source in &sources[1..] {
            sum = sum.add(source[index]);
        }
        dst[index] = sum;
    }
}

/// Sums in `f32` and rounds once.
fn fold_half<T: Half>(addends: Addends<'_>, start: usize, dst: &mut [T]) -> Result<()> {
    let mut sums = [0f32; BLOCK];
    let mut addend = [0f32; BLOCK];
    for (block, dst) in dst.chunks_mut(BLOCK).enumerate() {
        let start = start + block * BLOCK;
        for n in 0..addends.0.len() {
            let [source] = addends.part::<T, 1>(n, start, dst.len())?;
            if n == 0 {
                widen(source, &mut sums);
            } else {
                widen(source, &mut addend);
                for (sum, value) in sums.iter_mut().zip(&addend) {
                    *sum += value;
                }
            }
        }
        narrow(&sums, dst);
    }
    Ok(())
}

//! Sums row-sparse values. Each row of the sum is the left fold of its sources.

use super::{AHEAD, RowPart, RowParts, WithRanges, read_ahead, wrong_rows};
use crate::backend::{RowAddends, RowSource, RowSources, RowSumJob};
use crate::cpu::half::{Half, narrow, widen};
use crate::cpu::memory::{bytes_mut, cast, cast_mut};
use crate::cpu::sum::{Add, BLOCK};
use crate::cpu::threads::{Job, Split};
use crate::types::{
    DType, Element, Error, Result, full_types, half_types, integer_types, with_element,
};

/// The addends of a sum: [`RowAddends`] with their memory as bytes.
#[derive(Clone, Copy)]
pub(super) struct Addends<'a> {
    pub(super) row_len: usize,
    starts: &'a [usize],
    sources: &'a [RowSource],
    full: usize,
    ranges: &'a [&'a [u8]],
}

impl<'a> Addends<'a> {
    /// Returns the addends. `ranges` are the bytes of their spans.
    pub(super) fn new(addends: RowAddends<'a>, ranges: &'a [&'a [u8]]) -> Result<Self> {
        let RowAddends { row_len, sources, full, .. } = addends;
        let RowSources::Listed { starts, sources } = sources else {
            return Err(Error::Internal("a sum of rows without lists of its sources".to_owned()));
        };
        Ok(Self { row_len, starts, sources, full, ranges })
    }

    /// Checks that every source is in the memory of its addend.
    pub(super) fn check(&self, dtype: DType) -> Result<()> {
        let row_bytes = self.row_len * dtype.size();
        let is_there = |source: &RowSource| {
            let range = self.ranges.get(source.addend);
            range.is_some_and(|range| (source.row + 1) * row_bytes <= range.len())
        };
        let ends_well = self.starts.last().is_none_or(|last| *last == self.sources.len());
        if ends_well && self.starts.is_sorted() && self.sources.iter().all(is_there) {
            return Ok(());
        }
        Err(wrong_rows())
    }

    /// Checks that the summed rows have these indices: one for each row, ascending, and all less
    /// than `num_rows`.
    pub(super) fn check_indices(&self, indices: &[i64], num_rows: usize) -> Result<()> {
        let is_within = |last: &i64| usize::try_from(*last).is_ok_and(|last| last < num_rows);
        let are_valid = self.num_rows() == indices.len()
            && indices.last().is_none_or(is_within)
            && indices.is_sorted_by(|left, right| 0 <= *left && left < right);
        if are_valid { Ok(()) } else { Err(wrong_rows()) }
    }

    /// Returns the number of rows of the sum.
    pub(super) fn num_rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Prefetches the sources of a part of a row.
    pub(super) fn read_ahead<T: Element>(&self, part: &RowPart) {
        for source in self.sources_of(part.row).unwrap_or_default() {
            read_ahead(part, self.part_of::<T>(source, part).unwrap_or_default());
        }
    }

    /// Returns whether the rows of each addend are read in order, so that the hardware prefetcher
    /// loads them.
    fn are_in_order(&self) -> bool {
        self.full > 0
    }

    /// Writes the sum of a part of a row to `dst`.
    #[inline]
    pub(super) fn sum_part<T: RowFold>(
        &self,
        part: &RowPart,
        buffer: &mut SumBuffer,
        dst: &mut [T],
    ) -> Result<()> {
        let sources = self.sources_of(part.row)?;
        // An addend that lacks the row adds zeros, which turns -0.0 into +0.0.
        let and_zero = sources.len() < self.full;
        let Some((first, rest)) = sources.split_first() else {
            dst.fill(T::default());
            return Ok(());
        };
        let first = self.part_of(first, part)?;
        if rest.is_empty() && !and_zero {
            dst.copy_from_slice(first);
            return Ok(());
        }
        T::fold_rows(
            dst,
            first,
            rest.iter().map(|source| self.part_of(source, part)),
            and_zero,
            buffer,
        )
    }

    #[inline]
    fn sources_of(&self, row: usize) -> Result<&'a [RowSource]> {
        match self.starts.get(row..row + 2) {
            Some(&[from, to]) => self.sources.get(from..to).ok_or_else(wrong_rows),
            _ => Err(wrong_rows()),
        }
    }

    /// Returns the part of a row in a source.
    #[inline]
    fn part_of<T: Element>(&self, source: &RowSource, part: &RowPart) -> Result<&'a [T]> {
        let range = self.ranges.get(source.addend).ok_or_else(wrong_rows)?;
        let first = (source.row * self.row_len + part.column) * size_of::<T>();
        let range = range.get(first..first + part.range.len() * size_of::<T>());
        cast(range.ok_or_else(wrong_rows)?)
    }
}

impl Job for WithRanges<'_, RowSumJob<'_>> {
    type Piece<'j>
        = RowSums<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.job.dst.num_bytes / self.job.dtype.size()
    }

    fn open(&mut self) -> Result<RowSums<'_>> {
        let Self { job, ranges } = self;
        let addends = Addends::new(job.addends, ranges)?;
        if job.dst.num_bytes != addends.num_rows() * addends.row_len * job.dtype.size() {
            return Err(wrong_rows());
        }
        let dst = bytes_mut(job.dst.reborrow())?;
        Ok(RowSums { dtype: job.dtype, addends, dst, start: 0 })
    }

    fn run(piece: RowSums<'_>) -> Result<()> {
        with_element!(piece.dtype, T => piece.run::<T>())
    }
}

/// A range of elements of a sum.
pub(in crate::cpu) struct RowSums<'a> {
    dtype: DType,
    addends: Addends<'a>,
    dst: &'a mut [u8],
    start: usize,
}

impl Split for RowSums<'_> {
    fn len(&self) -> usize {
        self.dst.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { dtype, addends, start, .. } = self;
        let (left, right) = self.dst.split_at_mut(middle * dtype.size());
        let left = Self { dtype, addends, dst: left, start };
        (left, Self { dtype, addends, dst: right, start: start + middle })
    }
}

impl RowSums<'_> {
    fn run<T: RowFold>(self) -> Result<()> {
        let dst = cast_mut::<T>(self.dst)?;
        let mut buffer = SumBuffer::default();
        let mut parts = RowParts::new(self.start, dst.len(), self.addends.row_len);
        while !parts.rest.is_empty() {
            if !self.addends.are_in_order() {
                let ahead = parts.clone().take(AHEAD);
                ahead.for_each(|part| self.addends.read_ahead::<T>(&part));
            }
            for part in parts.by_ref().take(AHEAD) {
                let dst = dst.get_mut(part.range.clone()).unwrap_or_default();
                self.addends.sum_part(&part, &mut buffer, dst)?;
            }
        }
        Ok(())
    }
}

/// Element types whose rows can be summed.
pub(super) trait RowFold: Element {
    /// Writes the left fold of `first` and `addends` to `dst`. With `and_zero`, adds `+0.0` last.
    /// Every addend is as long as `dst`, at most a block.
    fn fold_rows<'a>(
        dst: &mut [Self],
        first: &[Self],
        addends: impl Iterator<Item = Result<&'a [Self]>>,
        and_zero: bool,
        buffer: &mut SumBuffer,
    ) -> Result<()>;
}

/// Memory for summing half-precision rows in `f32`. A piece of work reuses one buffer for all of
/// its rows, because rows are short.
pub(super) struct SumBuffer {
    sums: [f32; BLOCK],
    addend: [f32; BLOCK],
}

impl Default for SumBuffer {
    fn default() -> Self {
        Self { sums: [0.0; BLOCK], addend: [0.0; BLOCK] }
    }
}

macro_rules! row_fold {
    ($fold:ident; $($type:ty),+) => {
        $(impl RowFold for $type {
            fn fold_rows<'a>(
                dst: &mut [Self],
                first: &[Self],
                addends: impl Iterator<Item = Result<&'a [Self]>>,
                and_zero: bool,
                buffer: &mut SumBuffer,
            ) -> Result<()> {
                $fold(dst, first, addends, and_zero, buffer)
            }
        })+
    };
}

macro_rules! row_fold_wide {
    ($($Variant:ident: $type:ty),+) => { row_fold!(fold_wide; $($type),+); };
}
macro_rules! row_fold_half {
    ($($Variant:ident: $type:ty),+) => { row_fold!(fold_half; $($type),+); };
}
full_types!(row_fold_wide);
integer_types!(row_fold_wide);
half_types!(row_fold_half);

fn fold_wide<'a, T: Add>(
    dst: &mut [T],
    first: &[T],
    mut addends: impl Iterator<Item = Result<&'a [T]>>,
    and_zero: bool,
    _buffer: &mut SumBuffer,
) -> Result<()> {
    // Most rows have one or two addends. Add the first two in one pass.
    let Some(second) = addends.next().transpose()? else {
        dst.iter_mut().zip(first).for_each(|(sum, value)| *sum = value.add(T::default()));
        return Ok(());
    };
    let pairs = first.iter().zip(second);
    dst.iter_mut().zip(pairs).for_each(|(sum, (left, right))| *sum = left.add(*right));
    for addend in addends {
        dst.iter_mut().zip(addend?).for_each(|(sum, value)| *sum = sum.add(*value));
    }
    if and_zero {
        for sum in dst {
            *sum = sum.add(T::default());
        }
    }
    Ok(())
}

/// Sums in `f32` and rounds once.
fn fold_half<'a, T: Half>(
    dst: &mut [T],
    first: &[T],
    addends: impl Iterator<Item = Result<&'a [T]>>,
    and_zero: bool,
    buffer: &mut SumBuffer,
) -> Result<()> {
    let sums = buffer.sums.get_mut(..dst.len()).unwrap_or_default();
    let wide = buffer.addend.get_mut(..dst.len()).unwrap_or_default();
    widen(first, sums);
    for addend in addends {
        widen(addend?, wide);
        sums.iter_mut().zip(&*wide).for_each(|(sum, value)| *sum += value);
    }
    if and_zero {
        for sum in &mut *sums {
            *sum += 0.0;
        }
    }
    narrow(sums, dst);
    Ok(())
}

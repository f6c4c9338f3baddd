//! Optimizer steps on rows: sums the gradients and steps the weight in one pass over the rows of
//! the gradient.

use super::sum::{Addends, RowFold, SumBuffer};
use super::{AHEAD, RowPart, RowParts, WithRanges, read_ahead, wrong_rows};
use crate::backend::RowUpdateJob;
use crate::cpu::half::{Half, HalfWeight, widen};
use crate::cpu::in_out::InOutSlice;
use crate::cpu::memory::bytes_mut;
use crate::cpu::sum::BLOCK;
use crate::cpu::threads::{Job, Split};
use crate::cpu::update::{
    States, split_states, states_of, step_block, step_of, wrong_dtype, wrong_state,
};
use crate::rule::{MAX_STATES, Real, Rule, RuleVisitor, Step, UpdateRule};
use crate::types::{DType, Error, Result, with_float};

impl Job for WithRanges<'_, RowUpdateJob<'_>> {
    type Piece<'j>
        = RowUpdatePiece<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.job.ids.len() * self.job.addends.row_len
    }

    fn open(&mut self) -> Result<RowUpdatePiece<'_>> {
        let Self { job, ranges } = self;
        let num_elements = job.weight.num_bytes / job.dtype.size();
        let gradient = Addends::new(job.addends, ranges)?;
        // Check everything before the first row changes.
        gradient.check(job.dtype)?;
        // If rows have no elements, the length of the weight does not limit the row indices.
        let num_rows = num_elements.checked_div(gradient.row_len).unwrap_or(usize::MAX);
        gradient.check_indices(job.ids.indices(), num_rows)?;
        let mut states = [const { None }; MAX_STATES];
        for (slot, state) in states.iter_mut().zip(&mut job.states) {
            let open = |state| bytes_mut(state).map(InOutSlice::InPlace);
            *slot = state.as_mut().map(|state| open(state.reborrow())).transpose()?;
        }
        Ok(RowUpdatePiece {
            rule: job.rule,
            dtype: job.dtype,
            indices: job.ids.indices(),
            len: job.ids.len() * gradient.row_len,
            gradient,
            weight: InOutSlice::InPlace(bytes_mut(job.weight.reborrow())?),
            states,
            start: 0,
            base: 0,
        })
    }

    fn run(piece: RowUpdatePiece<'_>) -> Result<()> {
        let rule = piece.rule;
        rule.visit_lazy(piece).unwrap_or_else(|| {
            Err(Error::Internal(format!("a step of {} on some rows", rule.formula())))
        })
    }
}

/// A range of elements of the gradient, and the range of weight and states that contains the
/// corresponding elements.
pub(in crate::cpu) struct RowUpdatePiece<'a> {
    rule: UpdateRule,
    dtype: DType,
    indices: &'a [i64],
    gradient: Addends<'a>,
    /// The number of elements of the gradient.
    len: usize,
    weight: InOutSlice<'a, u8>,
    states: States<'a>,
    /// The position in the gradient of the first element.
    start: usize,
    /// The position in the complete weight of the first element of `weight`.
    base: usize,
}

impl Split for RowUpdatePiece<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let offsets = self.offsets();
        let Self { rule, dtype, indices, gradient, len, weight, states, start, base } = self;
        // Weight and states are split at the first element of the right half of the gradient.
        let row = (start + middle).checked_div(gradient.row_len).unwrap_or_default();
        let cut = offsets.of(row, start + middle - row * gradient.row_len);
        let cut = cut.unwrap_or(weight.len() / dtype.size());
        let (weight, right_weight) = weight.split_at(cut * dtype.size());
        let (states, right_states) = split_states(states, dtype, cut);
        let right = Self {
            rule,
            dtype,
            indices,
            gradient,
            len: len - middle,
            weight: right_weight,
            states: right_states,
            start: start + middle,
            base: base + cut,
        };
        let left =
            Self { rule, dtype, indices, gradient, len: middle, weight, states, start, base };
        (left, right)
    }
}

impl RuleVisitor for RowUpdatePiece<'_> {
    type Output = Result<()>;

    fn visit<R: Rule<N>, const N: usize>(self) -> Result<()> {
        with_float!(self.dtype,
            full A => self.run_full::<A, R, N>(),
            half H => self.run_half::<H, R, N>(),
            integer => Err(wrong_dtype(self.dtype))
        )
    }
}

impl<'a> RowUpdatePiece<'a> {
    fn offsets(&self) -> Offsets<'a> {
        Offsets { indices: self.indices, row_len: self.gradient.row_len, base: self.base }
    }

    /// Steps a weight in its own arithmetic.
    fn run_full<A: Real + RowFold, R: Rule<N>, const N: usize>(self) -> Result<()> {
        let step = step_of::<A, R, N>(&self.rule)?;
        let (offsets, start, len) = (self.offsets(), self.start, self.len);
        let merge = Merge { addends: self.gradient, sum: sum_full::<A> };
        let weight = self.weight.cast()?;
        let states = states_of(self.states.into_iter().flatten())?;
        Update { step, merge, offsets, rounded: None, weight, states }.run(start, len)
    }

    /// Steps the master copy of a half-precision weight, and rounds it into the weight.
    fn run_half<T: Half + RowFold, R: Rule<N>, const N: usize>(self) -> Result<()> {
        let step = step_of::<f32, R, N>(&self.rule)?;
        let (offsets, start, len) = (self.offsets(), self.start, self.len);
        let merge = Merge { addends: self.gradient, sum: sum_half::<T> };
        let mut states = self.states.into_iter().flatten();
        let master = states.next().ok_or_else(wrong_state)?.cast()?;
        let states = states_of(states)?;
        let weight = self.weight.cast::<T>()?.into_dst();
        if weight.len() != master.len() {
            return Err(wrong_state());
        }
        let rounded = Some(T::weight(weight));
        Update { step, merge, offsets, rounded, weight: master, states }.run(start, len)
    }
}

/// Sums a part of a row of the gradient and rounds the sum to the gradient's dtype.
pub(super) type SumPart<'a, A> =
    fn(&Addends<'a>, &RowPart, &mut GradientBuffers, &mut [A]) -> Result<()>;

pub(super) fn sum_full<A: RowFold>(
    addends: &Addends<'_>,
    part: &RowPart,
    buffers: &mut GradientBuffers,
    dst: &mut [A],
) -> Result<()> {
    addends.sum_part(part, &mut buffers.sum, dst)
}

/// Sums a part of a row, rounds the sum to half precision like every sum of its dtype, and converts
/// it to `f32`.
pub(super) fn sum_half<T: Half + RowFold>(
    addends: &Addends<'_>,
    part: &RowPart,
    buffers: &mut GradientBuffers,
    dst: &mut [f32],
) -> Result<()> {
    let sums = bytemuck::cast_slice_mut::<u16, T>(&mut buffers.rounded);
    let sums = sums.get_mut(..dst.len()).unwrap_or_default();
    addends.sum_part(part, &mut buffers.sum, sums)?;
    widen(sums, dst);
    Ok(())
}

/// Memory for summing a part of a row, and for the sum in half precision.
pub(super) struct GradientBuffers {
    pub(super) sum: SumBuffer,
    pub(super) rounded: [u16; BLOCK],
}

/// The gradient, and the function that sums a part of one of its rows.
struct Merge<'a, A> {
    addends: Addends<'a>,
    sum: SumPart<'a, A>,
}

/// Maps elements of the gradient to elements of the weight.
#[derive(Clone, Copy)]
struct Offsets<'a> {
    indices: &'a [i64],
    row_len: usize,
    /// The element of the weight from which offsets are counted.
    base: usize,
}

impl Offsets<'_> {
    /// Returns the offset in the weight of an element of a row, or `None` after the last row.
    fn of(&self, row: usize, column: usize) -> Option<usize> {
        let index = usize::try_from(*self.indices.get(row)?).ok()?;
        (index * self.row_len + column).checked_sub(self.base)
    }
}

/// The elements of a piece, typed. Half precision shares the code of its arithmetic.
struct Update<'a, A, S, const N: usize> {
    step: S,
    merge: Merge<'a, A>,
    offsets: Offsets<'a>,
    rounded: Option<HalfWeight<'a>>,
    weight: InOutSlice<'a, A>,
    states: [InOutSlice<'a, A>; N],
}

impl<A: Real, S: Step<A, N>, const N: usize> Update<'_, A, S, N> {
    /// Runs the step for `len` elements of the gradient that start at element `start`.
    fn run(mut self, start: usize, len: usize) -> Result<()> {
        if self.states.iter().any(|state| state.len() != self.weight.len()) {
            return Err(wrong_state());
        }
        let mut gradients = [A::ZERO; BLOCK];
        let mut buffers = GradientBuffers { sum: SumBuffer::default(), rounded: [0; BLOCK] };
        let mut parts = RowParts::new(start, len, self.offsets.row_len);
        while !parts.rest.is_empty() {
            parts.clone().take(AHEAD).try_for_each(|part| self.read_ahead(&part))?;
            for part in parts.by_ref().take(AHEAD) {
                let gradients = gradients.get_mut(..part.range.len()).unwrap_or_default();
                (self.merge.sum)(&self.merge.addends, &part, &mut buffers, gradients)?;
                self.step(&part, gradients)?;
            }
        }
        Ok(())
    }

    fn place(&self, part: &RowPart) -> Result<usize> {
        let first = self.offsets.of(part.row, part.column).ok_or_else(wrong_rows)?;
        if first + part.range.len() > self.weight.len() { Err(wrong_rows()) } else { Ok(first) }
    }

    /// Prefetches the weight and states of a part of a row.
    fn read_ahead(&self, part: &RowPart) -> Result<()> {
        let first = self.place(part)?;
        for slot in std::iter::once(&self.weight).chain(&self.states) {
            let elements = slot.src().get(first..first + part.range.len());
            read_ahead(part, elements.unwrap_or_default());
        }
        Ok(())
    }

    fn step(&mut self, part: &RowPart, gradients: &[A]) -> Result<()> {
        let first = self.place(part)?;
        let end = first + part.range.len();
        let weights = self.weight.block(first, end);
        let states = self.states.each_mut().map(|state| state.block(first, end));
        step_block(&self.step, self.offsets.base + first, weights, states, gradients);
        if let Some(rounded) = &mut self.rounded {
            rounded.write(first, weights);
        }
        Ok(())
    }
}

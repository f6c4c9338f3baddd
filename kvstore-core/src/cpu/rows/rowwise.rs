//! Steps of rules that have one state per row: computes the mean square of the gradient's row, then
//! the new state of the row, then its elements.

use super::sum::{Addends, RowFold, SumBuffer};
use super::update::{GradientBuffers, SumPart, sum_full, sum_half};
use super::{RowParts, WithRanges, wrong_rows};
use crate::backend::RowUpdateJob;
use crate::cpu::half::{Half, HalfWeight};
use crate::cpu::in_out::InOutSlice;
use crate::cpu::memory::bytes_mut;
use crate::cpu::sum::BLOCK as PART;
use crate::cpu::threads::{Job, Split};
use crate::cpu::update::{
    States, split_states, states_of, step_block, step_of, wrong_dtype, wrong_state,
};
use crate::fallible;
use crate::norm::{BLOCK, COLUMNS, PairSum, add_in_pairs};
use crate::rule::{MAX_STATES, Real, RowFormula, RowVisitor, UpdateRule};
use crate::types::{DType, Error, Result, with_float};

/// A job whose rule is row-wise.
pub(in crate::cpu) struct Rowwise<'j, 'a>(WithRanges<'j, RowUpdateJob<'a>>);

/// The jobs whose rules are not row-wise, and those whose rules are.
type ByKind<'j, 'a> = (Vec<WithRanges<'j, RowUpdateJob<'a>>>, Vec<Rowwise<'j, 'a>>);

/// Separates the jobs by the kind of their rules.
pub(in crate::cpu) fn by_kind<'j, 'a>(
    jobs: Vec<WithRanges<'j, RowUpdateJob<'a>>>,
) -> Result<ByKind<'j, 'a>> {
    let is_rowwise = |job: &WithRanges<'_, RowUpdateJob<'_>>| job.job.rule.is_rowwise();
    let num_rowwise = jobs.iter().filter(|job| is_rowwise(job)).count();
    if num_rowwise == 0 {
        return Ok((jobs, Vec::new()));
    }
    let mut rowwise = fallible::with_capacity(num_rowwise)?;
    let mut others = fallible::with_capacity(jobs.len() - num_rowwise)?;
    for job in jobs {
        if is_rowwise(&job) {
            rowwise.push(Rowwise(job));
        } else {
            others.push(job);
        }
    }
    Ok((others, rowwise))
}

impl Job for Rowwise<'_, '_> {
    type Piece<'j>
        = RowwisePiece<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.0.job.ids.len() * self.0.job.addends.row_len
    }

    fn open(&mut self) -> Result<RowwisePiece<'_>> {
        let WithRanges { job, ranges } = &mut self.0;
        let gradient = Addends::new(job.addends, ranges)?;
        gradient.check(job.dtype)?;
        // The first state of a half-precision weight is its master copy. It has one number per
        // element, unlike the other states, which have one per row.
        let has_master = job.dtype.is_half();
        let mut memory = job.states.iter_mut().flatten();
        let open = |span| bytes_mut(span).map(InOutSlice::InPlace);
        let master = if has_master { memory.next() } else { None };
        let master = master.map(|state| open(state.reborrow())).transpose()?;
        let mut states = [const { None }; MAX_STATES];
        for (slot, state) in states.iter_mut().zip(memory) {
            *slot = Some(open(state.reborrow())?);
        }
        let piece = RowwisePiece {
            rule: job.rule,
            dtype: job.dtype,
            indices: job.ids.indices(),
            gradient,
            first: 0,
            base: 0,
            weight: open(job.weight.reborrow())?,
            master,
            states,
        };
        piece.check()?;
        Ok(piece)
    }

    fn run(piece: RowwisePiece<'_>) -> Result<()> {
        let rule = piece.rule;
        rule.visit_rowwise(piece).unwrap_or_else(|| {
            Err(Error::Internal(format!("a row-wise step of {}", rule.formula())))
        })
    }
}

/// A range of rows of the gradient, and the range of weight and states that contains these rows.
pub(in crate::cpu) struct RowwisePiece<'a> {
    rule: UpdateRule,
    dtype: DType,
    /// The row indices of the piece.
    indices: &'a [i64],
    /// The gradient of all rows of the job.
    gradient: Addends<'a>,
    /// The position in the gradient of the first row.
    first: usize,
    /// The row index with which the range of the weight starts.
    base: usize,
    weight: InOutSlice<'a, u8>,
    master: Option<InOutSlice<'a, u8>>,
    states: States<'a>,
}

impl Split for RowwisePiece<'_> {
    fn len(&self) -> usize {
        self.indices.len() * self.gradient.row_len
    }

    /// Splits between rows, at the first row boundary at or after the middle.
    fn split_at(self, middle: usize) -> (Self, Self) {
        let row_len = self.gradient.row_len;
        let rows = middle.div_ceil(row_len.max(1)).min(self.indices.len());
        let (indices, right_indices) = self.indices.split_at(rows);
        let arithmetic = self.dtype.arithmetic().unwrap_or(self.dtype).size();
        let num_rows = self.weight.len().checked_div(row_len * self.dtype.size()).unwrap_or(0);
        // The left range of the weight ends at the first row of the right piece.
        let end = right_indices.first().and_then(|index| usize::try_from(*index).ok());
        let cut = end.map_or(num_rows, |end| end.saturating_sub(self.base)).min(num_rows);
        let (weight, right_weight) = self.weight.split_at(cut * row_len * self.dtype.size());
        let master = self.master.map(|master| master.split_at(cut * row_len * arithmetic));
        let (master, right_master) = master.unzip();
        let (states, right_states) = split_states(self.states, self.dtype, cut);
        let (rule, dtype, gradient) = (self.rule, self.dtype, self.gradient);
        let right = Self {
            rule,
            dtype,
            indices: right_indices,
            gradient,
            first: self.first + rows,
            base: self.base + cut,
            weight: right_weight,
            master: right_master,
            states: right_states,
        };
        let (first, base) = (self.first, self.base);
        (Self { rule, dtype, indices, gradient, first, base, weight, master, states }, right)
    }
}

impl RowVisitor for RowwisePiece<'_> {
    type Output = Result<()>;

    fn visit<R: RowFormula<N>, const N: usize>(self) -> Result<()> {
        with_float!(self.dtype,
            full A => self.run_full::<A, R, N>(),
            half H => self.run_half::<H, R, N>(),
            integer => Err(wrong_dtype(self.dtype))
        )
    }
}

impl RowwisePiece<'_> {
    /// Checks the row indices and the lengths of all memory before the first row changes.
    fn check(&self) -> Result<()> {
        let row_bytes = self.gradient.row_len * self.dtype.size();
        let num_rows = self.weight.len().checked_div(row_bytes).unwrap_or(0);
        self.gradient.check_indices(self.indices, num_rows)?;
        let arithmetic = self.dtype.arithmetic().unwrap_or(self.dtype).size();
        let master_bytes = num_rows * self.gradient.row_len * arithmetic;
        let fits = self.master.as_ref().is_none_or(|master| master.len() == master_bytes)
            && self.states.iter().flatten().all(|state| state.len() == num_rows * arithmetic);
        if fits { Ok(()) } else { Err(wrong_state()) }
    }

    fn run_full<A: Real + RowFold, R: RowFormula<N>, const N: usize>(self) -> Result<()> {
        let rows = Rows::new(&self, sum_full::<A>);
        let Self { rule, weight, states, .. } = self;
        rows.run::<R, N>(&rule, weight.cast()?, None, states)
    }

    fn run_half<T: Half + RowFold, R: RowFormula<N>, const N: usize>(self) -> Result<()> {
        let rows = Rows::new(&self, sum_half::<T>);
        let Self { rule, weight, master, states, .. } = self;
        let weight = weight.cast::<T>()?.into_dst();
        let master = master.ok_or_else(wrong_state)?.cast()?;
        rows.run::<R, N>(&rule, master, Some(T::weight(weight)), states)
    }
}

/// The rows of a piece, typed. Half precision shares the code of its arithmetic.
struct Rows<'a, A> {
    indices: &'a [i64],
    gradient: Addends<'a>,
    first: usize,
    base: usize,
    sum: SumPart<'a, A>,
}

impl<'a, A: Real> Rows<'a, A> {
    fn new(piece: &RowwisePiece<'a>, sum: SumPart<'a, A>) -> Self {
        let RowwisePiece { indices, gradient, first, base, .. } = *piece;
        Self { indices, gradient, first, base, sum }
    }

    fn run<R: RowFormula<N>, const N: usize>(
        &self,
        rule: &UpdateRule,
        mut weight: InOutSlice<'_, A>,
        mut rounded: Option<HalfWeight<'_>>,
        states: States<'_>,
    ) -> Result<()> {
        let step = step_of::<A, R, N>(rule)?;
        let mut states = states_of::<A, N>(states.into_iter().flatten())?;
        let row_len = self.gradient.row_len;
        let mut gradients = [A::ZERO; PART];
        let mut buffers = GradientBuffers { sum: SumBuffer::default(), rounded: [0; PART] };
        // A row shorter than these buffers uses only the start of them, so short rows stay cheap.
        // The unused columns would add zeros, which do not change the bits of a sum of squares.
        let mut columns = [0.0; COLUMNS];
        let columns = columns.split_at_mut(row_len.min(COLUMNS)).0;
        let mut repeated = [[A::ZERO; PART]; N];
        for (row, index) in (self.first..).zip(self.indices) {
            let index = usize::try_from(*index).map_err(|_| wrong_rows())? - self.base;
            let sum = self.sum_squares(row, &mut gradients, &mut buffers, columns, |gradient| {
                R::measure::<A>(&step, gradient)
            })?;
            #[allow(clippy::cast_precision_loss, reason = "no row has 2^53 elements")]
            let mean = A::from_f64(sum / row_len as f64);
            let mut row_states = [A::ZERO; N];
            for (number, state) in row_states.iter_mut().zip(&mut states) {
                *number = *state.block(index, index + 1).first().ok_or_else(wrong_state)?;
            }
            let row_states = R::row_state::<A>(&step, row_states, mean);
            for ((number, state), repeated) in row_states.iter().zip(&mut states).zip(&mut repeated)
            {
                state.block(index, index + 1).fill(*number);
                repeated.split_at_mut(row_len.min(PART)).0.fill(*number);
            }
            for part in RowParts::new(row * row_len, row_len, row_len) {
                let gradients = gradients.get_mut(..part.range.len()).unwrap_or_default();
                // The gradient of a short row is still in the buffer.
                if row_len > PART {
                    (self.sum)(&self.gradient, &part, &mut buffers, gradients)?;
                }
                let first = index * row_len + part.column;
                let weights = weight.block(first, first + gradients.len());
                let states = repeated.each_mut().map(|state| &mut state[..]);
                step_block(&step, first, weights, states, gradients);
                if let Some(rounded) = &mut rounded {
                    rounded.write(first, weights);
                }
            }
        }
        Ok(())
    }

    /// Returns the sum of the squares of a row. `gradients` has the last part of the row
    /// afterwards.
    fn sum_squares(
        &self,
        row: usize,
        gradients: &mut [A; PART],
        buffers: &mut GradientBuffers,
        columns: &mut [f64],
        measure: impl Fn(A) -> A,
    ) -> Result<f64> {
        let row_len = self.gradient.row_len;
        let mut blocks = PairSum::new();
        columns.fill(0.0);
        for part in RowParts::new(row * row_len, row_len, row_len) {
            let gradients = gradients.get_mut(..part.range.len()).unwrap_or_default();
            (self.sum)(&self.gradient, &part, buffers, gradients)?;
            for row_of_columns in gradients.chunks(COLUMNS) {
                for (sum, gradient) in columns.iter_mut().zip(row_of_columns) {
                    let number = measure(*gradient).to_f64();
                    *sum += number * number;
                }
            }
            // Uses the blocks and columns of `norm`, so that every backend adds in the same order.
            let end = part.column + gradients.len();
            if end.is_multiple_of(BLOCK) || end == row_len {
                blocks.push(add_in_pairs(columns));
                columns.fill(0.0);
            }
        }
        Ok(blocks.total())
    }
}

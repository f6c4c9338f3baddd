//! Sums of squares over a key, for layer-wise optimizers and for clipping by the norm.

use super::half::Half;
use super::memory::elements;
use super::sum::{Addends, BLOCK as PART, Fold};
use super::threads::{Job, Split};
use super::update::{Merge, merge_half, step_of, wrong_state};
use crate::backend::{MeasureJob, Measured, Span};
use crate::norm::{BLOCK, COLUMNS, add_in_pairs, num_blocks};
use crate::rule::{LayerFormula, LayerVisitor, MAX_STATES, Real, UpdateRule};
use crate::types::{DType, Error, Result, with_float};

const _: () = assert!(PART.is_multiple_of(COLUMNS) && BLOCK.is_multiple_of(PART));

impl Job for MeasureJob<'_> {
    type Piece<'j>
        = MeasurePiece<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.addends.first().map_or(0, |addend| addend.num_bytes / self.dtype.size())
    }

    fn open(&mut self) -> Result<MeasurePiece<'_>> {
        let len = self.len();
        if self.sums.len() != num_blocks(len) {
            return Err(Error::Internal("not one pair of sums for each block".to_owned()));
        }
        let addends = Addends::open(self.addends, len * self.dtype.size())?;
        let (measured, dtype) = (self.measured, self.dtype);
        Ok(MeasurePiece { measured, dtype, addends, sums: self.sums, start: 0, len })
    }

    fn run(piece: MeasurePiece<'_>) -> Result<()> {
        match piece.measured {
            Measured::Gradient => with_float!(piece.dtype,
                full A => piece.run_gradient(A::fold),
                half H => piece.run_gradient(merge_half::<H>),
                integer => Err(no_float(piece.dtype))
            ),
            Measured::Step { rule, weight, states } => {
                let step = StepPiece { piece, rule, weight, states };
                rule.visit_layerwise(step).unwrap_or_else(|| {
                    Err(Error::Internal(format!("norms for a step of {}", rule.formula())))
                })
            }
        }
    }
}

fn no_float(dtype: DType) -> Error {
    Error::Internal(format!("the norm of a gradient of {dtype}"))
}

/// Some blocks of a key.
pub(super) struct MeasurePiece<'a> {
    measured: Measured<'a>,
    dtype: DType,
    addends: Addends<'a>,
    /// The destination for the sums of these blocks.
    sums: &'a mut [[f64; 2]],
    /// The index of the first element.
    start: usize,
    /// The number of elements.
    len: usize,
}

impl Split for MeasurePiece<'_> {
    fn len(&self) -> usize {
        self.len
    }

    /// Splits at the first block boundary that is not before `middle`.
    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { measured, dtype, addends, sums, start, len } = self;
        let blocks = num_blocks(middle).min(sums.len());
        let (sums, right_sums) = sums.split_at_mut(blocks);
        let middle = (blocks * BLOCK).min(len);
        let right = Self {
            measured,
            dtype,
            addends,
            sums: right_sums,
            start: start + middle,
            len: len - middle,
        };
        (Self { measured, dtype, addends, sums, start, len: middle }, right)
    }
}

impl MeasurePiece<'_> {
    fn run_gradient<A: Real>(
        self,
        fold: fn(Addends<'_>, usize, &mut [A]) -> Result<()>,
    ) -> Result<()> {
        let merge = Merge { addends: self.addends, fold };
        SquareSums { merge, weight: None, states: [] }.write(
            self.start,
            self.len,
            self.sums,
            |_, [], gradient| [gradient, A::ZERO],
        )
    }
}

/// Some blocks of a key, with the inputs of the optimizer step to measure.
struct StepPiece<'a> {
    piece: MeasurePiece<'a>,
    rule: UpdateRule,
    weight: Span<'a>,
    states: [Option<Span<'a>>; MAX_STATES],
}

impl LayerVisitor for StepPiece<'_> {
    type Output = Result<()>;

    fn visit<R: LayerFormula<N>, const N: usize>(self) -> Result<()> {
        let dtype = self.piece.dtype;
        with_float!(dtype,
            full A => self.run_full::<A, R, N>(),
            half H => self.run_half::<H, R, N>(),
            integer => Err(no_float(dtype))
        )
    }
}

impl<'a> StepPiece<'a> {
    fn run_full<A: Real + Fold, R: LayerFormula<N>, const N: usize>(self) -> Result<()> {
        let (weight, states) = (elements(self.weight)?, self.states);
        self.run::<A, R, N>(A::fold, weight, states.into_iter().flatten())
    }

    /// Measures the master copy of a half-precision weight.
    fn run_half<T: Half, R: LayerFormula<N>, const N: usize>(self) -> Result<()> {
        let mut states = self.states.into_iter().flatten();
        let master = elements(states.next().ok_or_else(wrong_state)?)?;
        self.run::<f32, R, N>(merge_half::<T>, master, states)
    }

    fn run<A: Real, R: LayerFormula<N>, const N: usize>(
        self,
        fold: fn(Addends<'_>, usize, &mut [A]) -> Result<()>,
        weight: &'a [A],
        mut spans: impl Iterator<Item = Span<'a>>,
    ) -> Result<()> {
        let MeasurePiece { addends, sums, start, len, .. } = self.piece;
        let step = step_of::<A, R, N>(&self.rule)?;
        let mut states = [&[][..]; N];
        for state in &mut states {
            *state = elements(spans.next().ok_or_else(wrong_state)?)?;
        }
        let merge = Merge { addends, fold };
        let measure = |weight, state, gradient| R::measure::<A>(&step, weight, state, gradient);
        SquareSums { merge, weight: Some(weight), states }.write(start, len, sums, measure)
    }
}

/// The typed inputs of a measurement. They cover the entire key.
struct SquareSums<'a, A, const N: usize> {
    merge: Merge<'a, A>,
    weight: Option<&'a [A]>,
    states: [&'a [A]; N],
}

impl<A: Real, const N: usize> SquareSums<'_, A, N> {
    /// Writes the sums of the blocks in `start..start + len`.
    fn write(
        &self,
        start: usize,
        len: usize,
        sums: &mut [[f64; 2]],
        measure: impl Fn(A, [A; N], A) -> [A; 2],
    ) -> Result<()> {
        let mut gradients = [A::ZERO; PART];
        for (block, sums) in sums.iter_mut().enumerate() {
            let block = block * BLOCK;
            let mut columns = [[0.0; COLUMNS]; 2];
            for part in (block..len.min(block + BLOCK)).step_by(PART) {
                let end = start + len.min(part + PART);
                let part = start + part;
                let gradients = gradients.get_mut(..end - part).unwrap_or_default();
                (self.merge.fold)(self.merge.addends, part, gradients)?;
                let mut states = [&[][..]; N];
                for (state, all) in states.iter_mut().zip(self.states) {
                    *state = all.get(part..end).ok_or_else(wrong_state)?;
                }
                let weights = match self.weight {
                    Some(all) => all.get(part..end).ok_or_else(wrong_state)?,
                    // Without a weight, `measure` ignores its first argument.
                    None => gradients,
                };
                add_squares(&mut columns, weights, states, gradients, &measure);
            }
            *sums = columns.map(|mut columns| add_in_pairs(&mut columns));
        }
        Ok(())
    }
}

/// Adds squares to the columns.
#[inline(never)]
#[allow(clippy::indexing_slicing, reason = "all slices are cut to the same length first")]
fn add_squares<A: Real, const N: usize>(
    columns: &mut [[f64; COLUMNS]; 2],
    weights: &[A],
    states: [&[A]; N],
    gradients: &[A],
    measure: &impl Fn(A, [A; N], A) -> [A; 2],
) {
    // Two separate loops, one in the arithmetic of the step and one in `f64`. Each is a plain loop
    // over columns, so that the compiler vectorises it.
    for start in (0..gradients.len()).step_by(COLUMNS) {
        let len = COLUMNS.min(gradients.len() - start);
        let (weights, gradients) = (&weights[start..][..len], &gradients[start..][..len]);
        let states = states.map(|state| &state[start..][..len]);
        let mut numbers = [[A::ZERO; COLUMNS]; 2];
        let [first, second] = &mut numbers;
        let (first, second) = (&mut first[..len], &mut second[..len]);
        for column in 0..len {
            let state = std::array::from_fn(|n| states[n][column]);
            [first[column], second[column]] = measure(weights[column], state, gradients[column]);
        }
        for (columns, numbers) in columns.iter_mut().zip(&numbers) {
            for (sum, number) in columns.iter_mut().zip(numbers) {
                let number = number.to_f64();
                *sum += number * number;
            }
        }
    }
}

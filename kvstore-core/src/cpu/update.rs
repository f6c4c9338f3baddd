//! Sums gradients and applies the optimizer step in one pass over weight, states and gradients.

use super::half::{Half, HalfWeight, widen};
use super::in_out::InOutSlice;
use super::sum::{Addends, BLOCK, Fold};
use super::threads::{Job, Split};
use crate::backend::UpdateJob;
use crate::rule::{MAX_STATES, Real, Rule, RuleVisitor, Step, UpdateRule};
use crate::types::{DType, Error, Result, with_float};

impl Job for UpdateJob<'_> {
    type Piece<'j>
        = UpdatePiece<'j>
    where
        Self: 'j;

    fn len(&self) -> usize {
        self.weight.num_bytes() / self.dtype.size()
    }

    fn open(&mut self) -> Result<UpdatePiece<'_>> {
        let addends = Addends::open(self.addends, self.weight.num_bytes())?;
        let mut states = [const { None }; MAX_STATES];
        for (slot, state) in states.iter_mut().zip(&mut self.states) {
            *slot = state.as_mut().map(|state| InOutSlice::open(state.reborrow())).transpose()?;
        }
        let weight = InOutSlice::open(self.weight.reborrow())?;
        Ok(UpdatePiece { rule: self.rule, dtype: self.dtype, weight, states, addends, start: 0 })
    }

    fn run(piece: UpdatePiece<'_>) -> Result<()> {
        piece.rule.visit(piece)
    }
}

/// Some elements of a step, as bytes. Element `i` of the weight belongs to element `i` of the
/// states and to element `start + i` of the addends.
pub(super) struct UpdatePiece<'a> {
    rule: &'a UpdateRule,
    dtype: DType,
    weight: InOutSlice<'a, u8>,
    states: States<'a>,
    addends: Addends<'a>,
    start: usize,
}

impl Split for UpdatePiece<'_> {
    fn len(&self) -> usize {
        self.weight.len() / self.dtype.size()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { rule, dtype, weight, states, addends, start } = self;
        let (weight, right_weight) = weight.split_at(middle * dtype.size());
        let (states, right_states) = split_states(states, dtype, middle);
        let right = Self {
            rule,
            dtype,
            weight: right_weight,
            states: right_states,
            addends,
            start: start + middle,
        };
        (Self { rule, dtype, weight, states, addends, start }, right)
    }
}

/// The states of a step, as bytes.
pub(super) type States<'a> = [Option<InOutSlice<'a, u8>>; MAX_STATES];

/// Splits the numbers of each state at `middle`.
pub(super) fn split_states(
    states: States<'_>,
    dtype: DType,
    middle: usize,
) -> (States<'_>, States<'_>) {
    let middle = middle * dtype.arithmetic().unwrap_or(dtype).size();
    let mut halves = ([const { None }; MAX_STATES], [const { None }; MAX_STATES]);
    for (slot, (left, right)) in states.into_iter().zip(halves.0.iter_mut().zip(&mut halves.1)) {
        (*left, *right) = slot.map(|slot| slot.split_at(middle)).unzip();
    }
    halves
}

impl RuleVisitor for UpdatePiece<'_> {
    type Output = Result<()>;

    // Half precision shares the kernels of `f32`, so there are only two kernels per formula.
    fn visit<R: Rule<N>, const N: usize>(self) -> Result<()> {
        with_float!(self.dtype,
            full A => self.run_full::<A, R, N>(),
            half H => self.run_half::<H, R, N>(),
            integer => Err(wrong_dtype(self.dtype))
        )
    }
}

impl UpdatePiece<'_> {
    /// Updates a weight in its own arithmetic.
    fn run_full<A: Real + Fold, R: Rule<N>, const N: usize>(self) -> Result<()> {
        let merge = Merge { addends: self.addends, fold: A::fold };
        let step = step_of::<A, R, N>(self.rule)?;
        let states = states_of(self.states.into_iter().flatten())?;
        Update { step, merge, rounded: None, weight: self.weight.cast()?, states }.run(self.start)
    }

    /// Updates the master copy of a half-precision weight, and rounds it into the weight.
    fn run_half<T: Half, R: Rule<N>, const N: usize>(self) -> Result<()> {
        let merge = Merge { addends: self.addends, fold: merge_half::<T> };
        let step = step_of::<f32, R, N>(self.rule)?;
        let mut states = self.states.into_iter().flatten();
        let master = states.next().ok_or_else(wrong_state)?.cast::<f32>()?;
        let weight = self.weight.cast::<T>()?.into_dst();
        if weight.len() != master.len() {
            return Err(wrong_state());
        }
        let states = states_of(states)?;
        Update { step, merge, rounded: Some(T::weight(weight)), weight: master, states }
            .run(self.start)
    }
}

pub(super) fn step_of<A: Real, R: Rule<N>, const N: usize>(
    rule: &UpdateRule,
) -> Result<R::RoundedStep<A>> {
    let rule = R::of(rule).ok_or_else(|| Error::Internal("a rule of two types".to_owned()))?;
    Ok(rule.round())
}

/// Returns the typed states of a rule with `N` states.
///
/// # Errors
/// - [`Error::Internal`] if there are more or fewer states.
pub(super) fn states_of<'a, A: Real, const N: usize>(
    mut all: impl Iterator<Item = InOutSlice<'a, u8>>,
) -> Result<[InOutSlice<'a, A>; N]> {
    let mut states = [const { None }; N];
    for state in &mut states {
        *state = Some(all.next().ok_or_else(wrong_state)?.cast()?);
    }
    if all.next().is_some() {
        return Err(wrong_state());
    }
    Ok(states.map(|state| state.unwrap_or(InOutSlice::InPlace(&mut []))))
}

pub(super) fn wrong_dtype(dtype: DType) -> Error {
    Error::Internal(format!("an optimizer step on {dtype} weights"))
}

pub(super) fn wrong_state() -> Error {
    Error::Internal("the state of an optimizer step has the wrong form".to_owned())
}

/// The gradients of a step, and the function that sums a block of them.
#[derive(Clone, Copy)]
pub(super) struct Merge<'a, A> {
    pub(super) addends: Addends<'a>,
    /// Sums a block that begins at the given element. Sums are rounded to the gradients' dtype.
    pub(super) fold: fn(Addends<'_>, usize, &mut [A]) -> Result<()>,
}

/// Sums half-precision gradients, rounds the sums to half precision, and widens them to `f32`.
pub(super) fn merge_half<T: Half>(
    addends: Addends<'_>,
    start: usize,
    gradients: &mut [f32],
) -> Result<()> {
    let mut sums = [T::default(); BLOCK];
    if let Some(sums) = sums.get_mut(..gradients.len()) {
        T::fold(addends, start, sums)?;
        widen(sums, gradients);
    }
    Ok(())
}

/// The typed elements of a piece.
struct Update<'a, A, S, const N: usize> {
    step: S,
    merge: Merge<'a, A>,
    rounded: Option<HalfWeight<'a>>,
    weight: InOutSlice<'a, A>,
    states: [InOutSlice<'a, A>; N],
}

impl<A: Real, S: Step<A, N>, const N: usize> Update<'_, A, S, N> {
    /// Updates all elements. The first has the index `first` in its key.
    fn run(mut self, first: usize) -> Result<()> {
        let len = self.weight.len();
        if self.states.iter().any(|state| state.len() != len) {
            return Err(wrong_state());
        }
        let mut gradients = [A::ZERO; BLOCK];
        for start in (0..len).step_by(BLOCK) {
            let end = len.min(start + BLOCK);
            let gradients = gradients.get_mut(..end - start).unwrap_or_default();
            (self.merge.fold)(self.merge.addends, first + start, gradients)?;
            let weights = self.weight.block(start, end);
            let states = self.states.each_mut().map(|slot| slot.block(start, end));
            step_block(&self.step, first + start, weights, states, gradients);
            if let Some(rounded) = &mut self.rounded {
                rounded.write(start, weights);
            }
        }
        Ok(())
    }
}

/// Updates a block. Compilers vectorise this plain loop over elements.
#[inline(never)]
#[allow(clippy::indexing_slicing, reason = "all slices are cut to the same length first")]
pub(super) fn step_block<A: Real, S: Step<A, N>, const N: usize>(
    step: &S,
    start: usize,
    weights: &mut [A],
    states: [&mut [A]; N],
    gradients: &[A],
) {
    let len = weights.len();
    let gradients = &gradients[..len];
    let mut states = states.map(|state| &mut state[..len]);
    for index in 0..len {
        let state = std::array::from_fn(|n| states[n][index]);
        let element = (start + index) as u64;
        let (weight, state) = step.apply(element, weights[index], state, gradients[index]);
        weights[index] = weight;
        for (states, state) in states.iter_mut().zip(state) {
            states[index] = state;
        }
    }
}

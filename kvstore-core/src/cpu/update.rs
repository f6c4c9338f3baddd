//! Sum and optimizer step in one pass: every byte of weight, state and gradients is touched once.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::memory::elements_mut;
use super::slot::Slot;
use super::sum::{Addends, BLOCK, Fold, narrow, widen};
use super::workers::{Cut, Split, Workers};
use crate::backend::UpdateJob;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::optimizer::{MAX_STATES, Real, Rule, RuleVisitor, Step};
use crate::storage::InOut;

/// How many elements are stepped in a row: too many for a loop to be unrolled, which would cost minutes
/// of compile time and gain nothing.
const LANES: usize = 64;

/// Runs the steps of a batch.
pub(super) fn run(workers: &Workers, jobs: &mut [UpdateJob<'_>]) -> Result<()> {
    let len = |job: &UpdateJob<'_>| job.weight.num_bytes() / job.dtype.size();
    workers.for_each_job(jobs, &len, &|job, cut| {
        let rule = job.rule;
        rule.visit(RunJob { job, cut })
    })
}

/// Runs one step, whatever its rule.
struct RunJob<'j, 'a> {
    job: &'j mut UpdateJob<'a>,
    cut: Cut,
}

impl RuleVisitor for RunJob<'_, '_> {
    type Output = Result<()>;

    // Half precision shares the kernels of its arithmetic: there are as few as formulas times two.
    fn visit<R: Rule<N>, const N: usize>(self) -> Result<()> {
        let Self { job, cut } = self;
        match job.dtype {
            DType::F32 => run_full::<f32, R, N>(job, cut),
            DType::F64 => run_full::<f64, R, N>(job, cut),
            DType::F16 => run_half::<f16, R, N>(job, cut, Rounded::F16),
            DType::Bf16 => run_half::<bf16, R, N>(job, cut, Rounded::Bf16),
            DType::U8 | DType::I32 | DType::I8 | DType::I64 => {
                Err(Error::Internal(format!("an optimizer step on {} weights", job.dtype)))
            }
        }
    }
}

/// Steps a weight in its own arithmetic.
fn run_full<A: Real + Fold, R: Rule<N>, const N: usize>(
    job: &mut UpdateJob<'_>,
    cut: Cut,
) -> Result<()> {
    let addends = Addends::open::<A>(job.addends, job.weight.num_bytes())?;
    let step = step_of::<A, R, N>(job)?;
    let states = open_states(&mut job.states)?;
    let weight = Slot::open(job.weight.reborrow())?;
    run_pieces(step, Merge { addends, fold: A::fold }, None, weight, states, cut)
}

/// Steps the master copy of a half-precision weight, and rounds it into the weight.
fn run_half<'a, T: Fold, R: Rule<N>, const N: usize>(
    job: &'a mut UpdateJob<'_>,
    cut: Cut,
    rounded: impl FnOnce(&'a mut [T]) -> Rounded<'a>,
) -> Result<()>
where
    [T]: HalfFloatSliceExt,
{
    let addends = Addends::open::<T>(job.addends, job.weight.num_bytes())?;
    let step = step_of::<f32, R, N>(job)?;
    let mut states = open_states(&mut job.states)?;
    let master = states[0].take().ok_or_else(wrong_state)?;
    states.rotate_left(1);
    let (InOut::InPlace(span) | InOut::Into { dst: span, .. }) = job.weight.reborrow();
    let weight = elements_mut::<T>(span)?;
    if weight.len() != master.len() {
        return Err(wrong_state());
    }
    let fold = merge_half::<T>;
    run_pieces(step, Merge { addends, fold }, Some(rounded(weight)), master, states, cut)
}

fn step_of<A: Real, R: Rule<N>, const N: usize>(job: &UpdateJob<'_>) -> Result<R::Rounded<A>> {
    let rule = R::of(&job.rule).ok_or_else(|| Error::Internal("a rule of two types".to_owned()))?;
    Ok(rule.round())
}

type States<'a, A> = [Option<Slot<'a, A>>; MAX_STATES];

fn open_states<'a, A: Real>(
    states: &'a mut [Option<InOut<'_>>; MAX_STATES],
) -> Result<States<'a, A>> {
    let mut slots = [const { None }; MAX_STATES];
    for (slot, state) in slots.iter_mut().zip(states) {
        *slot = state.as_mut().map(|state| Slot::open(state.reborrow())).transpose()?;
    }
    Ok(slots)
}

fn run_pieces<A: Real, S: Step<A, N>, const N: usize>(
    step: S,
    merge: Merge<'_, A>,
    rounded: Option<Rounded<'_>>,
    weight: Slot<'_, A>,
    mut rest: States<'_, A>,
    cut: Cut,
) -> Result<()> {
    let mut missing = false;
    let states = std::array::from_fn(|index| {
        let slot = rest.get_mut(index).and_then(Option::take);
        missing |= slot.as_ref().is_none_or(|slot| slot.len() != weight.len());
        slot.unwrap_or(Slot::InPlace(&mut []))
    });
    if missing || rest.iter().any(Option::is_some) {
        return Err(wrong_state());
    }
    cut.for_each_piece(
        Update { step, merge, rounded, weight, states, start: 0 },
        &Update::<A, S, N>::run,
    );
    Ok(())
}

fn wrong_state() -> Error {
    Error::Internal("the state of an optimizer step has the wrong form".to_owned())
}

/// The gradients of a step, and how a block of them becomes one.
#[derive(Clone, Copy)]
struct Merge<'a, A> {
    addends: Addends<'a>,
    /// Sums a block from this element on, rounded to the gradients' own dtype.
    fold: fn(Addends<'_>, usize, &mut [A]),
}

fn merge_half<T: Fold>(addends: Addends<'_>, start: usize, gradients: &mut [f32])
where
    [T]: HalfFloatSliceExt,
{
    let mut sums = [T::default(); BLOCK];
    if let Some(sums) = sums.get_mut(..gradients.len()) {
        T::fold(addends, start, sums);
        widen(sums, gradients);
    }
}

/// A half-precision weight, into which its master copy is rounded.
enum Rounded<'a> {
    F16(&'a mut [f16]),
    Bf16(&'a mut [bf16]),
}

impl Rounded<'_> {
    fn split_at(self, middle: usize) -> (Self, Self) {
        match self {
            Self::F16(weight) => {
                let (left, right) = weight.split_at_mut(middle);
                (Self::F16(left), Self::F16(right))
            }
            Self::Bf16(weight) => {
                let (left, right) = weight.split_at_mut(middle);
                (Self::Bf16(left), Self::Bf16(right))
            }
        }
    }

    fn write<A: Real>(&mut self, start: usize, master: &[A]) {
        let end = start + master.len();
        // Only `f32` has half-precision weights.
        let Ok(master) = bytemuck::try_cast_slice::<A, f32>(master) else { return };
        match self {
            Self::F16(weight) => narrow(master, weight.get_mut(start..end).unwrap_or_default()),
            Self::Bf16(weight) => narrow(master, weight.get_mut(start..end).unwrap_or_default()),
        }
    }
}

/// One step: weight, states and addends run in parallel.
struct Update<'a, A, S, const N: usize> {
    step: S,
    merge: Merge<'a, A>,
    rounded: Option<Rounded<'a>>,
    weight: Slot<'a, A>,
    states: [Slot<'a, A>; N],
    start: usize,
}

impl<A: Real, S: Step<A, N>, const N: usize> Update<'_, A, S, N> {
    fn run(mut self) {
        let len = self.weight.len();
        let mut gradients = [A::ZERO; BLOCK];
        for start in (0..len).step_by(BLOCK) {
            let end = len.min(start + BLOCK);
            let Some(gradients) = gradients.get_mut(..end - start) else { return };
            (self.merge.fold)(self.merge.addends, self.start + start, gradients);
            let weights = self.weight.block(start, end);
            let states = self.states.each_mut().map(|slot| slot.block(start, end));
            step_block(&self.step, self.start + start, weights, states, gradients);
            if let Some(rounded) = &mut self.rounded {
                rounded.write(start, weights);
            }
        }
    }
}

/// Steps a block, as many elements at once as the processor likes.
fn step_block<A: Real, S: Step<A, N>, const N: usize>(
    step: &S,
    start: usize,
    weights: &mut [A],
    states: [&mut [A]; N],
    gradients: &[A],
) {
    let len = weights.len();
    let (weights, weights_rest) = weights.as_chunks_mut::<LANES>();
    let (gradients, gradients_rest) = gradients.as_chunks::<LANES>();
    let in_chunks = weights.len() * LANES;
    let mut states_rest = [const { None }; N];
    let mut rests = states_rest.iter_mut();
    let mut states = states.map(|state| {
        let (chunks, rest) = state.as_chunks_mut::<LANES>();
        if let Some(place) = rests.next() {
            *place = Some(rest);
        }
        chunks
    });
    for (index, (weights, gradients)) in weights.iter_mut().zip(gradients).enumerate() {
        let mut lanes = [[A::ZERO; LANES]; N];
        for (lanes, state) in lanes.iter_mut().zip(&states) {
            let Some(state) = state.get(index) else { return };
            *lanes = *state;
        }
        step_lanes(step, start + index * LANES, weights, &mut lanes, gradients);
        for (lanes, state) in lanes.iter().zip(&mut states) {
            let Some(state) = state.get_mut(index) else { return };
            *state = *lanes;
        }
    }
    if in_chunks == len {
        return;
    }
    // The last elements in lanes of their own; what the others compute nobody reads.
    let mut weight_lanes = [A::ZERO; LANES];
    let mut gradient_lanes = [A::ZERO; LANES];
    let mut state_lanes = [[A::ZERO; LANES]; N];
    copy_some(gradients_rest, &mut gradient_lanes);
    copy_some(weights_rest, &mut weight_lanes);
    for (lanes, state) in state_lanes.iter_mut().zip(states_rest.iter().flatten()) {
        copy_some(state, lanes);
    }
    step_lanes(step, start + in_chunks, &mut weight_lanes, &mut state_lanes, &gradient_lanes);
    copy_some(&weight_lanes, weights_rest);
    for (lanes, state) in state_lanes.iter().zip(states_rest.iter_mut().flatten()) {
        copy_some(lanes, state);
    }
}

#[inline]
fn step_lanes<A: Real, S: Step<A, N>, const N: usize>(
    step: &S,
    start: usize,
    weights: &mut [A; LANES],
    states: &mut [[A; LANES]; N],
    gradients: &[A; LANES],
) {
    #[allow(clippy::indexing_slicing, reason = "all arrays have LANES elements")]
    for lane in 0..LANES {
        let state = std::array::from_fn(|n| states[n][lane]);
        let index = (start + lane) as u64;
        let (weight, state) = step.apply(index, weights[lane], state, gradients[lane]);
        weights[lane] = weight;
        for n in 0..N {
            states[n][lane] = state[n];
        }
    }
}

/// Copies as many elements as both have.
fn copy_some<T: Element>(from: &[T], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

impl<A: Real, S: Step<A, N>, const N: usize> Split for Update<'_, A, S, N> {
    fn len(&self) -> usize {
        self.weight.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let Self { step, merge, start, .. } = self;
        let (weight, right_weight) = self.weight.split_at(middle);
        let (rounded, right_rounded) = self.rounded.map(|rounded| rounded.split_at(middle)).unzip();
        let mut right_states = [const { None }; N];
        let mut places = right_states.iter_mut();
        let states = self.states.map(|slot| {
            let (left, right) = slot.split_at(middle);
            if let Some(place) = places.next() {
                *place = Some(right);
            }
            left
        });
        let right_states = right_states.map(|slot| slot.unwrap_or(Slot::InPlace(&mut [])));
        let right = Self {
            step,
            merge,
            rounded: right_rounded,
            weight: right_weight,
            states: right_states,
            start: start + middle,
        };
        (Self { step, merge, rounded, weight, states, start }, right)
    }
}

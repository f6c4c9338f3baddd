//! Sum and optimizer step in one pass: every byte of weight, state and gradients is touched once.

use half::{bf16, f16};

use super::memory::elements_mut;
use super::slot::Slot;
use super::sum::{Addends, BLOCK, Fold, LANES, narrow, widen};
use super::workers::{Cut, Split, Workers};
use crate::backend::UpdateJob;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::optimizer::{MAX_STATES, Real, Rule, RuleVisitor, Step};
use crate::storage::InOut;

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

    fn visit<R: Rule<N>, const N: usize>(self) -> Result<()> {
        let Self { job, cut } = self;
        match job.dtype {
            DType::F32 => run_job::<f32, R, N>(job, cut),
            DType::F64 => run_job::<f64, R, N>(job, cut),
            DType::F16 => run_job::<f16, R, N>(job, cut),
            DType::Bf16 => run_job::<bf16, R, N>(job, cut),
            DType::U8 | DType::I32 | DType::I8 | DType::I64 => {
                Err(Error::Internal(format!("an optimizer step on {} weights", job.dtype)))
            }
        }
    }
}

fn run_job<T: Weight, R: Rule<N>, const N: usize>(job: &mut UpdateJob<'_>, cut: Cut) -> Result<()> {
    let rule = R::of(&job.rule).ok_or_else(|| Error::Internal("a rule of two types".into()))?;
    let step = rule.round::<T::Arithmetic>();
    let addends = Addends::open::<T>(job.addends, job.weight.num_bytes())?;
    let mut rest = open_states::<T>(&mut job.states)?;
    let (rounded, weight) = T::open(job.weight.reborrow(), &mut rest)?;
    let mut missing = false;
    let states: [Slot<'_, T::Arithmetic>; N] = std::array::from_fn(|index| {
        let slot = rest.get_mut(index).and_then(Option::take);
        missing |= slot.as_ref().is_none_or(|slot| slot.len() != weight.len());
        slot.unwrap_or(Slot::InPlace(&mut []))
    });
    if missing || rest.iter().any(Option::is_some) {
        return Err(wrong_state());
    }
    cut.for_each_piece(Update { step, rounded, weight, states, addends, start: 0 }, &Update::run);
    Ok(())
}

fn open_states<'a, T: Weight>(
    states: &'a mut [Option<InOut<'_>>; MAX_STATES],
) -> Result<[Option<Slot<'a, T::Arithmetic>>; MAX_STATES]> {
    let mut slots = [const { None }; MAX_STATES];
    for (slot, state) in slots.iter_mut().zip(states) {
        *slot = state.as_mut().map(|state| Slot::open(state.reborrow())).transpose()?;
    }
    Ok(slots)
}

fn wrong_state() -> Error {
    Error::Internal("the state of an optimizer step has the wrong form".to_owned())
}

/// A weight's rounded copy, for half precision, and the weight that steps are computed on.
type Opened<'a, T> = (Option<&'a mut [T]>, Slot<'a, <T as Weight>::Arithmetic>);

/// A dtype that weights may have, and the type its steps are computed in.
trait Weight: Fold {
    type Arithmetic: Real;

    /// Takes the master copy out of the states, if the dtype has one.
    fn open<'a>(
        weight: InOut<'a>,
        states: &mut [Option<Slot<'a, Self::Arithmetic>>; MAX_STATES],
    ) -> Result<Opened<'a, Self>>;

    /// Sums a block of gradients, rounded to their own dtype.
    fn merge(addends: Addends<'_>, start: usize, gradients: &mut [Self::Arithmetic]);

    /// Rounds a block of the master copy.
    fn round(weights: &[Self::Arithmetic], rounded: &mut [Self]);
}

macro_rules! full_precision {
    ($type:ty) => {
        impl Weight for $type {
            type Arithmetic = Self;

            fn open<'a>(
                weight: InOut<'a>,
                _states: &mut [Option<Slot<'a, Self>>; MAX_STATES],
            ) -> Result<Opened<'a, Self>> {
                Ok((None, Slot::open(weight)?))
            }

            fn merge(addends: Addends<'_>, start: usize, gradients: &mut [Self]) {
                Self::fold(addends, start, gradients);
            }

            fn round(weights: &[Self], rounded: &mut [Self]) {
                rounded.copy_from_slice(weights);
            }
        }
    };
}

macro_rules! half_precision {
    ($type:ty) => {
        impl Weight for $type {
            type Arithmetic = f32;

            fn open<'a>(
                weight: InOut<'a>,
                states: &mut [Option<Slot<'a, f32>>; MAX_STATES],
            ) -> Result<Opened<'a, Self>> {
                let (InOut::InPlace(span) | InOut::Into { dst: span, .. }) = weight;
                let rounded = elements_mut::<Self>(span)?;
                let master = states[0].take();
                states.rotate_left(1);
                let master = master.filter(|master| master.len() == rounded.len());
                Ok((Some(rounded), master.ok_or_else(wrong_state)?))
            }

            fn merge(addends: Addends<'_>, start: usize, gradients: &mut [f32]) {
                let mut sums = [Self::ZERO; BLOCK];
                if let Some(sums) = sums.get_mut(..gradients.len()) {
                    Self::fold(addends, start, sums);
                    widen(sums, gradients);
                }
            }

            fn round(weights: &[f32], rounded: &mut [Self]) {
                narrow(weights, rounded);
            }
        }
    };
}

full_precision!(f32);
full_precision!(f64);
half_precision!(f16);
half_precision!(bf16);

/// One step: weight, states and addends run in parallel.
struct Update<'a, T: Weight, S, const N: usize> {
    step: S,
    rounded: Option<&'a mut [T]>,
    weight: Slot<'a, T::Arithmetic>,
    states: [Slot<'a, T::Arithmetic>; N],
    addends: Addends<'a>,
    start: usize,
}

impl<T: Weight, S: Step<T::Arithmetic, N>, const N: usize> Update<'_, T, S, N> {
    fn run(mut self) {
        let len = self.weight.len();
        let mut gradients = [T::Arithmetic::ZERO; BLOCK];
        for start in (0..len).step_by(BLOCK) {
            let end = len.min(start + BLOCK);
            let Some(gradients) = gradients.get_mut(..end - start) else { return };
            T::merge(self.addends, self.start + start, gradients);
            let weights = self.weight.block(start, end);
            let states = self.states.each_mut().map(|slot| slot.block(start, end));
            step_block(&self.step, self.start + start, weights, states, gradients);
            if let Some(rounded) = self.rounded.as_mut().and_then(|it| it.get_mut(start..end)) {
                T::round(weights, rounded);
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

impl<T: Weight, S: Step<T::Arithmetic, N>, const N: usize> Split for Update<'_, T, S, N> {
    fn len(&self) -> usize {
        self.weight.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left_weight, right_weight) = self.weight.split_at(middle);
        let (left_rounded, right_rounded) =
            self.rounded.map(|rounded| rounded.split_at_mut(middle)).unzip();
        let mut right_states = [const { None }; N];
        let mut places = right_states.iter_mut();
        let left_states = self.states.map(|slot| {
            let (left, right) = slot.split_at(middle);
            if let Some(place) = places.next() {
                *place = Some(right);
            }
            left
        });
        let right_states = right_states.map(|slot| slot.unwrap_or(Slot::InPlace(&mut [])));
        let Self { step, addends, start, .. } = self;
        let left = Self {
            step,
            rounded: left_rounded,
            weight: left_weight,
            states: left_states,
            addends,
            start,
        };
        let right = Self {
            step,
            rounded: right_rounded,
            weight: right_weight,
            states: right_states,
            addends,
            start: start + middle,
        };
        (left, right)
    }
}

//! Sum and optimizer step in one pass: every byte of weight, state and gradients is touched once.

use half::{bf16, f16};

use super::slot::Slot;
use super::sum::{Addends, BLOCK};
use super::workers::{Split, Workers};
use crate::backend::UpdateJob;
use crate::dtype::{DType, Element, cast};
use crate::error::{Error, Result};
use crate::optimizer::{Real, Step, UpdateRule};

/// A dtype that weights may have, and the type its steps are computed in.
trait Weight: Element {
    type Arithmetic: Real;
    /// Whether the value that counts is a master copy in the state.
    const HAS_MASTER: bool;
}

impl Weight for f32 {
    type Arithmetic = f32;
    const HAS_MASTER: bool = false;
}
impl Weight for f64 {
    type Arithmetic = f64;
    const HAS_MASTER: bool = false;
}
impl Weight for f16 {
    type Arithmetic = f32;
    const HAS_MASTER: bool = true;
}
impl Weight for bf16 {
    type Arithmetic = f32;
    const HAS_MASTER: bool = true;
}

/// Runs the steps of a batch.
pub(super) fn run(workers: &Workers, jobs: Vec<UpdateJob<'_>>) -> Result<()> {
    let mut rest = jobs;
    while let Some((dtype, rule)) = rest.first().map(|job| (job.dtype, job.rule.clone())) {
        let (same, other): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|job| job.dtype == dtype && job.rule.same_kernel(&rule));
        match dtype {
            DType::F32 => run_all::<f32>(workers, &rule, same)?,
            DType::F64 => run_all::<f64>(workers, &rule, same)?,
            DType::F16 => run_all::<f16>(workers, &rule, same)?,
            DType::Bf16 => run_all::<bf16>(workers, &rule, same)?,
            DType::U8 | DType::I32 | DType::I8 | DType::I64 => {
                return Err(Error::Internal(format!("an optimizer step on {dtype} weights")));
            }
        }
        rest = other;
    }
    Ok(())
}

/// Runs steps of one dtype and of rules that share a kernel.
fn run_all<T: Weight>(
    workers: &Workers,
    rule: &UpdateRule,
    jobs: Vec<UpdateJob<'_>>,
) -> Result<()> {
    match rule {
        UpdateRule::Sgd(_) => run_batch::<T, _, 0>(workers, jobs, |rule| match rule {
            UpdateRule::Sgd(sgd) => Some(sgd.step()),
            UpdateRule::SgdMomentum(_) => None,
        }),
        UpdateRule::SgdMomentum(_) => run_batch::<T, _, 1>(workers, jobs, |rule| match rule {
            UpdateRule::SgdMomentum(sgd) => Some(sgd.step()),
            UpdateRule::Sgd(_) => None,
        }),
    }
}

fn run_batch<T: Weight, S: Step<T::Arithmetic, N>, const N: usize>(
    workers: &Workers,
    jobs: Vec<UpdateJob<'_>>,
    step_of: impl Fn(&UpdateRule) -> Option<S>,
) -> Result<()> {
    let works = jobs
        .into_iter()
        .map(|job| {
            let step = step_of(&job.rule).ok_or_else(|| {
                Error::Internal("update rules of two kernels in one batch".into())
            })?;
            Update::<T, S, N>::open(step, job)
        })
        .collect::<Result<Vec<_>>>()?;
    workers.for_each_piece_of_all(works, &Update::run);
    Ok(())
}

/// One step: the slots and the addends run in parallel.
struct Update<'a, T: Weight, S, const N: usize> {
    step: S,
    weight: Slot<'a, T>,
    master: Option<Slot<'a, T::Arithmetic>>,
    states: [Slot<'a, T::Arithmetic>; N],
    addends: Addends<'a, T>,
}

impl<'a, T: Weight, S: Step<T::Arithmetic, N>, const N: usize> Update<'a, T, S, N> {
    fn open(step: S, job: UpdateJob<'a>) -> Result<Self> {
        let weight = Slot::open(job.weight)?;
        let mut states = job.states.into_iter().map(Slot::open).collect::<Result<Vec<_>>>()?;
        let master = (T::HAS_MASTER && !states.is_empty()).then(|| states.remove(0));
        let addends = Addends::open(&job.addends, weight.len())?;
        let wrong = || Error::Internal("the state of an optimizer step has the wrong form".into());
        let states = <[_; N]>::try_from(states).map_err(|_| wrong())?;
        let all = states.iter().chain(&master);
        if all.clone().any(|slot| slot.len() != weight.len()) || T::HAS_MASTER != master.is_some() {
            return Err(wrong());
        }
        Ok(Self { step, weight, master, states, addends })
    }

    fn run(mut self) {
        let len = self.weight.len();
        let mut sums = [T::Accumulator::default(); BLOCK];
        let mut weights = [T::Arithmetic::default(); BLOCK];
        let mut gradients = [T::Arithmetic::default(); BLOCK];
        let mut states = [[T::Arithmetic::default(); BLOCK]; N];
        let mut start = 0;
        while start < len {
            let end = len.min(start + BLOCK);
            self.addends.fold(start, end - start, &mut sums);
            for (gradient, sum) in gradients.iter_mut().zip(sums) {
                // The merged gradient is rounded to its own dtype before it is used.
                *gradient = cast(T::narrow(sum));
            }
            match &self.master {
                Some(master) => load(&mut weights, master.src(), start, end),
                None => load(&mut weights, self.weight.src(), start, end),
            }
            for (block, slot) in states.iter_mut().zip(&self.states) {
                load(block, slot.src(), start, end);
            }
            apply(self.step, &mut weights, &mut states, &gradients);
            save(self.weight.dst(), &weights, start, end);
            if let Some(master) = &mut self.master {
                save(master.dst(), &weights, start, end);
            }
            for (block, slot) in states.iter().zip(&mut self.states) {
                save(slot.dst(), block, start, end);
            }
            start = end;
        }
    }
}

/// Steps a whole block: of a last, shorter one the rest is old data that nobody reads.
#[inline]
fn apply<A: Real, S: Step<A, N>, const N: usize>(
    step: S,
    weights: &mut [A; BLOCK],
    states: &mut [[A; BLOCK]; N],
    gradients: &[A; BLOCK],
) {
    #[allow(clippy::indexing_slicing, reason = "all arrays have BLOCK elements")]
    for i in 0..BLOCK {
        let (weight, state) =
            step.apply(weights[i], std::array::from_fn(|n| states[n][i]), gradients[i]);
        weights[i] = weight;
        for n in 0..N {
            states[n][i] = state[n];
        }
    }
}

#[inline]
fn load<S: Element, D: Element>(block: &mut [D; BLOCK], from: &[S], start: usize, end: usize) {
    for (block, &value) in block.iter_mut().zip(from.get(start..end).unwrap_or_default()) {
        *block = cast(value);
    }
}

#[inline]
fn save<S: Element, D: Element>(to: &mut [D], block: &[S; BLOCK], start: usize, end: usize) {
    for (to, &value) in to.get_mut(start..end).unwrap_or_default().iter_mut().zip(block) {
        *to = cast(value);
    }
}

impl<T: Weight, S: Step<T::Arithmetic, N>, const N: usize> Split for Update<'_, T, S, N> {
    fn len(&self) -> usize {
        self.weight.len()
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left_weight, right_weight) = self.weight.split_at(middle);
        let (left_master, right_master) = self.master.map(|slot| slot.split_at(middle)).unzip();
        let (left_addends, right_addends) = self.addends.split_at(middle);
        let mut right_states = Vec::with_capacity(N);
        let left_states = self.states.map(|slot| {
            let (left, right) = slot.split_at(middle);
            right_states.push(right);
            left
        });
        let left = Self {
            step: self.step,
            weight: left_weight,
            master: left_master,
            states: left_states,
            addends: left_addends,
        };
        let mut right_states = right_states.into_iter();
        #[expect(clippy::expect_used, reason = "the closure above ran once per state")]
        let states = std::array::from_fn(|_| right_states.next().expect("one slot per state"));
        let right = Self {
            step: self.step,
            weight: right_weight,
            master: right_master,
            states,
            addends: right_addends,
        };
        (left, right)
    }
}

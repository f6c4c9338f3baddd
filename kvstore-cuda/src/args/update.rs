//! Optimizer steps of a batch as one launch: what the kernels of `kernels/update.h` get.

use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, UpdateRule};
use kvstore_core::{DType, Result};

use super::batch::{self, Address, Batch, THREADS};

/// Elements that a thread does; of 64 bits half as many, whose alignment is the same.
pub(super) const AT_ONCE: usize = 4;

/// Returns how many elements a block of threads does.
pub(super) fn tile(dtype: DType) -> u64 {
    u64::from(THREADS) * if dtype.size() == 8 { 2 } else { 4 }
}

/// What is read and what is written: one address where it is in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromTo {
    /// Is read.
    pub from: Address,
    /// Is written.
    pub to: Address,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct UpdateArgs<'a> {
    /// The formula, and its scalars.
    pub rule: &'a UpdateRule,
    /// Of the weight and of the gradients.
    pub dtype: DType,
    /// In elements, at least one.
    pub len: u64,
    /// The weight.
    pub weight: FromTo,
    /// The state; of a weight of half precision its master copy comes first.
    pub states: &'a [FromTo],
    /// The gradients, at least one.
    pub addends: &'a [Address],
}

/// One step, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// In elements.
    pub len: u64,
    /// The weight.
    pub weight_from: Address,
    /// Where it goes.
    pub weight_to: Address,
    /// The state.
    pub states_from: [Address; MAX_STATES],
    /// Where that goes.
    pub states_to: [Address; MAX_STATES],
    /// In the order of the rule's fields.
    pub scalars: [f64; MAX_SCALARS],
    /// Where its gradients begin in the list of all.
    pub first_addend: u32,
    /// How many it has.
    pub num_addends: u32,
    /// Whether all pointers are aligned to as many elements as a thread loads at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
    pub unused: u32,
    /// Of the noise: the key of its generator.
    pub stream: [u32; 2],
    /// Of the noise: the number of the update.
    pub count: u64,
}

impl Batch<UpdateJob> {
    /// Adds a step. All steps of a batch are of one formula and one dtype: see [`kernel`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
    pub fn push(&mut self, step: &UpdateArgs<'_>) -> Result<()> {
        let mut states = [FromTo::default(); MAX_STATES];
        for (slot, state) in states.iter_mut().zip(step.states) {
            *slot = *state;
        }
        let states_of = step.states.iter().copied();
        let is_aligned = is_aligned(step.dtype, step.weight, states_of, step.addends);
        let num_tiles = step.len.div_ceil(tile(step.dtype));
        let (stream, count) = match step.rule {
            UpdateRule::Sgld(rule) => (rule.stream, rule.count),
            _ => ([0; 2], 0),
        };
        self.push_job(step.addends, num_tiles, |first_tile, first_addend, num_addends| UpdateJob {
            first_tile,
            len: step.len,
            weight_from: step.weight.from,
            weight_to: step.weight.to,
            states_from: states.map(|state| state.from),
            states_to: states.map(|state| state.to),
            scalars: step.rule.scalars(),
            first_addend,
            num_addends,
            is_aligned: is_aligned.into(),
            unused: 0,
            stream,
            count,
        })
    }
}

/// Returns whether what a thread works on at a time can be loaded so everywhere.
pub(super) fn is_aligned(
    dtype: DType,
    weight: FromTo,
    states: impl Iterator<Item = FromTo>,
    addends: &[Address],
) -> bool {
    let weight = [weight.from, weight.to].into_iter().chain(addends.iter().copied());
    let mut states = states.flat_map(|state| [state.from, state.to]);
    let arithmetic = dtype.arithmetic().unwrap_or(dtype);
    weight.into_iter().all(|address| batch::is_aligned(address, dtype, AT_ONCE))
        && states.all(|address| batch::is_aligned(address, arithmetic, AT_ONCE))
}

/// Returns whether a formula has kernels. All have, except `test`, which the host computes.
pub fn has_kernel(rule: &UpdateRule) -> bool {
    !matches!(rule, UpdateRule::Test(_))
}

/// Returns the kernel of a formula and a dtype; none for integers, and for row-wise formulas.
pub fn kernel(rule: &UpdateRule, dtype: DType) -> Option<String> {
    (dtype.is_float() && !rule.is_rowwise()).then(|| format!("kv_{}_{dtype}", rule.formula()))
}

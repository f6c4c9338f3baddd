//! Jobs of optimizer updates, for the kernels of `kernels/update.h`.

use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, UpdateRule};
use kvstore_core::{DType, Result};

use super::batch::{self, Address, Batch, THREADS};

/// The number of elements that a thread updates. For 64-bit elements it is half as large, but the
/// alignment is the same.
pub(super) const AT_ONCE: usize = 4;

/// Returns the number of elements that a block of threads updates.
pub(super) fn tile(dtype: DType) -> u64 {
    u64::from(THREADS) * if dtype.size() == 8 { 2 } else { 4 }
}

/// A source and a destination. They are equal for an operation in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FromTo {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
}

/// The inputs of an update of one weight.
#[derive(Clone, Copy, Debug)]
pub struct UpdateArgs<'a> {
    /// The formula, and its scalars.
    pub rule: &'a UpdateRule,
    /// The dtype of the weight and of the gradients.
    pub dtype: DType,
    /// The number of elements, at least 1.
    pub len: u64,
    /// The weight.
    pub weight: FromTo,
    /// The states. For a half-precision weight, the master copy comes first.
    pub states: &'a [FromTo],
    /// The gradients, at least one.
    pub addends: &'a [Address],
}

/// An update, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The number of elements.
    pub len: u64,
    /// The old weight.
    pub weight_from: Address,
    /// The destination of the new weight.
    pub weight_to: Address,
    /// The old states.
    pub states_from: [Address; MAX_STATES],
    /// The destinations of the new states.
    pub states_to: [Address; MAX_STATES],
    /// The scalars, in the order of the rule's fields.
    pub scalars: [f64; MAX_SCALARS],
    /// The position of the gradients in the list of addends.
    pub first_addend: u32,
    /// The number of gradients.
    pub num_addends: u32,
    /// 1 if the elements of a thread can be loaded in one instruction from all pointers, otherwise
    /// 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
    /// For rules with noise: the key of the random number generator.
    pub stream: [u32; 2],
    /// For rules with noise: the update number.
    pub count: u64,
}

impl Batch<UpdateJob> {
    /// Appends an update. All updates of a batch have the same formula and dtype: see [`kernel`].
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
    pub fn push(&mut self, step: &UpdateArgs<'_>) -> Result<()> {
        let mut states = [FromTo::default(); MAX_STATES];
        for (slot, state) in states.iter_mut().zip(step.states) {
            *slot = *state;
        }
        let states_of = step.states.iter().copied();
        let is_aligned = is_aligned(step.dtype, step.weight, states_of, step.addends);
        let num_tiles = step.len.div_ceil(tile(step.dtype));
        // Only SGLD has noise. The kernels of other rules do not read these fields.
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

/// Returns whether the elements of a thread can be loaded in one instruction from all addresses.
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

/// Returns whether a formula has kernels. All have kernels except `test`, which runs on the host.
pub fn has_kernel(rule: &UpdateRule) -> bool {
    !matches!(rule, UpdateRule::Test(_))
}

/// Returns the name of the kernel for a formula and a dtype, or `None` for integer dtypes and for
/// row-wise formulas.
pub fn kernel(rule: &UpdateRule, dtype: DType) -> Option<String> {
    (dtype.is_float() && !rule.is_rowwise()).then(|| format!("kv_{}_{dtype}", rule.formula()))
}

//! Sums of squares of a batch: what the kernels of `kernels/measure.h` and `kernels/norm.cu` get.

use kvstore_core::norm::BLOCK;
use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, UpdateRule};
use kvstore_core::{DType, Result};

use super::batch::{Address, Batch, THREADS};
use super::update::{FromTo, UpdateJob, is_aligned};

/// Threads that sum a block.
const BLOCK_THREADS: usize = 32;
/// The bytes of the two sums of a block.
pub const SUM_BYTES: usize = 2 * size_of::<f64>();
/// The bytes of the partial sums of a block.
pub const PARTIAL_BYTES: usize = BLOCK_THREADS * SUM_BYTES;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct MeasureArgs<'a> {
    /// Whose norms are measured, or `None` for the gradient alone.
    pub rule: Option<&'a UpdateRule>,
    /// Of the gradients.
    pub dtype: DType,
    /// In elements, at least one.
    pub len: u64,
    /// The weight; not read without a rule.
    pub weight: Address,
    /// The state; of a weight of half precision its master copy comes first.
    pub states: &'a [Address],
    /// The gradients, at least one.
    pub addends: &'a [Address],
    /// Where the partial sums of its blocks go.
    pub partial: Address,
}

impl Batch<UpdateJob> {
    /// Adds a key. All keys of a batch have one formula and one dtype: see [`kernel`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
    pub fn push_measured(&mut self, key: &MeasureArgs<'_>) -> Result<()> {
        let mut states = [0; MAX_STATES];
        for (slot, state) in states.iter_mut().zip(key.states) {
            *slot = *state;
        }
        let read = |address| FromTo { from: address, to: address };
        let weight = if key.rule.is_some() { key.weight } else { 0 };
        let all = key.states.iter().map(|state| read(*state));
        let is_aligned = is_aligned(key.dtype, read(weight), all, key.addends);
        let tile = BLOCK * (THREADS as usize / BLOCK_THREADS);
        let num_tiles = key.len.div_ceil(tile as u64);
        self.push_job(key.addends, num_tiles, |first_tile, first_addend, num_addends| UpdateJob {
            first_tile,
            len: key.len,
            weight_from: weight,
            weight_to: key.partial,
            states_from: states,
            states_to: [0; MAX_STATES],
            scalars: key.rule.map_or([0.0; MAX_SCALARS], UpdateRule::scalars),
            first_addend,
            num_addends,
            is_aligned: is_aligned.into(),
            unused: 0,
            stream: [0; 2],
            count: 0,
        })
    }
}

/// Returns the kernel of a formula and a dtype; none for integers.
pub fn kernel(rule: Option<&UpdateRule>, dtype: DType) -> Option<String> {
    let name = rule.map_or("gradient", UpdateRule::formula);
    dtype.is_float().then(|| format!("kv_measure_{name}_{dtype}"))
}

/// The kernel that makes sums of partial sums.
pub const PAIR_KERNEL: &str = "kv_add_in_pairs";

/// The argument of [`PAIR_KERNEL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairArgs {
    /// The partial sums of blocks.
    pub from: Address,
    /// Where the sums of the blocks go.
    pub to: Address,
    /// How many sums there are: two for each block.
    pub len: u64,
}

impl PairArgs {
    /// Returns how many blocks of threads are useful: each thread then works once.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(u64::from(THREADS))
    }
}

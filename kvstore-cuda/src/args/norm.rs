//! Jobs that sum squares, for the kernels of `kernels/measure.h` and `kernels/norm.cu`.

use kvstore_core::norm::BLOCK;
use kvstore_core::optimizer::{MAX_SCALARS, MAX_STATES, UpdateRule};
use kvstore_core::{DType, Result};

use super::batch::{Address, Batch, THREADS};
use super::update::{FromTo, UpdateJob, is_aligned};

/// The number of threads that sum a block of elements.
const BLOCK_THREADS: usize = 32;
/// The bytes of the two sums of a block.
pub const SUM_BYTES: usize = 2 * size_of::<f64>();
/// The bytes of the partial sums of a block.
pub const PARTIAL_BYTES: usize = BLOCK_THREADS * SUM_BYTES;

/// The inputs of the norms for one key.
#[derive(Clone, Copy, Debug)]
pub struct MeasureArgs<'a> {
    /// The update rule whose norms are needed, or `None` for the norm of the gradient.
    pub rule: Option<&'a UpdateRule>,
    /// The dtype of the gradients.
    pub dtype: DType,
    /// The number of elements, at least 1.
    pub len: u64,
    /// The weight. Without a rule, it is not read.
    pub weight: Address,
    /// The states. For a half-precision weight, the master copy comes first.
    pub states: &'a [Address],
    /// The gradients, at least one.
    pub addends: &'a [Address],
    /// The destination of the partial sums of its blocks.
    pub partial: Address,
}

impl Batch<UpdateJob> {
    /// Appends a key. All keys of a batch have the same formula and dtype: see [`kernel`].
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
    pub fn push_measured(&mut self, key: &MeasureArgs<'_>) -> Result<()> {
        let mut states = [0; MAX_STATES];
        for (slot, state) in states.iter_mut().zip(key.states) {
            *slot = *state;
        }
        let read = |address| FromTo { from: address, to: address };
        // Without a rule, the kernel does not read the weight, so its alignment must not matter.
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

/// Returns the name of the kernel for a formula and a dtype, or `None` for integer dtypes.
pub fn kernel(rule: Option<&UpdateRule>, dtype: DType) -> Option<String> {
    let name = rule.map_or("gradient", UpdateRule::formula);
    dtype.is_float().then(|| format!("kv_measure_{name}_{dtype}"))
}

/// The name of the kernel that adds partial sums.
pub const PAIR_KERNEL: &str = "kv_add_in_pairs";

/// The argument of [`PAIR_KERNEL`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairArgs {
    /// The partial sums of the blocks.
    pub from: Address,
    /// The destination of the sums of the blocks.
    pub to: Address,
    /// The number of sums: two for each block.
    pub len: u64,
}

impl PairArgs {
    /// Returns the number of thread blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(u64::from(THREADS))
    }
}

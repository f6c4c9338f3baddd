//! The argument and names of the kernels in `kernels/random.cu`.

use kvstore_core::{DType, Distribution};

use super::batch::{Address, THREADS};

/// The argument of a kernel: one range.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomArgs {
    /// The destination.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// The number of the call in its stream.
    pub call: u64,
    /// The sum of this number and of the product below is a random number.
    pub offset: f64,
    /// The factor of a number of the standard distribution.
    pub scale: f64,
    /// The stream of the random bits.
    pub stream: [u32; 2],
}

impl RandomArgs {
    /// Returns the argument for `len` elements.
    pub fn new(
        to: Address,
        len: u64,
        distribution: Distribution,
        stream: [u32; 2],
        call: u64,
    ) -> Self {
        let (offset, scale) = match distribution {
            Distribution::Uniform { low, high } => (low, high - low),
            Distribution::Normal { mean, deviation } => (mean, deviation),
        };
        Self { to, len, call, offset, scale, stream }
    }

    /// Returns the number of blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(THREADS.into())
    }
}

/// Returns the name of the kernel for a distribution and a dtype, or `None` for integer dtypes.
pub fn kernel(distribution: Distribution, dtype: DType) -> Option<String> {
    let name = match distribution {
        Distribution::Uniform { .. } => "uniform",
        Distribution::Normal { .. } => "normal",
    };
    dtype.is_float().then(|| format!("kv_{name}_{dtype}"))
}

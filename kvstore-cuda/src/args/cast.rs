//! The arguments and names of the kernels in `kernels/cast.cu`, which convert between dtypes.

use kvstore_core::DType;

use super::batch::{Address, THREADS, is_aligned};

/// The number of elements that a thread converts at a time.
const AT_ONCE: usize = 4;

/// The argument of a kernel: one range of elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastArgs {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// 1 if four elements can be loaded and stored in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

impl CastArgs {
    /// Returns the argument for `len` elements.
    pub fn new(
        (from, from_dtype): (Address, DType),
        (to, to_dtype): (Address, DType),
        len: u64,
    ) -> Self {
        let is_aligned = is_aligned(from, from_dtype, AT_ONCE) && is_aligned(to, to_dtype, AT_ONCE);
        Self { from, to, len, is_aligned: is_aligned.into(), unused: 0 }
    }

    /// Returns the number of blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(AT_ONCE as u64 * u64::from(THREADS))
    }
}

/// Returns the name of the kernel for a pair of dtypes.
pub fn kernel(from: DType, to: DType) -> String {
    format!("kv_cast_{from}_{to}")
}

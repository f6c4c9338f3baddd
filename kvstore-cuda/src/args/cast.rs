//! Elements of one type as those of another: what the kernels of `kernels/cast.cu` get.

use kvstore_core::DType;

use super::batch::{Address, THREADS, is_aligned};

/// The elements that a thread works on at a time.
const AT_ONCE: usize = 4;

/// The argument of a kernel: one range.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastArgs {
    /// Is read.
    pub from: Address,
    /// Is written.
    pub to: Address,
    /// In elements.
    pub len: u64,
    /// Whether four elements can be loaded and stored at a time.
    pub is_aligned: u32,
    /// Fills the struct up.
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

    /// Returns how many blocks are useful: each thread then works once.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(AT_ONCE as u64 * u64::from(THREADS))
    }
}

/// Returns the kernel that converts.
pub fn kernel(from: DType, to: DType) -> String {
    format!("kv_cast_{from}_{to}")
}

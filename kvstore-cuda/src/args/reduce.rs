//! The argument and names of the kernels in `kernels/reduce.cu`: one folds the elements of each
//! block, and one folds the blocks.

use kvstore_core::{DType, Reduction};

use super::batch::{Address, THREADS, VECTOR_BYTES};

/// The number of elements in a block.
const BLOCK: usize = 4096;
/// The bytes of the fold of a block.
pub const FOLD_BYTES: usize = 8;

/// The argument of both kernels: one range.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceArgs {
    /// The source.
    pub from: Address,
    /// The folds of the blocks.
    pub folds: Address,
    /// The destination of the result.
    pub to: Address,
    /// The number of elements.
    pub len: u64,
    /// The code of the reduction.
    pub op: u32,
    /// 1 if 16 bytes can be loaded in one instruction, otherwise 0.
    pub is_aligned: u32,
}

impl ReduceArgs {
    /// Returns the argument for `len` elements. `folds` has room for [`num_blocks`] folds.
    pub fn new(op: Reduction, from: Address, folds: Address, to: Address, len: usize) -> Self {
        let is_aligned = from.is_multiple_of(VECTOR_BYTES).into();
        Self { from, folds, to, len: len as u64, op: op.code().into(), is_aligned }
    }

    /// Returns the number of blocks of threads with which each thread has one iteration.
    pub(crate) fn num_tiles(&self) -> u64 {
        self.len.div_ceil(BLOCK as u64).div_ceil(THREADS.into())
    }
}

/// Returns the number of blocks of `len` elements.
pub fn num_blocks(len: usize) -> usize {
    len.div_ceil(BLOCK)
}

/// Returns the name of the kernel that folds the elements of each block.
pub fn blocks_kernel(dtype: DType) -> String {
    format!("kv_reduce_blocks_{dtype}")
}

/// Returns the name of the kernel that folds the blocks and writes the result. One block of threads
/// is enough.
pub fn kernel(dtype: DType) -> String {
    format!("kv_reduce_{dtype}")
}

//! The argument and names of the kernels in `kernels/transpose.cu`.

use kvstore_core::DType;

use super::batch::{Address, VECTOR_BYTES};

/// The number of squares along each side of the tile of a block.
const SQUARES: u64 = 16;
/// The largest side of the square of a thread.
const MAX_SIDE: u64 = 4;

/// The argument of a kernel: one matrix.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposeArgs {
    /// The source.
    pub from: Address,
    /// The destination.
    pub to: Address,
    /// The number of rows of the source.
    pub rows: u64,
    /// The number of columns of the source.
    pub columns: u64,
    /// 1 if each line of a square can be loaded and stored in one instruction, otherwise 0.
    pub is_aligned: u32,
    /// Padding.
    pub unused: u32,
}

impl TransposeArgs {
    /// Returns the argument for a matrix of `rows` rows.
    pub fn new(dtype: DType, from: Address, to: Address, rows: u64, columns: u64) -> Self {
        let side = side(dtype);
        let line = side * dtype.size() as u64;
        let is_aligned = from.is_multiple_of(line)
            && to.is_multiple_of(line)
            && rows.is_multiple_of(side)
            && columns.is_multiple_of(side);
        Self { from, to, rows, columns, is_aligned: is_aligned.into(), unused: 0 }
    }

    /// Returns the number of blocks with which each thread has one iteration.
    pub(crate) fn num_tiles(&self, dtype: DType) -> u64 {
        let tile = SQUARES * side(dtype);
        self.rows.div_ceil(tile) * self.columns.div_ceil(tile)
    }
}

/// Returns the side of the square that a thread transposes.
fn side(dtype: DType) -> u64 {
    (VECTOR_BYTES / dtype.size() as u64).min(MAX_SIDE)
}

/// Returns whether the kernel is the fastest one. If a matrix has fewer rows or columns than half a
/// tile, most threads of the kernel would have no elements.
pub(crate) fn is_wide(dtype: DType, rows: u64, columns: u64) -> bool {
    rows.min(columns) >= SQUARES * side(dtype) / 2
}

/// Returns the name of the kernel for a dtype.
pub fn kernel(dtype: DType) -> String {
    format!("kv_transpose_{}", dtype.size())
}

//! Sums of a batch as one launch: what the kernels of `kernels/sum.cu` get.

use kvstore_core::DType;

use crate::batch::{Address, Batch, VECTOR_BYTES};

/// Bytes of the destination that a block works on at a time.
const TILE_BYTES: u64 = 16_384;
/// The head of a job whose pointers are never aligned together.
const NEVER: u32 = u32::MAX;

/// One sum, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// Where the sum goes.
    pub dst: Address,
    /// In elements.
    pub len: u64,
    /// Where its addends begin in the list of all.
    pub first_addend: u32,
    /// How many it has.
    pub num_addends: u32,
    /// How many elements come before all pointers are aligned, or `u32::MAX` if they never are.
    pub head: u32,
    /// Fills the struct up.
    pub unused: u32,
}

impl Batch<SumJob> {
    /// Adds a sum of `num_bytes` bytes in elements of `size`. Nothing is done for no bytes; there is an addend at least.
    pub fn push(&mut self, dst: Address, addends: &[Address], num_bytes: u64, size: u64) {
        if num_bytes == 0 {
            return;
        }
        let len = num_bytes / size;
        let head = head(dst, addends, size).filter(|head| u64::from(*head) < len);
        let after_head = len - u64::from(head.unwrap_or_default());
        let num_tiles = after_head.div_ceil(TILE_BYTES / size);
        let head = head.unwrap_or(NEVER);
        self.push_job(addends, num_tiles, |first_tile, first_addend, num_addends| SumJob {
            first_tile,
            dst,
            len,
            first_addend,
            num_addends,
            head,
            unused: 0,
        });
    }
}

/// Returns how many elements come before all pointers are aligned; none if they never are together.
fn head(dst: Address, addends: &[Address], size: u64) -> Option<u32> {
    let beyond = dst % VECTOR_BYTES;
    if addends.iter().any(|addend| addend % VECTOR_BYTES != beyond) || !beyond.is_multiple_of(size)
    {
        return None;
    }
    u32::try_from((VECTOR_BYTES - beyond) % VECTOR_BYTES / size).ok()
}

/// Returns the kernel of a dtype. Integers wrap, so their sign does not count.
pub fn kernel(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "kv_sum_f32",
        DType::F64 => "kv_sum_f64",
        DType::F16 => "kv_sum_f16",
        DType::Bf16 => "kv_sum_bf16",
        DType::U8 | DType::I8 => "kv_sum_8",
        DType::I32 => "kv_sum_32",
        DType::I64 => "kv_sum_64",
    }
}

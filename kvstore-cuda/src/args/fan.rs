//! One range and several others as long: sums of those and copies to them, as `kernels/fan.h` reads them.

use kvstore_core::Result;

use super::batch::{Address, Batch, THREADS, VECTOR_BYTES};

/// Bytes of a range that a block works on: a vector of each thread.
const TILE_BYTES: u64 = VECTOR_BYTES * THREADS as u64;
/// The head of a job whose pointers are never aligned together.
const NEVER: u32 = u32::MAX;

/// One sum, or the copies of one range, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanJob {
    /// The tiles of the jobs before it.
    pub first_tile: u64,
    /// Where the sum goes, or what is copied.
    pub one: Address,
    /// In elements.
    pub len: u64,
    /// Where its addends or copies begin in the list of all.
    pub first_other: u32,
    /// How many it has.
    pub num_others: u32,
    /// How many elements come before all pointers are aligned, or `u32::MAX` if they never are.
    pub head: u32,
    /// Fills the struct up.
    pub unused: u32,
}

impl Batch<FanJob> {
    /// Adds a job of `num_bytes` bytes in elements of `size`. Nothing is done for no bytes; there is another range at
    /// least.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory).
    pub fn push(
        &mut self,
        one: Address,
        others: &[Address],
        num_bytes: u64,
        size: u64,
    ) -> Result<()> {
        if num_bytes == 0 {
            return Ok(());
        }
        let len = num_bytes / size;
        let head = head(one, others, size).filter(|head| u64::from(*head) < len);
        let after_head = len - u64::from(head.unwrap_or_default());
        let num_tiles = after_head.div_ceil(TILE_BYTES / size);
        let head = head.unwrap_or(NEVER);
        self.push_job(others, num_tiles, |first_tile, first_other, num_others| FanJob {
            first_tile,
            one,
            len,
            first_other,
            num_others,
            head,
            unused: 0,
        })
    }
}

/// Returns how many elements come before all pointers are aligned; none if they never are together.
fn head(one: Address, others: &[Address], size: u64) -> Option<u32> {
    let beyond = one % VECTOR_BYTES;
    if others.iter().any(|other| other % VECTOR_BYTES != beyond) || !beyond.is_multiple_of(size) {
        return None;
    }
    u32::try_from((VECTOR_BYTES - beyond) % VECTOR_BYTES / size).ok()
}

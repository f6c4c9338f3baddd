//! Jobs of one range and several others of the same length, as `kernels/fan.h` reads them: sums of
//! the others, or copies to them.

use kvstore_core::Result;

use super::batch::{Address, Batch, THREADS, VECTOR_BYTES};

/// The number of bytes of a range that a block processes: one vector for each thread.
const TILE_BYTES: u64 = VECTOR_BYTES * THREADS as u64;
/// The value of `head` if the pointers cannot be aligned together.
const NEVER: u32 = u32::MAX;

/// A sum, or the copies of a range, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanJob {
    /// The number of tiles of all earlier jobs.
    pub first_tile: u64,
    /// The destination of the sum, or the source of the copies.
    pub one: Address,
    /// The number of elements.
    pub len: u64,
    /// The position of the addends or destinations in the list of addends.
    pub first_other: u32,
    /// The number of addends or destinations.
    pub num_others: u32,
    /// The number of elements before the first aligned one, or `u32::MAX` if the pointers cannot be
    /// aligned together.
    pub head: u32,
    /// Padding.
    pub unused: u32,
}

impl Batch<FanJob> {
    /// Appends a job of `num_bytes` bytes in elements of `size` bytes. `others` must not be empty.
    /// Does nothing if `num_bytes` is 0.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](kvstore_core::Error::OutOfMemory) if there is not enough memory.
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

/// Returns the number of elements before all pointers are aligned, or `None` if they cannot be
/// aligned together.
fn head(one: Address, others: &[Address], size: u64) -> Option<u32> {
    let beyond = one % VECTOR_BYTES;
    if others.iter().any(|other| other % VECTOR_BYTES != beyond) || !beyond.is_multiple_of(size) {
        return None;
    }
    u32::try_from((VECTOR_BYTES - beyond) % VECTOR_BYTES / size).ok()
}

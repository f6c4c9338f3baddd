//! Resources of the driver: events and pinned memory.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use kvstore_core::{Result, fallible};

use super::call::{call, check};
use super::card::Card;
use super::context::Context;

/// A point in the work of a GPU.
#[derive(Debug)]
pub(crate) struct Event {
    event: sys::CUevent,
    context: Context,
}

// SAFETY: any thread may use an event.
unsafe impl Send for Event {}

impl Event {
    /// Returns an event that is not recorded yet. The GPU's context must be current.
    pub(crate) fn new(card: &Card) -> Result<Self> {
        const NO_TIMING: u32 = 2;
        let mut event = ptr::null_mut();
        // The pointer refers to a local variable.
        call!(card.device(), cuEventCreate(&raw mut event, NO_TIMING))?;
        Ok(Self { event, context: card.context() })
    }

    pub(crate) fn handle(&self) -> sys::CUevent {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A card outlives its events.
        let _bound = self.context.bind();
        // SAFETY: no one else has the event. A stream that waits for it continues to wait. Ignores
        // errors of earlier work, which other calls report.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// Pinned memory of the host, which GPUs can copy without the CPU. Several parts may share an
/// allocation, because the driver takes longer to pin memory than to copy it.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: *mut u8,
    num_bytes: usize,
    allocation: Arc<Allocation>,
}

// SAFETY: this value owns its part of the memory, and any thread may use it.
unsafe impl Send for Pinned {}

/// Pinned memory that is freed with its last part.
#[derive(Debug)]
struct Allocation {
    start: *mut u8,
    context: Context,
}

// SAFETY: any thread may free the memory. Its parts are accessed only through `Pinned`.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Pinned {
    /// Allocates pinned memory for all GPUs, filled with zeros: `num_parts` parts of `num_bytes`
    /// bytes each. Returns `None` if the system has not enough memory that can be pinned.
    pub(crate) fn allocate(
        card: &Card,
        num_bytes: usize,
        num_parts: usize,
    ) -> Result<Option<Vec<Self>>> {
        const PORTABLE: u32 = 1;
        let mut parts = fallible::with_capacity(num_parts)?;
        let total = num_bytes * num_parts;
        let _bound = card.context().bind()?;
        let mut start = ptr::null_mut();
        // SAFETY: the pointer refers to a local variable.
        match unsafe { sys::cuMemHostAlloc(&raw mut start, total, PORTABLE) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Ok(None),
            result => check(card.device(), "cuMemHostAlloc", result)?,
        }
        let start = start.cast::<u8>();
        // SAFETY: the memory is new and has this length.
        unsafe { ptr::write_bytes(start, 0, total) };
        let allocation = Arc::new(Allocation { start, context: card.context() });
        parts.extend((0..num_parts).map(|part| Self {
            start: start.wrapping_add(part * num_bytes),
            num_bytes,
            allocation: Arc::clone(&allocation),
        }));
        Ok(Some(parts))
    }

    /// Leaks the allocation, because a failed driver may still write to this part.
    pub(crate) fn leak(&mut self) {
        if !self.start.is_null() {
            #[expect(clippy::disallowed_methods, reason = "a failed driver may use the memory")]
            std::mem::forget(Arc::clone(&self.allocation));
        }
        (self.start, self.num_bytes) = (ptr::null_mut(), 0);
    }

    /// Returns the bytes. No queued work may use them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.start.is_null() {
            return &mut [];
        }
        // SAFETY: the memory is initialised and has this length, and this value owns it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.num_bytes) }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A card outlives its pinned memory.
        let _bound = self.context.bind();
        // SAFETY: no part of the memory is left. Ignores errors of earlier work, which other calls
        // report.
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}

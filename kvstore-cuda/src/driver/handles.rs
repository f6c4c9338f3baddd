//! Resources of the driver: events and pinned memory.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ptr;

use cudarc::driver::sys;
use kvstore_core::Result;

use super::call::call;
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

/// Pinned memory of the host, which GPUs can copy without the CPU.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: *mut u8,
    num_bytes: usize,
    context: Context,
}

// SAFETY: this value owns the memory, and any thread may use it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates pinned memory for all GPUs, filled with zeros.
    pub(crate) fn new(card: &Card, num_bytes: usize) -> Result<Self> {
        const PORTABLE: u32 = 1;
        let _bound = card.context().bind()?;
        let mut start = ptr::null_mut();
        // The pointer refers to a local variable.
        call!(card.device(), cuMemHostAlloc(&raw mut start, num_bytes, PORTABLE))?;
        let start = start.cast::<u8>();
        // SAFETY: the memory is new and has this length.
        unsafe { ptr::write_bytes(start, 0, num_bytes) };
        Ok(Self { start, num_bytes, context: card.context() })
    }

    /// Leaks the memory, because a failed driver may still write to it.
    pub(crate) fn leak(&mut self) {
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

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.start.is_null() {
            return;
        }
        // A card outlives its pinned memory.
        let _bound = self.context.bind();
        // SAFETY: this value owns the memory. Ignores errors of earlier work, which other calls
        // report.
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}

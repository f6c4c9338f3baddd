//! What the driver makes for us and takes back: events, and memory of the host that stands still.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ptr;

use cudarc::driver::sys;
use kvstore_core::Result;

use super::call::call;
use super::card::Card;
use super::context::Context;

/// A point in the work of a card.
#[derive(Debug)]
pub(crate) struct Event {
    event: sys::CUevent,
    context: Context,
}

// SAFETY: an event may be used by any thread.
unsafe impl Send for Event {}

impl Event {
    /// Returns an event that is nowhere yet. The context of the card is the thread's.
    pub(crate) fn new(card: &Card) -> Result<Self> {
        const NO_TIMING: u32 = 2;
        let mut event = ptr::null_mut();
        // A pointer to a local value may be written.
        call!(card.device(), cuEventCreate(&raw mut event, NO_TIMING))?;
        Ok(Self { event, context: card.context() })
    }

    pub(crate) fn handle(&self) -> sys::CUevent {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Cards outlive their events.
        let _bound = self.context.bind();
        // SAFETY: nobody else has it; what waits for it goes on waiting. An error would be that of work before, which
        // others hear of.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// Memory of the host that stands still, so that cards copy by themselves.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: *mut u8,
    num_bytes: usize,
    context: Context,
}

// SAFETY: it is memory like any other, and this value owns it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Returns memory that all cards may use.
    pub(crate) fn new(card: &Card, num_bytes: usize) -> Result<Self> {
        const PORTABLE: u32 = 1;
        let _bound = card.context().bind()?;
        let mut start = ptr::null_mut();
        // A pointer to a local value may be written.
        call!(card.device(), cuMemHostAlloc(&raw mut start, num_bytes, PORTABLE))?;
        let start = start.cast::<u8>();
        // SAFETY: it is that long, and new. Nobody has written there before.
        unsafe { ptr::write_bytes(start, 0, num_bytes) };
        Ok(Self { start, num_bytes, context: card.context() })
    }

    /// Keeps the memory for ever: a driver that fails may still write there.
    pub(crate) fn leak(&mut self) {
        (self.start, self.num_bytes) = (ptr::null_mut(), 0);
    }

    /// Returns its bytes. Nothing that is queued may use them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.start.is_null() {
            return &mut [];
        }
        // SAFETY: it is that long and initialised, and this value owns it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.num_bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.start.is_null() {
            return;
        }
        // Cards outlive what was made by them.
        let _bound = self.context.bind();
        // SAFETY: this value owns it. An error would be that of work before, which others hear of.
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}

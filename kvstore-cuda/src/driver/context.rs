//! [`Context`]: that of a card, which a thread makes its own for a time. Other libraries of the process have theirs.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ptr;

use cudarc::driver::sys;
use kvstore_core::{Device, Result};

use super::call::call;

/// The context of a card. Whoever keeps it for longer than its card must not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) handle: sys::CUcontext,
}

impl Context {
    /// Makes it the calling thread's, until what is returned is dropped.
    pub(crate) fn bind(self) -> Result<Bound> {
        let mut previous = ptr::null_mut();
        // A pointer to a local value may be written.
        call!(self.device, cuCtxGetCurrent(&raw mut previous))?;
        if previous != self.handle {
            // It is a context of this process, kept by its card.
            call!(self.device, cuCtxSetCurrent(self.handle))?;
        }
        Ok(Bound { previous, is_other: previous != self.handle })
    }
}

/// A context that is the calling thread's; after that the one before is, or again none.
pub(crate) struct Bound {
    previous: sys::CUcontext,
    is_other: bool,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.is_other {
            // SAFETY: it was the thread's before, or there was none. An error would be one of work before.
            let _ = unsafe { sys::cuCtxSetCurrent(self.previous) };
        }
    }
}

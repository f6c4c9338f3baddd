//! [`Context`]: the context of a GPU, which a thread makes current for a limited time. Other
//! libraries in the process use the thread's context too.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ptr;

use cudarc::driver::sys;
use kvstore_core::{Device, Result};

use super::call::call;

/// The context of a GPU. It must not be used after its card is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) device: Device,
    pub(crate) handle: sys::CUcontext,
}

impl Context {
    /// Makes the context current in this thread, until the result is dropped.
    pub(crate) fn bind(self) -> Result<Bound> {
        let mut previous = ptr::null_mut();
        // The pointer refers to a local variable.
        call!(self.device, cuCtxGetCurrent(&raw mut previous))?;
        if previous != self.handle {
            // The context belongs to this process, and its card keeps it.
            call!(self.device, cuCtxSetCurrent(self.handle))?;
        }
        Ok(Bound { previous, is_other: previous != self.handle })
    }
}

/// Keeps a context current in this thread. Dropping it restores the previous context.
pub(crate) struct Bound {
    previous: sys::CUcontext,
    is_other: bool,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.is_other {
            // SAFETY: the context was current before, or is null. Ignores errors of earlier work.
            let _ = unsafe { sys::cuCtxSetCurrent(self.previous) };
        }
    }
}

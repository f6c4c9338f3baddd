//! Tensors in memory that somebody else has: read where it lies, and copied where a value stays.

use std::sync::Arc;

use super::Tensor;
use super::share::Share;
use crate::backend::Storage;
use crate::backend::registry::Backends;
use crate::types::{Device, Error, Result, TensorSpec};

impl Tensor {
    /// Returns a tensor on the host whose elements lie in memory that is lent: row-major, in the machine's byte order.
    ///
    /// It is for one call. What a store keeps of it and what an array is assigned is a copy, and so is what is made of it by
    /// a change; the tensor itself, its clones and views, and an array that is made of one, go on reading there and keep the
    /// storage. The last of them may be dropped by another thread.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a storage that lends nothing, and for elements at places where the machine reads
    /// none of their size; [`Error::LengthMismatch`] for another number of bytes.
    pub fn lent(backends: &Backends, spec: TensorSpec, storage: Arc<dyn Storage>) -> Result<Self> {
        let device = Device::default();
        let bytes = storage.lent().ok_or_else(|| Error::invalid("the memory is not lent"))?;
        let (expected, found) = (spec.num_bytes()?, bytes.len());
        if found != expected {
            let what = format!("bytes that are lent for {spec}");
            return Err(Error::LengthMismatch { what, expected, found });
        }
        if !bytes.is_empty() && bytes.as_ptr().addr() % spec.dtype().size() != 0 {
            return Err(Error::invalid(format!(
                "{spec}: lent elements begin at address {:#x}, between two places for them",
                bytes.as_ptr().addr()
            )));
        }
        let backend = backends.of(device)?;
        Ok(Self { share: Share::new(backend, storage), device, spec, start: 0 })
    }

    /// Returns a tensor whose reads all fail with this reason.
    pub(crate) fn unreadable(device: Device, spec: TensorSpec, reason: &Error) -> Self {
        Self { share: Share::unreadable(reason), device, spec, start: 0 }
    }

    /// Returns whether nobody else has the memory, and it may be written to.
    pub(super) fn may_write(&mut self) -> bool {
        Arc::get_mut(&mut self.share.storage).is_some_and(|storage| !storage.is_lent())
    }
}

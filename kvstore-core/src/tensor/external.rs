//! Tensors in external host memory. Reads happen in place, and whatever keeps the value copies it.

use std::sync::Arc;

use super::Tensor;
use super::share::Share;
use crate::backend::Storage;
use crate::backend::registry::Backends;
use crate::types::{Device, Error, Result, TensorSpec};

impl Tensor {
    /// Returns a tensor on the host whose elements are in external memory: row-major, in the
    /// machine's byte order.
    ///
    /// Use it for one call. Stores and arrays copy what they keep, and a change of the tensor moves
    /// it to other memory. The tensor, its clones and its views read the external memory and keep
    /// the storage alive. Any thread may drop the last of them.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the storage is not external.
    /// - [`Error::InvalidArgument`] if the elements are not aligned.
    /// - [`Error::LengthMismatch`] if the spec needs another number of bytes.
    pub fn from_external(
        backends: &Backends,
        spec: TensorSpec,
        storage: Arc<dyn Storage>,
    ) -> Result<Self> {
        let device = Device::default();
        let bytes = storage
            .external_bytes()
            .ok_or_else(|| Error::invalid("the storage is not external memory"))?;
        let (expected, found) = (spec.num_bytes()?, bytes.len());
        if found != expected {
            let what = format!("bytes of external memory for {spec}");
            return Err(Error::LengthMismatch { what, expected, found });
        }
        if !bytes.is_empty() && bytes.as_ptr().addr() % spec.dtype().size() != 0 {
            return Err(Error::unaligned(&spec, device, bytes.as_ptr().addr()));
        }
        let backend = backends.of(device)?;
        Ok(Self { share: Share::new(backend, storage), device, spec, start: 0 })
    }

    /// Returns a tensor whose reads all fail with `reason`.
    pub(crate) fn unreadable(device: Device, spec: TensorSpec, reason: &Error) -> Self {
        Self { share: Share::unreadable(reason), device, spec, start: 0 }
    }

    /// Returns whether the memory may be changed in place: it is neither shared nor external.
    pub(super) fn may_write(&mut self) -> bool {
        Arc::get_mut(&mut self.share.storage).is_some_and(|storage| !storage.is_external())
    }
}

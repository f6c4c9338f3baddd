//! Tensors in device memory of another library, and tensors exported to one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::share::Share;
use super::{Tensor, exclusive};
use crate::backend::registry::Backends;
use crate::backend::{DeviceInterop, ForeignMemory, Queue, SpanMut, Storage};
use crate::types::{Error, Result, TensorSpec};

impl Tensor {
    /// Returns a tensor whose elements are in device memory of another library: row-major, in the
    /// machine's byte order.
    ///
    /// As for [`Tensor::from_external`], stores and arrays copy what they keep. Dropping the last
    /// reference waits for the work on the memory, unless it is
    /// [released to a queue](ForeignMemory::release_to). Strided elements are copied, and this call
    /// drops the memory.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device is not available.
    /// - [`Error::Unsupported`] if the device cannot share its memory, or if the layout has too
    ///   many axes.
    /// - [`Error::InvalidArgument`] if the elements are not aligned.
    /// - [`Error::LengthMismatch`] if the spec needs another number of bytes.
    pub fn from_foreign(
        backends: &Backends,
        spec: TensorSpec,
        memory: ForeignMemory,
    ) -> Result<Self> {
        check_room(&spec, &memory)?;
        check_alignment(&spec, &memory)?;
        let (device, is_strided) = (memory.device(), memory.layout().is_some());
        let backend = backends.of(device)?;
        let interop = backends.interop(device)?;
        let storage = interop.import(memory)?;
        if is_strided {
            let mut gathered = Self::allocate_on(backend, device, spec)?;
            gathered.overwrite(|_, dst| interop.gather(dst, &*storage))?;
            return Ok(gathered);
        }
        Ok(Self { share: Share::new(backend, storage), device, spec, start: 0 })
    }

    /// Queues a copy of the elements to memory of another library on the same device, contiguous or
    /// strided.
    ///
    /// Dropping the result waits for the copy, or [releases](ForeignMemory::release_to) it to a
    /// queue. Call [`Tensor::wait`] first to wait for several copies at once and to receive their
    /// errors.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the memory is on another device.
    /// - [`Error::InvalidArgument`] if the target is strided and its elements are not aligned.
    /// - [`Error::Unsupported`] if the device cannot share its memory, or if the layout has too
    ///   many axes.
    /// - [`Error::LengthMismatch`] if the memory has another number of bytes.
    #[must_use = "the copy is done or released when this is dropped"]
    pub fn copy_to_foreign(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>> {
        check_room(&self.spec, &memory)?;
        if memory.device() != self.device {
            return Err(Error::invalid(format!(
                "copy of {} on {} to memory of {}: expected the same device",
                self.spec,
                self.device,
                memory.device()
            )));
        }
        let (interop, is_strided) = (self.interop()?, memory.layout().is_some());
        // A contiguous copy moves bytes, so only strided elements must be aligned.
        if is_strided {
            check_alignment(&self.spec, &memory)?;
        }
        let mut storage = interop.import(memory)?;
        let target = exclusive(&mut storage)?;
        if is_strided {
            interop.scatter(target, self.span())?;
        } else {
            let dst = SpanMut { storage: target, start: 0, num_bytes: self.num_bytes() };
            self.share.backend()?.copy(dst, self.span())?;
        }
        Ok(storage)
    }

    /// Exports the memory of the elements to another library. The memory is read-only, because
    /// clones of the tensor may share it.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the memory has no addresses.
    /// - [`Error::Unsupported`] if another library owns the memory.
    pub fn export(self) -> Result<ExportedTensor> {
        if self.share.storage.is_external() {
            return Err(Error::Unsupported(format!(
                "export of {self:?}: another library owns its memory"
            )));
        }
        let address = self.interop()?.address(self.span())?;
        Ok(ExportedTensor { address, value: Some(self) })
    }

    fn interop(&self) -> Result<&dyn DeviceInterop> {
        self.share.backend()?.interop().ok_or_else(|| {
            Error::Unsupported(format!("{} cannot share memory with other libraries", self.device))
        })
    }
}

fn check_room(spec: &TensorSpec, memory: &ForeignMemory) -> Result<()> {
    let (expected, found) = (spec.num_bytes()?, memory.num_bytes());
    if found == expected {
        return Ok(());
    }
    Err(Error::LengthMismatch {
        what: format!("bytes of external memory for {spec}"),
        expected,
        found,
    })
}

/// Checks that the elements are aligned.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the address or a stride is not a multiple of the element size.
fn check_alignment(spec: &TensorSpec, memory: &ForeignMemory) -> Result<()> {
    let (size, address) = (spec.dtype().size(), memory.address());
    let strides = memory.layout().into_iter().flat_map(|layout| &layout.axes);
    let mut strides = strides.filter(|axis| axis.length > 1).map(|axis| axis.stride.unsigned_abs());
    if address.is_multiple_of(size) && strides.all(|stride| stride.is_multiple_of(size)) {
        return Ok(());
    }
    Err(Error::unaligned(spec, memory.device(), address))
}

/// The memory of a tensor that another library reads. It exists and does not change until this
/// object is dropped.
///
/// Dropping this object waits for all work on the device, because the other library does not report
/// which of its work still reads.
#[derive(Debug)]
pub struct ExportedTensor {
    address: usize,
    /// `Some` until the drop.
    value: Option<Tensor>,
}

impl ExportedTensor {
    /// Returns the address of the elements on their device. They are in row-major order.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Makes later work in another library's queue wait until the elements have been computed.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the device fails.
    pub fn let_wait(&self, other: Queue) -> Result<()> {
        let Some(value) = &self.value else { return Ok(()) };
        value.interop()?.let_wait(other, value.device)
    }

    /// Keeps the memory until another exported tensor is dropped. Call this instead of dropping the
    /// tensor while a wait for the device would invalidate a graph that is being captured.
    pub fn release_later(mut self) {
        unreleased().extend(self.value.take());
    }
}

impl Drop for ExportedTensor {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            release(value);
            release_kept();
        }
    }
}

/// The memory of [`ExportedTensor::release_later`].
static UNRELEASED: Mutex<Vec<Tensor>> = Mutex::new(Vec::new());

fn unreleased() -> MutexGuard<'static, Vec<Tensor>> {
    UNRELEASED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn release_kept() {
    let values = std::mem::take(&mut *unreleased());
    values.into_iter().for_each(release);
}

/// Drops a value when all work on its device is done.
fn release(value: Tensor) {
    let waited = value.interop().and_then(|interop| interop.wait_for_all(value.device));
    if let Err(error) = waited {
        tracing::warn!(%error, ?value, "leaks memory that another library may still read");
        #[expect(clippy::disallowed_methods, reason = "another library may still read the memory")]
        std::mem::forget(value);
    }
}

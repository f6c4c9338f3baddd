//! Values exported to other libraries with DLPack.

#![expect(unsafe_code, reason = "exports values by their addresses")]

use kvstore::fallible;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use kvstore::{Error, ErrorCode, ExportedTensor, NDArray, Queue, Tensor};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::block::row_major;
use super::dlpack::{
    DlDevice, DlTensor, HOST, IS_COPIED, MAJOR, PLAIN, Plain, READ_ONLY, VERSIONED, Versioned,
    device_of, dl_type,
};
use super::{pytorch, stream};
use crate::interpreter::error::{detached, to_python};

/// A value that is exported to another library.
#[repr(C)]
struct Export<M> {
    /// Must be the first field, so that a pointer to it is also a pointer to the export.
    managed: M,
    memory: Memory,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// The memory that an exported value keeps alive.
enum Memory {
    /// A value that others may share, so it is read-only.
    Shared(#[expect(dead_code, reason = "it is held, not read")] Tensor),
    /// A value on a GPU.
    Device(ExportedTensor),
    /// A copy in the host's memory that belongs to the consumer.
    Own(#[expect(dead_code, reason = "it is held, not read")] Vec<u64>),
}

/// The arguments of `__dlpack__`.
pub(crate) struct ExportRequest<'a, 'py> {
    pub(crate) stream: Option<&'a Bound<'py, PyAny>>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
}

/// Returns a capsule with the current value of an array: a copy on its device or on the host, or
/// the value itself if the consumer requests no copy.
///
/// A value without a copy is read-only, because others may share it. Only a versioned capsule can
/// express that, and some libraries ignore it. This is why a copy is the default.
///
/// # Errors
/// - A `BufferError` if the array cannot be exported as requested.
pub(crate) fn to_dlpack<'py>(
    py: Python<'py>,
    array: &NDArray,
    request: &ExportRequest<'_, 'py>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let own = device_of(array.device()).map_err(|error| to_python(py, error))?;
    let device = request.device.map_or(own, |(kind, id)| DlDevice { kind, id });
    let is_versioned = request.max_version.is_some_and(|(major, _)| major >= 1);
    // All names of the host mean the same memory.
    let stays = device == own || device.kind == HOST && own.kind == HOST;
    if !stays && device.kind != HOST {
        let text = format!(
            "an array on {} cannot be exported to {device}: use `as_in_context`, or \
             `dl_device=(1, 0)` for a copy on the host",
            array.device()
        );
        return Err(PyBufferError::new_err(text));
    }
    if request.stream.is_some() && own.kind == HOST {
        return Err(PyBufferError::new_err("the host has no streams: `stream` must be None"));
    }
    let is_copied = request.copy != Some(false);
    if !is_copied && (!stays || !is_versioned) {
        let text = "only a copy can be exported: the consumer requested another device, or does \
                    not support read-only memory";
        return Err(PyBufferError::new_err(text));
    }
    let value = array.tensor();
    let spec = value.spec().clone();
    let (data, memory) = if device.kind == HOST {
        in_host(py, value, is_copied)?
    } else {
        let consumer = stream::consumer(request.stream)?;
        detached(py, move || on_gpu(value, is_copied, consumer))?
    };
    let size = spec.dtype().size().cast_signed();
    let shape: Vec<i64> = spec.shape().dims().iter().map(|&dim| dim.cast_signed() as i64).collect();
    let strides = row_major(&spec).into_iter().map(|stride| (stride / size) as i64).collect();
    let tensor = DlTensor {
        data: data.0,
        device,
        rank: shape.len().try_into().unwrap_or_default(),
        dtype: dl_type(spec.dtype()),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    if is_versioned {
        let flags = if is_copied { IS_COPIED } else { READ_ONLY };
        let (version, context) = ([MAJOR, 0], ptr::null_mut());
        let deleter = Some(delete::<Versioned> as _);
        let managed = Versioned { version, context, deleter, flags, tensor };
        return capsule(py, Export { managed, memory, shape, strides }, VERSIONED, |exported| {
            &mut exported.tensor
        });
    }
    let managed = Plain { tensor, context: ptr::null_mut(), deleter: Some(delete::<Plain> as _) };
    capsule(py, Export { managed, memory, shape, strides }, PLAIN, |exported| &mut exported.tensor)
}

/// An address that is passed through a closure into a structure.
struct Address(*mut c_void);

// SAFETY: this crate does not dereference the address. The consumer of the structure follows the
// rules of its memory.
unsafe impl Send for Address {}

/// Returns the address of the elements on their GPU, and their owner. The consumer's queue waits
/// until the elements have been computed.
fn on_gpu(
    value: Tensor,
    is_copied: bool,
    consumer: Option<Queue>,
) -> kvstore::Result<(Address, Memory)> {
    let exported = if is_copied { value.duplicate()? } else { value }.export()?;
    if let Some(consumer) = consumer {
        exported.let_wait(consumer)?;
    }
    let address = ptr::with_exposed_provenance_mut(exported.address());
    Ok((Address(address), Memory::Device(exported)))
}

/// Returns the address of the elements in the host's memory, and their owner.
fn in_host(py: Python<'_>, value: Tensor, is_copied: bool) -> PyResult<(Address, Memory)> {
    if !is_copied {
        let start = value.host_bytes().map(<[u8]>::as_ptr);
        let start = start.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        return Ok((Address(start.cast_mut().cast()), Memory::Shared(value)));
    }
    let words = py.detach(|| {
        let bytes = value.seen_bytes()?;
        let mut words: Vec<u64> = fallible::zeroed(bytes.len().div_ceil(size_of::<u64>()))?;
        let start = words.as_mut_ptr();
        // SAFETY: the words have room for this number of bytes, and they are a new allocation.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
        Ok(words)
    });
    let mut words = words.map_err(|error: Error| match error.code() {
        ErrorCode::OutOfMemory => to_python(py, error),
        _ => PyBufferError::new_err(error.chain()),
    })?;
    Ok((Address(words.as_mut_ptr().cast()), Memory::Own(words)))
}

/// Returns a capsule that owns the export until a consumer takes it.
fn capsule<'py, M>(
    py: Python<'py>,
    export: Export<M>,
    name: &'static CStr,
    tensor_of: impl FnOnce(&mut M) -> &mut DlTensor,
) -> PyResult<Bound<'py, PyCapsule>> {
    let mut export = Box::new(export);
    let (shape, strides) = (export.shape.as_mut_ptr(), export.strides.as_mut_ptr());
    let tensor = tensor_of(&mut export.managed);
    (tensor.shape, tensor.strides) = (shape, strides);
    let pointer = NonNull::from(Box::leak(export)).cast::<c_void>();
    // SAFETY: the structure that the name promises is the first field of the export, so the pointer
    // is valid for it. The destructor may run on any thread. It frees the export unless a consumer
    // has taken it.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destroy::<M>))
    };
    made.inspect_err(|_| {
        // SAFETY: the pointer was leaked above, and no capsule owns it.
        drop(unsafe { Box::from_raw(pointer.cast::<Export<M>>().as_ptr()) });
    })
}

/// An export whose drop waits for a GPU.
struct PendingRelease<M>(Box<Export<M>>);

// SAFETY: the export is only dropped, and its memory may be dropped in any thread.
unsafe impl<M> Send for PendingRelease<M> {}

/// Frees an export.
///
/// # Safety
/// - `managed` is the first field of an [`Export`] of this crate.
/// - The export has not been freed.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: by the contract, the export came from a box.
    let export = unsafe { Box::from_raw(managed.cast::<Export<M>>()) };
    if !matches!(export.memory, Memory::Device(_)) {
        return;
    }
    let mut export = Some(PendingRelease(export));
    // Without an interpreter, the export is dropped in place.
    let _ = Python::try_attach(|py| {
        let Some(PendingRelease(export)) = export.take() else { return };
        if pytorch::captures(py) {
            let Memory::Device(exported) = export.memory else { return };
            return exported.release_later();
        }
        // The GPU may wait for a callback of the program that needs the interpreter's lock.
        let export = PendingRelease(export);
        py.detach(move || drop(export));
    });
}

/// Frees the contents of a capsule that no consumer has taken.
///
/// # Safety
/// - `capsule` was returned by [`capsule`] for the same `M`.
/// - This thread has the GIL.
/// - The capsule is not used afterwards.
unsafe extern "C" fn destroy<M>(capsule: *mut ffi::PyObject) {
    for name in [PLAIN, VERSIONED] {
        // SAFETY: the object is a capsule.
        let is_untouched = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 1;
        if is_untouched {
            // SAFETY: the capsule has this name.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
            // SAFETY: no consumer has taken the export, so no one else frees it.
            unsafe { delete::<M>(pointer.cast()) };
        }
    }
}

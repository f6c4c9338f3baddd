//! Arrays of other libraries, described by their addresses. They are read and written in place.

#![expect(unsafe_code, reason = "other libraries describe their arrays by addresses")]

use kvstore::fallible;
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{fmt, slice};

use kvstore::{
    Axis, Device, DeviceKind, Error, ForeignMemory, Layout, Queue, Storage, Tensor, TensorSpec,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::dlpack::{
    DlTensor, IS_COPIED, MAJOR, PLAIN, PLAIN_USED, Place, Plain, READ_ONLY, VERSIONED,
    VERSIONED_USED, Versioned, dtype,
};
use crate::interpreter::error::{invalid, type_error};

/// An array of another library, on the host or a GPU. It exists during one call.
pub(crate) struct Block {
    start: *mut u8,
    device: Device,
    spec: TensorSpec,
    /// The distance between neighbouring elements along each axis, in bytes.
    strides: Vec<isize>,
    is_writable: bool,
    /// The stream of a GPU in which the owner uses the memory after the call, if that is known.
    released_to: Option<Queue>,
    _owner: Owner,
}

// SAFETY:
// - The owner keeps the memory at its address, whichever thread accesses it.
// - The caller of a verb must not let other code write to the memory during the call. Every library
//   that reads arrays with the GIL released requires this.
unsafe impl Send for Block {}
// SAFETY: as above. Only `write` writes through a shared reference, and no reader runs at the same
// time.
unsafe impl Sync for Block {}

/// The owner of the memory.
enum Owner {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
    Object(Option<Py<PyAny>>),
}

impl Drop for Owner {
    /// Releases the memory. Acquires the GIL, because this may free Python objects. If the
    /// interpreter has ended, does nothing.
    fn drop(&mut self) {
        match self {
            Self::Plain(managed) => {
                let managed = *managed;
                // SAFETY: the block owns the structure until its deleter is called. The deleter is
                // called only here, once.
                let deleter = unsafe { managed.as_ref() }.deleter;
                let _ = Python::try_attach(|_| {
                    // SAFETY: this is the structure's own deleter, called once.
                    deleter.map(|delete| unsafe { delete(managed.as_ptr()) })
                });
            }
            Self::Versioned(managed) => {
                let managed = *managed;
                // SAFETY: as above.
                let deleter = unsafe { managed.as_ref() }.deleter;
                let _ = Python::try_attach(|_| {
                    // SAFETY: as above.
                    deleter.map(|delete| unsafe { delete(managed.as_ptr()) })
                });
            }
            Self::Object(object) => {
                // Drop the object with the GIL held. Without the GIL, `PyO3` appends the object to
                // a list, which may need memory.
                let object = object.take();
                let _ = Python::try_attach(|_| drop(object));
            }
        }
    }
}

impl Block {
    /// Takes the array out of a DLPack capsule. No one can take it a second time.
    ///
    /// The array must be on `device`, because only the queue of that device waits for the work that
    /// the library has queued for the array.
    ///
    /// # Errors
    /// - A `TypeError` if no tensor can have the dtype of the elements.
    /// - `InvalidArgument` if the array is on another device.
    /// - `InvalidArgument` if the capsule is not valid.
    pub(crate) fn from_capsule(
        capsule: &Bound<'_, PyCapsule>,
        device: Device,
        released_to: Option<Queue>,
    ) -> PyResult<Self> {
        let py = capsule.py();
        let (owner, tensor, is_writable) = if capsule.is_valid_checked(Some(VERSIONED)) {
            let managed: NonNull<Versioned> = capsule.pointer_checked(Some(VERSIONED))?.cast();
            rename(capsule, VERSIONED_USED)?;
            let owner = Owner::Versioned(managed);
            // SAFETY: a capsule with this name contains such a structure. Renaming the capsule has
            // transferred its ownership to this block.
            let managed = unsafe { managed.as_ref() };
            if managed.version[0] != MAJOR {
                let [major, minor] = managed.version;
                let text = format!("expected version {MAJOR} of DLPack, found {major}.{minor}");
                return Err(invalid(py, text));
            }
            // The program would not see what is written to a copy, so a copy counts as read-only.
            (owner, managed.tensor, managed.flags & (READ_ONLY | IS_COPIED) == 0)
        } else {
            let managed: NonNull<Plain> = capsule.pointer_checked(Some(PLAIN))?.cast();
            rename(capsule, PLAIN_USED)?;
            // SAFETY: as above.
            (Owner::Plain(managed), unsafe { managed.as_ref() }.tensor, true)
        };
        if Place::of(tensor.device) != Place::On(device) {
            let text = format!("expected an array on {device}, found one on {}", tensor.device);
            return Err(invalid(py, text));
        }
        let (spec, strides) = describe(py, &tensor)?;
        let offset = usize::try_from(tensor.byte_offset).unwrap_or_default();
        let start = tensor.data.cast::<u8>().wrapping_add(offset);
        Self { start, device, spec, strides, is_writable, released_to, _owner: owner }.checked(py)
    }

    /// Returns the array at an address that its owner has given.
    pub(crate) fn at(
        (device, address): (Device, usize),
        is_writable: bool,
        spec: TensorSpec,
        strides: Option<Vec<isize>>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let start = ptr::with_exposed_provenance_mut(address);
        let strides = strides.unwrap_or_else(|| row_major(&spec));
        let kept = Owner::Object(Some(owner.clone().unbind()));
        Self { start, device, spec, strides, is_writable, released_to: None, _owner: kept }
            .checked(owner.py())
    }

    /// Returns the block if its strides, address and size are valid.
    fn checked(self, py: Python<'_>) -> PyResult<Self> {
        let num_elements = self.spec.num_elements();
        let (rank, num_strides) = (self.spec.shape().rank(), self.strides.len());
        if num_strides != rank {
            let text = format!("strides of {}: expected {rank}, found {num_strides}", self.spec);
            return Err(invalid(py, text));
        }
        if num_elements > 0 && self.start.is_null() {
            let text = format!("expected the address of {}, found address 0", self.spec);
            return Err(invalid(py, text));
        }
        self.spec.num_bytes().map_err(|error| crate::interpreter::error::to_python(py, error))?;
        Ok(self)
    }

    pub(crate) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the lengths and strides of the axes, for addresses relative to the first element.
    pub(crate) fn layout(&self) -> Layout {
        let axes = self.spec.shape().dims().iter().zip(&self.strides);
        let axes = axes.map(|(&length, &stride)| Axis { length, stride }).collect();
        Layout { size: self.spec.dtype().size(), axes }
    }

    /// Returns the elements as a tensor. The tensor shares the memory if the elements are on a GPU,
    /// or if they are contiguous and aligned. Otherwise it has a copy.
    pub(crate) fn tensor(self: &Arc<Self>) -> kvstore::Result<Tensor> {
        let (all, spec) = (kvstore::backends(), self.spec.clone());
        if self.spec.num_elements() == 0 {
            return Tensor::allocate(all, self.device, spec);
        }
        if self.is_on_gpu() {
            return Tensor::from_foreign(all, spec, self.foreign()?);
        }
        if self.can_lend() {
            return Tensor::from_external(all, spec, Arc::clone(self) as _);
        }
        Tensor::from_bytes(all, self.device, spec, &self.gather()?)
    }

    /// Returns a tensor of the same spec that a pull can overwrite. It shares the memory of the
    /// block if possible.
    pub(crate) fn placeholder(self: &Arc<Self>) -> kvstore::Result<Tensor> {
        if self.can_lend() {
            return self.tensor();
        }
        Tensor::allocate(kvstore::backends(), self.device, self.spec.clone())
    }

    fn is_on_gpu(&self) -> bool {
        self.device.kind() == DeviceKind::Gpu
    }

    /// Returns the memory on a GPU in the form that the core expects.
    fn foreign(self: &Arc<Self>) -> kvstore::Result<ForeignMemory> {
        let (device, address) = (self.device, self.start.expose_provenance());
        if self.runs().1.is_empty() {
            let num_bytes = self.spec.num_bytes()?;
            // SAFETY:
            // - The library guarantees that the memory exists until the owner is dropped, and the
            //   block has the owner.
            // - The device's queue waits for the work that the library has queued.
            // - The caller must not let other code write to the memory during a call, as on the
            //   host.
            let memory =
                unsafe { ForeignMemory::new(device, address, num_bytes, Arc::clone(self) as _) };
            return Ok(self.released(memory));
        }
        let layout = self.layout();
        // SAFETY: as above.
        let memory =
            unsafe { ForeignMemory::strided(device, address, layout, Arc::clone(self) as _) };
        Ok(self.released(memory))
    }

    fn released(&self, memory: ForeignMemory) -> ForeignMemory {
        match self.released_to {
            // SAFETY: PyTorch frees the memory after the work of our stream, because the tensor is
            // recorded there. Its users order their work after that of the current stream.
            Some(queue) => unsafe { memory.release_to(queue) },
            None => memory,
        }
    }

    /// Returns whether the call that uses the memory must wait until the GPU has done so.
    pub(crate) fn is_awaited(&self) -> bool {
        self.released_to.is_none()
    }

    /// Returns whether the elements are contiguous in row-major order and aligned for their size.
    fn can_lend(&self) -> bool {
        let (run, outer) = self.runs();
        let is_aligned = self.start.addr().is_multiple_of(self.spec.dtype().size());
        outer.is_empty() && is_aligned && run > 0
    }

    /// Returns the bytes in a contiguous run, and the lengths and strides of the axes that
    /// enumerate the runs.
    fn runs(&self) -> (usize, Vec<(usize, isize)>) {
        let axes = self.spec.shape().dims().iter().copied().zip(self.strides.iter().copied());
        // Merge the last axes into the run while they are contiguous. Axes of length 1 do not
        // matter.
        let mut outer: Vec<_> = axes.filter(|&(length, _)| length != 1).collect();
        let mut run = self.spec.dtype().size();
        while let Some(&(length, stride)) = outer.last()
            && isize::try_from(run).is_ok_and(|run| run == stride)
        {
            run *= length;
            outer.pop();
        }
        (run, outer)
    }

    /// Calls `visit` with the offset of each run in bytes, in row-major order.
    fn visit_runs(outer: &[(usize, isize)], mut visit: impl FnMut(isize)) {
        let mut index: Vec<usize> = outer.iter().map(|_| 0).collect();
        let mut offset = 0_isize;
        let num_runs: usize = outer.iter().map(|(length, _)| length).product();
        for _ in 0..num_runs {
            visit(offset);
            for (at, &(length, stride)) in index.iter_mut().zip(outer).rev() {
                *at += 1;
                offset = offset.wrapping_add(stride);
                if *at < length {
                    break;
                }
                offset = offset.wrapping_sub(stride.wrapping_mul(length.cast_signed()));
                *at = 0;
            }
        }
    }

    /// Returns a contiguous copy of the elements in row-major order.
    fn gather(&self) -> kvstore::Result<Vec<u8>> {
        let mut bytes = fallible::zeroed(self.spec.num_bytes()?)?;
        let (run, outer) = self.runs();
        let mut places = bytes.chunks_exact_mut(run.max(1));
        Self::visit_runs(&outer, |offset| {
            if let Some(place) = places.next() {
                // SAFETY: by shape and strides, the array has `run` bytes at this offset. `place`
                // has the same length.
                unsafe {
                    ptr::copy_nonoverlapping(
                        self.start.wrapping_offset(offset),
                        place.as_mut_ptr(),
                        run,
                    );
                }
            }
        });
        Ok(bytes)
    }

    /// Overwrites the elements with those of `value`.
    ///
    /// On the host, the write is complete on return, and the result is `None`. On a GPU, dropping
    /// the result waits for the write, unless PyTorch's stream does. Call [`Tensor::wait`] on
    /// `value` first to receive errors.
    ///
    /// # Errors
    /// - [`Error::SpecMismatch`] if the tensor has another spec.
    /// - [`Error::InvalidArgument`] if the memory is read-only.
    pub(crate) fn write(
        self: &Arc<Self>,
        value: &Tensor,
    ) -> kvstore::Result<Option<Arc<dyn Storage>>> {
        if *value.spec() != self.spec {
            return Err(Error::operand_mismatch("out", value.spec(), &self.spec));
        }
        if !self.is_writable {
            return Err(Error::invalid("out: the memory is read-only"));
        }
        if self.is_on_gpu() && self.spec.num_elements() > 0 {
            return value.copy_to_foreign(self.foreign()?).map(Some);
        }
        let bytes = value.seen_bytes()?;
        let (run, outer) = self.runs();
        let mut places = bytes.chunks_exact(run.max(1));
        Self::visit_runs(&outer, |offset| {
            if let Some(place) = places.next() {
                // SAFETY: by shape and strides, the array has `run` bytes at this offset, and its
                // library allows writing to them. `place` has the same length. The value may
                // overlap the array, so this is not `copy_nonoverlapping`.
                unsafe { ptr::copy(place.as_ptr(), self.start.wrapping_offset(offset), run) };
            }
        });
        Ok(None)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block[{} {}]", self.spec, self.device)
    }
}

impl Storage for Block {
    fn num_bytes(&self) -> usize {
        self.spec.num_bytes().unwrap_or_default()
    }

    fn external_bytes(&self) -> Option<&[u8]> {
        // SAFETY: a block becomes a storage only if its elements are contiguous (`can_lend`) and
        // the owner keeps the memory. No one writes to the memory meanwhile: see `Send`.
        Some(unsafe { slice::from_raw_parts(self.start, self.num_bytes()) })
    }
}

/// Renames a capsule, which marks it as consumed.
fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: the object is a capsule, this thread has the GIL, and the name is `'static`.
    let result = unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(PyErr::fetch(capsule.py())) }
}

/// Returns the spec of a DLPack tensor, and its strides in bytes.
fn describe(py: Python<'_>, tensor: &DlTensor) -> PyResult<(TensorSpec, Vec<isize>)> {
    let dtype = dtype(tensor.dtype).map_err(|name| {
        type_error(py, format!("dtype `{name}`: expected one of {}", crate::convert::dtypes()))
    })?;
    let negative = |what: &str, found: i64| {
        invalid(py, format!("{what} of an array: expected 0 or more, found {found}"))
    };
    let rank = usize::try_from(tensor.rank).map_err(|_| negative("rank", tensor.rank.into()))?;
    let lengths = numbers(tensor.shape, rank).iter();
    let dims: PyResult<Vec<usize>> = lengths
        .map(|&length| usize::try_from(length).map_err(|_| negative("length", length)))
        .collect();
    let spec = TensorSpec::new(dims?, dtype);
    if rank == 0 || tensor.strides.is_null() {
        let strides = row_major(&spec);
        return Ok((spec, strides));
    }
    let size = dtype.size().cast_signed();
    let in_bytes = |&stride: &i64| isize::try_from(stride).ok()?.checked_mul(size);
    let strides: Option<Vec<isize>> = numbers(tensor.strides, rank).iter().map(in_bytes).collect();
    let too_large = || invalid(py, format!("the strides of {spec} exceed the address space"));
    let strides = strides.ok_or_else(too_large)?;
    Ok((spec, strides))
}

/// Returns the lengths or strides at an address.
fn numbers<'a>(start: *const i64, rank: usize) -> &'a [i64] {
    if rank == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the structure has one number for each axis. It exists until its deleter is called,
    // which happens after all uses.
    unsafe { slice::from_raw_parts(start, rank) }
}

/// Returns the strides of a contiguous array in row-major order, in bytes.
pub(crate) fn row_major(spec: &TensorSpec) -> Vec<isize> {
    let mut stride = spec.dtype().size().cast_signed();
    let mut strides: Vec<isize> = Vec::new();
    for &length in spec.shape().dims().iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(length.cast_signed());
    }
    strides.reverse();
    strides
}

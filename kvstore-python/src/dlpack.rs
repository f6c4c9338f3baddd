//! Memory that crosses the border by its address: DLPack both ways, and NumPy's array interface.
//!
//! The layout of the structures is that of `dlpack.h`, version 1.
#![expect(unsafe_code, reason = "other libraries say where their arrays are by addresses")]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{fmt, slice};

use kvstore::{DType, Device, DeviceKind, Error, Storage, Tensor, TensorSpec};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::error::{invalid, type_error};

const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// What this crate speaks; a higher minor version only adds numbers that it does not know.
const MAJOR: u32 = 1;
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

/// The host, and a GPU of NVIDIA's, as the format numbers them.
pub(crate) const HOST: i32 = 1;
const CUDA: i32 = 2;
/// The host's memory that a GPU reads, too: of CUDA and of ROCm.
const PINNED: [i32; 2] = [3, 11];

/// Returns whether the host reads the memory of such a device.
pub(crate) fn is_host(kind: i32) -> bool {
    kind == HOST || PINNED.contains(&kind)
}

/// The kinds of numbers.
const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;
/// Other kinds that no tensor has, for a message; those after them are forms of floats with 8 bits or fewer.
const OTHERS: [(u8, &str); 2] = [(3, "handle"), (5, "complex")];

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: i32,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What a capsule holds for consumers that know no versions.
#[repr(C)]
struct Plain {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// What a capsule holds for all others.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// An array in the host's memory that another library has: lent for one call.
pub(crate) struct Block {
    start: *mut u8,
    spec: TensorSpec,
    /// From one element to the next along each axis, in bytes.
    strides: Vec<isize>,
    is_writable: bool,
    _owner: Owner,
}

// SAFETY: the memory stays where it is until the owner goes, whichever thread looks at it; that nobody else writes
// to it during a call is the caller's part, as in every library that reads arrays without the interpreter's lock.
unsafe impl Send for Block {}
// SAFETY: as above; what writes through a shared reference is `write` alone, which no reader runs beside.
unsafe impl Sync for Block {}

/// Who keeps the memory.
enum Owner {
    Plain(NonNull<Plain>),
    Versioned(NonNull<Versioned>),
    Object(#[expect(dead_code, reason = "it is held, not read")] Py<PyAny>),
}

impl Drop for Owner {
    /// Tells the library that the memory is not needed any more, with the interpreter's lock, for it may free
    /// objects. When the interpreter is gone, so are they.
    fn drop(&mut self) {
        match self {
            Self::Plain(managed) => {
                let managed = *managed;
                // SAFETY: the structure is ours until its deleter is called, which is here and once.
                let deleter = unsafe { managed.as_ref() }.deleter;
                let _ = Python::try_attach(|_| {
                    // SAFETY: it is the structure's own deleter, called once.
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
            Self::Object(_) => {}
        }
    }
}

impl Block {
    /// Takes the array out of a capsule of DLPack's; nobody can take it a second time.
    ///
    /// # Errors
    /// A `TypeError` for elements that no tensor has, and what is wrong with the capsule.
    pub(crate) fn from_capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let py = capsule.py();
        let (owner, tensor, is_writable) = if capsule.is_valid_checked(Some(VERSIONED)) {
            let managed: NonNull<Versioned> = capsule.pointer_checked(Some(VERSIONED))?.cast();
            rename(capsule, VERSIONED_USED)?;
            let owner = Owner::Versioned(managed);
            // SAFETY: a capsule of this name holds such a structure, which is ours since the capsule was renamed.
            let managed = unsafe { managed.as_ref() };
            if managed.version[0] != MAJOR {
                let [major, minor] = managed.version;
                return Err(invalid(py, format!("version {major}.{minor} of DLPack is unknown")));
            }
            (owner, managed.tensor, managed.flags & READ_ONLY == 0)
        } else {
            let managed: NonNull<Plain> = capsule.pointer_checked(Some(PLAIN))?.cast();
            rename(capsule, PLAIN_USED)?;
            // SAFETY: as above.
            (Owner::Plain(managed), unsafe { managed.as_ref() }.tensor, true)
        };
        let (spec, strides) = describe(py, &tensor)?;
        let offset = usize::try_from(tensor.byte_offset).unwrap_or_default();
        let start = tensor.data.cast::<u8>().wrapping_add(offset);
        Self { start, spec, strides, is_writable, _owner: owner }.checked(py)
    }

    /// Returns the array that an object says to be at this address.
    pub(crate) fn at(
        address: usize,
        is_writable: bool,
        spec: TensorSpec,
        strides: Option<Vec<isize>>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let start = ptr::with_exposed_provenance_mut(address);
        let strides = strides.unwrap_or_else(|| row_major(&spec));
        let kept = Owner::Object(owner.clone().unbind());
        Self { start, spec, strides, is_writable, _owner: kept }.checked(owner.py())
    }

    fn checked(self, py: Python<'_>) -> PyResult<Self> {
        let num_elements = self.spec.num_elements();
        if self.strides.len() != self.spec.shape().rank() {
            return Err(invalid(py, "an array with more or fewer strides than axes"));
        }
        if num_elements > 0 && self.start.is_null() {
            return Err(invalid(py, format!("an array {} at address 0", self.spec)));
        }
        self.spec.num_bytes().map_err(|error| crate::error::to_python(py, error))?;
        Ok(self)
    }

    pub(crate) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns whether several elements are one place in memory, as in a view that is expanded along an axis.
    pub(crate) fn repeats_elements(&self) -> bool {
        let mut axes = self.spec.shape().dims().iter().zip(&self.strides);
        self.spec.num_elements() > 0 && axes.any(|(&length, &stride)| length > 1 && stride == 0)
    }

    /// Returns the elements as a tensor: read where they are, or copied where they do not stand one after the other.
    pub(crate) fn tensor(self: &Arc<Self>) -> kvstore::Result<Tensor> {
        if self.can_lend() {
            let storage = Arc::clone(self);
            return Tensor::lent(kvstore::backends(), self.spec.clone(), storage);
        }
        let bytes = self.gather()?;
        Tensor::from_bytes(kvstore::backends(), Device::default(), self.spec.clone(), &bytes)
    }

    /// Returns a tensor of the same spec, for a value to come.
    pub(crate) fn placeholder(self: &Arc<Self>) -> kvstore::Result<Tensor> {
        if self.can_lend() {
            return self.tensor();
        }
        Tensor::allocate(kvstore::backends(), Device::default(), self.spec.clone())
    }

    /// Returns whether the elements stand in row-major order, where a machine reads elements of their size.
    fn can_lend(&self) -> bool {
        let (run, outer) = self.runs();
        let is_aligned = self.start.addr().is_multiple_of(self.spec.dtype().size());
        outer.is_empty() && is_aligned && run > 0
    }

    /// Returns how many bytes stand together, and the axes along which there are such runs: lengths and strides.
    fn runs(&self) -> (usize, Vec<(usize, isize)>) {
        let axes = self.spec.shape().dims().iter().copied().zip(self.strides.iter().copied());
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

    /// Calls `visit` with the number of bytes from the start to each run, in row-major order.
    fn visit_runs(outer: &[(usize, isize)], mut visit: impl FnMut(isize)) {
        let mut index = vec![0; outer.len()];
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

    fn gather(&self) -> kvstore::Result<Vec<u8>> {
        let mut bytes = vec![0; self.spec.num_bytes()?];
        let (run, outer) = self.runs();
        let mut places = bytes.chunks_exact_mut(run.max(1));
        Self::visit_runs(&outer, |offset| {
            if let Some(place) = places.next() {
                // SAFETY: shape and strides say that `run` bytes of the array are there, and `place` has as many.
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

    /// Overwrites the elements.
    ///
    /// # Errors
    /// [`Error::SpecMismatch`] for a tensor of another spec, [`Error::InvalidArgument`] for memory that is for reading.
    pub(crate) fn write(&self, value: &Tensor) -> kvstore::Result<()> {
        if *value.spec() != self.spec {
            return Err(Error::operand_mismatch("out", value.spec(), &self.spec));
        }
        if !self.is_writable {
            return Err(Error::invalid("out: the memory is for reading only"));
        }
        let bytes = value.seen_bytes()?;
        let (run, outer) = self.runs();
        let mut places = bytes.chunks_exact(run.max(1));
        Self::visit_runs(&outer, |offset| {
            if let Some(place) = places.next() {
                // SAFETY: shape and strides say that `run` bytes of the array are there, which its library lets be
                // written to, and `place` has as many. Pieces of the same memory may overlap: hence not the other copy.
                unsafe { ptr::copy(place.as_ptr(), self.start.wrapping_offset(offset), run) };
            }
        });
        Ok(())
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block[{}]", self.spec)
    }
}

impl Storage for Block {
    fn num_bytes(&self) -> usize {
        self.spec.num_bytes().unwrap_or_default()
    }

    fn lent(&self) -> Option<&[u8]> {
        // SAFETY: a block becomes a storage where it has elements, one after the other (`can_lend`), in memory
        // that its owner keeps. It is not written to meanwhile: see `Send`.
        Some(unsafe { slice::from_raw_parts(self.start, self.num_bytes()) })
    }
}

/// Makes a capsule one that has been taken from.
fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: it is a capsule, the interpreter's lock is held, and the name lives for ever.
    let result = unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(PyErr::fetch(capsule.py())) }
}

/// Returns what the structure says of the elements, with strides in bytes.
fn describe(py: Python<'_>, tensor: &DlTensor) -> PyResult<(TensorSpec, Vec<isize>)> {
    let DlDevice { kind, id } = tensor.device;
    if !is_host(kind) {
        return Err(invalid(py, format!("an array on device ({kind}, {id}), not on the host")));
    }
    let dtype = dtype(tensor.dtype).map_err(|name| {
        type_error(py, format!("dtype `{name}`: expected one of {}", crate::convert::dtypes()))
    })?;
    let negative = || invalid(py, "an array with a negative length");
    let rank = usize::try_from(tensor.rank).map_err(|_| negative())?;
    let lengths = numbers(tensor.shape, rank);
    let dims: Result<Vec<usize>, _> = lengths.iter().map(|&length| length.try_into()).collect();
    let spec = TensorSpec::new(dims.map_err(|_| negative())?, dtype);
    if rank == 0 || tensor.strides.is_null() {
        let strides = row_major(&spec);
        return Ok((spec, strides));
    }
    let size = dtype.size().cast_signed();
    let in_bytes = |&stride: &i64| isize::try_from(stride).ok()?.checked_mul(size);
    let strides: Option<Vec<isize>> = numbers(tensor.strides, rank).iter().map(in_bytes).collect();
    Ok((spec, strides.ok_or_else(|| invalid(py, "an array with strides beyond all memory"))?))
}

/// Returns the lengths or strides that stand there.
fn numbers<'a>(start: *const i64, rank: usize) -> &'a [i64] {
    if rank == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: the structure has one number for each axis, and lives until its deleter is called, after all uses.
    unsafe { slice::from_raw_parts(start, rank) }
}

fn row_major(spec: &TensorSpec) -> Vec<isize> {
    let mut stride = spec.dtype().size().cast_signed();
    let mut strides: Vec<isize> = Vec::with_capacity(spec.shape().rank());
    for &length in spec.shape().dims().iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(length.cast_signed());
    }
    strides.reverse();
    strides
}

/// Returns the dtype, or the name of one that no tensor has.
fn dtype(dl: DlType) -> Result<DType, String> {
    let DlType { code, bits, lanes } = dl;
    match (code, bits, lanes) {
        (FLOAT, 32, 1) => Ok(DType::F32),
        (FLOAT, 64, 1) => Ok(DType::F64),
        (FLOAT, 16, 1) => Ok(DType::F16),
        (BFLOAT, 16, 1) => Ok(DType::Bf16),
        (UINT, 8, 1) => Ok(DType::U8),
        (INT, 8, 1) => Ok(DType::I8),
        (INT, 32, 1) => Ok(DType::I32),
        (INT, 64, 1) => Ok(DType::I64),
        (BOOL, 8, 1) => Err("bool".to_owned()),
        _ => {
            let kind = match code {
                INT => "int",
                UINT => "uint",
                BFLOAT => "bfloat",
                BOOL => "bool",
                _ => OTHERS.iter().find(|(it, _)| *it == code).map_or("float", |(_, name)| *name),
            };
            let lanes = if lanes == 1 { String::new() } else { format!("x{lanes}") };
            Err(format!("{kind}{bits}{lanes}"))
        }
    }
}

fn dl_type(dtype: DType) -> DlType {
    let (code, bits) = match dtype {
        DType::F32 => (FLOAT, 32),
        DType::F64 => (FLOAT, 64),
        DType::F16 => (FLOAT, 16),
        DType::Bf16 => (BFLOAT, 16),
        DType::U8 => (UINT, 8),
        DType::I8 => (INT, 8),
        DType::I32 => (INT, 32),
        DType::I64 => (INT, 64),
    };
    DlType { code, bits, lanes: 1 }
}

/// Returns the device as the format numbers it. All names of the host are one.
pub(crate) fn device_of(device: Device) -> (i32, i32) {
    match device.kind() {
        DeviceKind::Cpu => (HOST, 0),
        DeviceKind::Gpu => (CUDA, device.ordinal().cast_signed()),
    }
}

/// A value on its way into another library.
#[repr(C)]
struct Export<M> {
    /// First, so that a pointer to it is one to the whole.
    managed: M,
    _memory: Memory,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// What an exported value keeps.
enum Memory {
    /// A value that others may have, too: it is for reading.
    Shared(#[expect(dead_code, reason = "it is held, not read")] Tensor),
    /// A copy, for whom reads it to do with as it likes.
    Own(#[expect(dead_code, reason = "it is held, not read")] Vec<u64>),
}

/// Returns a capsule with a value of the host's; `is_versioned` says what its consumer knows.
///
/// Without a copy the value is for reading, which only a versioned capsule can say: the others get one in any case.
///
/// # Errors
/// A `BufferError` for a value on a device.
pub(crate) fn export(
    py: Python<'_>,
    value: Tensor,
    is_versioned: bool,
    is_copied: bool,
) -> PyResult<Bound<'_, PyCapsule>> {
    let spec = value.spec().clone();
    let (data, memory) = memory(value, is_copied || !is_versioned)?;
    let size = spec.dtype().size().cast_signed();
    let shape: Vec<i64> = spec.shape().dims().iter().map(|&it| it.cast_signed() as i64).collect();
    let strides = row_major(&spec).into_iter().map(|stride| (stride / size) as i64).collect();
    let tensor = DlTensor {
        data,
        device: DlDevice { kind: HOST, id: 0 },
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
        return capsule(py, Export { managed, _memory: memory, shape, strides }, VERSIONED, |it| {
            &mut it.tensor
        });
    }
    let managed = Plain { tensor, context: ptr::null_mut(), deleter: Some(delete::<Plain> as _) };
    capsule(py, Export { managed, _memory: memory, shape, strides }, PLAIN, |it| &mut it.tensor)
}

/// Returns where the elements are, and what keeps them there.
fn memory(value: Tensor, is_copied: bool) -> PyResult<(*mut c_void, Memory)> {
    if !is_copied {
        let start = value.host_bytes().map(<[u8]>::as_ptr);
        let start = start.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        return Ok((start.cast_mut().cast(), Memory::Shared(value)));
    }
    let read = |error: Error| PyBufferError::new_err(error.chain());
    let bytes = value.seen_bytes().map_err(read)?;
    let mut words = vec![0_u64; bytes.len().div_ceil(size_of::<u64>())];
    let start = words.as_mut_ptr();
    // SAFETY: the words have room for as many bytes and are not the value's.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
    Ok((start.cast(), Memory::Own(words)))
}

/// Returns a capsule that owns the export until somebody takes it.
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
    // SAFETY: the pointer is one to the structure that the name promises, for it stands first; the destructor frees
    // it unless somebody has taken it, and may run on any thread.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, pointer, name, Some(destroy::<M>))
    };
    made.inspect_err(|_| {
        // SAFETY: it was leaked above, and no capsule has it.
        drop(unsafe { Box::from_raw(pointer.cast::<Export<M>>().as_ptr()) });
    })
}

/// Frees an export.
///
/// # Safety
/// `managed` is the first field of an [`Export`] of this crate that nobody has freed.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: by the contract it came from a box.
    drop(unsafe { Box::from_raw(managed.cast::<Export<M>>()) });
}

/// Frees what is in a capsule that nobody has taken from.
///
/// # Safety
/// `capsule` is one of [`capsule`] for the same `M`, the interpreter's lock is held, and it is the end of it.
unsafe extern "C" fn destroy<M>(capsule: *mut ffi::PyObject) {
    for name in [PLAIN, VERSIONED] {
        // SAFETY: it is a capsule.
        let is_untouched = unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 1;
        if is_untouched {
            // SAFETY: it is a capsule of this name.
            let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
            // SAFETY: nobody has taken it, so nobody has freed it or will.
            unsafe { delete::<M>(pointer.cast()) };
        }
    }
}

//! Arrays of other libraries as values and outputs of a call.

use std::sync::Arc;

use kvstore::{CurrentDevice, DType, Device, DeviceKind, TensorSpec};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyTuple, PyType};

use super::block::Block;
use super::dlpack::{DlDevice, HOST, Place};
use super::{dtypes, pytorch, stream};
use crate::convert;
use crate::interpreter::error::{
    detached, invalid, is_replaceable, optional, to_python, type_error,
};
use crate::interpreter::finalization;
use crate::numpy;

/// Returns the array of an object of another library, or `None` if the object is not an array.
///
/// # Errors
/// - A `TypeError` if the library does not export the array.
/// - A `TypeError` if no tensor can have the dtype of the elements.
pub(crate) fn block(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Block>>> {
    let py = object.py();
    numpy::check_unmasked(object)?;
    let has_interface = || finalization::has_attribute(object, intern!(py, "__array_interface__"));
    if !finalization::has_attribute(object, intern!(py, "__dlpack__"))? {
        if finalization::has_attribute(object, intern!(py, "__cuda_array_interface__"))? {
            return by_gpu_interface(object).map(Some);
        }
        if !has_interface()? {
            return Ok(None);
        }
        // The interface of a NumPy scalar refers to temporary memory. Convert the scalar to an
        // array, which owns its memory.
        return if is_scalar(object)? {
            block(&numpy::asarray(object)?)
        } else {
            by_interface(object).map(Some)
        };
    }
    let handed_out = match pytorch::plain(object).and_then(|plain| Ok((place(&plain)?, plain))) {
        Ok((place, plain)) => {
            let (device, queue) = match place {
                Place::On(device) => (device, queue(py, device)?),
                Place::Elsewhere(_) => (Device::default(), None),
            };
            let _current = make_current(py, device)?;
            let exported = match queue {
                Some(ours) => pytorch::export(&plain, ours, || capsule(&plain, place, queue))
                    .and_then(|exported| {
                        let of_device = kvstore::backends().interop(device);
                        let checked = of_device.and_then(|interop| interop.check_queue(device));
                        checked.map_err(|error| to_python(py, error)).map(|()| exported)
                    }),
                None => capsule(&plain, place, None).map(|capsule| (capsule, None)),
            };
            exported.map(|(capsule, released_to)| (capsule, device, released_to))
        }
        Err(reason) => Err(reason),
    };
    match handed_out {
        Ok((capsule, device, released_to)) => {
            Block::from_capsule(&capsule, device, released_to).map(|block| Some(Arc::new(block)))
        }
        Err(reason) if !is_replaceable(py, &reason) => Err(reason),
        // NumPy before 2.1 exports neither read-only arrays nor dtypes of other packages.
        Err(_) if has_interface()? => by_interface(object).map(Some),
        Err(reason) => Err(export_error(object, reason).unwrap_or_else(|raised| raised)),
    }
}

/// Returns the array as [`block`] does, if it is writable.
///
/// # Errors
/// - The errors of [`block`].
/// - `InvalidArgument` if the memory is read-only.
/// - `InvalidArgument` if elements overlap in memory.
pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Block>>> {
    let Some(block) = block(object)? else { return Ok(None) };
    let class = object.get_type();
    // JAX arrays are immutable, but their DLPack export is not marked as read-only.
    let module = optional(object.py(), class.module())?;
    let is_jax = module.is_some_and(|module| module.to_string_lossy().starts_with("jax"));
    if is_jax || is_scalar(object)? || !block.is_writable() {
        let text = format!("{} {} is read-only", class.name()?, block.spec());
        return Err(invalid(object.py(), text));
    }
    if block.layout().overlaps() {
        let spec = block.spec();
        let text = format!("{} {spec} has elements that overlap in memory", class.name()?);
        return Err(invalid(object.py(), text));
    }
    Ok(Some(block))
}

/// Returns whether an object is a NumPy scalar.
fn is_scalar(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static GENERIC: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    object.is_instance(GENERIC.import(object.py(), "numpy", "generic")?)
}

/// Requests a capsule from the object: of the elements in place if they are on an available device,
/// otherwise of a copy on the host. `queue` is the stream that must wait for the elements.
fn capsule<'py>(
    object: &Bound<'py, PyAny>,
    place: Place,
    queue: Option<usize>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    // The options that libraries without versions of the protocol support.
    let known = PyDict::new(py);
    if let Some(queue) = queue {
        known.set_item("stream", queue)?;
    }
    let method = finalization::attribute(object, intern!(py, "__dlpack__"))?;
    let is_ours = matches!(place, Place::On(_));
    let (class, unversioned) = (object.get_type(), unversioned(py)?);
    if is_ours && contains(unversioned, &class)? {
        return Ok(finalization::call(&method, (), Some(&known))?.cast_into()?);
    }
    let options = known.copy()?;
    options.set_item("max_version", (1, 0))?;
    if !is_ours {
        options.set_item("dl_device", (HOST, 0))?;
    }
    let is_type_error = |error: &PyErr| error.get_type(py).is(py.get_type::<PyTypeError>());
    let capsule = match finalization::call(&method, (), Some(&options)) {
        // Test for the exact class: the object's code may have raised a subclass, such as an
        // exception of this package.
        Err(error) if is_ours && is_type_error(&error) => {
            let answer = finalization::call(&method, (), Some(&known));
            // If the second call fails too, the class may reject this array and not the option.
            if answer.is_ok() {
                // A metaclass may have no hash.
                let add = intern!(py, "add");
                optional(py, finalization::call_method(unversioned, add, (class,)))?;
            }
            answer?
        }
        other => other?,
    };
    Ok(capsule.cast_into()?)
}

/// Returns the classes whose `__dlpack__` has rejected `max_version`.
///
/// Later calls omit the option for these classes, because `CPython` up to 3.11 loses an interrupt
/// that arrives while it formats the message of a `TypeError` about an argument. Arrays of these
/// classes count as writable, because only a versioned capsule can mark an array as read-only. The
/// first array of a class decides for the class.
fn unversioned(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let classes = CLASSES.get_or_try_init(py, || {
        let class = py.import("weakref")?.getattr("WeakSet")?;
        finalization::call(&class, (), None).map(Bound::unbind)
    })?;
    Ok(classes.bind(py))
}

/// Returns whether a set of classes contains a class. A metaclass may have no hash.
fn contains(classes: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<bool> {
    let py = class.py();
    let found = finalization::call_method(classes, intern!(py, "__contains__"), (class,));
    optional(py, found)?.map_or(Ok(false), |found| found.is_truthy())
}

/// Returns the number of the stream that the other library must make wait for its work on the
/// device, or `None` for the host.
fn queue(py: Python<'_>, device: Device) -> PyResult<Option<usize>> {
    if device.kind() == DeviceKind::Cpu {
        return Ok(None);
    }
    let queue = detached(py, || kvstore::backends().interop(device)?.queue(device))?;
    Ok(Some(queue.number()))
}

/// Makes a GPU current in this thread until the result is dropped. PyTorch exports only tensors of
/// the current GPU. Other libraries would let the consumer wait for a stream of the current GPU.
/// Open the GPU before, because this takes long.
fn make_current(py: Python<'_>, device: Device) -> PyResult<Option<CurrentDevice>> {
    if device.kind() == DeviceKind::Cpu {
        return Ok(None);
    }
    let current = kvstore::backends().interop(device).and_then(|interop| interop.enter(device));
    current.map(Some).map_err(|error| to_python(py, error))
}

/// Returns the location of an object's elements. Without a backend for the GPU, the elements are
/// elsewhere.
fn place(object: &Bound<'_, PyAny>) -> PyResult<Place> {
    let py = object.py();
    let name = intern!(py, "__dlpack_device__");
    if !finalization::has_attribute(object, name)? {
        return Ok(Place::On(Device::default()));
    }
    let device = finalization::call_method(object, name, ())?;
    let device: Bound<'_, PyTuple> = device.cast_into()?;
    // Libraries use their own enumerations for the kind.
    let int = intern!(py, "__int__");
    let number =
        |index| finalization::call_method(&device.get_item(index)?, int, ())?.extract::<i32>();
    let device = DlDevice { kind: number(0)?, id: number(1)? };
    match Place::of(device) {
        Place::On(ours) if kvstore::backends().of(ours).is_err() => Ok(Place::Elsewhere(device)),
        place => Ok(place),
    }
}

/// Returns the error for an object that does not export its elements.
///
/// # Errors
/// - An exception raised while the hint is built, if it must be passed on.
fn export_error(object: &Bound<'_, PyAny>, reason: PyErr) -> PyResult<PyErr> {
    let py = object.py();
    let class = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    let requires_grad = finalization::attribute(object, intern!(py, "requires_grad"))
        .and_then(|value| value.is_truthy());
    let hint = if let Some(layout) = pytorch::sparse_layout(object)? {
        format!("{layout}{}", pytorch::ROWS_OF_SPARSE)
    } else if optional(py, requires_grad)?.unwrap_or(false) {
        ": it takes part in a gradient, use `.detach()` or `torch.no_grad()`".to_owned()
    } else if let Some(Place::Elsewhere(device)) = optional(py, place(object))? {
        format!(": it is on {device}, bring it to the host first (`.cpu()`, `.get()`)")
    } else {
        String::new()
    };
    let error = type_error(py, format!("a `{class}` does not export its elements{hint}: {reason}"));
    error.set_cause(py, Some(reason));
    Ok(error)
}

/// Reads an array through NumPy's array interface, version 3.
fn by_interface(object: &Bound<'_, PyAny>) -> PyResult<Arc<Block>> {
    let interface = finalization::attribute(object, intern!(object.py(), "__array_interface__"))?;
    let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
    described(object, &interface, (Device::default(), address), is_read_only)
}

/// Reads an array on a GPU through the CUDA array interface, version 2 or 3. The interface does not
/// contain the device, so the address determines it.
fn by_gpu_interface(object: &Bound<'_, PyAny>) -> PyResult<Arc<Block>> {
    let py = object.py();
    let interface = finalization::attribute(object, intern!(py, "__cuda_array_interface__"))?;
    let (address, is_read_only): (usize, bool) = interface.get_item("data")?.extract()?;
    let stream = member(&interface, "stream")?;
    let producer = stream::producer(&stream)?;
    let device = detached(py, || {
        let first = Device::gpu(0);
        if address == 0 {
            return Ok(first);
        }
        let interop = kvstore::backends().interop(first)?;
        let device = interop.device_at(address)?;
        if let Some(queue) = producer {
            interop.wait_for(device, queue)?;
        }
        Ok(device)
    })?;
    described(object, &interface, (device, address), is_read_only)
}

/// Returns the block for a dictionary of either interface.
fn described(
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
    at: (Device, usize),
    is_read_only: bool,
) -> PyResult<Arc<Block>> {
    if !member(interface, "mask")?.is_none() {
        let text = "an array with a mask: expected an array without one";
        return Err(type_error(object.py(), text));
    }
    let typestr: String = interface.get_item("typestr")?.extract()?;
    let Some(dtype) = dtype(object, &typestr)? else {
        let name = dtype_name(object)?.unwrap_or(typestr);
        let text = format!("dtype `{name}`: expected one of {}", convert::dtypes());
        return Err(type_error(object.py(), text));
    };
    let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
    let strides = member(interface, "strides")?.extract()?;
    Block::at(at, !is_read_only, TensorSpec::new(shape, dtype), strides, object).map(Arc::new)
}

/// Returns a member of a dictionary, or `None` of Python.
fn member<'py>(interface: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    finalization::call_method(interface, intern!(interface.py(), "get"), (name,))
}

/// Returns the dtype for a type string in the machine's byte order, or `None` for other strings.
fn dtype(object: &Bound<'_, PyAny>, typestr: &str) -> PyResult<Option<DType>> {
    let other_order = if cfg!(target_endian = "little") { '>' } else { '<' };
    let code = typestr.strip_prefix(|order| order != other_order).unwrap_or_default();
    let mut candidates = DType::ALL.into_iter().filter(|dtype| dtypes::type_code(*dtype) == code);
    // Dtypes of other packages share a type code, so compare their names too.
    let name = if code.starts_with('V') { dtype_name(object)? } else { None };
    Ok(candidates
        .find(|dtype| dtypes::is_in_numpy(*dtype) || name.as_deref() == Some(dtype.name())))
}

/// Returns the name of the object's dtype, or `None` without a dtype.
fn dtype_name(object: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let name = finalization::attribute(object, intern!(object.py(), "dtype"))
        .and_then(|dtype| finalization::text(&dtype)?.extract());
    optional(object.py(), name)
}

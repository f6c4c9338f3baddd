//! Conversions of single arguments: devices, dtypes, shapes, numbers.

use kvstore::{DType, Device, DeviceKind, Scalar, Shape};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::interpreter::error::{invalid, optional, replaced, to_python, type_error};
use crate::interpreter::{finalization, lists};
use crate::numpy;

/// Returns a copy of the bytes as a Python object.
///
/// # Errors
/// - `MemoryError` if there is not enough memory. `PyBytes::new` would panic.
pub(crate) fn bytes_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    })
}

/// Returns the names of all dtypes, for messages.
pub(crate) fn dtypes() -> String {
    DType::ALL.map(DType::name).join(", ")
}

/// Returns the dtype with this name.
pub(crate) fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::from_name(name).map_err(|_| {
        type_error(py, format!("unknown dtype `{name}`: expected one of {}", dtypes()))
    })
}

/// A device: the name of its kind, and its number.
pub(crate) type DeviceName = (String, u32);

pub(crate) fn device(py: Python<'_>, (kind, ordinal): DeviceName) -> PyResult<Device> {
    let kind = DeviceKind::from_name(&kind).map_err(|error| to_python(py, error))?;
    Ok(Device::new(kind, ordinal))
}

/// Returns the device that a `mxkv.Context` names.
pub(crate) fn device_like(object: &Bound<'_, PyAny>) -> PyResult<Device> {
    static PAIR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    if object.is_none() {
        return Err(type_error(py, "ctx: expected a device, such as `cpu()`, found None"));
    }
    let pair_of = PAIR.import(py, "mxkv.context", "_pair")?;
    let pair = finalization::call(pair_of, (object,), None)?;
    device(py, pair.extract()?)
}

/// Returns the dtype for a name, a NumPy dtype or a Python type.
pub(crate) fn dtype_like(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    static NAME_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let name_of = NAME_OF.import(py, "mxkv._dtypes", "name_of")?;
    let name = finalization::call(name_of, (object,), None)?;
    dtype(py, &name.extract::<String>()?)
}

/// Returns a device as a `mxkv.Context`.
pub(crate) fn context(py: Python<'_>, device: Device) -> PyResult<Bound<'_, PyAny>> {
    static CONTEXT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CONTEXT.import(py, "mxkv.context", "Context")?;
    finalization::call(class, (device.kind().name(), device.ordinal()), None)
}

/// Returns the shape for a sequence of lengths or a single length.
pub(crate) fn shape(object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let py = object.py();
    if let Some(length) = optional(py, object.extract::<usize>())? {
        return Ok(Shape::from([length]));
    }
    let expected = "shape: expected an integer of 0 or more, or a sequence of them";
    let dims: Vec<usize> = lists::read(object)
        .map_err(|raised| replaced(py, raised, || wrong_type(object, expected)))?;
    Ok(Shape::from(dims))
}

/// Returns the shape as a Python tuple.
pub(crate) fn dims<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, shape.dims())
}

/// Returns a scalar for elements of a dtype, or `None` if the object is not a number. The object
/// may be a Python number, a NumPy scalar, or an array of another library with no axes.
pub(crate) fn number(object: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Option<Scalar>> {
    let py = object.py();
    if object.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::from(object.extract::<f64>()?)));
    }
    if object.is_instance_of::<PyInt>() {
        return integral(object, dtype).map(Some);
    }
    numpy::check_unmasked(object)?;
    // Objects with `__dlpack__` are arrays. Only those without axes are numbers.
    let has_axes = finalization::has_attribute(object, intern!(py, "__dlpack__"))? && {
        let axes = finalization::attribute(object, intern!(py, "ndim"));
        let is_scalar = axes.and_then(|axes| axes.eq(0));
        !optional(py, is_scalar)?.unwrap_or(false)
    };
    if has_axes || object.is_instance_of::<PyString>() {
        return Ok(None);
    }
    if let Some(number) = optional(py, object.extract::<i64>())? {
        return Ok(Some(Scalar::from(number)));
    }
    if finalization::has_attribute(object, intern!(py, "__float__"))? {
        return Ok(Some(Scalar::from(object.extract::<f64>()?)));
    }
    Ok(None)
}

/// Returns a Python integer as a scalar. For a floating-point dtype, an integer outside of `int64`
/// becomes the nearest `f64`.
fn integral(object: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Scalar> {
    let py = object.py();
    if let Some(number) = optional(py, object.extract::<i64>())? {
        return Ok(Scalar::from(number));
    }
    let too_large = |expected: &str| match shown(object) {
        Ok(found) => invalid(py, format!("expected {expected}, found {found}")),
        Err(raised) => raised,
    };
    if !dtype.is_float() {
        return Err(too_large("an integer that fits into `int64`"));
    }
    object
        .extract::<f64>()
        .map(Scalar::from)
        .map_err(|raised| replaced(py, raised, || too_large("a number that fits into `float64`")))
}

/// Returns an argument as error messages show it, on one line.
fn shown(object: &Bound<'_, PyAny>) -> PyResult<String> {
    static SHOWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let shown = SHOWN.import(py, "mxkv._arguments", "shown")?;
    let text = finalization::call(shown, (object,), None)?;
    text.extract::<String>()
}

/// Returns a `TypeError` about an argument. The message is `expected`, followed by the argument.
///
/// This runs Python code. If that code raises an exception, returns that exception instead.
pub(crate) fn wrong_type(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match shown(object) {
        Ok(found) => type_error(object.py(), format!("{expected}, found {found}")),
        Err(raised) => raised,
    }
}

/// Converts an argument to the type that the core expects; `name` is its name in errors.
///
/// # Errors
/// - A `TypeError` that names the expected type, if the argument has another type.
/// - `InvalidArgument` if a number is too large.
/// - Any other exception of the conversion, unchanged.
pub(crate) fn argument<'py, T>(
    object: &Bound<'py, PyAny>,
    name: &str,
    expected: &str,
) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let py = object.py();
    object.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        let is_too_large = error.is_instance_of::<PyOverflowError>(py);
        if !is_too_large && !error.is_instance_of::<PyTypeError>(py) {
            return error;
        }
        let found = match shown(object) {
            Ok(found) => found,
            Err(raised) => return raised,
        };
        let text = format!("{name}: expected {expected}, found {found}");
        let made = if is_too_large { invalid(py, text) } else { type_error(py, text) };
        made.set_cause(py, Some(error));
        made
    })
}

/// Defines a function for each floating-point argument. Its errors contain the argument's name.
macro_rules! floats {
    ($($name:ident),+) => {
        $(pub(crate) fn $name(object: &Bound<'_, PyAny>) -> PyResult<f64> {
            argument(object, stringify!($name), "a number that fits into `float64`")
        })+
    };
}

floats!(start, stop, step, low, high, loc, scale, a_min, a_max, base_lr, weight);

/// Returns how many times each number is repeated.
pub(crate) fn repeat(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    argument(object, "repeat", "an integer of 0 or more")
}

/// Returns the number of an axis. A negative number counts from the last axis.
pub(crate) fn axis(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    argument(object, "axis", "an integer of 64 bits")
}

/// Returns an update number.
pub(crate) fn num_update(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    argument(object, "num_update", "an integer of 0 or more")
}

/// Returns the priority of a call.
pub(crate) fn priority(object: &Bound<'_, PyAny>) -> PyResult<i32> {
    argument(object, "priority", "an integer of 32 bits")
}

//! Arrays exported to NumPy: read-only views of their memory, or copies.

use kvstore::{DType, NDArray, Tensor};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::{dtypes, foreign};
use crate::convert;
use crate::interpreter::error::{detached, invalid, optional, type_error};
use crate::interpreter::finalization;
use crate::numpy::asarray;

/// Returns the dictionary with which NumPy reads the current value of an array in place.
pub(crate) fn interface<'py>(py: Python<'py>, array: &NDArray) -> PyResult<Bound<'py, PyDict>> {
    let value = array.tensor();
    let typestr = typestr(value.dtype());
    let bytes = value.host_bytes().map(|bytes| (bytes.as_ptr().addr(), bytes.len()));
    let (Some(typestr), Ok((address, num_bytes))) = (typestr, bytes) else {
        let (spec, device) = (value.spec(), value.device());
        let text = format!("{spec} on {device} cannot be shared with NumPy: use `asnumpy()`");
        return Err(PyAttributeError::new_err(text));
    };
    let shape = convert::dims(py, value.shape())?;
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("shape", shape)?;
    interface.set_item("typestr", typestr)?;
    interface.set_item("data", read_only(py, value, address, num_bytes)?)?;
    Ok(interface)
}

/// Returns the value as a NumPy array. `copy` requires a copy (`true`), forbids it (`false`), or
/// leaves the choice to this function: it shares the memory read-only if dtype and device allow it.
pub(crate) fn array<'py>(
    py: Python<'py>,
    array: &NDArray,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let interface = if copy == Some(true) { None } else { optional(py, interface(py, array))? };
    let of_numpy = match interface {
        Some(interface) => {
            // NumPy makes a view of any object that has `__array_interface__`.
            let simple = py.import("types")?.getattr("SimpleNamespace")?;
            let options = PyDict::new(py);
            options.set_item("__array_interface__", interface)?;
            asarray(&finalization::call(&simple, (), Some(&options))?)?
        }
        None if copy == Some(false) => {
            let (spec, device) = (array.spec(), array.device());
            let text = format!("copy: expected True or None for {spec} on {device}, found False");
            return Err(invalid(py, text));
        }
        None => copied(py, array)?,
    };
    let Some(dtype) = dtype else { return Ok(of_numpy) };
    let options = PyDict::new(py);
    options.set_item("copy", false)?;
    let cast = finalization::call(&of_numpy.getattr("astype")?, (dtype,), Some(&options))?;
    if copy == Some(false) && !cast.is(&of_numpy) {
        let spec = array.spec();
        let text = format!("copy: expected True or None for {spec} as {dtype}, found False");
        return Err(invalid(py, text));
    }
    Ok(cast)
}

/// Keeps a value alive for NumPy arrays that read its memory.
#[pyclass(frozen, module = "mxkv._native")]
#[derive(Debug)]
struct TensorOwner(#[expect(dead_code, reason = "it is held, not read")] Tensor);

/// Returns a `memoryview` of a value. The view keeps the value alive.
fn read_only(
    py: Python<'_>,
    value: Tensor,
    address: usize,
    num_bytes: usize,
) -> PyResult<Bound<'_, PyAny>> {
    static VIEW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let kept = Bound::new(py, TensorOwner(value))?;
    let view = VIEW.import(py, "mxkv._memory", "read_only")?;
    finalization::call(view, (kept, address, num_bytes), None)
}

/// Returns a dtype as NumPy's array interface names it, or `None` if NumPy lacks it.
fn typestr(dtype: DType) -> Option<String> {
    let order = if cfg!(target_endian = "little") { '<' } else { '>' };
    dtypes::is_in_numpy(dtype).then(|| format!("{order}{}", dtypes::type_code(dtype)))
}

/// Returns a copy of the elements as a NumPy array.
pub(crate) fn copied<'py>(py: Python<'py>, array: &NDArray) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dtype = dtypes::in_numpy(array.dtype());
    let empty = EMPTY.import(py, "numpy", "empty")?;
    let shape = convert::dims(py, array.shape())?;
    let copy = finalization::call(empty, (shape, dtype.name()), None)?;
    let block = foreign::writable(&copy)?
        .ok_or_else(|| type_error(py, "an array of NumPy exports no memory"))?;
    detached(py, || block.write(&array.tensor().cast(dtype)?).map(drop))?;
    Ok(copy)
}

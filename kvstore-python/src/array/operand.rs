//! Array arguments: arrays of this package, and those of other libraries.

use kvstore::{NDArray, Tensor, Value};
use pyo3::prelude::*;

use super::classes::{PyArray, PyRows};
use crate::convert;
use crate::interop::foreign;
use crate::interpreter::error::{detached, invalid, replaced, to_python, wrong_class};
use crate::interpreter::lists;

/// Returns an array of this package or of another library, or `None` if the object is not an array.
///
/// The array of another library is valid during the call only. To keep the elements, copy them with
/// `NDArray::copy`.
pub(crate) fn array(object: &Bound<'_, PyAny>) -> PyResult<Option<NDArray>> {
    if let Ok(array) = object.cast::<PyArray>() {
        return Ok(Some(array.get().array().clone()));
    }
    let Some(block) = foreign::block(object)? else { return Ok(None) };
    detached(object.py(), move || block.tensor().map(NDArray::new)).map(Some)
}

/// Returns row indices: a list or an array of integers.
pub(crate) fn row_ids(object: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let py = object.py();
    let expected = "expected an array or a list of integers";
    match array(object)? {
        Some(ids) => detached(py, move || ids.read_as::<i64>()),
        None => lists::read(object)
            .map_err(|raised| replaced(py, raised, || convert::wrong_type(object, expected))),
    }
}

/// Returns the current value of an array.
pub(crate) fn tensor(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let array = array(object)?.ok_or_else(|| wrong_class(object, "expected an array"))?;
    array.copy().map(|array| array.tensor()).map_err(|error| to_python(py, error))
}

/// Returns the current value of a dense or row-sparse array.
pub(crate) fn value(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Value> {
    match object.cast::<PyRows>() {
        Ok(rows) => Ok(Value::Rows(rows.get().value())),
        Err(_) => tensor(py, object).map(Value::Dense),
    }
}

/// Returns the error for an unknown storage type.
pub(crate) fn unknown_stype(py: Python<'_>, stype: &str) -> PyErr {
    invalid(py, format!("stype: expected `row_sparse` or `default`, found `{stype}`"))
}

//! Conversion between Python lists and vectors, without aborting or panicking if memory is missing.
//!
//! The conversions of `PyO3` abort or panic. Use the functions of this module for lists whose
//! length comes from data.

#![expect(unsafe_code, reason = "PyO3 has no safe function for `PySequence_Check`")]

use kvstore::fallible;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::error::{to_python, wrong_class};
use super::finalization;

/// Returns a list of items.
///
/// # Errors
/// - `MemoryError`.
/// - The exception of a conversion.
pub(crate) fn new<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
) -> PyResult<Bound<'py, PyList>> {
    try_new(py, items.into_iter().map(Ok))
}

/// Returns a list of items. Stops at the first exception.
///
/// # Errors
/// - `MemoryError`.
/// - The exception of an item or of a conversion.
pub(crate) fn try_new<'py, T: IntoPyObject<'py>>(
    py: Python<'py>,
    items: impl IntoIterator<Item = PyResult<T>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for item in items {
        list.append(item?)?;
    }
    Ok(list)
}

/// Reads a list or another Python sequence, except a string.
///
/// # Errors
/// - `MemoryError`.
/// - A `TypeError` for another object.
/// - The exception of an item or of its conversion.
pub(crate) fn read<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>) -> PyResult<Vec<T>> {
    // SAFETY: `object` is an object, and this thread has the GIL.
    let is_sequence = unsafe { ffi::PySequence_Check(object.as_ptr()) } != 0;
    if !is_sequence || object.is_instance_of::<PyString>() {
        return Err(wrong_class(object, "expected a list"));
    }
    // Iterating over another class may run Python code, so copy it first.
    let is_builtin =
        object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>();
    let object = if is_builtin {
        object.clone()
    } else {
        finalization::call(&object.py().get_type::<PyList>(), (object,), None)?
    };
    let items = object.try_iter()?.map(|item| item?.extract().map_err(Into::into));
    collect(object.py(), object.len().unwrap_or_default(), items)
}

/// Collects items. Reserves memory for `len` of them first. Stops at the first exception.
///
/// # Errors
/// - `MemoryError`.
/// - The exception of an item.
pub(crate) fn collect<T>(
    py: Python<'_>,
    len: usize,
    items: impl IntoIterator<Item = PyResult<T>>,
) -> PyResult<Vec<T>> {
    let mut list = fallible::with_capacity(len).map_err(|error| to_python(py, error))?;
    for item in items {
        push(py, &mut list, item?)?;
    }
    Ok(list)
}

/// Appends an item to a vector.
///
/// # Errors
/// - `MemoryError`.
pub(crate) fn push<T>(py: Python<'_>, list: &mut Vec<T>, item: T) -> PyResult<()> {
    fallible::push(list, item).map_err(|error| to_python(py, error))
}

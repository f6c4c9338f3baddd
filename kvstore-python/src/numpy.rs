//! NumPy's arrays as arguments.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::interpreter::finalization;

/// Converts numbers, nested lists and arrays to NumPy.
///
/// # Errors
/// - The exception of NumPy.
/// - A `TypeError` for masked arrays, also inside of lists.
pub(crate) fn asarray<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let asarray = ASARRAY.import(py, "mxkv._arguments", "asarray")?;
    finalization::call(asarray, (object,), None)
}

/// Rejects NumPy's masked arrays.
///
/// # Errors
/// - A `TypeError`, because the mask would be lost.
pub(crate) fn check_unmasked(object: &Bound<'_, PyAny>) -> PyResult<()> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    static MASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let class = match MASKED.get(py) {
        Some(class) => class.bind(py),
        // Importing `numpy.ma` is slow, and masked arrays exist only after an import.
        None if MODULES.import(py, "sys", "modules")?.contains("numpy.ma")? => {
            MASKED.import(py, "numpy.ma", "MaskedArray")?
        }
        None => return Ok(()),
    };
    // `asarray` rejects all of them, with the same message for arrays and lists.
    if object.is_instance(class)? { asarray(object).map(drop) } else { Ok(()) }
}

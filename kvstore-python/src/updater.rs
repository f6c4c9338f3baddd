//! The way from a push into a Python function.

use kvstore::{BoxError, Key, NDArray};
use pyo3::prelude::*;

use crate::ndarray::PyArray;

/// Calls the function in the current thread, whichever it is. What it raises comes back as the source of the
/// push's error, from which the verb takes it out again.
pub(crate) fn call(
    function: &Py<PyAny>,
    key: &Key,
    pushed: &NDArray,
    stored: &NDArray,
) -> Result<(), BoxError> {
    // A thread that the interpreter does not wait for may come here when that has ended.
    let called = Python::try_attach(|py| {
        let arrays = (PyArray::from(pushed.clone()), PyArray::from(stored.clone()));
        function.call1(py, (key.as_str(), arrays.0, arrays.1)).map(drop)
    });
    Ok(called.ok_or("the interpreter has ended")??)
}

//! The way from a push into a Python function.

use kvstore::{BoxError, Key, NDArray};
use pyo3::prelude::*;

use crate::keys::KeyKind;
use crate::ndarray::PyArray;

/// Calls the function in the current thread, whichever it is. What it raises comes back as the source of the
/// push's error, from which the verb takes it out again.
pub(crate) fn call(
    function: &Py<PyAny>,
    key_kind: &KeyKind,
    key: &Key,
    pushed: &NDArray,
    stored: &NDArray,
) -> Result<(), BoxError> {
    // A thread that the interpreter does not wait for may come here when that has ended.
    let called = Python::try_attach(|py| {
        let arrays = (PyArray::from(pushed.clone()), PyArray::from(stored.clone()));
        let key = key_kind.as_given(py, key)?;
        function.call1(py, (key, arrays.0, arrays.1)).map(drop)
    });
    Ok(called.ok_or("the interpreter has ended")??)
}

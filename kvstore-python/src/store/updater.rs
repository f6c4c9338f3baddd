//! Calls of a Python updater function during a push, and what such a function may ask about it.

use kvstore::{BoxError, Key, NDArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::keys::{self, KeyKind};
use crate::array::classes::PyArray;
use crate::interpreter::finalization;

/// Calls the function in the current thread.
///
/// # Errors
/// - The exception of the function. It becomes the source of the push's error, and the verb then
///   raises the same exception.
pub(crate) fn call(
    function: &Py<PyAny>,
    key_kind: &KeyKind,
    key: &Key,
    pushed: &NDArray,
    stored: &NDArray,
) -> Result<(), BoxError> {
    // A thread that the interpreter does not wait for may get here after the interpreter has ended.
    let called = Python::try_attach(|py| {
        let key = key_kind.as_given(py, key)?;
        let (pushed, stored) = (
            Bound::new(py, PyArray::from(pushed.clone()))?,
            Bound::new(py, PyArray::from(stored.clone()))?,
        );
        let arguments = PyTuple::new(py, [key, pushed.into_any(), stored.into_any()])?;
        finalization::call(function.bind(py), &arguments, None).map(drop)
    });
    Ok(called.ok_or("the interpreter has ended")??)
}

/// Returns the staleness of the push that runs in this thread, or `None`.
#[pyfunction]
pub(crate) fn push_staleness(key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    Ok(kvstore::push_staleness(&keys::any(key)?))
}

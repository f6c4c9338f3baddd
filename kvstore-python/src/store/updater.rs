//! The way from a push into a Python function.

use kvstore::{BoxError, Key, NDArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::keys::KeyKind;
use crate::array::classes::PyArray;
use crate::interpreter::finalization;

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

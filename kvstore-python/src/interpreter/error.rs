//! Conversion of errors and panics to Python exceptions, and calls with the GIL released.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kvstore::{Error, ErrorCode, Key};
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::finalization;

/// Runs `work` with the GIL released.
///
/// # Errors
/// - The error of `work`, as an exception.
/// - `Internal` if `work` panics.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> kvstore::Result<T> + Send,
) -> PyResult<T> {
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    let result = result.unwrap_or_else(|payload| Err(Error::Internal(panic_text(&*payload))));
    result.map_err(|error| to_python(py, error))
}

/// Returns whether a verb may replace or ignore an exception raised by another library.
///
/// A verb passes on:
/// - exceptions that are not an `Exception`: `KeyboardInterrupt`, `SystemExit`, `GeneratorExit`;
/// - `MemoryError`.
pub(crate) fn is_replaceable(py: Python<'_>, raised: &PyErr) -> bool {
    raised.is_instance_of::<PyException>(py) && !raised.is_instance_of::<PyMemoryError>(py)
}

/// Returns the exception to raise instead of `raised`: the result of `make`, or `raised` itself if
/// it [must be passed on](is_replaceable).
pub(crate) fn replaced(
    py: Python<'_>,
    raised: impl Into<PyErr>,
    make: impl FnOnce() -> PyErr,
) -> PyErr {
    let raised = raised.into();
    if is_replaceable(py, &raised) { make() } else { raised }
}

/// Returns the result of another library, or `None` if it raised an exception that may be ignored.
///
/// # Errors
/// - An exception that [must be passed on](is_replaceable).
pub(crate) fn optional<T>(
    py: Python<'_>,
    result: Result<T, impl Into<PyErr>>,
) -> PyResult<Option<T>> {
    match result.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(raised) if is_replaceable(py, &raised) => Ok(None),
        Err(raised) => Err(raised),
    }
}

/// Returns the error as an exception. For an exception that an updater raised, returns the same
/// object.
pub(crate) fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let error = match error {
        Error::Updater { key, source } => match source.downcast::<PyErr>() {
            Ok(raised) => return *raised,
            Err(source) => Error::Updater { key, source },
        },
        other => other,
    };
    made(py, &error, error.code().as_str()).unwrap_or_else(|failed| failed)
}

/// Returns an `InvalidArgument` exception that is also a `TypeError`.
pub(crate) fn type_error(py: Python<'_>, text: impl Into<String>) -> PyErr {
    made(py, &Error::invalid(text), "Type").unwrap_or_else(|failed| failed)
}

/// Returns a `TypeError` about an object. The message is `expected`, followed by the object's type.
pub(crate) fn wrong_class(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let class = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    type_error(object.py(), format!("{expected}, found a `{class}`"))
}

/// Returns an `InvalidArgument` exception.
pub(crate) fn invalid(py: Python<'_>, text: impl Into<String>) -> PyErr {
    to_python(py, Error::invalid(text))
}

/// Prefixes the message of a `KVStoreError` with the key and the argument. Returns other exceptions
/// unchanged, because they may be the program's own.
///
/// This runs Python code. If that code raises an exception that
/// [must be passed on](is_replaceable), returns that exception instead.
pub(crate) fn about(py: Python<'_>, error: PyErr, key: Option<&Key>, argument: &str) -> PyErr {
    let prefixed = prefixed(py, &error, key, argument);
    prefixed.unwrap_or_else(|raised| if is_replaceable(py, &raised) { error } else { raised })
}

fn prefixed(py: Python<'_>, error: &PyErr, key: Option<&Key>, argument: &str) -> PyResult<PyErr> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let value = error.value(py);
    if !value.is_instance(KIND.import(py, "mxkv.errors", "KVStoreError")?)? {
        return Ok(error.clone_ref(py));
    }
    let key_text = key.map(|key| format!("key `{key}`: ")).unwrap_or_default();
    let text = format!("{key_text}{argument}: {}", finalization::text(value.as_any())?);
    let details = PyDict::new(py);
    details.set_item("key", key.map(ToString::to_string))?;
    for name in ["expected", "found"] {
        details.set_item(name, value.getattr(name)?)?;
    }
    let arguments = PyTuple::new(py, [text])?;
    let made = finalization::call(value.get_type().as_any(), &arguments, Some(&details))?;
    let made = PyErr::from_value(made);
    made.set_cause(py, error.cause(py));
    Ok(made)
}

/// Returns an exception of the class with this name in `mxkv.errors.CLASSES`.
fn made(py: Python<'_>, error: &Error, class: &str) -> PyResult<PyErr> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let classes = CLASSES.import(py, "mxkv.errors", "CLASSES")?;
    let class = classes.as_any().get_item(class)?.cast_into::<PyType>()?;
    let details = PyDict::new(py);
    details.set_item("key", error.key().map(ToString::to_string))?;
    details.set_item("expected", error.expected())?;
    details.set_item("found", error.found())?;
    let exception =
        finalization::call(&class, &PyTuple::new(py, [error.chain()])?, Some(&details))?;
    Ok(PyErr::from_value(exception))
}

/// Returns the name of every code, in the order of its number.
pub(crate) fn codes() -> Vec<&'static str> {
    ErrorCode::ALL.iter().map(|code| code.as_str()).collect()
}

/// Returns the message of a panic. The payload of `panic!` is a `&str` for a literal and a `String`
/// for a formatted message.
fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a text"))
}

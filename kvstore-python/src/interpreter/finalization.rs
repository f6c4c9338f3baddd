//! Calls into Python from threads that may outlive the interpreter.

#![expect(unsafe_code, reason = "declares a function of the interpreter that may unwind")]

use std::hint::black_box;
use std::ptr::null_mut;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{BoundObject, ffi};

// `PyO3` declares the same functions as functions that cannot unwind.
unsafe extern "C-unwind" {
    fn PyObject_Call(
        function: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        options: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;

    fn PyObject_GetAttr(object: *mut ffi::PyObject, name: *mut ffi::PyObject)
    -> *mut ffi::PyObject;

    fn PyErr_WriteUnraisable(object: *mut ffi::PyObject);
}

type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

type WriteUnraisable = unsafe extern "C-unwind" fn(*mut ffi::PyObject);

type GetAttribute =
    unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// Calls a Python function from within a verb.
///
/// A thread that acquires the GIL after the interpreter has ended does not return. Up to Python
/// 3.13, the interpreter terminates such a thread with `pthread_exit`, which unwinds its stack. Our
/// frames must not be unwound, because their destructors would release a GIL that no thread holds.
/// So this function parks the thread until the process ends, as Python does from 3.14 on. The
/// functions of `PyO3` that call Python do not, so the lints forbid them in this crate.
pub(crate) fn call<'py, A>(
    function: &Bound<'py, PyAny>,
    arguments: A,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple>,
{
    let arguments = arguments.into_pyobject(function.py()).map_err(Into::into)?.into_bound();
    let options = options.map_or_else(null_mut, Bound::as_ptr);
    // `black_box` keeps the compiler from using the declaration of `PyO3`.
    let call: Call = black_box(PyObject_Call);
    // SAFETY: the caller holds references to all objects, and this thread has the GIL.
    let result = returning(|| unsafe { call(function.as_ptr(), arguments.as_ptr(), options) });
    // SAFETY: `result` is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// Calls a method as [`call`] does.
pub(crate) fn call_method<'py, A>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: A,
) -> PyResult<Bound<'py, PyAny>>
where
    A: IntoPyObject<'py, Target = PyTuple>,
{
    call(&attribute(object, name)?, arguments, None)
}

/// Returns an attribute of an object of any class. The class may compute it in Python.
pub(crate) fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let get: GetAttribute = black_box(PyObject_GetAttr);
    // SAFETY: the caller holds references to both objects, and this thread has the GIL.
    let result = returning(|| unsafe { get(object.as_ptr(), name.as_ptr()) });
    // SAFETY: `result` is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), result) }
}

/// Returns whether an object of any class has an attribute.
pub(crate) fn has_attribute(
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
) -> PyResult<bool> {
    match attribute(object, name) {
        Ok(_) => Ok(true),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns `str(object)`, which may run code of the object's class.
pub(crate) fn text<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    call(&object.py().get_type::<PyString>(), (object,), None)
}

/// Returns `repr(object)`, which may run code of the object's class.
pub(crate) fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static REPR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(REPR.import(object.py(), "builtins", "repr")?, (object,), None)
}

/// Reports an exception that no caller can receive with `sys.unraisablehook`, which may run Python
/// code. `object` is where it was raised.
pub(crate) fn write_unraisable(error: PyErr, object: &Bound<'_, PyAny>) {
    let write: WriteUnraisable = black_box(PyErr_WriteUnraisable);
    error.restore(object.py());
    // SAFETY: the caller holds a reference to the object, an exception is set, and this thread has
    // the GIL.
    returning(|| unsafe { write(object.as_ptr()) });
}

/// Calls a function of the interpreter. Parks the thread if it unwinds instead of returning.
#[inline]
fn returning<T>(function: impl FnOnce() -> T) -> T {
    let mut unwinding = ParkForever { is_over: false };
    let result = function();
    unwinding.is_over = true;
    result
}

/// Parks the thread forever if a call unwinds instead of returning.
struct ParkForever {
    is_over: bool,
}

impl Drop for ParkForever {
    fn drop(&mut self) {
        if !self.is_over {
            loop {
                std::thread::park();
            }
        }
    }
}

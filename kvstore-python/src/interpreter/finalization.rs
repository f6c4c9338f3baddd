//! Calls into Python from threads that may outlive the interpreter.

#![expect(unsafe_code, reason = "declares a function of the interpreter that may unwind")]

use std::hint::black_box;
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

unsafe extern "C-unwind" {
    fn PyObject_Call(
        function: *mut ffi::PyObject,
        arguments: *mut ffi::PyObject,
        options: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

type Call = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// Calls Python code from within a verb.
///
/// A thread that acquires the GIL after the interpreter has ended does not return. Up to Python
/// 3.13, the interpreter terminates such a thread with `pthread_exit`, which unwinds its stack. Our
/// frames must not be unwound, because their destructors would release a GIL that no thread holds.
/// So this function parks the thread until the process ends, as Python does from 3.14 on.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options.map_or_else(null_mut, Bound::as_ptr);
    // `PyO3` declares the same function as one that cannot unwind. `black_box` keeps the compiler
    // from using that assumption here.
    let call: Call = black_box(PyObject_Call);
    let mut unwinding = ParkForever { is_over: false };
    // SAFETY: the caller holds references to all objects, and this thread has the GIL.
    let result = unsafe { call(function.as_ptr(), arguments.as_ptr(), options) };
    unwinding.is_over = true;
    // SAFETY: `result` is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// Calls a method as [`call`] does. The lookup of the method must not run Python code.
pub(crate) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, arguments, None)
}

/// Returns `str(object)`, which may run code of the object's class.
pub(crate) fn text<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    call(&py.get_type::<PyString>(), &PyTuple::new(py, [object])?, None)
}

/// Returns `repr(object)`, which may run code of the object's class.
pub(crate) fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static REPR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    call(REPR.import(py, "builtins", "repr")?, &PyTuple::new(py, [object])?, None)
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

//! The end of the interpreter, for threads that it does not wait for.

#![expect(unsafe_code, reason = "declares that a function of the interpreter may unwind")]

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

/// Calls code of Python's from within a verb.
///
/// A thread that asks for the interpreter's lock when the interpreter has ended gets no further: up to Python 3.13 it is ended
/// there, and the system unwinds its stack. Our frames cannot bear that, for they would give a lock back that nobody has.
/// Such a thread stands still here until the process is gone, as every thread does from Python 3.14 on.
pub(crate) fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = options.map_or_else(null_mut, Bound::as_ptr);
    // Elsewhere the same function is declared as one that does not unwind, and the compiler would believe that here, too.
    let call: Call = black_box(PyObject_Call);
    let mut unwinding = ParkForever { is_over: false };
    // SAFETY: the caller holds every object, and the interpreter's lock.
    let result = unsafe { call(function.as_ptr(), arguments.as_ptr(), options) };
    unwinding.is_over = true;
    // SAFETY: it is a reference that is ours now, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(function.py(), result) }
}

/// Calls a method as [`call`] does. The class is one of ours, or one whose attributes are looked up without code of Python's.
pub(crate) fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, arguments, None)
}

/// Returns the text of an object, which its class may make.
pub(crate) fn text<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    call(&py.get_type::<PyString>(), &PyTuple::new(py, [object])?, None)
}

/// Returns the text of an object for programmers, which its class may make.
pub(crate) fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static REPR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    call(REPR.import(py, "builtins", "repr")?, &PyTuple::new(py, [object])?, None)
}

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

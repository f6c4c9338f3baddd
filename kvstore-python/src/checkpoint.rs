//! The class `Checkpoint`, and what waits for checkpoints that the program does not wait for.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvstore::{Checkpoint, CheckpointProgress, Checkpoints};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString};

use crate::error::{detached, to_python};

/// How long Ctrl-C may have to wait.
const STEP: Duration = Duration::from_millis(50);

/// A checkpoint that is being written while the store goes on.
///
/// The store's ``close``, and the end of the program, wait for it if the program does not: they report an error that
/// ``wait`` has not raised. ``os._exit`` and signals that end the process at once do not wait.
#[pyclass(frozen, name = "Checkpoint", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyCheckpoint {
    progress: CheckpointProgress,
    checkpoint: Mutex<Option<Checkpoint>>,
}

impl PyCheckpoint {
    pub(crate) fn new(py: Python<'_>, checkpoint: Checkpoint) -> PyResult<Self> {
        wait_at_exit_of_child(py)?;
        let progress = checkpoint.progress().clone();
        Ok(Self { progress, checkpoint: Mutex::new(Some(checkpoint)) })
    }
}

#[pymethods]
impl PyCheckpoint {
    /// How long the file will be.
    #[getter]
    fn num_bytes(&self) -> u64 {
        self.progress.num_bytes()
    }

    /// How many bytes have been written.
    #[getter]
    fn num_bytes_written(&self) -> u64 {
        self.progress.num_bytes_written()
    }

    /// Returns when the file is written, and raises what went wrong; that is said once. Ctrl-C ends the wait, not the
    /// writing.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        wait_for(py, std::slice::from_ref(&self.progress))?;
        detached(py, || {
            let taken = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
            taken.map_or(Ok(()), Checkpoint::wait)
        })
    }

    fn __repr__(&self) -> String {
        let (written, all) = (self.num_bytes_written(), self.num_bytes());
        format!("<Checkpoint, {written} of {all} bytes written>")
    }
}

/// Waits while other threads of Python go on, and until Ctrl-C in the main thread.
fn wait_for(py: Python<'_>, running: &[CheckpointProgress]) -> PyResult<()> {
    for progress in running {
        while !detached(py, || Ok(progress.wait_timeout(STEP)))? {
            py.check_signals()?;
        }
    }
    Ok(())
}

/// Waits for checkpoints, and raises the first error that the program does not know; of the others
/// `sys.unraisablehook` is told.
pub(crate) fn finish(py: Python<'_>, checkpoints: &Checkpoints) -> PyResult<()> {
    wait_for(py, &checkpoints.running())?;
    let mut errors = checkpoints.take_errors().into_iter();
    let first = errors.next();
    for error in errors {
        let what = PyString::new(py, "a checkpoint that the program did not wait for");
        to_python(py, error).write_unraisable(py, Some(&what));
    }
    first.map_or(Ok(()), |error| Err(to_python(py, error)))
}

/// Waits for the checkpoints of the process, and raises an error that the program does not know.
#[pyfunction]
fn finish_checkpoints(py: Python<'_>) -> PyResult<()> {
    finish(py, Checkpoints::of_process())
}

/// Lets the end of the interpreter wait for checkpoints, when threads that are no daemons have ended.
pub(crate) fn wait_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let finish = wrap_pyfunction!(finish_checkpoints, module)?;
    module.py().import("atexit")?.call_method1("register", (finish,))?;
    Ok(())
}

/// Does the same in a process that `multiprocessing` has forked. It ends by `os._exit`, before which only functions
/// that are registered with that module are called.
fn wait_at_exit_of_child(py: Python<'_>) -> PyResult<()> {
    static REGISTERED_IN: AtomicU32 = AtomicU32::new(0);
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(process) = modules.get_item("multiprocessing.process")? else { return Ok(()) };
    if process.call_method0("parent_process")?.is_none()
        || REGISTERED_IN.swap(std::process::id(), Ordering::Relaxed) == std::process::id()
    {
        return Ok(());
    }
    let finish = wrap_pyfunction!(finish_checkpoints, py)?;
    let options = [("exitpriority", 0)].into_py_dict(py)?;
    let util = py.import("multiprocessing.util")?;
    util.call_method("Finalize", (py.None(), finish), Some(&options))?;
    Ok(())
}

//! The class `Checkpoint`, and the hooks that wait for checkpoints at exit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvstore::{Checkpoint, CheckpointProgress, Checkpoints};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString};

use crate::interpreter::error::{detached, to_python};
use crate::interpreter::finalization;

/// The longest delay of a signal handler.
const STEP: Duration = Duration::from_millis(50);

/// A checkpoint that is written in the background while the store remains usable.
///
/// If the program does not call ``wait``, the store's ``close`` and the end of the program wait,
/// and raise an error that ``wait`` has not raised. A program that ends by ``os._exit``, or is
/// killed by a signal, does not wait.
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
    /// The length of the complete file in bytes. For a delta, 0 until its changes are known.
    #[getter]
    fn num_bytes(&self) -> u64 {
        self.progress.num_bytes()
    }

    /// The number of bytes written so far.
    #[getter]
    fn num_bytes_written(&self) -> u64 {
        self.progress.num_bytes_written()
    }

    /// Waits until the file is written. Raises an error of the writing once. Ctrl-C ends the wait,
    /// not the writing.
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

/// Waits for checkpoints with the GIL released. Ctrl-C in the main thread ends the wait.
fn wait_for(py: Python<'_>, running: &[CheckpointProgress]) -> PyResult<()> {
    for progress in running {
        while !detached(py, || Ok(progress.wait_timeout(STEP)))? {
            py.check_signals()?;
        }
    }
    Ok(())
}

/// Waits for checkpoints. Raises the first error that the program has not seen, and passes the
/// others to `sys.unraisablehook`.
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

/// Waits for all checkpoints of the process, and raises an error that the program has not seen.
#[pyfunction]
fn finish_checkpoints(py: Python<'_>) -> PyResult<()> {
    finish(py, Checkpoints::of_process())
}

/// Registers the wait with `atexit`, which runs after all non-daemon threads have ended.
pub(crate) fn wait_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let finish = wrap_pyfunction!(finish_checkpoints, module)?;
    let register = module.py().import("atexit")?.getattr("register")?;
    finalization::call(&register, (finish,), None)?;
    Ok(())
}

/// Registers the wait in a child of `multiprocessing`. Such a child ends by `os._exit`, which runs
/// only the finalizers of `multiprocessing.util`.
fn wait_at_exit_of_child(py: Python<'_>) -> PyResult<()> {
    static REGISTERED_IN: AtomicU32 = AtomicU32::new(0);
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(process) = modules.get_item("multiprocessing.process")? else { return Ok(()) };
    let parent = finalization::call_method(&process, intern!(py, "parent_process"), ())?;
    if parent.is_none()
        || REGISTERED_IN.swap(std::process::id(), Ordering::Relaxed) == std::process::id()
    {
        return Ok(());
    }
    let finish = wrap_pyfunction!(finish_checkpoints, py)?;
    let options = [("exitpriority", 0)].into_py_dict(py)?;
    let class = py.import("multiprocessing.util")?.getattr("Finalize")?;
    finalization::call(&class, (py.None(), finish), Some(&options))?;
    Ok(())
}

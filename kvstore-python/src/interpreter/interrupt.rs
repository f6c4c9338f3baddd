//! Signal handlers during long work, so that Ctrl-C can end it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvstore::{Check, Error, Result};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::error::detached;
use super::finalization;

/// How often the work checks for signals. A check waits for the GIL.
const PERIOD: Duration = Duration::from_millis(20);

/// Runs `work` with the GIL released. In the main thread, the check passed to `work` runs pending
/// signal handlers.
///
/// # Errors
/// - The error of `work`, as an exception.
/// - The exception of a handler, which ends the work.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Check<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    // Python runs signal handlers in the main thread only.
    if !is_main_thread(py)? {
        return detached(py, move || work(&|| Ok(())));
    }
    let (raised, looked_at) = (Mutex::new(None), Mutex::new(Instant::now()));
    let check = || {
        let mut looked_at = looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        if looked_at.elapsed() < PERIOD {
            return Ok(());
        }
        let handled = Python::try_attach(run_handlers);
        *looked_at = Instant::now();
        if let Some(Err(error)) = handled {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            return Err(Error::Internal("a signal ended the work".to_owned()));
        }
        Ok(())
    };
    let done = detached(py, || work(&check));
    raised.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(done, Err)
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static MAIN_THREAD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static THREAD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let main_thread = MAIN_THREAD.import(py, "threading", "main_thread")?;
    let own = THREAD.import(py, "threading", "get_ident")?;
    let main_thread = finalization::call(main_thread, (), None)?;
    main_thread.getattr("ident")?.eq(finalization::call(own, (), None)?)
}

fn run_handlers(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

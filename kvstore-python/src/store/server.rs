//! The class `Server`, and the servers of jobs that MXNet's launchers start.

use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use kvstore::{Error, LaunchedJob, Server, Store, fallible};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::members;
use crate::interpreter::error::{detached, to_python};
use crate::interpreter::{finalization, lists};

/// The native methods of ``mxkv.kvstore_server.KVStoreServer``. Programs create a
/// ``KVStoreServer``.
#[pyclass(frozen, name = "Server", module = "mxkv._native")]
#[derive(Debug)]
pub(crate) struct PyServer {
    address: String,
    metrics_address: Option<String>,
    /// `None` after the server is closed. Calls in progress keep the server until they end.
    running: RwLock<Option<Running>>,
}

#[derive(Clone, Debug)]
struct Running {
    server: Arc<Server>,
    /// The store that holds the values. It knows the process of the server.
    store: Store,
}

thread_local! {
    /// Whether a handler of commands runs in this thread.
    static RUNS_COMMAND: Cell<bool> = const { Cell::new(false) };
}

impl PyServer {
    /// Returns the store that holds the values.
    pub(crate) fn store(&self, py: Python<'_>) -> PyResult<Store> {
        self.running(py).map(|running| running.store)
    }

    fn running(&self, py: Python<'_>) -> PyResult<Running> {
        // Creating an exception runs Python code, which may call `close`, so release the lock
        // first.
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        let running = running.ok_or_else(|| Error::Closed { what: "the server".to_owned() });
        running
            .and_then(|running| running.store.check_process().map(|()| running))
            .map_err(|error| to_python(py, error))
    }

    fn take(&self) -> Option<Running> {
        self.running.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for PyServer {
    /// Does not wait for the calls that run. The garbage collector may run in an updater of this
    /// server, and other updaters may wait for the GIL.
    fn drop(&mut self) {
        let Some(running) = self.take() else { return };
        if running.store.check_process().is_err() {
            return;
        }
        // Without a thread, this one shuts the server down.
        let shut_down = thread::Builder::new().name("kvstore-shut-down".to_owned());
        let _ = shut_down.spawn(move || drop(running));
    }
}

#[pymethods]
impl PyServer {
    /// Starts a server.
    #[new]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = lists::read)] options: Vec<(String, String)>,
    ) -> PyResult<Self> {
        detached(py, move || {
            let server = kvstore::serve(&pairs(&options)?)?;
            let (address, store) = (server.address().to_string(), Store::from(&server));
            let running = Running { server: Arc::new(server), store };
            let metrics_address = running.server.metrics_address().map(|found| found.to_string());
            Ok(Self { address, metrics_address, running: RwLock::new(Some(running)) })
        })
    }

    /// The address that the server listens on.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// The address of the HTTP endpoint.
    #[getter]
    fn metrics_address(&self) -> Option<&str> {
        self.metrics_address.as_deref()
    }

    #[getter(_is_closed)]
    fn is_closed(&self) -> bool {
        self.running.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Waits until the server is closed, or another server has taken its place at the coordinator,
    /// and returns that reason.
    fn wait_for_loss(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let server = self.running(py)?.server;
        detached(py, move || Ok(server.wait_for_loss()))
    }

    /// Returns the live members.
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let server = self.running(py)?.server;
        members::to_python(py, &detached(py, move || Ok(server.members()))?)
    }

    /// Sets the function that runs for each command of a member.
    fn on_command(&self, py: Python<'_>, handler: Py<PyAny>) -> PyResult<()> {
        let server = self.running(py)?.server;
        let call = move |head: i32, body: &str| command(&handler, head, body);
        detached(py, move || {
            server.on_command(Arc::new(call));
            Ok(())
        })
    }

    /// Completes the calls that run, and stops the server. Does nothing when called again or in a
    /// forked child.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(running) = running else { return Ok(()) };
        detached(py, || {
            // It would wait for itself.
            if RUNS_COMMAND.get() {
                let text = "`close` cannot be called from a handler of commands";
                return Err(Error::invalid(text));
            }
            running.server.store().reject_inside_updater("close")?;
            running.server.shut_down();
            drop((self.take(), running));
            Ok(())
        })
    }
}

/// Calls the handler of commands in the current thread.
fn command(handler: &Py<PyAny>, head: i32, body: &str) -> kvstore::Result<()> {
    struct LeaveOnDrop;
    impl Drop for LeaveOnDrop {
        fn drop(&mut self) {
            RUNS_COMMAND.set(false);
        }
    }
    RUNS_COMMAND.set(true);
    let _leave = LeaveOnDrop;
    // The interpreter does not wait for this thread, and may have ended.
    let called = Python::try_attach(|py| {
        let called = finalization::call(handler.bind(py), (head, body), None);
        // As text, because the network cannot transfer the exception.
        called.map(drop).map_err(|raised| raised.to_string())
    });
    let failed = |text: String| Error::Transport {
        operation: format!("command {head}"),
        source: text.into(),
    };
    called.unwrap_or_else(|| Err("the interpreter has ended".to_owned())).map_err(failed)
}

/// Returns options as the library expects them.
pub(crate) fn pairs(options: &[(String, String)]) -> kvstore::Result<Vec<(&str, &str)>> {
    fallible::collect(options.iter().map(|(name, value)| (&**name, &**value)))
}

/// Runs the server or the scheduler of the job that environment variables describe, until the job
/// ends.
#[pyfunction]
pub(crate) fn serve_job(py: Python<'_>) -> PyResult<()> {
    detached(py, || {
        let job = LaunchedJob::of_environment()?;
        let none = || Error::invalid("DMLC_ROLE is not set: no launcher has started this process");
        job.ok_or_else(none)?.serve(&[], |_| Ok(()))
    })
}

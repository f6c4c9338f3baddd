//! The threads that move messages. They start with the first store or server on a network.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kvstore_core::process::PerProcess;
use kvstore_core::{Error, Result, panic_text};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor, TryCurrentError};

/// The runtime of this process, or why there is none. A forked child starts its own.
type Started = PerProcess<Result<Arc<Runtime>, String>>;

/// Returns a runtime with one thread, for stores with one connection to a server. A second thread
/// would wake for many messages and find nothing to do.
///
/// # Errors
/// - [`Error::Transport`] if the thread cannot be started.
pub(crate) fn single() -> Result<Handle> {
    static RUNTIME: Started = PerProcess::new();
    started(&RUNTIME, 1)
}

/// Returns a runtime with a thread for each processor, and at least two, for servers and for stores
/// with several connections to a server.
///
/// # Errors
/// - [`Error::Transport`] if the threads cannot be started.
pub(crate) fn parallel() -> Result<Handle> {
    static RUNTIME: Started = PerProcess::new();
    // A short call may wait in one thread for the calls of an updater.
    let num_processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    started(&RUNTIME, num_processors.max(2))
}

fn started(runtime: &Started, num_threads: usize) -> Result<Handle> {
    let runtime = runtime.get_or_init(|_| {
        let builder = Builder::new_multi_thread()
            .worker_threads(num_threads)
            .thread_name("kvstore-net")
            .enable_all()
            .build();
        builder.map(Arc::new).map_err(|error| error.to_string())
    });
    match runtime {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(reason) => Err(Error::Transport {
            operation: "cannot start the threads for the network".to_owned(),
            source: reason.clone().into(),
        }),
    }
}

/// Runs a future on a runtime and waits for its result.
///
/// Works inside other runtimes, too, where `block_on` would panic.
pub(crate) fn wait<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let current = Handle::try_current();
    if current.as_ref().is_err_and(TryCurrentError::is_missing_context) {
        return Ok(runtime.block_on(future));
    }
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = sender.send(future.await);
    });
    let receive = || receiver.recv().map_err(|_| ended());
    match current.map(|current| current.runtime_flavor()) {
        // This moves the other tasks of this thread to another thread. The future may be one of
        // them.
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(receive),
        _ => receive(),
    }
}

/// The error for a task that has panicked.
pub(crate) fn ended() -> Error {
    Error::Internal("a task of the network has ended".to_owned())
}

/// Runs work that takes a while. If the runtime has several threads, the other tasks of this
/// thread move to another one.
pub(crate) fn in_place<R>(work: impl FnOnce() -> R) -> R {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => tokio::task::block_in_place(work),
    }
}

/// Converts a panic, for example of an updater, into an error.
pub(crate) fn without_panic<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::Internal(format!("a panic: {}", panic_text(&*panic)))))
}

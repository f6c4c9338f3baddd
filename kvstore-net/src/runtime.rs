//! The threads that move messages. They start with the first store or server on a network.

use std::sync::Arc;

use kvstore_core::process::PerProcess;
use kvstore_core::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// The number of threads. They wait for the network most of the time.
const NUM_THREADS: usize = 2;

/// Returns the runtime of this process. A forked child starts its own.
///
/// # Errors
/// - [`Error::Transport`] if the threads cannot be started.
pub(crate) fn handle() -> Result<Handle> {
    static RUNTIME: PerProcess<Result<Arc<Runtime>, String>> = PerProcess::new();
    let runtime = RUNTIME.get_or_init(|_| {
        let builder = Builder::new_multi_thread()
            .worker_threads(NUM_THREADS)
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

/// Runs a future on the runtime and waits for its result.
///
/// Works inside other runtimes, too, where `block_on` would panic.
pub(crate) fn wait<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    handle()?.spawn(async move {
        let _ = sender.send(future.await);
    });
    let receive = || receiver.recv().map_err(|_| ended());
    match Handle::try_current().map(|current| current.runtime_flavor()) {
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

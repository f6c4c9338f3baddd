//! [`Driver`]: what runs the futures of a store.

#[cfg(test)]
use std::{pin::Pin, sync::mpsc};

use kvstore_core::Result;
use tokio::runtime::Handle;

use crate::runtime;

/// A future that sends its result to the thread that waits for it.
#[cfg(test)]
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs the futures of a store, whose calls block their threads.
#[derive(Clone, Debug)]
pub(crate) enum Driver {
    /// The threads of the connections.
    Threads(Handle),
    /// A process of a simulation, which runs one task after the other.
    #[cfg(test)]
    Simulation(mpsc::Sender<Task>),
}

impl Driver {
    /// Returns the threads for a number of connections to each server.
    pub(super) fn for_connections(count: usize) -> Result<Self> {
        Ok(Self::Threads(if count > 1 { runtime::parallel() } else { runtime::single() }?))
    }

    /// Runs a future in the background.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Threads(threads) => drop(threads.spawn(future)),
            #[cfg(test)]
            Self::Simulation(_) => {
                let _ = self.wait(async move { drop(tokio::spawn(future)) });
            }
        }
    }

    /// Runs a future and waits for its result. The future may spawn tasks.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        match self {
            Self::Threads(threads) => runtime::wait(threads, future),
            #[cfg(test)]
            Self::Simulation(process) => {
                let (sender, receiver) = mpsc::sync_channel(1);
                let task = async move {
                    let _ = sender.send(future.await);
                };
                process.send(Box::pin(task)).map_err(|_| runtime::ended())?;
                receiver.recv().map_err(|_| runtime::ended())
            }
        }
    }
}

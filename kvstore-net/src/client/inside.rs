//! Updaters of this process on a server in this process: whether this thread runs one, because
//! calls that change its store would wait for the updater itself, and the errors that they return.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kvstore_core::{BoxError, Error, Key, Result, Tensor, Updater};

use crate::server::Server;

thread_local! {
    /// The servers whose updaters run in this thread, innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The errors that updaters have returned and that no call has taken yet. Messages contain only
/// their text.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Arc<Mutex<HashMap<Key, BoxError>>>);

impl Failures {
    fn put(&self, key: &Key, error: BoxError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), error);
    }

    /// Replaces the text of an updater's error with the error itself.
    pub(super) fn restore(&self, error: Error) -> Error {
        let Error::Updater { key, source } = error else { return error };
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        Error::Updater { key, source: kept.unwrap_or(source) }
    }
}

/// An updater that records that it runs, and its errors.
pub(super) struct Recorded {
    server: usize,
    updater: Arc<dyn Updater>,
    failures: Failures,
}

impl Recorded {
    pub(super) fn new(
        server: &Arc<Server>,
        updater: Arc<dyn Updater>,
        failures: &Failures,
    ) -> Self {
        Self { server: identity(server), updater, failures: failures.clone() }
    }
}

impl Updater for Recorded {
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        struct LeaveOnDrop;
        impl Drop for LeaveOnDrop {
            fn drop(&mut self) {
                INSIDE.with_borrow_mut(Vec::pop);
            }
        }
        INSIDE.with_borrow_mut(|inside| inside.push(self.server));
        let _leave = LeaveOnDrop;
        self.updater.update(key, pushed, stored).map_err(|error| {
            let text = error.to_string();
            self.failures.put(key, error);
            text.into()
        })
    }
}

/// # Errors
/// - [`Error::InvalidArgument`] if this thread runs an updater of this server.
pub(super) fn reject(server: &Arc<Server>, verb: &str) -> Result<()> {
    if INSIDE.with_borrow(|inside| inside.contains(&identity(server))) {
        let text = format!("`{verb}` cannot be called from an updater of the same store");
        return Err(Error::InvalidArgument(text));
    }
    Ok(())
}

fn identity(server: &Arc<Server>) -> usize {
    Arc::as_ptr(server).addr()
}

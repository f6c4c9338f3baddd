//! [`Failures`]: the errors of updaters of this process on a server in this process. Messages
//! contain only their texts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kvstore_core::{BoxError, Error, Key, Tensor, Updater};

/// The errors that updaters have returned and that no call has taken yet.
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

/// An updater whose errors are kept.
pub(super) struct Recorded {
    updater: Arc<dyn Updater>,
    failures: Failures,
}

impl Recorded {
    pub(super) fn new(updater: Arc<dyn Updater>, failures: &Failures) -> Self {
        Self { updater, failures: failures.clone() }
    }
}

impl Updater for Recorded {
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        self.updater.update(key, pushed, stored).map_err(|error| {
            let text = error.to_string();
            self.failures.put(key, error);
            text.into()
        })
    }
}

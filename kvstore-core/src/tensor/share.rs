//! [`Share`]: a reference to a storage and to its backend.

use std::sync::Arc;

use crate::backend::{Backend, Storage};
use crate::types::{Error, Result};

/// A counted reference to a storage. The last one returns the storage to its backend for reuse.
///
/// If possible, the storage holds the reference to its backend. A clone then changes one reference
/// count only. Otherwise, all clones in all threads would also contend for the backend's count.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) storage: Arc<dyn Storage>,
    /// The backend, if the storage does not hold it.
    backend: Option<Arc<dyn Backend>>,
}

impl Share {
    pub(super) fn new(backend: &Arc<dyn Backend>, storage: Arc<dyn Storage>) -> Self {
        Self::of(Some(Arc::clone(backend)), storage)
    }

    /// Moves to another storage of the same backend.
    pub(super) fn move_to(&mut self, storage: Arc<dyn Storage>) {
        *self = Self::of(self.backend().ok().cloned(), storage);
    }

    /// Returns a share of a storage whose reads all fail with `reason`.
    pub(super) fn unreadable(reason: &Error) -> Self {
        Self { storage: Arc::new(UnreadableStorage(reason.to_string())), backend: None }
    }

    fn of(mut backend: Option<Arc<dyn Backend>>, mut storage: Arc<dyn Storage>) -> Self {
        if let Some(own) = Arc::get_mut(&mut storage) {
            own.set_owner(backend.clone());
        }
        if storage.owner().is_some() {
            backend = None;
        }
        Self { storage, backend }
    }

    /// Returns the backend.
    ///
    /// # Errors
    /// - [`Error::Internal`] if the storage has no backend.
    /// - [`Error::Unsupported`] in a forked child that cannot use the backend.
    pub(super) fn backend(&self) -> Result<&Arc<dyn Backend>> {
        let backend = self.backend.as_ref().or_else(|| self.storage.owner());
        let backend = backend.ok_or_else(|| {
            let unknown = || Error::Internal("a storage without a backend".to_owned());
            self.storage.refusal().unwrap_or_else(unknown)
        })?;
        backend.check_process()?;
        Ok(backend)
    }
}

impl Drop for Share {
    #[expect(clippy::disallowed_methods, reason = "freeing the memory fails in a forked child")]
    fn drop(&mut self) {
        if Arc::strong_count(&self.storage) > 1 {
            return;
        }
        // A forked child leaks memory if it cannot use the memory's backend.
        if self.backend.as_ref().or_else(|| self.storage.owner()).is_some_and(is_lost) {
            std::mem::forget(Arc::clone(&self.storage));
            return;
        }
        // The backend keeps storages for reuse. Such a storage must not keep the backend: a
        // reference cycle would leak both.
        let noted = Arc::get_mut(&mut self.storage).and_then(|own| own.set_owner(None));
        if let Some(backend) = noted.or_else(|| self.backend.take()) {
            backend.recycle(&mut self.storage);
        }
    }
}

fn is_lost(backend: &Arc<dyn Backend>) -> bool {
    backend.check_process().is_err()
}

/// A storage that cannot be read. Contains the reason.
#[derive(Debug)]
struct UnreadableStorage(String);

impl Storage for UnreadableStorage {
    fn num_bytes(&self) -> usize {
        0
    }

    fn is_external(&self) -> bool {
        // A store copies external memory before it keeps it. This copy fails here, so the store
        // never keeps an unreadable value.
        true
    }

    fn refusal(&self) -> Option<Error> {
        Some(Error::Unsupported(self.0.clone()))
    }
}

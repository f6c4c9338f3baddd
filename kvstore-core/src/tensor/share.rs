//! [`Share`]: a share of a storage, and the backend that made it.

use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::storage::Storage;

/// A share of a storage. The last one to go gives it back for reuse.
///
/// The storage notes its backend where it can, so that a clone counts in one place, its own: every copy of a value, in
/// whatever thread, would otherwise count its backend's users, too.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) storage: Arc<dyn Storage>,
    /// For a storage that notes none.
    backend: Option<Arc<dyn Backend>>,
}

impl Share {
    pub(super) fn new(backend: &Arc<dyn Backend>, mut storage: Arc<dyn Storage>) -> Self {
        if let Some(own) = Arc::get_mut(&mut storage) {
            own.set_owner(Some(Arc::clone(backend)));
        }
        let backend = storage.owner().is_none().then(|| Arc::clone(backend));
        Self { storage, backend }
    }

    /// Returns the backend.
    ///
    /// # Errors
    /// [`Error::Internal`] when the storage has forgotten whose it is.
    pub(super) fn backend(&self) -> Result<&Arc<dyn Backend>> {
        let backend = self.backend.as_ref().or_else(|| self.storage.owner());
        backend.ok_or_else(|| Error::Internal("a storage without a backend".to_owned()))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if Arc::strong_count(&self.storage) > 1 {
            return;
        }
        // Storages that are kept for reuse must not keep the backend that keeps them.
        let noted = Arc::get_mut(&mut self.storage).and_then(|own| own.set_owner(None));
        if let Some(backend) = noted.or_else(|| self.backend.take()) {
            backend.recycle(&mut self.storage);
        }
    }
}

//! The class `Store` without its methods: the store that a Python object uses until it is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use kvstore::{Checkpoints, Error, Store};
use pyo3::prelude::*;

use crate::arguments::keys::KeyKind;
use crate::interpreter::error::{detached, invalid, to_python};

/// The native methods of ``mxkv.kvstore.KVStore``. Programs create a ``KVStore``.
#[pyclass(frozen, subclass, name = "Store", module = "mxkv._native")]
#[derive(Debug, Default)]
pub(crate) struct PyStore {
    /// `None` before the store is opened and after it is closed. Calls in progress keep the store
    /// until they end.
    pub(super) store: RwLock<Option<Store>>,
    is_opened: AtomicBool,
    /// Shared with the store's updater, which must not keep the store.
    pub(super) key_kind: Arc<KeyKind>,
    /// The checkpoints that this store has begun.
    pub(super) checkpoints: Checkpoints,
}

impl PyStore {
    pub(super) fn store(&self, py: Python<'_>) -> PyResult<Store> {
        // Creating an exception runs Python code, which may call `close`, so release the lock
        // first.
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner).clone();
        let store = store.ok_or_else(|| Error::Closed { what: "the store".to_owned() });
        store
            .and_then(|store| store.check_process().map(|()| store))
            .map_err(|error| to_python(py, error))
    }

    /// Runs `call` with the store and with the GIL released.
    pub(super) fn detached<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Store) -> kvstore::Result<T> + Send,
    ) -> PyResult<T> {
        let store = self.store(py)?;
        detached(py, move || call(&store))
    }

    pub(super) fn open_with(
        &self,
        py: Python<'_>,
        create: impl FnOnce() -> kvstore::Result<Store> + Send,
    ) -> PyResult<()> {
        if self.is_opened.swap(true, Ordering::Relaxed) {
            return Err(invalid(py, "a store cannot be opened twice: create another one"));
        }
        let store = detached(py, create)?;
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = Some(store);
        Ok(())
    }

    pub(super) fn take(&self) -> Option<Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for PyStore {
    /// Does not wait for other workers, because the garbage collector runs at different times in
    /// each process. `close` waits for them.
    fn drop(&mut self) {
        if let Some(store) = self.take() {
            let _ = store.set_barrier_before_exit(false);
            // Leaving servers waits for the network, and an updater of a server in this process
            // may wait for the GIL.
            if store.name().starts_with("dist") {
                let mut store = Some(store);
                let _ = Python::try_attach(|py| py.detach(|| drop(store.take())));
            }
        }
    }
}

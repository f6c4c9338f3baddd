//! [`Gate`]: keeps pushes apart from changes of the keys.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvstore_core::{LocalStore, Updater};

/// Closed while keys are added or removed, and shared by pushes. Calls that an updater may make
/// during a push do not take it.
#[derive(Debug, Default)]
pub(super) struct Gate(RwLock<()>);

/// A gate that is held until this is dropped.
///
/// Keeps the updater of the store until then: an updater that is replaced meanwhile may call the
/// store when it is dropped, and would wait for the gate.
pub(super) struct Held<G> {
    // Dropped in this order.
    _guard: G,
    _updater: Option<Arc<dyn Updater>>,
}

impl Gate {
    /// Keeps keys from being added or removed.
    pub(super) fn share(&self, store: &LocalStore) -> Held<RwLockReadGuard<'_, ()>> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Held { _guard: guard, _updater: store.updater() }
    }

    /// Keeps pushes from running.
    pub(super) fn close(&self, store: &LocalStore) -> Held<RwLockWriteGuard<'_, ()>> {
        let guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Held { _guard: guard, _updater: store.updater() }
    }
}

//! The stores of the servers in this process. A client of the same process asks them whether its
//! thread runs an updater, because a call of an updater that changes its own store would wait for
//! the updater itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kvstore_core::LocalStore;

/// The stores by the run of their server.
static STORES: Mutex<BTreeMap<u64, Weak<LocalStore>>> = Mutex::new(BTreeMap::new());

/// Records the store of a server.
pub(super) fn add(run: u64, store: &Arc<LocalStore>) {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    stores.retain(|_, store| store.strong_count() > 0);
    stores.insert(run, Arc::downgrade(store));
}

/// Returns the store of the server with this run, if it is in this process.
pub(crate) fn store_in_this_process(run: u64) -> Option<Arc<LocalStore>> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner).get(&run)?.upgrade()
}

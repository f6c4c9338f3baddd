//! The staleness of a push, for updaters and optimizers.

use std::cell::RefCell;

use crate::types::Key;

thread_local! {
    /// The staleness of the push that runs in this thread, for each of its keys.
    static STALENESS: RefCell<Vec<(Key, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the staleness of the push that runs in this thread: how many pushes have changed the key
/// since the worker of the push pulled it last, or since its `init`. Returns `None` outside of
/// pushes, and in stores that are not on servers: their pushes are never stale.
///
/// An updater may use it to take smaller steps for staler gradients (Zhang et al., "Staleness-aware
/// async-SGD for distributed deep learning", 2016).
pub fn push_staleness(key: &Key) -> Option<u64> {
    STALENESS.with_borrow(|staleness| {
        let found = staleness.binary_search_by(|(known, _)| known.cmp(key)).ok();
        found.and_then(|index| staleness.get(index)).map(|(_, staleness)| *staleness)
    })
}

/// Runs a push with this staleness of its keys, for a store on a server. The keys are in ascending
/// order.
pub fn with_staleness<R>(staleness: Vec<(Key, u64)>, push: impl FnOnce() -> R) -> R {
    /// Ends the staleness, also if an updater panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            STALENESS.set(Vec::new());
        }
    }
    STALENESS.set(staleness);
    let _reset = Reset;
    push()
}

//! [`Updater`]: a user's function that changes the stored value of a key in a push.

use std::cell::RefCell;
use std::fmt;

use crate::tensor::Tensor;
use crate::types::{BoxError, Key};

/// A user's function that changes the stored value of a key in a push. Every
/// `Fn(&Key, &Tensor, &mut Tensor) -> Result<(), BoxError>` is an updater.
///
/// The store calls it once per key and push: after the sum, in the thread of the push, holding the
/// key's lock.
///
/// - It may pull any key of its store. The pull returns the last committed value. It waits at most
///   for a running kernel, never for an updater.
/// - Methods that change the store fail with
///   [`Error::InvalidArgument`](crate::Error::InvalidArgument).
/// - It must not wait for another thread that changes the store. That thread may wait for a
///   snapshot, which waits for this updater: a deadlock.
pub trait Updater: Send + Sync {
    /// Changes `stored`. `pushed` is the sum of the pushed values.
    ///
    /// # Errors
    /// - Any error. The push returns it as the source of [`Error::Updater`](crate::Error::Updater),
    ///   and the key keeps its old value.
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError>;
}

impl<F> Updater for F
where
    F: Fn(&Key, &Tensor, &mut Tensor) -> Result<(), BoxError> + Send + Sync,
{
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        self(key, pushed, stored)
    }
}

thread_local! {
    /// The staleness of the push that runs in this thread, for each of its keys.
    static STALENESS: RefCell<Vec<(Key, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the staleness of the push whose updater runs in this thread: how many pushes have
/// changed the key since the worker of the push pulled it last, or since its `init`. Returns `None`
/// outside of updaters, and in stores that are not on servers: their pushes are never stale.
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

impl fmt::Debug for dyn Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Updater")
    }
}

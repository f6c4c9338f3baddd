//! [`Updater`]: a user's function that changes the stored value of a key in a push.

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

impl fmt::Debug for dyn Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Updater")
    }
}

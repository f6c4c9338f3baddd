//! [`Updater`]: a function that changes the stored value of a key in a push.

use std::fmt;

use crate::tensor::Tensor;
use crate::types::{BoxError, Key};

/// What a push does to the stored value of a key.
///
/// It runs once per key and push, after the sum, in the thread of the push, under the key's lock.
/// It may pull any key of its store, which gives the last committed value and never waits; verbs
/// that change the store are refused with
/// [`Error::InvalidArgument`](crate::Error::InvalidArgument). It must not wait for another thread that changes
/// the store: that one may be behind a snapshot, which waits for the updater.
///
/// Every `Fn(&Key, &Tensor, &mut Tensor) -> Result<(), BoxError>` is one.
pub trait Updater: Send + Sync {
    /// Changes `stored`, given the sum of the pushed values.
    ///
    /// # Errors
    /// Whatever it returns reaches the caller of the push as the source of
    /// [`Error::Updater`](crate::Error::Updater); the key then keeps its old value.
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

//! [`HandleTable`] maps numbers to objects, for many threads.

use std::fmt;
use std::sync::PoisonError;

use kvstore::Error;

use super::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::handle::slots::{InsertError, Slots};

/// Objects by number. Using an outdated number, whose object was removed, is an error.
///
/// A look-up clones the `Arc`. So removing an object during a call in another thread is harmless.
pub(crate) struct HandleTable<T> {
    what: &'static str,
    slots: RwLock<Slots<Arc<T>>>,
}

impl<T> HandleTable<T> {
    /// Returns an empty table. `what` is the name of its objects in errors.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, slots: RwLock::new(Slots::new()) }
    }

    /// Inserts an object and returns its number.
    ///
    /// # Errors
    /// - [`Error::Internal`] if there are already 2^32 objects.
    /// - [`Error::OutOfMemory`] if there is not enough memory for another handle.
    pub(crate) fn insert(&self, value: T) -> Result<i64, Error> {
        let value = Arc::new(value);
        let inserted = self.write().insert(value);
        inserted.map_err(|(_value, error)| match error {
            InsertError::OutOfMemory(error) => error,
            InsertError::Full => {
                Error::Internal(format!("too many handles: cannot create another {}", self.what))
            }
        })
    }

    /// Returns the object of a number.
    ///
    /// # Errors
    /// - [`Error::Closed`] if the object was removed or the number was never returned.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>, Error> {
        let value = self.read().get(handle).cloned();
        value.ok_or_else(|| Error::Closed { what: self.what.to_owned() })
    }

    /// Removes and returns the object of a number. Returns `None` if the number is outdated.
    ///
    /// The caller drops the object, and everything that it owns, outside the table's lock.
    pub(crate) fn remove(&self, handle: i64) -> Option<Arc<T>> {
        self.write().remove(handle)
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots<Arc<T>>> {
        // Ignore poisoning: no code that runs under the lock can panic in the middle of a change.
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<Arc<T>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for HandleTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleTable")
            .field("what", &self.what)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

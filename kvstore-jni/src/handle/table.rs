//! [`HandleTable`]: objects by number, for many threads.

use std::fmt;
use std::sync::PoisonError;

use kvstore::Error;

use super::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::handle::slots::{InsertError, Slots};

/// Objects by number. A number that is out of date, because its object was removed, is an error.
///
/// A look-up clones the `Arc`, hence removing an object during a call in another thread is harmless.
pub(crate) struct HandleTable<T> {
    what: &'static str,
    slots: RwLock<Slots<Arc<T>>>,
}

impl<T> HandleTable<T> {
    /// Returns an empty table; `what` names one of its objects in errors.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, slots: RwLock::new(Slots::new()) }
    }

    /// Puts an object in and returns its number.
    ///
    /// # Errors
    /// - [`Error::Internal`] if there are 2^32 objects already.
    /// - [`Error::OutOfMemory`] if memory for another handle is missing.
    pub(crate) fn insert(&self, value: T) -> Result<i64, Error> {
        let value = Arc::new(value);
        let inserted = self.write().insert(value);
        inserted.map_err(|(_value, error)| match error {
            InsertError::OutOfMemory(error) => error,
            InsertError::Full => {
                Error::Internal(format!("no handle is left for another {}", self.what))
            }
        })
    }

    /// Returns the object of a number.
    ///
    /// # Errors
    /// [`Error::Closed`] when it was removed, or never put in.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>, Error> {
        let value = self.read().get(handle).cloned();
        value.ok_or_else(|| Error::Closed { what: self.what.to_owned() })
    }

    /// Takes the object of a number out; nothing happens when it is out of date.
    ///
    /// The caller drops the object, and with it whatever it owns, outside the table's lock.
    pub(crate) fn remove(&self, handle: i64) -> Option<Arc<T>> {
        self.write().remove(handle)
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots<Arc<T>>> {
        // No code that could panic half-way runs under the lock.
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

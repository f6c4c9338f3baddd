//! [`Descriptions`]: what a store on one server knows of its keys.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvstore_core::{Description, Key, Result, fallible};

/// The descriptions of keys, which other members can make out of date.
#[derive(Debug, Default)]
pub(super) struct Descriptions(Mutex<HashMap<Key, Description>>);

impl Descriptions {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Description>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the descriptions of keys, or `None` if one is not known.
    pub(super) fn get(&self, keys: &[Key]) -> Option<Vec<Description>> {
        let known = self.known();
        keys.iter().map(|key| known.get(key).cloned()).collect()
    }

    pub(super) fn put(&self, keys: &[Key], descriptions: &[Description]) -> Result<()> {
        let mut known = self.known();
        fallible::reserve_entries(&mut known, keys.len())?;
        known.extend(keys.iter().cloned().zip(descriptions.iter().cloned()));
        Ok(())
    }

    pub(super) fn forget(&self, keys: &[Key]) {
        let mut known = self.known();
        for key in keys {
            known.remove(key);
        }
    }
}

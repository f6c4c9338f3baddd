//! [`Hooks`]: functions that a push calls on the way.

use std::fmt;

use super::table::Entry;
use crate::rows::Value;
use crate::types::{Key, Result};

/// The two sums of squares of each block of a key's value; see [`norm`](crate::norm). A key whose
/// step needs no norms has none, also if its optimizer is layer-wise.
#[derive(Clone, Debug)]
pub struct BlockSums {
    /// The key.
    pub key: Key,
    /// The sums, in the order of the blocks.
    pub blocks: Vec<[f64; 2]>,
}

/// Replaces the block sums of parts with the block sums of the complete values; see
/// [`LocalStore::push_parts`](crate::LocalStore::push_parts).
pub type CompleteSums<'a> = dyn FnMut(&mut [BlockSums]) -> Result<()> + 'a;

/// The keys of a push, in the order of initialisation.
pub(super) trait PushedKeys {
    fn len(&self) -> usize;

    /// # Panics
    /// If there is no such key.
    fn entry(&self, index: usize) -> &Entry;
}

/// A push that is about to change the store. It holds the locks of its keys, unless the store has
/// an updater, which locks one key after the other.
pub struct StartedPush<'a> {
    keys: &'a dyn PushedKeys,
    has_updater: bool,
}

impl fmt::Debug for StartedPush<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

impl StartedPush<'_> {
    fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        (0..self.keys.len()).map(|index| self.keys.entry(index))
    }

    /// Returns whether the push calls an updater.
    pub fn has_updater(&self) -> bool {
        self.has_updater
    }

    /// Returns each key, in the order of initialisation, with the number of earlier pushes that
    /// have changed it.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = (&Key, u64)> {
        self.entries().map(|entry| (entry.key(), entry.num_pushes()))
    }

    /// Returns the values of the keys before the push, as the store keeps them. The caller must
    /// drop them before it returns, because the store changes a value in place only if no other
    /// owner shares it.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Result<Value>> {
        self.entries().map(|entry| Ok(entry.lock_value()?.clone()))
    }
}

/// Is called before a push changes the store; see
/// [`LocalStore::push_observed`](crate::LocalStore::push_observed).
pub type OnStart<'a> = dyn FnMut(&StartedPush<'_>) -> Result<()> + 'a;

/// The functions that a push calls on the way.
#[derive(Default)]
pub(super) struct Hooks<'a> {
    pub(super) start: Option<&'a mut OnStart<'a>>,
    pub(super) complete: Option<&'a mut CompleteSums<'a>>,
}

impl Hooks<'_> {
    pub(super) fn start(&mut self, keys: &dyn PushedKeys, has_updater: bool) -> Result<()> {
        match &mut self.start {
            Some(start) => start(&StartedPush { keys, has_updater }),
            None => Ok(()),
        }
    }
}

//! [`Snapshot`]: all that a store holds at one moment.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::policy::Policy;
use super::table::KeyCopy;
use super::types::KeyStats;
use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::process::ForkMutex;
use crate::rows::Value;
use crate::types::{Key, Result};

/// All that a store holds at one moment: a value, as a tensor is one. A clone is O(1).
///
/// [`KvStore::snapshot`](crate::KvStore::snapshot) takes one and
/// [`KvStore::rollback`](crate::KvStore::rollback) goes back to it.
///
/// ```
/// # use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, LocalStore, Tensor};
/// # let backends = Backends::new(vec![CpuBackend::new()]);
/// # let store = LocalStore::new("local", backends.clone()).expect("a known name");
/// # let tensor = |x: f32| Tensor::from_slice(&backends, Device::cpu(0), [1], &[x]);
/// let key = Key::new("w")?;
/// store.init(&[key.clone()], &[tensor(1.0)?.into()])?;
/// let before = store.snapshot()?;
/// store.push(&[key.clone()], &[tensor(f32::NAN)?.into()], 0)?;
/// assert_eq!(before.changed_keys(&store.snapshot()?)?, [key.clone()]);
/// store.rollback(&before)?;
/// assert_eq!(store.pull(&[key], 0)?[0].to_vec::<f32>()?, [1.0]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot(Arc<SnapshotData>);

struct SnapshotData {
    store: String,
    settings: SavedSettings,
    /// In the order of initialisation.
    copies: Vec<Arc<KeyCopy>>,
    /// That of the file, if it was read from one.
    checksum: Option<u32>,
    /// The index of each key in `copies`, made by the first search for a key.
    positions: OnceLock<HashMap<Key, usize>>,
    /// Held by the thread that makes `positions`.
    making_positions: ForkMutex<()>,
}

/// What pushes did when the snapshot was taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedSettings {
    pub(crate) policy: SavedPolicy,
    pub(crate) compression: Option<Compression>,
    pub(crate) clip_global_norm: Option<f64>,
}

/// What a push did with a sum when the snapshot was taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SavedPolicy {
    /// The policy itself.
    Known(Policy),
    /// An updater, in a snapshot from a file: files do not contain updaters.
    SomeUpdater,
}

impl Snapshot {
    pub(crate) fn new(store: &str, settings: SavedSettings, copies: Vec<Arc<KeyCopy>>) -> Self {
        Self::of_file(store, settings, copies, None)
    }

    /// Returns what a file of this checksum holds, or without one what no file does.
    pub(crate) fn of_file(
        store: &str,
        settings: SavedSettings,
        copies: Vec<Arc<KeyCopy>>,
        checksum: Option<u32>,
    ) -> Self {
        Self(Arc::new(SnapshotData {
            store: store.to_owned(),
            settings,
            copies,
            checksum,
            positions: OnceLock::new(),
            making_positions: ForkMutex::new(()),
        }))
    }

    /// Returns the checksum of the file that it was read from: another one is another snapshot.
    pub fn checksum(&self) -> Option<u32> {
        self.0.checksum
    }

    /// Returns the name that the store was created with.
    pub fn store_name(&self) -> &str {
        &self.0.store
    }

    /// Iterates over the keys in the order of initialisation.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.0.copies.iter().map(|copy| &copy.key)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.copies.len()
    }

    /// Returns whether there was no key.
    pub fn is_empty(&self) -> bool {
        self.0.copies.is_empty()
    }

    /// Returns the value of a key, in the form that the store has it in.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.copy(key).map(|copy| &copy.value)
    }

    /// Iterates over what every key held, in the order of initialisation.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = KeyStats> {
        self.0.copies.iter().map(|copy| copy.stats())
    }

    /// Returns what the optimizer kept for a key; none without an optimizer, and when it had not updated the
    /// key yet.
    pub fn optimizer_state(&self, key: &Key) -> Option<&OptimizerState> {
        self.copy(key).and_then(|copy| self.state_of(copy))
    }

    /// Returns the optimizer that ran on the store.
    pub fn optimizer(&self) -> Option<&Optimizer> {
        match &self.0.settings.policy {
            SavedPolicy::Known(Policy::Optimizer(running)) => Some(&running.optimizer),
            SavedPolicy::Known(_) | SavedPolicy::SomeUpdater => None,
        }
    }

    /// Returns how pushed values were compressed.
    pub fn compression(&self) -> Option<Compression> {
        self.0.settings.compression
    }

    /// Returns the bound of the norm of a push; see [`KvStore::clip_global_norm`](crate::KvStore::clip_global_norm).
    pub fn clip_global_norm(&self) -> Option<f64> {
        self.0.settings.clip_global_norm
    }

    /// Returns the keys whose value, state or residuals have other bits there, or that only one of the two
    /// has; in the order of initialisation, those of this one first. What the snapshots share is not read.
    ///
    /// # Errors
    /// - What reading the memory of a device may give.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn changed_keys(&self, other: &Self) -> Result<Vec<Key>> {
        // A search without the map compares every key, which would be quadratic here.
        self.positions()?;
        other.positions()?;
        let mut changed = Vec::new();
        for copy in &self.0.copies {
            let same = match other.copy(&copy.key) {
                Some(theirs) => self.is_same(copy, other, theirs)?,
                None => false,
            };
            if !same {
                fallible::push(&mut changed, copy.key.clone())?;
            }
        }
        for copy in other.0.copies.iter().filter(|copy| self.copy(&copy.key).is_none()) {
            fallible::push(&mut changed, copy.key.clone())?;
        }
        Ok(changed)
    }

    /// Returns whether both hold the same bits: a store that is rolled back to the one goes on as it would with
    /// the other. Updaters are the same when they are one object; the name of the store does not count.
    ///
    /// # Errors
    /// As [`Snapshot::changed_keys`].
    pub fn is_identical(&self, other: &Self) -> Result<bool> {
        Ok(self.0.settings == other.0.settings
            && self.0.copies.iter().map(|it| &it.key).eq(other.0.copies.iter().map(|it| &it.key))
            && self.changed_keys(other)?.is_empty())
    }

    fn is_same(&self, copy: &KeyCopy, other: &Self, theirs: &KeyCopy) -> Result<bool> {
        let same_state = match (self.state_of(copy), other.state_of(theirs)) {
            (Some(ours), Some(theirs)) => ours.is_identical(theirs)?,
            (ours, theirs) => ours.is_none() && theirs.is_none(),
        };
        let (residuals, their_residuals) = (&copy.progress.residuals, &theirs.progress.residuals);
        if !same_state || residuals.len() != their_residuals.len() {
            return Ok(false);
        }
        let mut pairs = residuals.iter().zip(their_residuals);
        Ok(copy.value.is_identical(&theirs.value)?
            && pairs
                .try_fold(true, |same, (ours, theirs)| Ok(same && ours.is_identical(theirs)?))?)
    }

    pub(crate) fn settings(&self) -> &SavedSettings {
        &self.0.settings
    }

    pub(crate) fn policy(&self) -> &SavedPolicy {
        &self.0.settings.policy
    }

    pub(crate) fn copies(&self) -> &[Arc<KeyCopy>] {
        &self.0.copies
    }

    /// Returns the state of a key if it is the running optimizer's.
    pub(crate) fn state_of<'a>(&self, copy: &'a KeyCopy) -> Option<&'a OptimizerState> {
        match &self.0.settings.policy {
            SavedPolicy::Known(Policy::Optimizer(running)) if running.run == copy.progress.run => {
                Some(&copy.progress.state)
            }
            _ => None,
        }
    }

    pub(crate) fn copy(&self, key: &Key) -> Option<&KeyCopy> {
        let SnapshotData { copies, .. } = &*self.0;
        match self.positions() {
            Ok(Some(positions)) => copies.get(*positions.get(key)?).map(|copy| &**copy),
            Ok(None) | Err(_) => copies.iter().find(|copy| copy.key == *key).map(|copy| &**copy),
        }
    }

    /// Returns the index of each key in `copies`. Returns `None` in a forked child, if another
    /// thread made the map at the fork.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn positions(&self) -> Result<Option<&HashMap<Key, usize>>> {
        let SnapshotData { copies, positions, .. } = &*self.0;
        if let Some(positions) = positions.get() {
            return Ok(Some(positions));
        }
        // In a forked child, a thread that does not exist there may hold the lock.
        let Ok(_turn) = self.0.making_positions.lock() else { return Ok(None) };
        if let Some(positions) = positions.get() {
            return Ok(Some(positions));
        }
        let mut made = fallible::hash_map(copies.len())?;
        made.extend(copies.iter().map(|copy| copy.key.clone()).zip(0..));
        Ok(Some(positions.get_or_init(|| made)))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("store", &self.0.store)
            .field("num_keys", &self.len())
            .field("rule", &self.0.settings.policy)
            .field("compression", &self.0.settings.compression)
            .field("clip_global_norm", &self.0.settings.clip_global_norm)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, unix, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::process::tests::{in_child, while_held};
    use crate::store::KvStore;
    use crate::store::local::LocalStore;
    use crate::tensor::Tensor;
    use crate::types::Device;

    use super::*;

    #[test]
    fn a_child_finds_keys_while_a_thread_of_its_parent_makes_the_map() {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let keys = ["a", "b"].map(|key| Key::new(key).unwrap());
        let value = |x: f32| Tensor::from_slice(&backends, Device::cpu(0), [1], &[x]).unwrap();
        let store = LocalStore::new("local", backends.clone()).unwrap();
        store.init(&keys, &[value(1.0).into(), value(2.0).into()]).unwrap();
        let snapshot = store.snapshot().unwrap();
        let check = || {
            let found = snapshot.copy(&keys[1]).unwrap();
            assert_eq!(found.value.to_dense().unwrap().to_vec::<f32>().unwrap(), [2.0]);
            assert!(snapshot.copy(&Key::new("c").unwrap()).is_none());
        };
        while_held(|| snapshot.0.making_positions.lock().unwrap(), || in_child(check));
        check();
        in_child(check);
    }
}

//! [`Snapshot`]: the complete contents of a store at one moment.

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

/// The complete contents of a store at one moment. A snapshot never changes, and a clone is O(1).
///
/// [`KvStore::snapshot`](crate::KvStore::snapshot) takes a snapshot, and
/// [`KvStore::rollback`](crate::KvStore::rollback) restores it.
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
    /// The keys in the order of initialisation.
    copies: Vec<Arc<KeyCopy>>,
    /// The checksum of the file, if the snapshot was read from a file.
    checksum: Option<u32>,
    /// The index of each key in `copies`. The first search for a key builds the map.
    positions: OnceLock<HashMap<Key, usize>>,
    /// The lock of the thread that builds `positions`.
    making_positions: ForkMutex<()>,
}

/// The settings of the store when the snapshot was taken.
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

    /// Returns the contents of a file with this checksum. `None` is for contents that are in no
    /// file.
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

    /// Returns the checksum of the file that the snapshot was read from, or `None` if it was not
    /// read from a file. Different checksums mean different snapshots.
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

    /// Returns whether the snapshot has no keys.
    pub fn is_empty(&self) -> bool {
        self.0.copies.is_empty()
    }

    /// Returns the value of a key, dense or row-sparse as in the store. Returns `None` if there is
    /// no such key.
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.copy(key).map(|copy| &copy.value)
    }

    /// Iterates over the statistics of the keys, in the order of initialisation.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = KeyStats> {
        self.0.copies.iter().map(|copy| copy.stats())
    }

    /// Returns the optimizer state of a key. Returns `None` without an optimizer, or if the
    /// optimizer has not updated the key.
    pub fn optimizer_state(&self, key: &Key) -> Option<&OptimizerState> {
        self.copy(key).and_then(|copy| self.state_of(copy))
    }

    /// Returns the optimizer of the store, or `None` if none was set.
    pub fn optimizer(&self) -> Option<&Optimizer> {
        match &self.0.settings.policy {
            SavedPolicy::Known(Policy::Optimizer(running)) => Some(&running.optimizer),
            SavedPolicy::Known(_) | SavedPolicy::SomeUpdater => None,
        }
    }

    /// Returns how pushed values were compressed, or `None` if compression was off.
    pub fn compression(&self) -> Option<Compression> {
        self.0.settings.compression
    }

    /// Returns the bound of the global norm, or `None` if clipping was off. See
    /// [`KvStore::clip_global_norm`](crate::KvStore::clip_global_norm).
    pub fn clip_global_norm(&self) -> Option<f64> {
        self.0.settings.clip_global_norm
    }

    /// Returns the keys that only one of the snapshots has, or whose value, state or residuals
    /// differ in at least one bit. They are in the order of initialisation: first the keys of
    /// `self`, then the keys that only `other` has.
    ///
    /// The call does not read memory that the snapshots share.
    ///
    /// # Errors
    /// - The error of a device whose memory cannot be read.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn changed_keys(&self, other: &Self) -> Result<Vec<Key>> {
        // Without the map, each search would compare every key, and this loop would be quadratic.
        self.positions()?;
        other.positions()?;
        let mut changed = Vec::new();
        for copy in &self.0.copies {
            let same = match other.copy(&copy.key) {
                Some(other_copy) => self.is_same(copy, other, other_copy)?,
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

    /// Returns whether both snapshots have the same bits, so that a store continues alike after a
    /// rollback to either.
    ///
    /// Updaters are equal if they are the same object. The names of the stores are not compared.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::changed_keys`].
    pub fn is_identical(&self, other: &Self) -> Result<bool> {
        Ok(self.0.settings == other.0.settings
            && self.keys().eq(other.keys())
            && self.changed_keys(other)?.is_empty())
    }

    fn is_same(&self, copy: &KeyCopy, other: &Self, other_copy: &KeyCopy) -> Result<bool> {
        let same_state = match (self.state_of(copy), other.state_of(other_copy)) {
            (Some(left), Some(right)) => left.is_identical(right)?,
            (left, right) => left.is_none() && right.is_none(),
        };
        let (left, right) = (&copy.progress.residuals, &other_copy.progress.residuals);
        if !same_state || left.len() != right.len() {
            return Ok(false);
        }
        let mut pairs = left.iter().zip(right);
        Ok(copy.value.is_identical(&other_copy.value)?
            && pairs.try_fold(true, |same, (left, right)| Ok(same && left.is_identical(right)?))?)
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

    /// Returns the optimizer state of a key, or `None` if it belongs to an optimizer set before.
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
    /// thread was building the map at the fork.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    fn positions(&self) -> Result<Option<&HashMap<Key, usize>>> {
        let SnapshotData { copies, positions, .. } = &*self.0;
        if let Some(positions) = positions.get() {
            return Ok(Some(positions));
        }
        // This fails in a forked child, if a thread that does not exist there holds the lock.
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
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
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
    fn a_child_finds_keys_if_its_parent_was_building_the_map() {
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

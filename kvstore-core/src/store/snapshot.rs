//! [`Snapshot`]: the complete contents of a store at one moment.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::slice;
use std::sync::{Arc, OnceLock};

use super::policy::Policy;
use super::snapshot_file::{FileSlot, SnapshotFile};
use super::table::KeyCopy;
use super::types::KeyStats;
use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::process::ForkMutex;
use crate::rows::Value;
use crate::tensor::Tensor;
use crate::types::{Key, Result};

/// The complete contents of a store at one moment. A snapshot never changes, and a clone is O(1).
///
/// The values of a snapshot may be elsewhere, for example on servers: see [`SnapshotSource`]. Then
/// each call that returns or compares values reads them there, and keeps nothing.
/// [`Snapshot::load`] reads all of them.
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
pub struct Snapshot {
    contents: Contents,
    /// The file that has the same contents. Clones share it.
    file: Arc<FileSlot>,
}

#[derive(Clone)]
enum Contents {
    Held(Arc<HeldSnapshot>),
    Remote(Arc<RemoteSnapshot>),
}

/// A snapshot whose values are in the memory of this process.
pub(crate) struct HeldSnapshot {
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

/// The values of a snapshot that are not in the memory of this process, for example because servers
/// keep them. Dropping the last clone of the snapshot drops its source.
pub trait SnapshotSource: Any + Debug + Send + Sync {
    /// Returns the snapshot of only these keys, in this order, with its values in the memory of
    /// this process. The snapshot has all the keys.
    ///
    /// # Errors
    /// - The errors of reading, for example [`Transport`](crate::Error::Transport) if the snapshot
    ///   does not exist any more.
    fn read(&self, keys: &[Key]) -> Result<Snapshot>;
}

/// A snapshot whose values are elsewhere.
struct RemoteSnapshot {
    /// The name and settings of the store.
    outline: Arc<HeldSnapshot>,
    /// The keys in the order of initialisation.
    stats: Vec<KeyStats>,
    keys: HashSet<Key>,
    source: Arc<dyn SnapshotSource>,
}

impl RemoteSnapshot {
    fn new(
        outline: Arc<HeldSnapshot>,
        stats: Vec<KeyStats>,
        source: Arc<dyn SnapshotSource>,
    ) -> Result<Self> {
        let mut keys = fallible::hash_set(stats.len())?;
        keys.extend(stats.iter().map(|stats| stats.key.clone()));
        Ok(Self { outline, stats, keys, source })
    }

    fn outline(&self) -> &HeldSnapshot {
        &self.outline
    }

    fn stats(&self) -> &[KeyStats] {
        &self.stats
    }

    fn source(&self) -> &dyn SnapshotSource {
        &*self.source
    }

    fn contains(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    fn read(&self, keys: &[Key]) -> Result<Snapshot> {
        self.source.read(keys)
    }
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
        Contents::Held(Arc::new(HeldSnapshot {
            store: store.to_owned(),
            settings,
            copies,
            checksum,
            positions: OnceLock::new(),
            making_positions: ForkMutex::new(()),
        }))
        .into()
    }

    /// Returns a snapshot whose values are elsewhere. `outline` has the name of the store and its
    /// settings, and `stats` the statistics of each key in the order of initialisation.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn remote(
        outline: &Self,
        stats: Vec<KeyStats>,
        source: Arc<dyn SnapshotSource>,
    ) -> Result<Self> {
        let outline = outline.held()?;
        Ok(Contents::Remote(Arc::new(RemoteSnapshot::new(outline, stats, source)?)).into())
    }

    /// Returns where the values are, or `None` if they are in the memory of this process.
    pub fn source(&self) -> Option<&dyn SnapshotSource> {
        match &self.contents {
            Contents::Held(_) => None,
            Contents::Remote(remote) => Some(remote.source()),
        }
    }

    /// Returns this snapshot with all values in the memory of this process.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`], if the values are elsewhere.
    pub fn load(&self) -> Result<Self> {
        Ok(Self { contents: Contents::Held(self.held()?), file: Arc::clone(&self.file) })
    }

    pub(crate) fn held(&self) -> Result<Arc<HeldSnapshot>> {
        match &self.contents {
            Contents::Held(held) => Ok(Arc::clone(held)),
            Contents::Remote(remote) => {
                remote.read(&fallible::collect(self.keys().cloned())?)?.held()
            }
        }
    }

    /// Returns the part of the snapshot that is always in the memory of this process.
    fn outline(&self) -> &HeldSnapshot {
        match &self.contents {
            Contents::Held(held) => held,
            Contents::Remote(remote) => remote.outline(),
        }
    }

    /// Returns the checksum of the file that the snapshot was read from, or `None` if it was not
    /// read from a file. Different checksums mean different snapshots.
    pub fn checksum(&self) -> Option<u32> {
        match &self.contents {
            Contents::Held(held) => held.checksum,
            Contents::Remote(_) => None,
        }
    }

    /// Returns this snapshot with the checksum of a file, for a process that receives the contents
    /// of the file from another process.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`], if the values are elsewhere.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn with_checksum(&self, checksum: u32) -> Result<Self> {
        let held = self.held()?;
        let (settings, copies) = (held.settings.clone(), fallible::copied(&held.copies)?);
        Ok(Self::of_file(&held.store, settings, copies, Some(checksum)))
    }

    /// Returns the file that the snapshot was last written to or read from, if the file can be the
    /// base of a delta: see [`Snapshot::write_since`]. Returns `None` before the file is complete.
    pub fn file(&self) -> Option<SnapshotFile> {
        self.file.get()
    }

    pub(crate) fn file_slot(&self) -> &Arc<FileSlot> {
        &self.file
    }

    /// Returns the name that the store was created with.
    pub fn store_name(&self) -> &str {
        &self.outline().store
    }

    /// Iterates over the keys in the order of initialisation.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        Entries::of(self).map(|entry| match entry {
            Entry::Held(copy) => &copy.key,
            Entry::Remote(stats) => &stats.key,
        })
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        Entries::of(self).len()
    }

    /// Returns whether the snapshot has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the snapshot has a key.
    pub fn contains(&self, key: &Key) -> bool {
        match &self.contents {
            Contents::Held(held) => held.copy(key).is_some(),
            Contents::Remote(remote) => remote.contains(key),
        }
    }

    /// Returns the value of a key, dense or row-sparse as in the store. Returns `None` if there is
    /// no such key.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`], if the values are elsewhere.
    pub fn get(&self, key: &Key) -> Result<Option<Value>> {
        self.read_key(key, |held| Ok(held.copy(key).map(|copy| copy.value.clone())))
    }

    /// Iterates over the statistics of the keys, in the order of initialisation.
    pub fn stats(&self) -> impl ExactSizeIterator<Item = KeyStats> {
        Entries::of(self).map(|entry| match entry {
            Entry::Held(copy) => copy.stats(),
            Entry::Remote(stats) => stats.clone(),
        })
    }

    /// Returns the optimizer state of a key. Returns `None` without an optimizer, or if the
    /// optimizer has not updated the key.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`], if the values are elsewhere.
    pub fn optimizer_state(&self, key: &Key) -> Result<Option<OptimizerState>> {
        self.read_key(key, |held| Ok(held.copy(key).and_then(|copy| held.state_of(copy)).cloned()))
    }

    /// Returns the residuals of a key (what compression has not sent yet), in the order of its
    /// values.
    ///
    /// # Errors
    /// - The errors of [`SnapshotSource::read`], if the values are elsewhere.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn residuals(&self, key: &Key) -> Result<Vec<Tensor>> {
        self.read_key(key, |held| {
            fallible::copied(held.copy(key).map_or(&[][..], |copy| &copy.progress.residuals))
        })
    }

    /// Calls `read` with a snapshot that has the key, if this one has it.
    fn read_key<T>(&self, key: &Key, read: impl FnOnce(&HeldSnapshot) -> Result<T>) -> Result<T> {
        match &self.contents {
            Contents::Remote(remote) if remote.contains(key) => {
                read(&*remote.read(slice::from_ref(key))?.held()?)
            }
            _ => read(self.outline()),
        }
    }

    /// Returns the optimizer of the store, or `None` if none was set.
    pub fn optimizer(&self) -> Option<&Optimizer> {
        self.outline().optimizer()
    }

    /// Returns whether the store had an updater.
    pub fn has_updater(&self) -> bool {
        matches!(self.policy(), SavedPolicy::SomeUpdater | SavedPolicy::Known(Policy::Updater(_)))
    }

    /// Returns how pushed values were compressed, or `None` if compression was off.
    pub fn compression(&self) -> Option<Compression> {
        self.settings().compression
    }

    /// Returns the bound of the global norm, or `None` if clipping was off. See
    /// [`KvStore::clip_global_norm`](crate::KvStore::clip_global_norm).
    pub fn clip_global_norm(&self) -> Option<f64> {
        self.settings().clip_global_norm
    }

    /// Returns the keys that only one of the snapshots has, or whose value, state or residuals
    /// differ in at least one bit. They are in the order of initialisation: first the keys of
    /// `self`, then the keys that only `other` has.
    ///
    /// The call does not read memory that the snapshots share. It transfers values that are
    /// elsewhere.
    ///
    /// # Errors
    /// - The error of a device whose memory cannot be read.
    /// - The errors of [`SnapshotSource::read`], if values are elsewhere.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub fn changed_keys(&self, other: &Self) -> Result<Vec<Key>> {
        let (own, other) = (self.held()?, other.held()?);
        // Without the map, each search would compare every key, and this loop would be quadratic.
        own.positions()?;
        other.positions()?;
        let mut changed = Vec::new();
        for copy in &own.copies {
            let same = match other.copy(&copy.key) {
                Some(other_copy) => own.is_same(copy, &other, other_copy)?,
                None => false,
            };
            if !same {
                fallible::push(&mut changed, copy.key.clone())?;
            }
        }
        for copy in other.copies.iter().filter(|copy| own.copy(&copy.key).is_none()) {
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
        Ok(self.settings() == other.settings()
            && self.keys().eq(other.keys())
            && self.changed_keys(other)?.is_empty())
    }

    pub(crate) fn settings(&self) -> &SavedSettings {
        &self.outline().settings
    }

    pub(crate) fn policy(&self) -> &SavedPolicy {
        &self.settings().policy
    }
}

impl From<Contents> for Snapshot {
    fn from(contents: Contents) -> Self {
        Self { contents, file: Arc::default() }
    }
}

impl HeldSnapshot {
    pub(crate) fn copies(&self) -> &[Arc<KeyCopy>] {
        &self.copies
    }

    pub(crate) fn optimizer(&self) -> Option<&Optimizer> {
        match &self.settings.policy {
            SavedPolicy::Known(Policy::Optimizer(running)) => Some(&running.optimizer),
            SavedPolicy::Known(_) | SavedPolicy::SomeUpdater => None,
        }
    }

    /// Returns the optimizer state of a key, or `None` if it belongs to an optimizer set before.
    pub(crate) fn state_of<'a>(&self, copy: &'a KeyCopy) -> Option<&'a OptimizerState> {
        match &self.settings.policy {
            SavedPolicy::Known(Policy::Optimizer(running)) if running.run == copy.progress.run => {
                Some(&copy.progress.state)
            }
            _ => None,
        }
    }

    pub(crate) fn copy(&self, key: &Key) -> Option<&KeyCopy> {
        self.shared_copy(key).map(|copy| &**copy)
    }

    pub(crate) fn shared_copy(&self, key: &Key) -> Option<&Arc<KeyCopy>> {
        match self.positions() {
            Ok(Some(positions)) => self.copies.get(*positions.get(key)?),
            Ok(None) | Err(_) => self.copies.iter().find(|copy| copy.key == *key),
        }
    }

    /// Returns the index of each key in `copies`. Returns `None` in a forked child, if another
    /// thread was building the map at the fork.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    fn positions(&self) -> Result<Option<&HashMap<Key, usize>>> {
        let Self { copies, positions, .. } = self;
        if let Some(positions) = positions.get() {
            return Ok(Some(positions));
        }
        // This fails in a forked child, if a thread that does not exist there holds the lock.
        let Ok(_turn) = self.making_positions.lock() else { return Ok(None) };
        if let Some(positions) = positions.get() {
            return Ok(Some(positions));
        }
        let mut made = fallible::hash_map(copies.len())?;
        made.extend(copies.iter().map(|copy| copy.key.clone()).zip(0..));
        Ok(Some(positions.get_or_init(|| made)))
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
}

/// What is known of a key without reading its value.
enum Entry<'a> {
    Held(&'a KeyCopy),
    Remote(&'a KeyStats),
}

/// Iterates over the keys of a snapshot.
enum Entries<'a> {
    Held(slice::Iter<'a, Arc<KeyCopy>>),
    Remote(slice::Iter<'a, KeyStats>),
}

impl<'a> Entries<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        match &snapshot.contents {
            Contents::Held(held) => Self::Held(held.copies.iter()),
            Contents::Remote(remote) => Self::Remote(remote.stats().iter()),
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        match self {
            Self::Held(copies) => copies.next().map(|copy| Entry::Held(copy)),
            Self::Remote(stats) => stats.next().map(Entry::Remote),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Held(copies) => copies.size_hint(),
            Self::Remote(stats) => stats.size_hint(),
        }
    }
}

impl ExactSizeIterator for Entries<'_> {}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("store", &self.store_name())
            .field("num_keys", &self.len())
            .field("rule", self.policy())
            .field("compression", &self.compression())
            .field("clip_global_norm", &self.clip_global_norm())
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
        let held = snapshot.held().unwrap();
        let check = || {
            let found = held.copy(&keys[1]).unwrap();
            assert_eq!(found.value.to_dense().unwrap().to_vec::<f32>().unwrap(), [2.0]);
            assert!(held.copy(&Key::new("c").unwrap()).is_none());
        };
        while_held(|| held.making_positions.lock().unwrap(), || in_child(check));
        check();
        in_child(check);
    }
}

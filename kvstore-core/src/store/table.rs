//! The table of a store: maps each key to its value and optimizer state, and locks them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::vec::IntoIter;

use foldhash::fast::RandomState;

use super::policy::{ActiveOptimizer, RunId};
use super::types::{KeyStats, OnExisting};
use crate::fallible;
use crate::optimizer::OptimizerState;
use crate::rows::Value;
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result, TensorSpec};

type Entries = HashMap<Key, Arc<Entry>, RandomState>;

/// The keys of a store.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: RwLock<Entries>,
    next_order: AtomicU64,
}

/// The contents of a key, and the lock for updating it.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Key,
    order: u64,
    spec: TensorSpec,
    progress: Mutex<Progress>,
    committed: Mutex<Value>,
    /// Not under a lock, so that reading statistics does not wait for an update.
    num_pushes: AtomicU64,
    state_bytes: AtomicUsize,
}

/// The contents of a key at one moment.
#[derive(Debug)]
pub(crate) struct KeyCopy {
    pub(crate) key: Key,
    pub(crate) value: Value,
    pub(crate) progress: Progress,
    pub(crate) num_pushes: u64,
}

impl KeyCopy {
    /// Returns a copy with other `progress`.
    pub(crate) fn with_progress(&self, progress: Progress) -> Arc<Self> {
        let (key, value) = (self.key.clone(), self.value.clone());
        Arc::new(Self { key, value, progress, num_pushes: self.num_pushes })
    }

    pub(crate) fn stats(&self) -> KeyStats {
        KeyStats {
            key: self.key.clone(),
            spec: self.value.spec().clone(),
            device: self.value.memory().device(),
            value_bytes: self.value.num_bytes(),
            num_pushes: self.num_pushes,
            state_bytes: self.progress.num_bytes(),
        }
    }
}

/// What updates keep for a key, beside its value.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The optimizer that the state belongs to.
    pub(crate) run: RunId,
    /// The optimizer's state for the key.
    pub(crate) state: OptimizerState,
    /// What compression has not sent yet, in the order of the key's values.
    pub(crate) residuals: Vec<Tensor>,
}

impl Progress {
    /// Returns a copy that shares the tensors.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    fn copy(&self) -> Result<Self> {
        let residuals = fallible::copied(&self.residuals)?;
        Ok(Self { run: self.run, state: self.state.clone(), residuals })
    }

    fn num_bytes(&self) -> usize {
        self.state.num_bytes() + self.residuals.iter().map(Tensor::num_bytes).sum::<usize>()
    }
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Adds all keys, or none.
    ///
    /// # Errors
    /// - [`Error::KeyExists`] if a key is in the list twice.
    /// - [`Error::KeyExists`] if a key is in the table and `existing` is [`OnExisting::Reject`].
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(crate) fn insert(
        &self,
        keys: &[Key],
        values: Vec<Value>,
        existing: OnExisting,
    ) -> Result<()> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut seen = fallible::hash_set(keys.len())?;
        let mut num_new = 0;
        for key in keys {
            let is_known = entries.contains_key(key);
            if !seen.insert(key) || (is_known && existing == OnExisting::Reject) {
                return Err(Error::KeyExists { key: key.clone() });
            }
            num_new += usize::from(!is_known);
        }
        fallible::reserve_entries(&mut entries, num_new)?;
        for (key, value) in keys.iter().zip(values) {
            let known = entries.get_mut(key);
            if known.is_some() && existing == OnExisting::Keep {
                continue;
            }
            let order = self.next_order.fetch_add(1, Ordering::Relaxed);
            let entry = Arc::new(Entry::new(key.clone(), order, value));
            match known {
                Some(known) => *known = entry,
                // `reserve_entries` reserved memory for the new keys only, so known keys must not
                // use `insert`.
                None => drop(entries.insert(key.clone(), entry)),
            }
        }
        Ok(())
    }

    /// Removes all keys, or none.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not in the table. The error names the first one.
    pub(crate) fn remove(&self, keys: &[Key]) -> Result<()> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if !entries.contains_key(key) {
                return Err(Error::KeyNotFound { key: key.clone() });
            }
        }
        for key in keys {
            entries.remove(key);
        }
        Ok(())
    }

    /// Calls `found` with the position and the entry of each key in the list.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not in the table. The error names the first one.
    /// - The first error of `found`.
    pub(crate) fn look_up(
        &self,
        keys: &[Key],
        mut found: impl FnMut(usize, &Arc<Entry>) -> Result<()>,
    ) -> Result<()> {
        let entries = self.read();
        let mut last: Option<(&Key, &Arc<Entry>)> = None;
        for (position, key) in keys.iter().enumerate() {
            let entry = match last {
                Some((last, entry)) if last == key => entry,
                _ => entries.get(key).ok_or_else(|| Error::KeyNotFound { key: key.clone() })?,
            };
            last = Some((key, entry));
            found(position, entry)?;
        }
        Ok(())
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.read().contains_key(key)
    }

    /// Returns every key in the order of initialisation.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory for the list.
    pub(crate) fn keys(&self) -> Result<Vec<Key>> {
        fallible::collect(in_order(self.all()?).map(|entry| entry.key.clone()))
    }

    /// Returns the statistics of every key, in the order of initialisation.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory for the list.
    pub(crate) fn stats(&self) -> Result<Vec<KeyStats>> {
        fallible::collect(in_order(self.all()?).map(|entry| entry.stats()))
    }

    /// Returns the contents of every key, in the order of initialisation. The caller must prevent
    /// changes during the call.
    ///
    /// # Errors
    /// - [`Error::Poisoned`] if an earlier update of a key panicked.
    /// - [`Error::OutOfMemory`] if there is not enough memory.
    pub(crate) fn copies(&self) -> Result<Vec<Arc<KeyCopy>>> {
        fallible::try_collect(in_order(self.all()?).map(|entry| entry.copy().map(Arc::new)))
    }

    /// Replaces all keys and their contents with `copies`.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if there is not enough memory. The table is then unchanged.
    pub(crate) fn replace(&self, copies: &[Arc<KeyCopy>]) -> Result<()> {
        let first = self.next_order.fetch_add(copies.len() as u64, Ordering::Relaxed);
        let mut entries: Entries = fallible::hash_map(copies.len())?;
        for (copy, order) in copies.iter().zip(first..) {
            entries.insert(copy.key.clone(), Arc::new(Entry::restored(order, copy)?));
        }
        std::mem::swap(
            &mut entries,
            &mut *self.entries.write().unwrap_or_else(PoisonError::into_inner),
        );
        // The old entries are dropped here, after the lock is released, so that no reader waits for
        // it.
        Ok(())
    }

    /// Sets the states of some keys, all or none. The caller must prevent changes
    /// during the call.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not in the table.
    /// - [`Error::Poisoned`] if an earlier update of a key panicked.
    /// - The errors of [`OptimizerState::check`].
    pub(crate) fn set_states(
        &self,
        states: BTreeMap<Key, OptimizerState>,
        running: &ActiveOptimizer,
    ) -> Result<()> {
        let keys: Vec<Key> = fallible::collect(states.keys().cloned())?;
        let mut entries = fallible::with_capacity(keys.len())?;
        self.look_up(&keys, |_, entry| {
            entry.check()?;
            if let Some(state) = states.get(entry.key()) {
                state.check(running.optimizer.name(), entry.key(), entry.spec())?;
            }
            entries.push(Arc::clone(entry));
            Ok(())
        })?;
        // Nothing fails from here on, because every key has been checked.
        for (entry, state) in entries.iter().zip(states.into_values()) {
            let mut progress = entry.lock()?;
            progress.state = state;
            progress.run = running.run;
            entry.note_bytes(&progress);
        }
        Ok(())
    }

    /// Returns every entry. Releases the map's lock before it returns: statistics wait for kernels,
    /// and a writer of the map must not wait for those, too.
    fn all(&self) -> Result<Vec<Arc<Entry>>> {
        fallible::collect(self.read().values().cloned())
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sorts entries by the order of initialisation.
fn in_order(mut entries: Vec<Arc<Entry>>) -> IntoIter<Arc<Entry>> {
    entries.sort_unstable_by_key(|entry| entry.order);
    entries.into_iter()
}

impl Entry {
    fn new(key: Key, order: u64, value: Value) -> Self {
        Self {
            key,
            order,
            spec: value.spec().clone(),
            progress: Mutex::default(),
            committed: Mutex::new(value),
            num_pushes: AtomicU64::new(0),
            state_bytes: AtomicUsize::new(0),
        }
    }

    fn restored(order: u64, copy: &KeyCopy) -> Result<Self> {
        let entry = Self::new(copy.key.clone(), order, copy.value.clone());
        entry.note_bytes(&copy.progress);
        Ok(Self {
            progress: Mutex::new(copy.progress.copy()?),
            num_pushes: AtomicU64::new(copy.num_pushes),
            ..entry
        })
    }

    fn copy(&self) -> Result<KeyCopy> {
        let progress = self.lock()?;
        Ok(KeyCopy {
            key: self.key.clone(),
            value: self.lock_value()?.clone(),
            progress: progress.copy()?,
            num_pushes: self.num_pushes.load(Ordering::Relaxed),
        })
    }

    /// Counts a push that has changed the key.
    pub(crate) fn count_push(&self) {
        // A load and a store suffice: the caller holds the key's lock, so no other thread counts.
        let count = self.num_pushes.load(Ordering::Relaxed);
        self.num_pushes.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// Updates the size of the key's state after a change.
    pub(crate) fn note_bytes(&self, progress: &Progress) {
        self.state_bytes.store(progress.num_bytes(), Ordering::Relaxed);
    }

    fn stats(&self) -> KeyStats {
        let value = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        let (device, value_bytes) = (value.memory().device(), value.num_bytes());
        drop(value);
        KeyStats {
            key: self.key.clone(),
            spec: self.spec.clone(),
            device,
            value_bytes,
            num_pushes: self.num_pushes.load(Ordering::Relaxed),
            state_bytes: self.state_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the key's position in the order of initialisation. Keys are processed and locks are
    /// taken in this order.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Returns the number of pushes that have changed the key. It stays while the caller holds the
    /// key's lock.
    pub(crate) fn num_pushes(&self) -> u64 {
        self.num_pushes.load(Ordering::Relaxed)
    }

    /// Locks the key for an update. Only the holder of the lock may update the key.
    ///
    /// # Errors
    /// - [`Error::Poisoned`] if an earlier holder panicked.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Progress>> {
        self.progress.lock().map_err(|_| self.poisoned())
    }

    /// Locks the stored value. Readers wait for the lock. It is held while a kernel runs, but never
    /// while user code runs.
    ///
    /// # Errors
    /// - [`Error::Poisoned`] if an earlier holder panicked.
    pub(crate) fn lock_value(&self) -> Result<MutexGuard<'_, Value>> {
        self.committed.lock().map_err(|_| self.poisoned())
    }

    /// Returns the last committed value, without taking the key's lock. A row-sparse value is
    /// converted to a new dense tensor on each call.
    ///
    /// # Errors
    /// - [`Error::Poisoned`] if an earlier update panicked.
    /// - [`Error::OutOfMemory`] if there is not enough memory for the dense tensor.
    pub(crate) fn committed(&self) -> Result<Tensor> {
        self.check()?;
        let value = self.lock_value()?;
        let rows = match &*value {
            Value::Dense(tensor) => return Ok(tensor.clone()),
            Value::Rows(rows) => rows.clone(),
        };
        drop(value);
        rows.to_dense()
    }

    /// Checks that no update has panicked.
    ///
    /// # Errors
    /// - [`Error::Poisoned`] if an earlier update panicked.
    pub(crate) fn check(&self) -> Result<()> {
        if self.progress.is_poisoned() { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Replaces the stored value with `value`.
    pub(crate) fn commit(&self, value: Tensor) -> Result<()> {
        *self.lock_value()? = value.into();
        Ok(())
    }

    fn poisoned(&self) -> Error {
        Error::Poisoned { key: self.key.clone() }
    }
}

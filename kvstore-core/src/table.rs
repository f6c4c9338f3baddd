//! The table of a store: key to stored tensor and optimizer state, with guarded access.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::optimizer::OptimizerState;
use crate::shape::TensorSpec;
use crate::store::{Existing, KeyStats};
use crate::tensor::Tensor;

/// Every key of a store.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: RwLock<HashMap<Key, Arc<Entry>>>,
    next_order: AtomicU64,
}

/// One key: what it holds, and the lock under which it is updated.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Key,
    order: u64,
    spec: TensorSpec,
    progress: Mutex<Progress>,
    committed: Mutex<Tensor>,
    /// Beside the locks, so that looking at them waits for nobody.
    num_pushes: AtomicU64,
    state_bytes: AtomicUsize,
}

/// What the updates of a key have left behind.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Which of the store's optimizers the state belongs to.
    pub(crate) optimizer: u64,
    /// What that optimizer keeps for the key.
    pub(crate) state: OptimizerState,
    /// What compressed values have not sent yet, by their position in the list.
    pub(crate) residuals: Vec<Tensor>,
}

impl Progress {
    fn num_bytes(&self) -> usize {
        self.state.num_bytes() + self.residuals.iter().map(Tensor::num_bytes).sum::<usize>()
    }
}

impl Table {
    /// Adds all keys, or none.
    ///
    /// # Errors
    /// [`Error::KeyExists`] when one stands twice in the list, or is there already and that is an
    /// error.
    pub(crate) fn insert(
        &self,
        keys: &[Key],
        values: Vec<Tensor>,
        existing: Existing,
    ) -> Result<()> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut seen = HashSet::with_capacity(keys.len());
        for key in keys {
            let is_refused = existing == Existing::Error && entries.contains_key(key);
            if !seen.insert(key) || is_refused {
                return Err(Error::KeyExists { key: key.clone() });
            }
        }
        for (key, value) in keys.iter().zip(values) {
            if existing == Existing::Keep && entries.contains_key(key) {
                continue;
            }
            let order = self.next_order.fetch_add(1, Ordering::Relaxed);
            entries.insert(key.clone(), Arc::new(Entry::new(key.clone(), order, value)));
        }
        Ok(())
    }

    /// Removes all keys, or none.
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

    /// Calls `found` with the position and the entry of every key of the list.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`] naming the first key that is not there; or the first error of `found`.
    pub(crate) fn look_up(
        &self,
        keys: &[Key],
        mut found: impl FnMut(usize, &Arc<Entry>) -> Result<()>,
    ) -> Result<()> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
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
        self.entries.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// Returns every key in the order of initialisation.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.ordered().into_iter().map(|entry| entry.key.clone()).collect()
    }

    /// Returns what every key holds, in the order of initialisation.
    pub(crate) fn stats(&self) -> Vec<KeyStats> {
        self.ordered().into_iter().map(|entry| entry.stats()).collect()
    }

    fn ordered(&self) -> Vec<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut ordered: Vec<_> = entries.values().cloned().collect();
        ordered.sort_unstable_by_key(|entry| entry.order);
        ordered
    }
}

impl Entry {
    fn new(key: Key, order: u64, value: Tensor) -> Self {
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

    /// Counts a push that has changed the key, and notes what its progress has grown to.
    pub(crate) fn count_push(&self, progress: &Progress) {
        self.num_pushes.fetch_add(1, Ordering::Relaxed);
        self.state_bytes.store(progress.num_bytes(), Ordering::Relaxed);
    }

    fn stats(&self) -> KeyStats {
        let device = self.committed.lock().unwrap_or_else(PoisonError::into_inner).device();
        KeyStats {
            key: self.key.clone(),
            spec: self.spec.clone(),
            device,
            num_pushes: self.num_pushes.load(Ordering::Relaxed),
            state_bytes: self.state_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the rank of the key by initialisation. Keys are processed, and locks taken, in
    /// this order.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    pub(crate) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// Takes the key's lock: whoever holds it is the only one to update the key.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when an earlier holder panicked.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Progress>> {
        self.progress.lock().map_err(|_| self.poisoned())
    }

    /// Takes the stored value for an update by an optimizer. Readers wait for the guard, which is
    /// held while a kernel runs and never while user code does.
    pub(crate) fn lock_value(&self) -> Result<MutexGuard<'_, Tensor>> {
        self.committed.lock().map_err(|_| self.poisoned())
    }

    /// Returns the last committed value, without the key's lock.
    pub(crate) fn committed(&self) -> Result<Tensor> {
        self.check()?;
        self.lock_value().map(|value| value.clone())
    }

    /// Fails when an earlier update panicked.
    pub(crate) fn check(&self) -> Result<()> {
        if self.progress.is_poisoned() { Err(self.poisoned()) } else { Ok(()) }
    }

    /// Makes `value` the stored one.
    pub(crate) fn commit(&self, value: Tensor) -> Result<()> {
        *self.lock_value()? = value;
        Ok(())
    }

    fn poisoned(&self) -> Error {
        Error::Poisoned { key: self.key.clone() }
    }
}

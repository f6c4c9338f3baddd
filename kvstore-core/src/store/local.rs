//! [`LocalStore`]: a store within one process. It has a table of keys and the settings of a push.
//!
//! A call takes its locks in this order:
//!
//! 1. The gate: shared for a change of the store, exclusive for a call during which nothing may
//!    change.
//! 2. The settings, to clone or change them.
//! 3. The table's map, to clone entries or read values.
//! 4. The keys' locks, in the order of initialisation.
//! 5. The locks of the keys' values. They are held while a kernel runs, but never while user code
//!    runs.
//!
//! A user's updater runs with the shared gate and one key's lock. It can only pull from its store,
//! and a pull takes only value locks. Two calls can therefore deadlock in one case only: an updater
//! waits for another thread that changes the store, and that thread waits for a snapshot, which
//! waits for the updater.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::home::Home;
use super::hooks::Hooks;
use super::key_push::PushedValue;
use super::norms::check_clip;
use super::policy::{ActiveOptimizer, Policy, RowUse};
use super::pull_rows::{ascending, pull_rows};
use super::push::{Push, ReplacedValues};
use super::scratch::Scratch;
use super::snapshot::{SavedPolicy, SavedSettings, Snapshot};
use super::table::{Entry, Progress, Table};
use super::types::{Description, KeyStats, OnExisting, PulledValue};
use super::updater::Updater;
use super::{KvStore, WorkerGroup};
use crate::backend::registry::Backends;
use crate::codec::Compression;
use crate::fallible;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::rows::{RowSparse, Value};
use crate::tensor::Tensor;
use crate::types::{Error, Key, Result, check_lengths};

/// A store within one process.
#[derive(Debug)]
pub struct LocalStore {
    name: String,
    identity: u64,
    backends: Backends,
    home: Home,
    table: Table,
    settings: RwLock<Settings>,
    /// Shared for a change of the store, exclusive for a call during which nothing may change.
    gate: RwLock<()>,
}

/// What a push does. Each push reads the settings once.
#[derive(Clone, Debug)]
struct Settings {
    policy: Policy,
    compression: Option<Compression>,
    clip_global_norm: Option<f64>,
}

impl LocalStore {
    /// The names that [`LocalStore::new`] accepts.
    pub const NAMES: [&'static str; 5] =
        ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"];

    /// Returns an empty store of the kind with this name, in lower case. Returns `None` if the name
    /// is unknown.
    ///
    /// `device` and `local_allreduce_device` sum on the device of a key's first value. The other
    /// kinds sum on the host.
    pub fn new(name: &str, backends: Backends) -> Option<Self> {
        static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(0);
        let home = Home::of_kind(name)?;
        Some(Self {
            name: name.to_owned(),
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            backends,
            home,
            table: Table::default(),
            settings: RwLock::new(Settings {
                policy: Policy::Assign,
                compression: None,
                clip_global_norm: None,
            }),
            gate: RwLock::default(),
        })
    }

    /// Returns the stored values as they are kept. Does not convert row-sparse values to dense
    /// ones.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    /// - [`Error::Poisoned`] if an earlier update of a key panicked.
    pub fn stored(&self, keys: &[Key]) -> Result<Vec<Value>> {
        let mut values = fallible::with_capacity(keys.len())?;
        self.table.look_up(keys, |_, entry| {
            entry.check()?;
            values.push(entry.lock_value()?.clone());
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns whether each key is stored with the shape and dtype of the value at its position.
    /// Returns `false` if a key is not initialised. Takes no lock of a key and allocates nothing,
    /// so processes with the same keys get the same answer, whatever has failed in one of them.
    pub fn has_specs(&self, keys: &[Key], values: &[Value]) -> bool {
        let mut is_same = keys.len() == values.len();
        let found = self.table.look_up(keys, |position, entry| {
            is_same &= values.get(position).is_some_and(|value| value.spec() == entry.spec());
            Ok(())
        });
        is_same && found.is_ok()
    }

    /// Returns the number of keys.
    pub fn num_keys(&self) -> usize {
        self.table.len()
    }

    /// Returns whether pushes call a user's updater, which may take any time.
    pub fn has_updater(&self) -> bool {
        self.updater().is_some()
    }

    /// Returns the updater that pushes call.
    pub fn updater(&self) -> Option<Arc<dyn Updater>> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        match &settings.policy {
            Policy::Updater(updater) => Some(Arc::clone(updater)),
            _ => None,
        }
    }

    /// Overwrites rows of the stored values with the results of pushes to another store. Counts as
    /// one push of each key.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an updater of this store makes the call.
    /// - [`Error::LengthMismatch`] if the lists differ in length.
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    /// - [`Error::SpecMismatch`] if a shape or dtype differs from the stored one.
    /// - [`Error::Poisoned`] if an earlier update of a key panicked.
    /// - [`Error::OutOfMemory`] if there is not enough memory to copy a value that is shared with a
    ///   snapshot or a pulled tensor. Earlier keys then have their new rows.
    pub fn set_rows(&self, keys: &[Key], rows: &[RowSparse]) -> Result<()> {
        let _gate = self.enter("set_rows")?;
        check_lengths("row-sparse values for keys", keys, rows)?;
        let mut entries = fallible::with_capacity(keys.len())?;
        self.table.look_up(keys, |position, entry| {
            let found = rows.get(position).map(RowSparse::spec);
            if let Some(found) = found.filter(|found| *found != entry.spec()) {
                return Err(Error::spec_mismatch(entry.key(), entry.spec(), found));
            }
            entries.push(Arc::clone(entry));
            Ok(())
        })?;
        for (entry, rows) in entries.iter().zip(rows) {
            let _progress = entry.lock()?;
            let mut value = entry.lock_value()?;
            value.make_dense()?.overwrite_rows(rows.indices(), rows.rows())?;
            entry.count_push();
        }
        Ok(())
    }

    /// Returns the sum of each key's values, without storing it. With `clip`, scales the sums so
    /// that the norm over all keys is at most `clip`.
    ///
    /// The result has each key once, in the order of the first appearance in the call. The sum is
    /// row-sparse if all values of the key are.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an updater of this store makes the call.
    /// - [`Error::InvalidArgument`] if `clip` is given and a value has an integer dtype.
    /// - [`Error::LengthMismatch`] if the lists differ in length.
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    /// - [`Error::SpecMismatch`] if a value's shape or dtype differs from the stored one.
    /// - [`Error::Poisoned`] if an earlier update of a key panicked.
    pub fn sums(&self, keys: &[Key], values: &[Value], clip: Option<f64>) -> Result<Vec<Value>> {
        let _gate = self.enter("sums")?;
        let (mut entries, mut pushed) = (Vec::new(), Vec::new());
        self.plan(keys, values, &mut entries, &mut pushed)?;
        Scratch::with(|scratch| {
            let mut replaced = ReplacedValues::default();
            let mut push =
                Push::new(&self.backends, self.home, &entries, values, &pushed, scratch)?;
            push.replace_values(&mut replaced, values, RowUse::Sum, clip, scratch)?;
            push.into_sums(scratch)
        })
    }

    pub(super) fn push_with(&self, keys: &[Key], values: &[Value], hooks: Hooks<'_>) -> Result<()> {
        let _span = tracing::debug_span!("push", values = values.len()).entered();
        // Declared before the gate, so dropped after it: see `set_policy` for the reason.
        let settings;
        let _gate = self.enter("push")?;
        settings = self.settings();
        Scratch::with(|scratch| {
            let (mut entries, mut pushed) = scratch.take_plan();
            let done = self.plan(keys, values, &mut entries, &mut pushed).and_then(|()| {
                self.push_planned(&entries, &pushed, values, &settings, hooks, scratch)
            });
            scratch.put_back_plan(entries, pushed);
            done
        })
    }

    /// Checks a push, and sorts its values by the order in which their keys were initialised.
    fn plan(
        &self,
        keys: &[Key],
        values: &[Value],
        entries: &mut Vec<Arc<Entry>>,
        pushed: &mut Vec<PushedValue>,
    ) -> Result<()> {
        check_lengths("values for keys", keys, values)?;
        fallible::reserve(entries, keys.len())?;
        fallible::reserve(pushed, keys.len())?;
        self.table.look_up(keys, |position, entry| {
            // Lists mostly repeat a key in a row, so only the last entry is compared. `Push` merges
            // the other repetitions.
            if entries.last().is_none_or(|last| !Arc::ptr_eq(last, entry)) {
                entry.check()?;
                entries.push(Arc::clone(entry));
            }
            let found = values.get(position).map(Value::spec);
            if let Some(found) = found.filter(|found| *found != entry.spec()) {
                return Err(Error::spec_mismatch(entry.key(), entry.spec(), found));
            }
            pushed.push(PushedValue { order: entry.order(), position, entry: entries.len() - 1 });
            Ok(())
        })?;
        // The position is part of the sort key, because a sum is the left fold in call order.
        pushed.sort_unstable_by_key(|pushed| (pushed.order, pushed.position));
        Ok(())
    }

    fn push_planned(
        &self,
        entries: &[Arc<Entry>],
        pushed: &[PushedValue],
        values: &[Value],
        Settings { policy, compression, clip_global_norm }: &Settings,
        mut hooks: Hooks<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (backends, compression) = (&self.backends, compression.as_ref());
        let mut replaced = ReplacedValues::default();
        let mut push = Push::new(backends, self.home, entries, values, pushed, scratch)?;
        // Checked first, so that a rejected push neither moves nor sums values.
        if let Some(compression) = compression {
            push.keys.iter().try_for_each(|key| key.check_compression(compression))?;
        }
        let row_use = policy.row_use(clip_global_norm.is_some());
        push.replace_values(&mut replaced, values, row_use, *clip_global_norm, scratch)?;
        match policy {
            Policy::Assign => push.assign(compression, &mut hooks, scratch),
            Policy::Updater(updater) => {
                let done = hooks
                    .start(&push.keys, true)
                    .and_then(|()| self.update_each(&push, &**updater, compression, scratch));
                scratch.put_back_keys(push.keys);
                done
            }
            Policy::Optimizer(running) => push.step(running, compression, hooks, scratch),
        }
    }

    /// Calls the updater for each key, up to the first error.
    fn update_each(
        &self,
        push: &Push<'_>,
        updater: &dyn Updater,
        compression: Option<&Compression>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some(compression) = compression else {
            let sums = push.sum(scratch)?;
            return push.keys.iter().zip(&sums).try_for_each(|(key, sum)| {
                self.call(updater, key.entry(), |_| Ok((sum.clone(), None)))
            });
        };
        push.keys.iter().try_for_each(|key| {
            self.call(updater, key.entry(), |progress| {
                // A copy, because the key must keep its residuals if the updater fails.
                let mut residuals = fallible::copied(&progress.residuals)?;
                let sum = key.compressed_sum(&self.backends, compression, &mut residuals)?;
                Ok((sum, Some(residuals)))
            })
        })
    }

    /// Calls the updater for one key. `sum` returns the sum of the pushed values. With compression,
    /// it also returns the new residuals, which the key keeps only if the updater succeeds.
    fn call(
        &self,
        updater: &dyn Updater,
        entry: &Entry,
        sum: impl FnOnce(&Progress) -> Result<(Tensor, Option<Vec<Tensor>>)>,
    ) -> Result<()> {
        // Fails if an earlier update of the key panicked.
        let mut progress = entry.lock()?;
        let (sum, residuals) = sum(&progress)?;
        let mut stored = entry.committed()?.to_device(&self.backends, sum.device())?;
        let result = self.inside_updater(|| updater.update(entry.key(), &sum, &mut stored));
        result.map_err(|source| Error::Updater { key: entry.key().clone(), source })?;
        if stored.spec() != entry.spec() {
            return Err(Error::spec_mismatch(entry.key(), entry.spec(), stored.spec()));
        }
        if let Some(residuals) = residuals {
            progress.residuals = residuals;
        }
        entry.commit(stored)?;
        entry.count_push();
        entry.note_bytes(&progress);
        Ok(())
    }

    fn settings(&self) -> Settings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_settings(&self) -> RwLockWriteGuard<'_, Settings> {
        self.settings.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the policy at the end of a change. Drops the old policy only after all locks are
    /// released: it may hold the last reference to a user's updater, and that updater's drop may
    /// call the store.
    fn set_policy<Gate>(&self, policy: Policy, gate: Gate) {
        let mut now = self.change_settings();
        let old = std::mem::replace(&mut now.policy, policy);
        drop(now);
        drop(gate);
        drop(old);
    }

    /// Calls a user's updater. Meanwhile, this thread cannot change the store.
    fn inside_updater<R>(&self, run: impl FnOnce() -> R) -> R {
        struct LeaveOnDrop;
        impl Drop for LeaveOnDrop {
            fn drop(&mut self) {
                UPDATING.with_borrow_mut(Vec::pop);
            }
        }
        UPDATING.with_borrow_mut(|stores| stores.push(self.identity));
        let _leave = LeaveOnDrop;
        run()
    }

    /// Checks that this thread may change the store.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this thread runs an updater of this store. The message names
    ///   `verb`.
    pub fn reject_inside_updater(&self, verb: &str) -> Result<()> {
        if UPDATING.with_borrow(|stores| stores.contains(&self.identity)) {
            return Err(Error::invalid(format!(
                "`{verb}` cannot be called from an updater of the same store"
            )));
        }
        Ok(())
    }

    /// Begins a change of the store, concurrent with other changes.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an updater of this store makes the call.
    fn enter(&self, verb: &str) -> Result<RwLockReadGuard<'_, ()>> {
        self.reject_inside_updater(verb)?;
        Ok(self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no change of the store is in progress, and prevents new ones.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an updater of this store makes the call.
    fn enter_alone(&self, verb: &str) -> Result<RwLockWriteGuard<'_, ()>> {
        self.reject_inside_updater(verb)?;
        Ok(self.gate.write().unwrap_or_else(PoisonError::into_inner))
    }
}

thread_local! {
    /// The identities of the stores whose updaters are running in this thread, innermost last.
    static UPDATING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl KvStore for LocalStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        let _span = tracing::debug_span!("init", keys = keys.len()).entered();
        let _gate = self.enter("init")?;
        check_lengths("values for keys", keys, values)?;
        let mut copies = fallible::with_capacity(values.len())?;
        for (key, value) in keys.iter().zip(values) {
            if value.spec().num_elements() == 0 {
                let text = format!("key `{key}`: {} has no elements", value.spec());
                return Err(Error::invalid(text));
            }
            let device = self.home.device(value.memory());
            copies.push(value.to_device(&self.backends, device)?.compact(device)?);
        }
        self.table.insert(keys, copies, existing)
    }

    fn push(&self, keys: &[Key], values: &[Value], _priority: i32) -> Result<()> {
        self.push_with(keys, values, Hooks::default())
    }

    fn pull_into(&self, keys: &[Key], _priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()> {
        let _span = tracing::debug_span!("pull", keys = keys.len()).entered();
        fallible::reserve(pulled, keys.len())?;
        let before = pulled.len();
        let done = self.table.look_up(keys, |position, entry| {
            let order = entry.order();
            let value = match pulled.last() {
                // The key appears again. Its last value is reused, so that both have the same bits.
                Some(last) if position > 0 && last.order == order => last.value.clone(),
                _ => entry.committed()?,
            };
            pulled.push(PulledValue { order, value });
            Ok(())
        });
        if done.is_err() {
            pulled.truncate(before);
        }
        done
    }

    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], _priority: i32) -> Result<Vec<RowSparse>> {
        let _span = tracing::debug_span!("pull_rows", keys = keys.len()).entered();
        check_lengths("lists of row indices for keys", keys, ids)?;
        let mut requested = fallible::with_capacity(keys.len())?;
        self.table.look_up(keys, |position, entry| {
            entry.check()?;
            let ids = ids.get(position).copied().unwrap_or_default();
            requested.push((Arc::clone(entry), ascending(entry, ids)?));
            Ok(())
        })?;
        pull_rows(&self.backends, &requested)
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        let mut descriptions = fallible::with_capacity(keys.len())?;
        self.table.look_up(keys, |_, entry| {
            descriptions.push(Description { order: entry.order(), spec: entry.spec().clone() });
            Ok(())
        })?;
        Ok(descriptions)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        let _gate = self.enter("remove")?;
        self.table.remove(keys)
    }

    fn keys(&self) -> Result<Vec<Key>> {
        self.table.keys()
    }

    fn stats(&self) -> Result<Vec<KeyStats>> {
        self.table.stats()
    }

    fn contains(&self, key: &Key) -> Result<bool> {
        Ok(self.table.contains(key))
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        let gate = self.enter("set_updater")?;
        self.set_policy(updater.map_or(Policy::Assign, Policy::Updater), gate);
        Ok(())
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        let gate = self.enter("set_optimizer")?;
        self.set_policy(Policy::Optimizer(ActiveOptimizer::begin(optimizer)), gate);
        Ok(())
    }

    fn optimizer(&self) -> Result<Option<Optimizer>> {
        Ok(match self.settings().policy {
            Policy::Optimizer(running) => Some(Optimizer::clone(&running.optimizer)),
            Policy::Assign | Policy::Updater(_) => None,
        })
    }

    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        let _gate = self.enter("set_hyper_parameters")?;
        let mut settings = self.change_settings();
        let Policy::Optimizer(running) = &mut settings.policy else {
            return Err(Error::invalid("cannot set hyper-parameters: the store has no optimizer"));
        };
        let mut changed = Optimizer::clone(&running.optimizer);
        changed.set_all(parameters)?;
        running.optimizer = Arc::new(changed);
        Ok(())
    }

    fn set_compression(&self, compression: Option<Compression>) -> Result<()> {
        let _gate = self.enter("set_compression")?;
        let mut settings = self.change_settings();
        check_clip(compression.as_ref(), settings.clip_global_norm)?;
        settings.compression = compression;
        Ok(())
    }

    fn compression(&self) -> Result<Option<Compression>> {
        Ok(self.settings.read().unwrap_or_else(PoisonError::into_inner).compression)
    }

    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()> {
        let _gate = self.enter("set_clip_global_norm")?;
        let mut settings = self.change_settings();
        check_clip(settings.compression.as_ref(), bound)?;
        settings.clip_global_norm = bound;
        Ok(())
    }

    fn clip_global_norm(&self) -> Result<Option<f64>> {
        Ok(self.settings.read().unwrap_or_else(PoisonError::into_inner).clip_global_norm)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let _span = tracing::debug_span!("snapshot").entered();
        let _gate = self.enter_alone("snapshot")?;
        let Settings { policy, compression, clip_global_norm } = self.settings();
        let policy = SavedPolicy::Known(policy);
        let settings = SavedSettings { policy, compression, clip_global_norm };
        Ok(Snapshot::new(&self.name, settings, self.table.copies()?))
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let _span = tracing::debug_span!("rollback").entered();
        self.reject_inside_updater("rollback")?;
        // Before the gate is closed, because the values may be elsewhere.
        let snapshot = &snapshot.load()?;
        let gate = self.enter_alone("rollback")?;
        let policy = match (snapshot.policy(), self.settings().policy) {
            (SavedPolicy::Known(policy), _) => policy.clone(),
            (SavedPolicy::SomeUpdater, now @ Policy::Updater(_)) => now,
            (SavedPolicy::SomeUpdater, _) => {
                let text = "the store was saved with an updater, which a file cannot contain: \
                            set the updater first";
                return Err(Error::invalid(text));
            }
        };
        self.table.replace(snapshot.held()?.copies())?;
        let mut settings = self.change_settings();
        settings.compression = snapshot.compression();
        settings.clip_global_norm = snapshot.clip_global_norm();
        drop(settings);
        self.set_policy(policy, gate);
        Ok(())
    }

    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        let gate = self.enter_alone("set_optimizer_states")?;
        let running = match (optimizer, self.settings().policy) {
            (Some(optimizer), _) => ActiveOptimizer::begin(optimizer),
            (None, Policy::Optimizer(running)) => {
                // A new run, so that the states of all keys that are not in `states` start anew.
                ActiveOptimizer::begin(Optimizer::clone(&running.optimizer))
            }
            (None, _) => {
                return Err(Error::invalid(
                    "cannot set optimizer states: the store has no optimizer",
                ));
            }
        };
        self.table.set_states(states, &running)?;
        self.set_policy(Policy::Optimizer(running), gate);
        Ok(())
    }
}

impl WorkerGroup for LocalStore {}

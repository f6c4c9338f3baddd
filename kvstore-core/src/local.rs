//! [`LocalStore`]: a store within one process, made of a [`Reducer`] and a table.
//!
//! Locks, in the order in which they are taken: the table's map, only to clone entries out of it;
//! the keys' locks in the order of initialisation; the keys' values, held while a kernel runs and
//! never while user code does. A user's updater runs under one key's lock, and all it can do to
//! its store is to pull, which takes values only; so no two calls can wait for each other.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};

use crate::backend::{Backends, DeviceJob, UpdateJob, run_on_each_device};
use crate::error::{Error, Result};
use crate::key::{Key, group};
use crate::optimizer::{Optimizer, UpdateRule};
use crate::reducer::{DeviceReducer, HostReducer, Reducer};
use crate::storage::Storage;
use crate::store::{Description, KvStore};
use crate::table::{Entry, Progress, Table};
use crate::tensor::Tensor;
use crate::updater::{Assign, Updater};

/// A store within one process.
#[derive(Debug)]
pub struct LocalStore {
    name: String,
    identity: u64,
    backends: Backends,
    reducer: Box<dyn Reducer>,
    table: Table,
    policy: RwLock<Policy>,
    num_optimizers: AtomicU64,
}

/// What a push does with the sum.
#[derive(Clone, Debug)]
enum Policy {
    Updater(Arc<dyn Updater>),
    /// The number tells states of an earlier optimizer from those of this one.
    Optimizer(Arc<Optimizer>, u64),
}

/// The values of one key in one call.
struct Pushed {
    entry: Arc<Entry>,
    values: Vec<Tensor>,
}

impl LocalStore {
    /// The names that [`LocalStore::new`] knows.
    pub const NAMES: [&'static str; 5] =
        ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device"];

    /// Returns an empty store of the kind with this name, in lower case; none for other names.
    ///
    /// `device` and `local_allreduce_device` sum on the device of the first value of a key, the
    /// others on the host.
    pub fn new(name: &str, backends: Backends) -> Option<Self> {
        static NEXT_IDENTITY: AtomicU64 = AtomicU64::new(0);
        let reducer: Box<dyn Reducer> = match name {
            "local" | "local_update_cpu" | "local_allreduce_cpu" => Box::new(HostReducer),
            "device" | "local_allreduce_device" => Box::new(DeviceReducer),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            identity: NEXT_IDENTITY.fetch_add(1, Ordering::Relaxed),
            backends,
            reducer,
            table: Table::default(),
            policy: RwLock::new(Policy::Updater(Arc::new(Assign))),
            num_optimizers: AtomicU64::new(0),
        })
    }

    /// Checks a push and returns its keys in the order of initialisation.
    fn plan(&self, keys: &[Key], values: &[Tensor]) -> Result<Vec<Pushed>> {
        check_lengths(keys, values)?;
        let groups = group(keys);
        let entries = self.table.entries_of(groups.iter().map(|group| group.key))?;
        let mut plan = Vec::with_capacity(groups.len());
        for (group, entry) in groups.iter().zip(entries) {
            entry.check()?;
            let values: Vec<Tensor> = group
                .positions
                .iter()
                .filter_map(|&position| values.get(position))
                .cloned()
                .collect();
            for value in &values {
                if value.spec() != entry.spec() {
                    return Err(Error::spec_mismatch(entry.key(), entry.spec(), value.spec()));
                }
            }
            plan.push(Pushed { entry, values });
        }
        plan.sort_unstable_by_key(|pushed| pushed.entry.order());
        Ok(plan)
    }

    /// Sums each key's values, then lets the updater change each stored value in turn.
    fn push_to_updater(&self, updater: &dyn Updater, plan: Vec<Pushed>) -> Result<()> {
        let (entries, groups): (Vec<_>, Vec<_>) =
            plan.into_iter().map(|pushed| (pushed.entry, pushed.values)).unzip();
        let sums = self.reducer.reduce(&self.backends, &groups)?;
        for (entry, sum) in entries.iter().zip(&sums) {
            // Whoever updated the key before may have panicked.
            let _key_lock = entry.lock()?;
            let mut stored = entry.committed()?.to_device(&self.backends, sum.device())?;
            let result = self.inside_updater(|| updater.update(entry.key(), sum, &mut stored));
            let key = entry.key().clone();
            result.map_err(|source| Error::Updater { key, source })?;
            if stored.spec() != entry.spec() {
                return Err(Error::spec_mismatch(entry.key(), entry.spec(), stored.spec()));
            }
            entry.commit(stored)?;
        }
        Ok(())
    }

    /// Sums and steps each key in one pass, all keys as one batch.
    fn push_to_optimizer(&self, optimizer: &Optimizer, number: u64, plan: &[Pushed]) -> Result<()> {
        for pushed in plan {
            Optimizer::arithmetic_of(pushed.entry.spec().dtype())?;
        }
        let values: Vec<Vec<Tensor>> = plan
            .iter()
            .map(|pushed| self.reducer.gather(&self.backends, &pushed.values))
            .collect::<Result<_>>()?;
        let locked: Vec<_> =
            plan.iter().map(|pushed| pushed.entry.lock()).collect::<Result<_>>()?;
        let mut steps = Vec::with_capacity(plan.len());
        for ((pushed, progress), values) in plan.iter().zip(locked).zip(&values) {
            let weight = pushed.entry.lock_value()?;
            let mut step = Stepping::new(weight, progress, values);
            step.prepare(&self.backends, optimizer, number)?;
            steps.push(step);
        }
        let rule = optimizer.rule();
        let jobs = steps.iter_mut().map(|step| step.job(&rule)).collect::<Result<Vec<_>>>()?;
        run_on_each_device(jobs, |backend, jobs| backend.update(jobs))?;
        steps.into_iter().for_each(Stepping::settle);
        Ok(())
    }

    fn policy(&self) -> Policy {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Runs a user's updater, during which this thread cannot change the store.
    fn inside_updater<R>(&self, run: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                UPDATING.with_borrow_mut(Vec::pop);
            }
        }
        UPDATING.with_borrow_mut(|stores| stores.push(self.identity));
        let _leave = Leave;
        run()
    }

    fn refuse_inside_updater(&self, verb: &str) -> Result<()> {
        if UPDATING.with_borrow(|stores| stores.contains(&self.identity)) {
            return Err(Error::invalid(format!("`{verb}` inside an updater of the same store")));
        }
        Ok(())
    }
}

thread_local! {
    /// The stores whose updaters are running in this thread, innermost last.
    static UPDATING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl KvStore for LocalStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn init(&self, keys: &[Key], values: &[Tensor]) -> Result<()> {
        let _span = tracing::debug_span!("init", keys = keys.len()).entered();
        self.refuse_inside_updater("init")?;
        check_lengths(keys, values)?;
        let mut copies = Vec::with_capacity(values.len());
        for (key, value) in keys.iter().zip(values) {
            if value.num_elements() == 0 {
                let text = format!("key `{key}`: {} has no elements", value.spec());
                return Err(Error::invalid(text));
            }
            let home = self.reducer.home(std::slice::from_ref(value));
            copies.push(value.to_device(&self.backends, home)?.compact()?);
        }
        self.table.insert(keys, copies)
    }

    fn push(&self, keys: &[Key], values: &[Tensor], _priority: i32) -> Result<()> {
        let _span = tracing::debug_span!("push", values = values.len()).entered();
        self.refuse_inside_updater("push")?;
        let plan = self.plan(keys, values)?;
        match self.policy() {
            Policy::Updater(updater) => self.push_to_updater(&*updater, plan),
            Policy::Optimizer(optimizer, number) => {
                self.push_to_optimizer(&optimizer, number, &plan)
            }
        }
    }

    fn pull(&self, keys: &[Key], _priority: i32) -> Result<Vec<Tensor>> {
        let _span = tracing::debug_span!("pull", keys = keys.len()).entered();
        self.table.entries_of(keys)?.iter().map(|entry| entry.committed()).collect()
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        let entries = self.table.entries_of(keys)?;
        let describe =
            |entry: &Arc<Entry>| Description { order: entry.order(), spec: entry.spec().clone() };
        Ok(entries.iter().map(describe).collect())
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.refuse_inside_updater("remove")?;
        self.table.remove(keys)
    }

    fn keys(&self) -> Vec<Key> {
        self.table.keys()
    }

    fn contains(&self, key: &Key) -> bool {
        self.table.contains(key)
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        self.refuse_inside_updater("set_updater")?;
        self.set_policy(Policy::Updater(updater.unwrap_or_else(|| Arc::new(Assign))));
        Ok(())
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.refuse_inside_updater("set_optimizer")?;
        let number = self.num_optimizers.fetch_add(1, Ordering::Relaxed) + 1;
        self.set_policy(Policy::Optimizer(Arc::new(optimizer), number));
        Ok(())
    }

    fn rank(&self) -> usize {
        0
    }

    fn num_workers(&self) -> usize {
        1
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn set_barrier_before_exit(&self, _wait: bool) -> Result<()> {
        Ok(())
    }

    fn num_dead_node(&self, _node_id: i32) -> Result<usize> {
        Ok(0)
    }

    fn send_command_to_servers(&self, _head: i32, _body: &str) -> Result<()> {
        Ok(())
    }
}

/// A key in the middle of an optimizer step, with its locks.
struct Stepping<'a> {
    weight: MutexGuard<'a, Tensor>,
    progress: MutexGuard<'a, Progress>,
    values: &'a [Tensor],
    fresh_weight: Option<Arc<dyn Storage>>,
    fresh_states: Vec<Option<Arc<dyn Storage>>>,
}

impl<'a> Stepping<'a> {
    fn new(
        weight: MutexGuard<'a, Tensor>,
        progress: MutexGuard<'a, Progress>,
        values: &'a [Tensor],
    ) -> Self {
        Self { weight, progress, values, fresh_weight: None, fresh_states: Vec::new() }
    }

    /// Makes everything that the step needs, without changing a value.
    fn prepare(&mut self, backends: &Backends, optimizer: &Optimizer, number: u64) -> Result<()> {
        let home = self.values.first().map(Tensor::device).unwrap_or_default();
        *self.weight = self.weight.to_device(backends, home)?;
        if self.progress.optimizer != number {
            self.progress.states = optimizer.create_states(&self.weight)?;
            self.progress.optimizer = number;
        }
        self.fresh_weight = self.weight.fresh_if_shared()?;
        for state in &mut self.progress.states {
            *state = state.to_device(backends, home)?;
            self.fresh_states.push(state.fresh_if_shared()?);
        }
        Ok(())
    }

    fn job(&mut self, rule: &UpdateRule) -> Result<DeviceJob<UpdateJob<'_>>> {
        let (backend, device) = (Arc::clone(self.weight.backend()), self.weight.device());
        let dtype = self.weight.dtype();
        let states = self.progress.states.iter_mut().zip(&mut self.fresh_states);
        let job = UpdateJob {
            rule: rule.clone(),
            dtype,
            weight: self.weight.in_out(&mut self.fresh_weight)?,
            states: states.map(|(state, fresh)| state.in_out(fresh)).collect::<Result<_>>()?,
            addends: self.values.iter().map(Tensor::span).collect(),
        };
        Ok(DeviceJob { backend, device, job })
    }

    fn settle(mut self) {
        self.weight.settle(self.fresh_weight.take());
        for (state, fresh) in self.progress.states.iter_mut().zip(self.fresh_states) {
            state.settle(fresh);
        }
    }
}

fn check_lengths(keys: &[Key], values: &[Tensor]) -> Result<()> {
    if keys.len() == values.len() {
        return Ok(());
    }
    let what = "values for keys".to_owned();
    Err(Error::LengthMismatch { what, expected: keys.len(), found: values.len() })
}

//! [`Stores`]: the local stores of a distributed store, their settings and their keys.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::fallible;
use kvstore_core::{
    Backends, BoxError, Compression, Description, Error, Key, KvStore, LocalStore, OnExisting,
    Optimizer, Result, StepUnit, Tensor, Updater, Value, panic_text,
};

use super::config::{Config, Policy, Terms, Transition};
use super::partition::Partition;
use super::wire::Wire;
use crate::transport::Collective;

/// Three local stores: for the complete values, for this rank's parts, and for the sums of the
/// values that this rank pushes.
///
/// A sum over ranks has the bits of a single store that receives the sums of the ranks as values,
/// in the order of ranks. Each rank pushes the sums of its part to its store of parts, and sends
/// the result to all ranks. An optimizer runs on the parts if its formula allows that. Everything
/// else runs on complete values, in the same way on every rank.
#[derive(Debug)]
pub(crate) struct Stores {
    /// The number of this store in its group.
    pub(crate) number: u64,
    /// The number of rounds of the group so far.
    pub(crate) num_rounds: Arc<AtomicU64>,
    pub(crate) backends: Backends,
    pub(crate) collective: Arc<dyn Collective>,
    /// The complete values, which pulls return.
    pub(crate) complete: LocalStore,
    /// This rank's parts: of the weights if the optimizer steps parts, otherwise of the last sums.
    part: Mutex<Arc<LocalStore>>,
    /// The sums of the values that this rank pushed last.
    pub(crate) sums: LocalStore,
    config: Mutex<Config>,
    /// The compression residuals of this rank.
    residuals: Mutex<HashMap<Key, Tensor>>,
}

impl Stores {
    pub(crate) fn new(
        number: u64,
        num_rounds: Arc<AtomicU64>,
        backends: &Backends,
        collective: Arc<dyn Collective>,
        sums: LocalStore,
    ) -> Option<Self> {
        let mut config = Config::default();
        config.agree().ok()?;
        Some(Self {
            number,
            num_rounds,
            backends: backends.clone(),
            collective,
            complete: LocalStore::new("local", backends.clone())?,
            part: Mutex::new(Arc::new(LocalStore::new("local", backends.clone())?)),
            sums,
            config: Mutex::new(config),
            residuals: Mutex::default(),
        })
    }

    pub(crate) fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the store of this rank's parts.
    pub(crate) fn part(&self) -> Arc<LocalStore> {
        Arc::clone(&self.part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the store of this rank's parts.
    pub(super) fn set_part(&self, part: Arc<LocalStore>) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = part;
    }

    pub(super) fn rank(&self) -> usize {
        self.collective.rank()
    }

    /// Returns the partitions of the keys' values. No partition splits a `unit`.
    pub(crate) fn partitions(&self, keys: &[Key], unit: StepUnit) -> Result<Vec<Partition>> {
        let size = self.collective.size();
        let described = self.complete.describe(keys)?;
        let partition = |description: &Description| {
            Partition::new(&description.spec, description.order, size, unit)
        };
        fallible::collect(described.iter().map(partition))
    }

    fn unit(&self) -> StepUnit {
        self.config().policy.unit()
    }

    pub(crate) fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        let policy = if updater.is_some() { Policy::Updater } else { Policy::Assign };
        let updater = updater.map(|updater| Arc::new(PanicGuard(updater)) as Arc<dyn Updater>);
        let part = self.divide(&policy)?;
        self.complete.set_updater(updater)?;
        part.set_updater(None)?;
        self.set_part(part);
        self.set_policy(policy);
        Ok(())
    }

    pub(crate) fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        let policy = Policy::Optimizer(Arc::new(optimizer.clone()));
        let part = self.divide(&policy)?;
        if policy.steps_parts() {
            part.set_optimizer(optimizer)?;
            self.complete.set_updater(None)?;
        } else {
            self.complete.set_optimizer(optimizer)?;
            part.set_updater(None)?;
        }
        self.set_part(part);
        self.set_policy(policy);
        Ok(())
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.set_policy_with(policy, 0);
    }

    /// Sets the policy. `loaded` is the fingerprint of the loaded states, or 0 if there are none.
    pub(crate) fn set_policy_with(&self, policy: Policy, loaded: u64) {
        let mut config = self.config();
        let config = config.change();
        config.generation = 0;
        config.loaded = loaded;
        config.policy = policy;
    }

    pub(crate) fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        let mut config = self.config();
        let part = self.part();
        let store = if config.policy.steps_parts() { &*part } else { &self.complete };
        store.set_hyper_parameters(parameters)?;
        if let Some(optimizer) = store.optimizer()? {
            config.change().policy = Policy::Optimizer(Arc::new(optimizer));
        }
        Ok(())
    }

    pub(crate) fn set_compression(&self, compression: Option<Compression>) {
        self.config().change().compression = compression;
    }

    pub(crate) fn set_clip_global_norm(&self, bound: Option<f64>) {
        self.config().change().clip_global_norm = bound;
    }

    /// Adopts the configuration of another rank.
    pub(crate) fn adopt(&self, config: Terms, transition: Transition) -> Result<()> {
        match (config.policy, transition) {
            (Policy::Optimizer(optimizer), Transition::GoOn) => {
                self.set_hyper_parameters(&optimizer.hyper_parameters())?;
            }
            (Policy::Optimizer(optimizer), Transition::Begin) => {
                self.set_optimizer(Optimizer::clone(&optimizer))?;
            }
            (Policy::Updater, _) => {}
            (Policy::Assign, _) => self.set_updater(None)?,
        }
        let mut own = self.config();
        let own = own.change();
        own.generation = config.generation;
        own.compression = config.compression;
        own.clip_global_norm = config.clip_global_norm;
        Ok(())
    }

    /// Records that all ranks have the configuration of this rank. `steps` states that they make a
    /// push now, which starts the run of a newly set optimizer.
    pub(crate) fn agree(&self, steps: bool) -> Result<()> {
        let mut config = self.config();
        if steps && config.begins_run() {
            config.change().generation = self.num_rounds.load(Ordering::Relaxed);
        }
        config.agree()
    }

    /// Returns the store of parts for a policy. Creates a new store, without replacing the present
    /// one, if the policy is an optimizer that steps parts, which starts with the current values,
    /// or if it needs another partition.
    pub(crate) fn divide(&self, policy: &Policy) -> Result<Arc<LocalStore>> {
        let present = self.part();
        if !policy.steps_parts() && policy.unit() == self.unit() {
            return Ok(present);
        }
        let part = LocalStore::new(present.name(), self.backends.clone());
        let part =
            part.ok_or_else(|| Error::Internal("the store of parts cannot be created".to_owned()))?;
        self.seed(&part, &self.complete.keys()?, policy.unit())?;
        Ok(Arc::new(part))
    }

    /// Sets the parts of these keys from the complete values.
    fn seed(&self, part: &LocalStore, keys: &[Key], unit: StepUnit) -> Result<()> {
        let values = self.complete.pull(keys, 0)?;
        let (mut own, mut parts) = (Vec::new(), Vec::new());
        let mut of_others = Vec::new();
        for ((key, partition), value) in keys.iter().zip(self.partitions(keys, unit)?).zip(values) {
            if let Some(spec) = partition.part(self.rank()) {
                let first = partition.elements(self.rank()).start;
                let elements = value.view(first, spec.shape().clone())?.compact()?;
                fallible::push(&mut own, key.clone())?;
                fallible::push(&mut parts, Value::from(elements))?;
            } else if part.contains(key)? {
                // An earlier value had a part for this rank.
                fallible::push(&mut of_others, key.clone())?;
            }
        }
        part.init_with(&own, &parts, OnExisting::Replace)?;
        part.remove(&of_others)
    }

    pub(crate) fn init(
        &self,
        wire: &Wire<'_>,
        keys: &[Key],
        values: &[Value],
        existing: OnExisting,
    ) -> Result<()> {
        // Values of keys that are kept are not sent. All ranks have the same keys.
        let mut new = fallible::with_capacity(keys.len())?;
        let mut new_values = fallible::with_capacity(keys.len())?;
        for (key, value) in keys.iter().zip(values) {
            if existing != OnExisting::Keep || !self.complete.contains(key)? {
                new.push(key.clone());
                new_values.push(value.clone());
            }
        }
        let mut firsts = fallible::with_capacity(new.len())?;
        for (first, value) in wire.values_of(0, &new_values)?.into_iter().zip(&new_values) {
            let device = match value {
                Value::Dense(value) => value.device(),
                Value::Rows(rows) => rows.rows().device(),
            };
            firsts.push(Value::from(first.to_device(&self.backends, device)?));
        }
        self.complete.init_with(&new, &firsts, existing)?;
        self.sums.init_with(&new, &firsts, existing)?;
        let mut residuals = self.residuals();
        for key in &new {
            residuals.remove(key);
        }
        drop(residuals);
        self.seed(&self.part(), &new, self.unit())
    }

    pub(crate) fn remove(&self, keys: &[Key]) -> Result<()> {
        let part = self.part();
        let mut own = fallible::with_capacity(keys.len())?;
        for key in keys {
            if part.contains(key)? {
                own.push(key.clone());
            }
        }
        self.complete.remove(keys)?;
        self.sums.remove(keys)?;
        part.remove(&own)?;
        let mut residuals = self.residuals();
        for key in keys {
            residuals.remove(key);
        }
        Ok(())
    }

    pub(crate) fn residuals(&self) -> MutexGuard<'_, HashMap<Key, Tensor>> {
        self.residuals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `get` with the keys that have a part on this rank. Returns the result for each key of
    /// `keys`, or `None` for keys without a part.
    pub(super) fn own<T>(
        &self,
        keys: &[Key],
        partitions: &[&Partition],
        get: impl FnOnce(&[Key]) -> Result<Vec<T>>,
    ) -> Result<Vec<Option<T>>> {
        let rank = self.rank();
        let has_part = |partition: &&Partition| partition.part(rank).is_some();
        let own = keys.iter().zip(partitions).filter(|(_, partition)| has_part(partition));
        let mut found = get(&fallible::gather(own.map(|(key, _)| key.clone()))?)?.into_iter();
        let result = |partition| if has_part(partition) { found.next() } else { None };
        fallible::collect(partitions.iter().map(result))
    }
}

/// Converts panics of an updater into errors, because all stores of the process share the thread
/// that runs it.
struct PanicGuard(Arc<dyn Updater>);

impl fmt::Debug for PanicGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Updater for PanicGuard {
    fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        let update = || self.0.update(key, pushed, stored);
        catch_unwind(AssertUnwindSafe(update))
            .unwrap_or_else(|panic| Err(format!("a panic: {}", panic_text(&*panic)).into()))
    }
}

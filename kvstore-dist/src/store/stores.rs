//! [`Stores`]: the local stores of a distributed store, and the effects of collective calls on
//! them.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::fallible;
use kvstore_core::{
    Backends, BoxError, Compression, Description, Error, Key, KvStore, LocalStore, OnExisting,
    Optimizer, Result, RowSparse, StepUnit, Tensor, Updater, Value, panic_text,
};

use super::config::{Config, Policy, Terms, Transition};
use super::norms::NormExchange;
use super::partition::Partition;
use super::wire::{OutgoingSum, Payload, Wire, read_u64};
use crate::transport::Collective;

/// The dense sum of a key, and its partition.
pub(super) type KeySum<'a> = (Key, &'a Partition, Tensor);

/// The row-sparse sum of a key, and its partition.
pub(super) type KeyRows<'a> = (Key, &'a Partition, RowSparse);

/// The maximum number of bytes of a batch of keys, unless one key alone is larger. A batch larger
/// than the caches would go through memory at each step. Smaller batches would wait for the network
/// more often.
pub(crate) const MAX_BATCH: usize = 4 << 20;

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

    /// Returns whether a push of these sums cannot be rejected.
    pub(crate) fn takes(&self, keys: &[Key], sums: &[Value]) -> bool {
        let is_sure = {
            let config = self.config();
            let suits = |dtype| match &config.policy {
                Policy::Assign => true,
                Policy::Optimizer(_) => Optimizer::arithmetic_of(dtype).is_ok(),
                // An updater may reject a value.
                Policy::Updater => false,
            };
            let compression = config.compression;
            let packs = |dtype| compression.is_none_or(|compression| compression.of(dtype).is_ok());
            sums.iter().map(|sum| sum.spec().dtype()).all(|dtype| suits(dtype) && packs(dtype))
        };
        let stored = is_sure.then(|| self.complete.stored(keys).ok()).flatten();
        stored.is_some_and(|stored| stored.iter().map(Value::spec).eq(sums.iter().map(Value::spec)))
    }

    /// Pushes the sums over all ranks.
    pub(crate) fn push(&self, wire: &Wire<'_>, keys: &[Key], sums: &[Value]) -> Result<()> {
        let config = Terms::clone(&self.config());
        let partitions = self.partitions(keys, config.policy.unit())?;
        // Dense and row-sparse sums are sent in different messages.
        let (mut dense, mut rows) = (Vec::new(), Vec::new());
        for ((key, partition), sum) in keys.iter().zip(&partitions).zip(sums) {
            match sum.rows() {
                Some(sum) if config.policy.keeps_rows() => {
                    let row = (key.clone(), partition, partition.list(sum)?);
                    fallible::push(&mut rows, row)?;
                }
                _ => fallible::push(&mut dense, (key.clone(), partition, sum.to_dense()?))?,
            }
        }
        if let Some(bound) = config.clip_global_norm {
            return self.push_clipped(wire, &config, bound, (dense, rows));
        }
        for batch in batches(dense)? {
            self.push_dense(wire, &config, batch)?;
        }
        if !rows.is_empty() {
            self.push_rows(wire, &config, rows)?;
        }
        Ok(())
    }

    fn push_dense(&self, wire: &Wire<'_>, config: &Terms, sums: Vec<KeySum<'_>>) -> Result<()> {
        let mut sent = fallible::with_capacity(sums.len())?;
        // Only an updater can reject a sum. Then the old residuals must be restored, so `before`
        // keeps them. `encode` replaces a shared residual instead of changing it.
        let may_fail = matches!(config.policy, Policy::Updater);
        let num_before = if may_fail && config.compression.is_some() { sums.len() } else { 0 };
        let mut before: HashMap<Key, Tensor> = fallible::hash_map(num_before)?;
        if config.compression.is_some() {
            fallible::reserve_entries(&mut self.residuals(), sums.len())?;
        }
        let (keys, partitions, sums) = unzip(sums)?;
        for ((key, partition), sum) in keys.iter().zip(&partitions).zip(sums) {
            let content = match config.compression {
                None => Payload::Value(sum),
                Some(compression) => {
                    let mut residual = self.residuals().remove(key);
                    if let Some(residual) = residual.as_ref().filter(|_| may_fail) {
                        before.insert(key.clone(), residual.clone());
                    }
                    let codes = compression.encode(&self.backends, &sum, &mut residual);
                    if let Some(residual) = residual {
                        self.residuals().insert(key.clone(), residual);
                    }
                    Payload::Codes(codes?, compression)
                }
            };
            sent.push(OutgoingSum { partition, content });
        }
        let received = wire.scatter(&sent)?;
        let values = received.into_iter().map(|tensors| tensors.into_iter().map(Value::from));
        let values = self.step_dense(wire, &keys, &partitions, values)?;
        let result = self.complete.push(&keys, &values, 0);
        if let (Some(_), Err(Error::Updater { key: failed, .. })) = (config.compression, &result) {
            // The updater rejected the sum of this key, and the later keys were not pushed.
            let untouched = keys.iter().skip_while(|key| *key != failed);
            let mut residuals = self.residuals();
            for key in untouched {
                match before.get(key) {
                    Some(residual) => residuals.insert(key.clone(), residual.clone()),
                    None => residuals.remove(key),
                };
            }
        }
        if may_fail { same_end(wire, &keys, result) } else { result }
    }

    /// Pushes the received values to this rank's parts. Returns the new complete values.
    pub(super) fn step_dense(
        &self,
        wire: &Wire<'_>,
        keys: &[Key],
        partitions: &[&Partition],
        values: impl Iterator<Item = impl ExactSizeIterator<Item = Value>>,
    ) -> Result<Vec<Value>> {
        self.push_parts(wire, keys, partitions, values)?;
        let parts = self.own(keys, partitions, |own| self.part().pull(own, 0))?;
        let values = wire.gather(partitions, &parts)?;
        fallible::collect(values.into_iter().map(Value::from))
    }

    fn push_rows(&self, wire: &Wire<'_>, config: &Terms, sums: Vec<KeyRows<'_>>) -> Result<()> {
        let (keys, partitions, rows) = unzip(sums)?;
        let received = wire.scatter_rows(&partitions, &rows)?;
        self.step_rows(wire, config, &keys, &partitions, received)
    }

    /// Pushes the received rows to this rank's parts, and sends the new rows to all ranks.
    pub(super) fn step_rows(
        &self,
        wire: &Wire<'_>,
        config: &Terms,
        keys: &[Key],
        partitions: &[&Partition],
        received: Vec<Vec<RowSparse>>,
    ) -> Result<()> {
        let touched = fallible::try_collect(received.iter().map(|rows| union(rows)))?;
        let values = received.into_iter().map(|rows| rows.into_iter().map(Value::Rows));
        self.push_parts(wire, keys, partitions, values)?;
        // Only the touched rows have changed, so only these are sent.
        let mut ids_of: HashMap<&Key, &[i64]> = fallible::hash_map(keys.len())?;
        ids_of.extend(keys.iter().zip(touched.iter().map(Vec::as_slice)));
        let changed = self.own(keys, partitions, |own| {
            let ids = own.iter().map(|key| ids_of.get(key).copied().unwrap_or_default());
            self.part().pull_rows(own, &fallible::collect(ids)?, 0)
        })?;
        let rows = wire.gather_rows(partitions, &changed)?;
        let rows = rows.into_iter().zip(partitions).map(|(rows, partition)| partition.unlist(rows));
        let rows = fallible::try_collect(rows)?;
        if config.policy.steps_parts() {
            return self.complete.set_rows(keys, &rows);
        }
        let values = fallible::collect(rows.into_iter().map(Value::Rows))?;
        self.complete.push(keys, &values, 0)
    }

    /// Pushes the received values to this rank's parts, in the order of the sending ranks.
    fn push_parts(
        &self,
        wire: &Wire<'_>,
        keys: &[Key],
        partitions: &[&Partition],
        values: impl Iterator<Item = impl ExactSizeIterator<Item = Value>>,
    ) -> Result<()> {
        let (mut pushed, mut all) = (Vec::new(), Vec::new());
        for (key, values) in keys.iter().zip(values) {
            fallible::reserve(&mut pushed, values.len())?;
            pushed.extend(std::iter::repeat_n(key, values.len()).cloned());
            fallible::reserve(&mut all, values.len())?;
            all.extend(values);
        }
        let mut norms = NormExchange::new(wire, keys, partitions);
        self.part().push_parts(&pushed, &all, &mut |sums| norms.complete(sums))?;
        norms.finish()
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

/// Returns `own` if the updaters of all ranks ended in the same way.
///
/// # Errors
/// - [`Error::Internal`] on every rank if they ended in different ways. Then the ranks hold
///   different values.
pub(super) fn same_end(wire: &Wire<'_>, keys: &[Key], own: Result<()>) -> Result<()> {
    let place = |failed: &Key| keys.iter().position(|key| key == failed).unwrap_or(keys.len());
    // Encode the result as a number: 0 for success, 1 + the position of the failed key, or a larger
    // number for other errors.
    let end = match &own {
        Ok(()) => 0,
        Err(Error::Updater { key, .. }) => 1 + place(key),
        Err(_) => 1 + keys.len(),
    };
    let ends = wire.gather_bytes(&(end as u64).to_le_bytes())?;
    let ends: Vec<_> = (0..ends.len()).map(|rank| read_u64(ends.slice(rank))).collect();
    let first = ends.first().copied().flatten();
    let Some(rank) = ends.iter().position(|end| *end != first) else { return own };
    let words = |end: Option<u64>| {
        let index = end.and_then(|end| usize::try_from(end).ok()).unwrap_or_default();
        match (index.checked_sub(1), index.checked_sub(1).and_then(|index| keys.get(index))) {
            (None, _) => "has updated every key".to_owned(),
            (_, Some(key)) => format!("has failed on key `{key}`"),
            (_, None) => "has failed".to_owned(),
        }
    };
    let other = ends.get(rank).copied().flatten();
    let own = own.err().map_or_else(String::new, |error| format!(": {}", error.chain()));
    Err(Error::Internal(format!(
        "the updater of rank 0 {}, but the updater of rank {rank} {}: the ranks hold different \
         values, restore a checkpoint{own}",
        words(first),
        words(other),
    )))
}

/// Splits a list of sums into parallel lists of keys, partitions and sums.
pub(super) fn unzip<T>(
    sums: Vec<(Key, &Partition, T)>,
) -> Result<(Vec<Key>, Vec<&Partition>, Vec<T>)> {
    let mut keys = fallible::with_capacity(sums.len())?;
    let mut partitions = fallible::with_capacity(sums.len())?;
    let mut values = fallible::with_capacity(sums.len())?;
    for (key, partition, value) in sums {
        keys.push(key);
        partitions.push(partition);
        values.push(value);
    }
    Ok((keys, partitions, values))
}

/// Splits sums into batches that are sent one after the other. The batches are the same on every
/// rank.
pub(super) fn batches(sums: Vec<KeySum<'_>>) -> Result<Vec<Vec<KeySum<'_>>>> {
    let mut batches: Vec<Vec<_>> = Vec::new();
    let mut num_bytes = 0;
    for sum in sums {
        let len = sum.2.num_bytes();
        match batches.last_mut() {
            Some(batch) if num_bytes + len <= MAX_BATCH => fallible::push(batch, sum)?,
            _ => {
                num_bytes = 0;
                fallible::push(&mut batches, Vec::from([sum]))?;
            }
        }
        num_bytes += len;
    }
    Ok(batches)
}

/// Returns the row indices that occur in any of the values, in ascending order.
fn union(values: &[RowSparse]) -> Result<Vec<i64>> {
    let num_indices = values.iter().map(|rows| rows.indices().len()).sum();
    let mut indices = fallible::with_capacity(num_indices)?;
    indices.extend(values.iter().flat_map(RowSparse::indices));
    indices.sort_unstable();
    indices.dedup();
    Ok(indices)
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

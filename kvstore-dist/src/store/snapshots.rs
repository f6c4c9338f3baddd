//! Snapshots: collects the contents of all ranks into one snapshot, as of a single store, and
//! distributes it among the ranks.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use kvstore_core::fallible;
use kvstore_core::{
    Device, Error, Key, KvStore, Optimizer, OptimizerState, OptimizerStates, Result, Snapshot,
    Tensor,
};

use super::call::SharedSnapshot;
use super::config::{Policy, Terms};
use super::local_stores::Stores;
use super::partition::Partition;
use super::wire::{Wire, lost};
use crate::transport::Slices;

impl Stores {
    /// Returns a snapshot of the contents of all ranks. It is the same on each rank.
    pub(crate) fn snapshot(&self, wire: &Wire<'_>, name: &str) -> Result<Snapshot> {
        let config = Terms::clone(&self.config());
        let divided = match &config.policy {
            Policy::Optimizer(optimizer) if config.policy.steps_parts() => Some(optimizer),
            _ => None,
        };
        // Each step ends in the same way on all ranks, so that none waits for the others later.
        let mut snapshot = self.complete.snapshot();
        if let Some(optimizer) = divided {
            let own = snapshot.and_then(|snapshot| {
                Ok((snapshot, self.part().snapshot()?.optimizer_states_to_bytes(true)?))
            });
            let (complete, states) = wire.all_or_none(own)?;
            let states = self.states_of(&wire.gather_bytes(&states)?);
            snapshot = states
                .and_then(|states| complete.with_states(Optimizer::clone(optimizer), &states));
        }
        let own = snapshot.and_then(|snapshot| Ok((snapshot, self.own_residuals()?)));
        let (snapshot, residuals) = wire.all_or_none(own)?;
        let residuals = self.residuals_of(&wire.gather_bytes(&residuals)?)?;
        let snapshot = snapshot.with_residuals(name, config.compression, &residuals)?;
        snapshot.with_clip_global_norm(config.clip_global_norm)
    }

    /// Returns the states of each key's parts from the messages of all ranks, in their order.
    fn states_of(&self, all: &Slices) -> Result<HashMap<Key, Vec<OptimizerState>>> {
        let mut states: HashMap<Key, Vec<OptimizerState>> = HashMap::new();
        for rank in 0..self.collective.size() {
            let found = OptimizerStates::from_bytes(&self.backends, all.slice(rank))?;
            fallible::reserve_entries(&mut states, found.states.len())?;
            for (key, state) in found.states {
                states.entry(key).or_default().push(state);
            }
        }
        Ok(states)
    }

    /// Returns the message with the compression residuals of this rank. For each key, it has a byte
    /// that states whether a residual follows.
    fn own_residuals(&self) -> Result<Vec<u8>> {
        let mut own = Vec::new();
        for key in &self.complete.keys()? {
            let residual = self.residuals().get(key).cloned();
            fallible::push(&mut own, u8::from(residual.is_some()))?;
            if let Some(residual) = residual {
                fallible::extend(&mut own, &residual.seen_bytes()?)?;
            }
        }
        Ok(own)
    }

    /// Returns the residuals of each key from the messages of all ranks, in the order of ranks.
    fn residuals_of(&self, all: &Slices) -> Result<HashMap<Key, Vec<Tensor>>> {
        let keys = self.complete.keys()?;
        let specs = self.complete.describe(&keys)?;
        let mut residuals: HashMap<Key, Vec<Tensor>> = HashMap::new();
        for rank in 0..self.collective.size() {
            let mut rest = all.slice(rank);
            for (key, described) in keys.iter().zip(&specs) {
                let (has_residual, after) = rest.split_first().ok_or_else(lost)?;
                rest = after;
                if *has_residual == 0 {
                    continue;
                }
                let arithmetic = described.spec.dtype().arithmetic().ok_or_else(lost)?;
                let spec = described.spec.with_dtype(arithmetic);
                let (bytes, after) = rest.split_at_checked(spec.num_bytes()?).ok_or_else(lost)?;
                rest = after;
                let device = Device::cpu(0);
                fallible::reserve_entries(&mut residuals, 1)?;
                let by_rank = residuals.entry(key.clone()).or_default();
                // The residual of a rank that has never pushed the key is zero.
                while by_rank.len() < rank {
                    let zeros = fallible::zeroed(bytes.len())?;
                    by_rank.push(Tensor::from_bytes(&self.backends, device, spec.clone(), &zeros)?);
                }
                by_rank.push(Tensor::from_bytes(&self.backends, device, spec, bytes)?);
            }
        }
        Ok(residuals)
    }

    /// Gives the snapshot of the first rank that has one to every rank without. If no rank has one,
    /// each rank receives the reasons of all.
    pub(crate) fn share_snapshot(&self, wire: &Wire<'_>, shared: &SharedSnapshot) -> Result<()> {
        let SharedSnapshot { taken, why_not, reasons } = shared;
        let own = taken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // An empty reason means that the rank has a snapshot.
        let all = wire.gather_bytes(why_not.as_deref().unwrap_or_default().as_bytes())?;
        let has_one = |rank: &usize| all.slice(*rank).is_empty();
        let mut ranks = 0..self.collective.size();
        let Some(root) = ranks.clone().find(has_one) else {
            let text = |rank| String::from_utf8_lossy(all.slice(rank)).into_owned();
            *reasons.lock().unwrap_or_else(PoisonError::into_inner) = ranks.map(text).collect();
            return Ok(());
        };
        if ranks.all(|rank| has_one(&rank)) {
            return Ok(());
        }
        if let Some(reason) = why_not {
            tracing::warn!(reason, root, "restore: this rank uses the snapshot of another rank");
        }
        // The contents, then the checksum of the file. It differs from that of the contents if the
        // file is a delta.
        let bytes = match &own {
            Some(own) if self.collective.rank() == root => with_checksum(own),
            _ => Ok(Vec::new()),
        };
        let bytes = wire.result_of(root, &bytes)?;
        // A snapshot from a file has a checksum. A rank whose own snapshot has none uses the
        // received one, so that all ranks have a checksum.
        let is_used = own.is_none_or(|own| own.checksum().is_none());
        let found = is_used.then(|| {
            let (bytes, checksum) = bytes.split_last_chunk().ok_or_else(lost)?;
            let found = Snapshot::from_bytes(&self.backends, bytes)?;
            found.with_checksum(u32::from_le_bytes(*checksum))
        });
        if let Some(found) = wire.all_or_none(found.transpose())? {
            *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        }
        Ok(())
    }

    /// Replaces the contents of this rank with its part of a snapshot.
    pub(crate) fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let policy = match snapshot.optimizer() {
            Some(optimizer) => Policy::Optimizer(Arc::new(optimizer.clone())),
            None if snapshot.has_updater() => Policy::Updater,
            None => Policy::Assign,
        };
        let values = snapshot.values()?;
        // The store of complete values receives sums that are already compressed and clipped.
        let without_residuals =
            snapshot.with_residuals(snapshot.store_name(), None, &HashMap::new())?;
        let without_residuals = without_residuals.with_clip_global_norm(None)?;
        // Allocate the lists before any value changes, because they may be long.
        let keys = fallible::collect(snapshot.keys().cloned())?;
        let rank = self.collective.rank();
        let mut residuals = HashMap::new();
        for key in &keys {
            if let Some(residual) = snapshot.residuals(key)?.into_iter().nth(rank) {
                fallible::reserve_entries(&mut residuals, 1)?;
                residuals.insert(key.clone(), residual);
            }
        }
        self.complete.rollback(if policy.steps_parts() { &values } else { &without_residuals })?;
        self.sums.rollback(&values)?;
        let mut partitions: HashMap<&Key, Partition> = fallible::hash_map(keys.len())?;
        partitions.extend(keys.iter().zip(self.partitions(&keys, policy.unit())?));
        let source = if policy.steps_parts() { snapshot } else { &values };
        let source = source.with_clip_global_norm(None)?;
        let parts = source.part(|key| {
            let partition = partitions.get(key)?;
            Some((partition.elements(rank).start, partition.part(rank)?))
        })?;
        self.part().rollback(&parts)?;
        *self.residuals() = residuals;
        self.set_policy(policy);
        self.set_compression(snapshot.compression());
        self.set_clip_global_norm(snapshot.clip_global_norm());
        let mut config = self.config();
        // An optimizer that is set from now on starts a new run.
        config.change().generation = self.num_rounds.load(Ordering::Relaxed);
        config.agree()
    }

    /// Sets the optimizer states of keys. Each state belongs to a complete value.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `optimizer` is `None` and the store has no optimizer.
    /// - The errors of [`OptimizerState::check`].
    pub(crate) fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        let own = Terms::clone(&self.config());
        let optimizer = match (optimizer, &own.policy) {
            (Some(optimizer), _) => optimizer,
            (None, Policy::Optimizer(optimizer)) => Optimizer::clone(optimizer),
            (None, _) => {
                let text = "cannot set optimizer states: the store has no optimizer";
                return Err(Error::InvalidArgument(text.to_owned()));
            }
        };
        let policy = Policy::Optimizer(Arc::new(optimizer.clone()));
        let loaded = fingerprint(&states);
        // Check and divide all states before anything changes.
        let keys = fallible::collect(states.keys().cloned())?;
        let partitions = self.partitions(&keys, policy.unit())?;
        for ((key, state), partition) in states.iter().zip(&partitions) {
            state.check(optimizer.name(), key, partition.spec())?;
        }
        if !policy.steps_parts() {
            let part = self.divide(&policy)?;
            self.complete.set_optimizer_states(Some(optimizer), states)?;
            part.set_updater(None)?;
            self.set_part(part);
            self.set_policy_with(policy, loaded);
            return Ok(());
        }
        let mut parts = BTreeMap::new();
        for ((key, state), partition) in states.into_iter().zip(partitions) {
            if let Some(part) = partition.part(self.collective.rank()) {
                let first = partition.elements(self.collective.rank()).start;
                let state = state.part(&optimizer, first, &part)?;
                parts.insert(key, state);
            }
        }
        let is_divided = own.policy.steps_parts() && own.policy.unit() == policy.unit();
        let part = if is_divided { self.part() } else { self.divide(&policy)? };
        part.set_optimizer_states(Some(optimizer), parts)?;
        self.complete.set_updater(None)?;
        self.set_part(part);
        self.set_policy_with(policy, loaded);
        Ok(())
    }
}

/// Returns the checksum at the end of a checkpoint.
fn own_checksum(checkpoint: &[u8]) -> Option<u32> {
    checkpoint.last_chunk().map(|checksum| u32::from_le_bytes(*checksum))
}

/// Returns a fingerprint of the states, never 0. It depends on the keys, the numbers of updates and
/// the sizes, but not on the elements.
fn fingerprint(states: &BTreeMap<Key, OptimizerState>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, state) in states {
        (key.as_str(), state.num_updates(), state.num_bytes()).hash(&mut hasher);
    }
    hasher.finish().max(1)
}

/// Returns the bytes of a snapshot, followed by its checksum.
fn with_checksum(snapshot: &Snapshot) -> Result<Vec<u8>> {
    let mut bytes = snapshot.to_bytes()?;
    let checksum = snapshot.checksum().or(own_checksum(&bytes)).ok_or_else(lost)?;
    fallible::extend(&mut bytes, &checksum.to_le_bytes())?;
    Ok(bytes)
}

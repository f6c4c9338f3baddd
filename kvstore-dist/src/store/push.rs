//! Pushes over all ranks, in batches of keys: each rank steps its parts of the sums, or the
//! complete values.

use std::collections::HashMap;

use kvstore_core::fallible;
use kvstore_core::{Error, Key, KvStore, Optimizer, Result, RowSparse, Tensor, Value};

use super::config::{Policy, Terms};
use super::local_stores::Stores;
use super::norms::NormExchange;
use super::partition::Partition;
use super::wire::{OutgoingSum, Payload, Wire, is_common, read_u64};

/// The dense sum of a key, and its partition.
pub(super) type KeySum<'a> = (Key, &'a Partition, Tensor);

/// The row-sparse sum of a key, and its partition.
pub(super) type KeyRows<'a> = (Key, &'a Partition, RowSparse);

/// The maximum number of bytes of a batch of keys, unless one key alone is larger. A batch larger
/// than the caches would go through memory at each step. Smaller batches would wait for the network
/// more often.
pub(crate) const MAX_BATCH: usize = 4 << 20;

impl Stores {
    /// Returns whether a push of these sums cannot be rejected. Every rank gets the same answer,
    /// even if an allocation fails on one of them.
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
        is_sure && self.complete.has_specs(keys, sums)
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
}

/// Returns `own` if the updaters of all ranks ended in the same way.
///
/// # Errors
/// - [`Error::Internal`] on every rank if they ended in different ways. Then the ranks hold
///   different values.
pub(super) fn same_end(wire: &Wire<'_>, keys: &[Key], own: Result<()>) -> Result<()> {
    let place = |failed: &Key| keys.iter().position(|key| key == failed).unwrap_or(keys.len());
    // Encode the result as a number: 0 for success, 1 + the position of the failed key, or a larger
    // number for errors that end the group.
    let end = match &own {
        Ok(()) => 0,
        Err(error) if is_common(error) => 1 + error.key().map_or(keys.len(), place),
        Err(_) => 2 + keys.len(),
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

//! Pushes whose sums are clipped by the norm over all of their keys.
//!
//! The norm needs every sum before any key changes. So the sums over the ranks are made first and given to
//! all ranks; each rank then clips them in the same way, and the step follows on parts or on whole values.

use std::collections::HashMap;

use kvstore_core::fallible;
use kvstore_core::{Key, KvStore, Result, RowSparse, Value};

use super::config::Terms;
use super::partition::Partition;
use super::row_messages::part_of_rows;
use super::stores::{KeyRows, KeySum, Stores, batches, same_end};
use super::wire::{OutgoingSum, Payload, Wire};

impl Stores {
    /// Gives every key the sum over all ranks, clipped to `bound`.
    pub(super) fn push_clipped(
        &self,
        wire: &Wire<'_>,
        config: &Terms,
        bound: f64,
        (dense, rows): (Vec<KeySum<'_>>, Vec<KeyRows<'_>>),
    ) -> Result<()> {
        let (mut keys, mut partitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for batch in batches(dense)? {
            let (of_batch, sums) = self.dense_sums(wire, batch)?;
            for ((key, partition), sum) in of_batch.into_iter().zip(sums) {
                fallible::push(&mut keys, key)?;
                fallible::push(&mut partitions, partition)?;
                fallible::push(&mut values, sum)?;
            }
        }
        let num_dense = keys.len();
        if !rows.is_empty() {
            for (key, partition, sum) in self.row_sums(wire, rows)? {
                fallible::push(&mut keys, key)?;
                fallible::push(&mut partitions, partition)?;
                fallible::push(&mut values, Value::Rows(sum))?;
            }
        }
        let values = self.complete.sums(&keys, &values, Some(bound))?;
        if !config.policy.steps_parts() {
            let result = self.complete.push(&keys, &values, 0);
            let is_updater = matches!(config.policy, super::config::Policy::Updater);
            return if is_updater { same_end(wire, &keys, result) } else { result };
        }
        let (dense, rows) = values.split_at(num_dense);
        let (dense_keys, row_keys) = keys.split_at(num_dense);
        let (dense_partitions, row_partitions) = partitions.split_at(num_dense);
        let parts = self.dense_parts(dense_partitions, dense)?;
        let stepped = self.step_dense(wire, dense_keys, dense_partitions, parts.into_iter())?;
        self.complete.push(dense_keys, &stepped, 0)?;
        if row_keys.is_empty() {
            return Ok(());
        }
        let parts = self.row_parts(row_partitions, rows)?;
        self.step_rows(wire, config, row_keys, row_partitions, parts)
    }

    /// Returns the sums over all ranks of a batch, the same on every rank, with their keys.
    fn dense_sums<'p>(
        &self,
        wire: &Wire<'_>,
        batch: Vec<KeySum<'p>>,
    ) -> Result<(Vec<(Key, &'p Partition)>, Vec<Value>)> {
        let mut keys = fallible::with_capacity(batch.len())?;
        let mut sent = fallible::with_capacity(batch.len())?;
        for (key, partition, sum) in batch {
            sent.push(OutgoingSum { partition, content: Payload::Value(sum) });
            keys.push((key, partition));
        }
        let received = wire.scatter(&sent)?;
        let received = received.into_iter().map(|tensors| tensors.into_iter().map(Value::from));
        let names = fallible::collect(keys.iter().map(|(key, _)| key.clone()))?;
        let partitions = fallible::collect(keys.iter().map(|(_, partition)| *partition))?;
        let sums = self.sums_of_parts(&names, &partitions, received)?;
        let sums = sums.into_iter().map(|sum| sum.map(|sum| sum.to_dense()).transpose());
        let sums = wire.gather(&partitions, &fallible::try_collect(sums)?)?;
        Ok((keys, fallible::collect(sums.into_iter().map(Value::from))?))
    }

    /// Returns the same for sums of rows.
    fn row_sums<'p>(
        &self,
        wire: &Wire<'_>,
        sums: Vec<KeyRows<'p>>,
    ) -> Result<Vec<(Key, &'p Partition, RowSparse)>> {
        let names = fallible::collect(sums.iter().map(|(key, ..)| key.clone()))?;
        let partitions: Vec<&Partition> =
            fallible::collect(sums.iter().map(|(_, partition, _)| *partition))?;
        let rows: Vec<RowSparse> = fallible::collect(sums.into_iter().map(|(.., rows)| rows))?;
        let received = wire.scatter_rows(&partitions, &rows)?;
        let received = received.into_iter().map(|rows| rows.into_iter().map(Value::Rows));
        let sums = self.sums_of_parts(&names, &partitions, received)?;
        let sums = sums.into_iter().map(|sum| sum.as_ref().and_then(Value::rows).cloned());
        let whole = wire.gather_rows(&partitions, &fallible::collect(sums)?)?;
        let named = names.into_iter().zip(partitions).zip(whole);
        fallible::try_collect(
            named.map(|((key, partition), rows)| Ok((key, partition, partition.unlist(rows)?))),
        )
    }

    /// Returns the sum of what all ranks have sent for each of this rank's parts.
    fn sums_of_parts(
        &self,
        keys: &[Key],
        partitions: &[&Partition],
        values: impl ExactSizeIterator<Item = impl ExactSizeIterator<Item = Value>>,
    ) -> Result<Vec<Option<Value>>> {
        let mut received: HashMap<&Key, Vec<Value>> = fallible::hash_map(keys.len())?;
        for (key, values) in keys.iter().zip(values) {
            received.insert(key, fallible::collect(values)?);
        }
        self.own(keys, partitions, |own| {
            let (mut pushed, mut all) = (Vec::new(), Vec::new());
            for key in own {
                for value in received.remove(key).unwrap_or_default() {
                    fallible::push(&mut pushed, key.clone())?;
                    fallible::push(&mut all, value)?;
                }
            }
            self.part.sums(&pushed, &all, None)
        })
    }

    /// Returns this rank's part of each value: one value, or none.
    fn dense_parts(
        &self,
        partitions: &[&Partition],
        values: &[Value],
    ) -> Result<Vec<std::option::IntoIter<Value>>> {
        let rank = self.rank();
        fallible::try_collect(partitions.iter().zip(values).map(|(partition, value)| {
            let Some(part) = partition.part(rank) else { return Ok(None.into_iter()) };
            let first = partition.elements(rank).start;
            let part = value.to_dense()?.view(first, part.shape().clone())?.compact()?;
            Ok(Some(Value::from(part)).into_iter())
        }))
    }

    /// Returns this rank's rows of each value: one value, or none.
    fn row_parts(
        &self,
        partitions: &[&Partition],
        values: &[Value],
    ) -> Result<Vec<Vec<RowSparse>>> {
        let rank = self.rank();
        fallible::try_collect(partitions.iter().zip(values).map(|(partition, value)| {
            let Some(rows) = value.rows() else { return Ok(Vec::new()) };
            let part = part_of_rows(partition, &partition.list(rows)?, rank)?;
            fallible::gather(part)
        }))
    }
}

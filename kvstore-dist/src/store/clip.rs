//! Pushes with clipping by the norm over all keys of the push.
//!
//! The norm needs every sum before any key changes. So the ranks first compute and exchange the
//! complete sums. Then every rank clips them in the same way and steps its parts or the complete
//! values.

use std::collections::HashMap;

use kvstore_core::fallible;
use kvstore_core::{Key, KvStore, Result, RowSparse, Value};

use super::config::{Policy, Terms};
use super::local_stores::Stores;
use super::partition::Partition;
use super::push::{KeyRows, KeySum, batches, same_end, unzip};
use super::row_messages::part_of_rows;
use super::wire::{OutgoingSum, Payload, Wire};

/// The sums of keys over all ranks, the same on every rank.
#[derive(Default)]
struct Sums<'a> {
    keys: Vec<Key>,
    partitions: Vec<&'a Partition>,
    values: Vec<Value>,
}

impl<'a> Sums<'a> {
    fn push(&mut self, key: Key, partition: &'a Partition, value: Value) -> Result<()> {
        fallible::push(&mut self.keys, key)?;
        fallible::push(&mut self.partitions, partition)?;
        fallible::push(&mut self.values, value)
    }
}

impl Stores {
    /// Pushes the sums over all ranks, clipped to `bound`.
    pub(super) fn push_clipped(
        &self,
        wire: &Wire<'_>,
        config: &Terms,
        bound: f64,
        (dense, rows): (Vec<KeySum<'_>>, Vec<KeyRows<'_>>),
    ) -> Result<()> {
        let mut sums = Sums::default();
        for batch in batches(dense)? {
            self.add_dense(wire, batch, &mut sums)?;
        }
        let num_dense = sums.keys.len();
        if !rows.is_empty() {
            self.add_rows(wire, rows, &mut sums)?;
        }
        let Sums { keys, partitions, values } = sums;
        let values = self.complete.sums(&keys, &values, Some(bound))?;
        // Every rank has the same clipped sums, so steps of complete values need no exchange.
        if !config.policy.steps_parts() {
            let result = self.complete.push(&keys, &values, 0);
            let may_fail = matches!(config.policy, Policy::Updater);
            return if may_fail { same_end(wire, &keys, result) } else { result };
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

    /// Adds the sums of a batch of dense values over all ranks.
    fn add_dense<'a>(
        &self,
        wire: &Wire<'_>,
        batch: Vec<KeySum<'a>>,
        sums: &mut Sums<'a>,
    ) -> Result<()> {
        let (keys, partitions, values) = unzip(batch)?;
        let sent = partitions
            .iter()
            .zip(values)
            .map(|(partition, value)| OutgoingSum { partition, content: Payload::Value(value) });
        let received = wire.scatter(&fallible::collect(sent)?)?;
        let received = received.into_iter().map(|tensors| tensors.into_iter().map(Value::from));
        let parts = self.sums_of_parts(&keys, &partitions, received)?;
        let parts = parts.into_iter().map(|sum| sum.map(|sum| sum.to_dense()).transpose());
        let values = wire.gather(&partitions, &fallible::try_collect(parts)?)?;
        for ((key, partition), value) in keys.into_iter().zip(partitions).zip(values) {
            sums.push(key, partition, value.into())?;
        }
        Ok(())
    }

    /// Adds the sums of row-sparse values over all ranks.
    fn add_rows<'a>(
        &self,
        wire: &Wire<'_>,
        pushed: Vec<KeyRows<'a>>,
        sums: &mut Sums<'a>,
    ) -> Result<()> {
        let (keys, partitions, rows) = unzip(pushed)?;
        let received = wire.scatter_rows(&partitions, &rows)?;
        let received = received.into_iter().map(|rows| rows.into_iter().map(Value::Rows));
        let parts = self.sums_of_parts(&keys, &partitions, received)?;
        let parts = parts.into_iter().map(|sum| sum.as_ref().and_then(Value::rows).cloned());
        let complete = wire.gather_rows(&partitions, &fallible::collect(parts)?)?;
        for ((key, partition), rows) in keys.into_iter().zip(partitions).zip(complete) {
            sums.push(key, partition, partition.unlist(rows)?.into())?;
        }
        Ok(())
    }

    /// Returns the sum of the received values for each of this rank's parts.
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
            self.part().sums(&pushed, &all, None)
        })
    }

    /// Returns this rank's part of each value: at most one for each value.
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

    /// Returns this rank's rows of each value: at most one [`RowSparse`] for each value.
    fn row_parts(
        &self,
        partitions: &[&Partition],
        values: &[Value],
    ) -> Result<Vec<Vec<RowSparse>>> {
        let rank = self.rank();
        fallible::try_collect(partitions.iter().zip(values).map(|(partition, value)| {
            let Some(rows) = value.rows() else { return Ok(Vec::new()) };
            fallible::gather(part_of_rows(partition, &partition.list(rows)?, rank)?)
        }))
    }
}

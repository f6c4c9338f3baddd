//! A store of many workers that looks like one store: every worker runs the same check or program, and the values of
//! each push are spread over them. So what is written for one store says the same of many workers.
//!
//! A worker gives values that are not its own a neutral element, which adds nothing: -0.0 in floats, for +0.0 would
//! make +0.0 of -0.0, and 0 in integers. The order of the values is that of the workers, so the sum has the bits of one
//! store that is given all of them. Compression is the exception, for a worker sends codes of its sum, not of each
//! value: [`Model::of_workers`](crate::model::Model::of_workers) knows it.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use kvstore_core::{
    Compression, Description, Key, KeyStats, KvStore, OnExisting, Optimizer, OptimizerState,
    PulledValue, Result, RowSparse, Scalar, Snapshot, Tensor, Updater, Value, WorkerGroup,
};

use crate::arithmetic::{is_half, sum};
use crate::value::{Number, Value as NaiveValue};

/// What adds nothing.
const NEUTRAL: f64 = -0.0;

/// Returns the worker that pushes the value at this position, of so many that a key has in a call.
///
/// Where there are no more values than workers each has its own worker, and which those are depends on the key. Of more
/// values the first worker has all that are too many; of half floats all, for each sum of them is rounded.
pub fn worker_of(
    key: &str,
    (position, count): (usize, usize),
    num_workers: usize,
    is_half: bool,
) -> usize {
    match num_workers.checked_sub(count) {
        Some(free) => position + key.bytes().map(usize::from).sum::<usize>() % (free + 1),
        None if is_half => 0,
        None => position.saturating_sub(count - num_workers),
    }
}

/// Returns what each of so many workers sums up of the values of a key.
pub fn sums_of_workers(key: &str, values: &[NaiveValue], num_workers: usize) -> Vec<NaiveValue> {
    let sum_of = |worker| {
        let spread = values.iter().enumerate().map(|(position, value)| {
            let place = (position, values.len());
            if worker_of(key, place, num_workers, is_half(value.spec.dtype)) == worker {
                return value.clone();
            }
            NaiveValue::new(value.spec.clone(), &vec![Number::Float(NEUTRAL); value.numbers.len()])
        });
        sum(&spread.collect::<Vec<_>>())
    };
    (0..num_workers).map(sum_of).collect()
}

/// A worker's store, on which all workers make the same calls.
#[derive(Debug)]
pub struct Spread<S>(pub S);

impl<S: KvStore> Spread<S> {
    /// Returns the values with neutral elements for those of other workers.
    fn own(&self, keys: &[Key], values: &[Value]) -> Result<Vec<Value>> {
        let (rank, num_workers) = (self.0.rank()?, self.0.num_workers()?);
        let mut counts: HashMap<&Key, usize> = HashMap::new();
        for key in keys {
            *counts.entry(key).or_default() += 1;
        }
        let mut positions: HashMap<&Key, usize> = HashMap::new();
        let own = values.iter().enumerate().map(|(index, value)| {
            // A call with too many values is the store's to refuse.
            let Some(key) = keys.get(index) else { return Ok(value.clone()) };
            let position = positions.entry(key).or_default();
            let place = (*position, counts[key]);
            *position += 1;
            let is_half = is_half(value.spec().dtype());
            if worker_of(key.as_str(), place, num_workers, is_half) == rank {
                return Ok(value.clone());
            }
            neutral(value)
        });
        own.collect()
    }
}

/// Returns what adds nothing to a value of this spec, in the same rows.
fn neutral(value: &Value) -> Result<Value> {
    let fill = |tensor: &Tensor| {
        let mut tensor = tensor.clone();
        tensor.fill(Scalar::from(NEUTRAL))?;
        Ok(tensor)
    };
    match value {
        Value::Dense(tensor) => Ok(fill(tensor)?.into()),
        Value::Rows(rows) => {
            let dims = rows.spec().shape().dims().to_vec();
            Ok(RowSparse::new(dims, rows.indices().to_vec(), fill(rows.rows())?)?.into())
        }
    }
}

impl<S: KvStore> KvStore for Spread<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    /// The first worker's values are those of all: the others give neutral ones.
    fn init_with(&self, keys: &[Key], values: &[Value], existing: OnExisting) -> Result<()> {
        if self.0.rank()? == 0 {
            return self.0.init_with(keys, values, existing);
        }
        let others = values.iter().map(neutral).collect::<Result<Vec<_>>>()?;
        self.0.init_with(keys, &others, existing)
    }

    fn push(&self, keys: &[Key], values: &[Value], priority: i32) -> Result<()> {
        self.0.push(keys, &self.own(keys, values)?, priority)
    }

    fn pull_into(&self, keys: &[Key], priority: i32, pulled: &mut Vec<PulledValue>) -> Result<()> {
        self.0.pull_into(keys, priority, pulled)
    }

    fn pull_rows(&self, keys: &[Key], ids: &[&[i64]], priority: i32) -> Result<Vec<RowSparse>> {
        self.0.pull_rows(keys, ids, priority)
    }

    fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        self.0.describe(keys)
    }

    fn remove(&self, keys: &[Key]) -> Result<()> {
        self.0.remove(keys)
    }

    fn keys(&self) -> Result<Vec<Key>> {
        self.0.keys()
    }

    /// Of several workers each has a part of the states, which may be another one after a rollback: that is left out.
    fn stats(&self) -> Result<Vec<KeyStats>> {
        let mut stats = self.0.stats()?;
        if self.0.num_workers()? > 1 {
            for of_key in &mut stats {
                of_key.state_bytes = 0;
            }
        }
        Ok(stats)
    }

    fn contains(&self, key: &Key) -> Result<bool> {
        self.0.contains(key)
    }

    fn set_updater(&self, updater: Option<Arc<dyn Updater>>) -> Result<()> {
        self.0.set_updater(updater)
    }

    fn set_optimizer(&self, optimizer: Optimizer) -> Result<()> {
        self.0.set_optimizer(optimizer)
    }

    fn optimizer(&self) -> Result<Option<Optimizer>> {
        self.0.optimizer()
    }

    fn set_hyper_parameters(&self, parameters: &[(&str, f64)]) -> Result<()> {
        self.0.set_hyper_parameters(parameters)
    }

    fn set_compression(&self, compression: Option<Compression>) -> Result<()> {
        self.0.set_compression(compression)
    }

    fn compression(&self) -> Result<Option<Compression>> {
        self.0.compression()
    }

    fn set_clip_global_norm(&self, bound: Option<f64>) -> Result<()> {
        self.0.set_clip_global_norm(bound)
    }

    fn clip_global_norm(&self) -> Result<Option<f64>> {
        self.0.clip_global_norm()
    }

    fn snapshot(&self) -> Result<Snapshot> {
        self.0.snapshot()
    }

    fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        self.0.rollback(snapshot)
    }

    fn share_snapshot(&self, own: Result<Snapshot>) -> Result<Snapshot> {
        self.0.share_snapshot(own)
    }

    fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        self.0.set_optimizer_states(optimizer, states)
    }
}

impl<S: KvStore> WorkerGroup for Spread<S> {
    fn rank(&self) -> Result<usize> {
        self.0.rank()
    }

    fn num_workers(&self) -> Result<usize> {
        self.0.num_workers()
    }

    fn barrier(&self) -> Result<()> {
        self.0.barrier()
    }

    fn set_barrier_before_exit(&self, wait: bool) -> Result<()> {
        self.0.set_barrier_before_exit(wait)
    }

    fn num_dead_node(&self, node_id: i32) -> Result<usize> {
        self.0.num_dead_node(node_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_order_of_workers() {
        let workers = |key, count, num_workers, is_half| {
            (0..count)
                .map(|position| worker_of(key, (position, count), num_workers, is_half))
                .collect::<Vec<_>>()
        };
        assert_eq!(workers("\u{1}", 2, 3, false), [1, 2]);
        assert_eq!(workers("\u{2}", 2, 3, true), [0, 1]);
        assert_eq!(workers("a", 3, 3, false), [0, 1, 2]);
        assert_eq!(workers("a", 5, 3, false), [0, 0, 0, 1, 2]);
        assert_eq!(workers("a", 5, 3, true), [0; 5]);
        assert_eq!(workers("a", 3, 1, false), [0; 3]);
    }
}

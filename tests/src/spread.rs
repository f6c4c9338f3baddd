//! [`Spread`]: a store of many workers that behaves like one store. Every worker runs the same
//! check or program, and the values of each push are spread over the workers. So a check for one
//! store also checks many workers.
//!
//! A worker replaces the values of other workers with a neutral element: 0 for integers and -0.0
//! for floats, because adding +0.0 would turn -0.0 into +0.0. The values are in the order of the
//! workers, so the sum has the bits of one store that receives all values. Compression is the
//! exception, because a worker sends codes of its sum, not of each value;
//! [`Model::of_workers`](crate::model::Model::of_workers) takes this into account.

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

/// The neutral element of addition.
const NEUTRAL: f64 = -0.0;

/// Returns the worker that pushes the value at this position in the list of a key's values.
///
/// If there are at most as many values as workers, each value has its own worker, and the key
/// determines which. If there are more, the first worker gets all surplus values. In half precision
/// it gets all values, because the sum of each worker is rounded.
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

/// Returns the sum of each worker's values of a key.
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

/// A worker's store. All workers make the same calls.
#[derive(Debug)]
pub struct Spread<S>(pub S);

impl<S: KvStore> Spread<S> {
    /// Returns the values. Neutral elements replace the values of other workers.
    fn own(&self, keys: &[Key], values: &[Value]) -> Result<Vec<Value>> {
        let (rank, num_workers) = (self.0.rank()?, self.0.num_workers()?);
        let mut counts: HashMap<&Key, usize> = HashMap::new();
        for key in keys {
            *counts.entry(key).or_default() += 1;
        }
        let mut positions: HashMap<&Key, usize> = HashMap::new();
        let own = values.iter().enumerate().map(|(index, value)| {
            // Passes surplus values on, because the store must reject them.
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

/// Returns a neutral value of the same spec and the same rows.
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

    /// The store keeps the values of rank 0. Other ranks pass neutral values.
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

    /// Removes the size of the states, because each worker has a part of them, and another part
    /// after a rollback.
    fn stats(&self) -> Result<Vec<KeyStats>> {
        let mut stats = self.0.stats()?;
        if self.0.num_workers()? > 1 {
            for key_stats in &mut stats {
                key_stats.state_bytes = 0;
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

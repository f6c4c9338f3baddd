//! A failed allocation in a call of many keys returns an error on every rank.
//!
//! The file has one test, because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kvstore_allocators::{Case, FailingAllocator, case, run_cases_by, without_failures};
use kvstore_core::{
    Backends, BoxError, Compression, CpuBackend, DType, Device, Error, ErrorCode, Key, KvStore,
    OnExisting, Optimizer, OptimizerState, OptimizerStates, Result, RowSparse, Snapshot, Tensor,
    TensorSpec, Updater, Value, WorkerGroup,
};
use kvstore_dist::{DistStore, Group, LocalCollective};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// The number of keys. A list of this number of pointers is a long allocation.
const NUM_KEYS: usize = 2800;
const NUM_RANKS: usize = 2;
/// The distance between the allocations that fail. Failing each of up to 140 allocations of a
/// collective call would be slow, so only `make nightly` does that.
const STEP: usize = 24;

/// A rank of a group, with its store.
struct Worker {
    rank: usize,
    store: DistStore,
    backends: Backends,
    keys: Vec<Key>,
    others: Vec<Key>,
    _group: Arc<Group>,
}

impl Worker {
    /// Makes the calls of this rank. After an error it leaves the group, so that no rank waits for
    /// calls that this one does not make.
    fn run<R>(self, call: impl FnOnce(&Self) -> Result<R>) -> Result<(Self, R)> {
        match call(&self) {
            Ok(result) => Ok((self, result)),
            Err(error) => {
                self.check_values();
                Err(error)
            }
        }
    }

    /// A failed push has changed a key completely, or not at all.
    fn check_values(&self) {
        without_failures(|| {
            let Ok(keys) = self.store.keys() else { return };
            for value in self.store.pull(&keys, 0).into_iter().flatten() {
                let numbers = value.read_as::<f64>().unwrap();
                assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
            }
        });
    }

    fn tensor(&self, number: f64) -> Tensor {
        let spec = TensorSpec::new([2, 1], DType::F32);
        Tensor::full(&self.backends, Device::cpu(0), spec, number.into()).unwrap()
    }

    fn values(&self, number: f64) -> Vec<Value> {
        (0..NUM_KEYS).map(|_| Value::Dense(self.tensor(number))).collect()
    }

    fn rows(&self) -> Vec<Value> {
        let value = || RowSparse::new([2, 1], vec![0, 1], self.tensor(1.0)).unwrap();
        (0..NUM_KEYS).map(|_| Value::Rows(value())).collect()
    }
}

fn keys(prefix: &str) -> Vec<Key> {
    (0..NUM_KEYS).map(|number| Key::new(&format!("{prefix}{number}")).unwrap()).collect()
}

/// Runs `call` as each worker, at the same time.
fn on_each<T: Send, R: Send>(workers: Vec<T>, call: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let call = &call;
        let spawn = |worker| scope.spawn(move || call(worker));
        let threads: Vec<_> = workers.into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns workers whose stores have many keys, each with ones.
fn workers(num_ranks: usize) -> Vec<Worker> {
    on_each(
        LocalCollective::group(num_ranks).into_iter().enumerate().collect(),
        |(rank, member)| {
            let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
            let group = Group::new(Arc::new(member)).unwrap();
            group.set_timeout(Duration::from_secs(20));
            let store = DistStore::new("dist_sync", &backends, &group).unwrap();
            store.set_barrier_before_exit(false).unwrap();
            let worker =
                Worker { rank, store, backends, keys: keys("w"), others: keys("v"), _group: group };
            worker.store.init(&worker.keys, &worker.values(1.0)).unwrap();
            worker
        },
    )
}

/// Returns a case in which every rank makes calls. `prepare` makes their arguments.
fn on_ranks<T: Send + 'static>(
    name: &'static str,
    prepare: impl Fn(&Worker) -> T + Clone + Send + Sync + 'static,
    call: impl Fn(&Worker, &T) -> Result<()> + Clone + Send + Sync + 'static,
) -> Case<Error> {
    let prepare = move || {
        let prepare = prepare.clone();
        on_each(workers(NUM_RANKS), move |worker| {
            let given = prepare(&worker);
            (worker, given)
        })
    };
    case(name, prepare, move |ranks| {
        let results =
            on_each(ranks, |(worker, given)| worker.run(|worker| call(worker, &given)).map(drop));
        let errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        let cause = errors.iter().position(is_out_of_memory).unwrap_or(0);
        errors.into_iter().nth(cause).map_or(Ok(()), Err)
    })
}

/// Returns a case with a call that either succeeds or changes nothing. The group has one rank,
/// because of several ranks one may fail and another one succeed.
fn atomic<T: Send + 'static>(
    name: &'static str,
    prepare: impl Fn(&Worker) -> T + 'static,
    call: impl Fn(&Worker, &T) -> Result<()> + Clone + Send + 'static,
) -> Case<Error> {
    let contents = |worker: &Worker| worker.store.snapshot().unwrap().to_bytes().unwrap();
    let prepare = move || {
        let worker = workers(1).remove(0);
        let given = prepare(&worker);
        let before = contents(&worker);
        (worker, given, before)
    };
    case(name, prepare, move |(worker, given, before)| {
        let result = call(&worker, &given);
        if result.is_err() {
            without_failures(|| assert!(contents(&worker) == before, "the contents changed"));
        }
        result
    })
}

/// Returns whether an allocation failed, on this rank or on the rank that sent the error.
fn is_out_of_memory(error: &Error) -> bool {
    error.code() == ErrorCode::OutOfMemory || error.chain().contains("out of memory")
}

/// Pulls every key.
fn settle(worker: &Worker) -> Result<()> {
    worker.store.pull(&worker.keys, 0).map(drop)
}

fn set_momentum(worker: &Worker) {
    let optimizer = Optimizer::sgd().with("momentum", 0.9).unwrap();
    worker.store.set_optimizer(optimizer).unwrap();
}

/// Returns a case with pushes of values to a store that `prepare` changes, followed by a pull.
fn push(
    name: &'static str,
    prepare: fn(&Worker),
    values: fn(&Worker) -> Vec<Value>,
) -> Case<Error> {
    on_ranks(
        name,
        move |worker| {
            prepare(worker);
            values(worker)
        },
        |worker, values| {
            worker.store.push(&worker.keys, values, 0)?;
            settle(worker)
        },
    )
}

#[derive(Debug)]
struct Add;

impl Updater for Add {
    fn update(&self, _: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        *stored = pushed.clone();
        Ok(())
    }
}

/// Returns a snapshot of stores with an optimizer whose states are not zero.
fn snapshot(worker: &Worker) -> Snapshot {
    set_momentum(worker);
    worker.store.push(&worker.keys, &worker.values(1.0), 0).unwrap();
    worker.store.snapshot().unwrap()
}

fn states(worker: &Worker, snapshot: &Snapshot) -> Result<BTreeMap<Key, OptimizerState>> {
    let bytes = snapshot.optimizer_states_to_bytes(true)?;
    Ok(OptimizerStates::from_bytes(&worker.backends, &bytes)?.states)
}

fn compress(worker: &Worker) {
    worker.store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
}

fn clip(worker: &Worker) {
    worker.store.set_clip_global_norm(Some(1e-3)).unwrap();
}

fn pushes() -> Vec<Case<Error>> {
    vec![
        push("push", |_| (), |worker| worker.values(2.0)),
        push("push of rows", |_| (), Worker::rows),
        push("push with an optimizer", set_momentum, |it| it.values(2.0)),
        push("push of rows with an optimizer", set_momentum, Worker::rows),
        push("compressed push", compress, |worker| worker.values(2.0)),
        push("clipped push", clip, |worker| worker.values(2.0)),
        push("clipped push of rows", clip, Worker::rows),
        push(
            "clipped push of rows with an optimizer",
            |worker| {
                set_momentum(worker);
                clip(worker);
            },
            Worker::rows,
        ),
        push(
            "push with an updater",
            |worker| worker.store.set_updater(Some(Arc::new(Add))).unwrap(),
            |worker| worker.values(2.0),
        ),
        push(
            "compressed push with an updater",
            |worker| {
                compress(worker);
                worker.store.set_updater(Some(Arc::new(Add))).unwrap();
            },
            |worker| worker.values(2.0),
        ),
        on_ranks(
            "two pushes that travel together",
            |worker| worker.values(2.0),
            |worker, values| {
                let (first, second) = worker.keys.split_at(NUM_KEYS / 2);
                worker.store.push(first, &values[..first.len()], 0)?;
                worker.store.push(second, &values[first.len()..], 1)?;
                settle(worker)
            },
        ),
        on_ranks(
            "pushes that differ",
            |worker| worker.values(2.0),
            |worker, values| {
                let num_keys = NUM_KEYS - worker.rank;
                let pushed = worker.store.push(&worker.keys[..num_keys], &values[..num_keys], 0);
                match pushed.and_then(|()| settle(worker)) {
                    Err(Error::InvalidArgument(text)) if text.contains("different calls") => Ok(()),
                    other => other,
                }
            },
        ),
    ]
}

fn other_calls() -> Vec<Case<Error>> {
    vec![
        on_ranks(
            "init",
            |worker| worker.values(1.0),
            |worker, values| worker.store.init(&worker.others, values),
        ),
        on_ranks(
            "init with replacement",
            |worker| worker.values(2.0),
            |worker, values| worker.store.init_with(&worker.keys, values, OnExisting::Replace),
        ),
        on_ranks(
            "init that keeps",
            |worker| worker.values(2.0),
            |worker, values| worker.store.init_with(&worker.keys, values, OnExisting::Keep),
        ),
        on_ranks("remove", |_| (), |worker, ()| worker.store.remove(&worker.keys)),
        on_ranks("pull", |_| (), |worker, ()| settle(worker)),
        on_ranks(
            "pull of rows",
            |_| vec![&[0, 1][..]; NUM_KEYS],
            |worker, ids| worker.store.pull_rows(&worker.keys, ids, 0).map(drop),
        ),
        on_ranks("keys and stats", set_momentum, |worker, ()| {
            worker.store.keys()?;
            worker.store.stats().map(drop)
        }),
        on_ranks("snapshot", |_| (), |worker, ()| worker.store.snapshot().map(drop)),
        on_ranks(
            "snapshot with states and residuals",
            |worker| {
                compress(worker);
                snapshot(worker);
            },
            |worker, ()| worker.store.snapshot().map(drop),
        ),
        on_ranks("rollback", snapshot, |worker, snapshot| worker.store.rollback(snapshot)),
        on_ranks(
            "restore of rank 0",
            |worker| {
                let snapshot = snapshot(worker);
                if worker.rank == 0 { Some(snapshot) } else { None }
            },
            |worker, snapshot| {
                let missing = || Error::InvalidArgument("no file".to_owned());
                worker.store.share_snapshot(snapshot.clone().ok_or_else(missing)).map(drop)
            },
        ),
        on_ranks(
            "set_optimizer",
            |_| (),
            |worker, ()| worker.store.set_optimizer(Optimizer::new("adam")?),
        ),
        on_ranks(
            "an optimizer of rank 0",
            |_| (),
            |worker, ()| {
                if worker.rank == 0 {
                    worker.store.set_optimizer(Optimizer::new("adam")?)?;
                }
                worker.store.barrier()
            },
        ),
        on_ranks("set_optimizer_states", snapshot, |worker, snapshot| {
            worker.store.set_optimizer_states(None, states(worker, snapshot)?)
        }),
        atomic(
            "set_optimizer in place of another",
            |worker| drop(snapshot(worker)),
            |worker, ()| worker.store.set_optimizer(Optimizer::new("lamb")?),
        ),
        atomic(
            "set_optimizer_states of an optimizer that steps other parts",
            |worker| {
                worker.store.set_optimizer(Optimizer::new("lamb").unwrap()).unwrap();
                worker.store.push(&worker.keys, &worker.values(1.0), 0).unwrap();
                let others = worker.store.snapshot().unwrap();
                snapshot(worker);
                others
            },
            |worker, others| {
                let states = states(worker, others)?;
                worker.store.set_optimizer_states(Some(Optimizer::new("lamb")?), states)
            },
        ),
    ]
}

#[test]
fn a_failed_allocation_is_an_error_on_every_rank() {
    let cases = pushes().into_iter().chain(other_calls()).collect();
    run_cases_by(STEP, "a_failed_allocation_is_an_error_on_every_rank", cases, is_out_of_memory);
}

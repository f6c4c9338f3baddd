//! Stores with several workers, which are threads. Each call returns the bits of a single store
//! that receives the sum of every worker as a value.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::slice::from_ref;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

use kvstore_core::{
    Backends, BinaryOp, BoxError, Compression, DType, Error, ErrorCode, Key, KvStore, LocalStore,
    Optimizer, RowSparse, Scalar, Snapshot, Tensor, Updater, Value, WorkerGroup,
};
use kvstore_dist::{DistStore, Group, LocalCollective};
use proptest::prelude::*;
use tensors::tensor;
use values::{floats, full, key, rank};
use workers::{backends, on_workers};

mod halves;
mod recorded;
mod tensors;
mod threads;
mod values;
mod workers;

#[test]
fn recorded_programs() {
    let found = on_workers("dist_sync", 2, &backends(), recorded::run);
    assert_eq!(found, vec![recorded::EXPECTED.to_vec(); 2]);
}

#[test]
fn recorded_programs_with_a_compression() {
    on_workers("dist_sync", 2, &backends(), |store| recorded::compressed(store));
}

#[test]
fn recorded_programs_of_one_worker() {
    on_workers("dist_sync", 1, &backends(), |store| recorded::of_one_worker(store));
}

/// A program: the keys with their shapes, the settings, and the pushes of all workers.
#[derive(Clone, Debug)]
struct Program {
    keys: Vec<Vec<usize>>,
    dtype: DType,
    size: usize,
    optimizer: Option<&'static str>,
    compression: Option<&'static str>,
    clip: Option<f64>,
    pushes: Vec<Push>,
}

#[derive(Clone, Debug)]
struct Push {
    keys: Vec<usize>,
    num_values: usize,
    priority: i32,
    is_rows: bool,
}

fn programs() -> impl Strategy<Value = Program> {
    let dims = prop_oneof![
        Just(vec![3]),
        Just(vec![5000]),
        Just(vec![70, 33]),
        // Each norm has four blocks.
        Just(vec![3, 5000]),
        Just(vec![64, 3, 7, 2]),
        Just(vec![1300, 1]),
    ];
    let push = (prop::collection::vec(0_usize..4, 1..4), 1_usize..4, -2..3, any::<bool>());
    let push = push.prop_map(|(keys, num_values, priority, is_rows)| Push {
        keys,
        num_values,
        priority,
        is_rows,
    });
    let optimizer = prop::sample::select(vec![
        None,
        Some("sgd"),
        Some("adam"),
        Some("nag"),
        Some("sgld"),
        Some("lars"),
        Some("lamb"),
        Some("groupadagrad"),
        Some("adagrad"),
    ]);
    let compression = prop::sample::select(vec![None, None, Some("2bit"), Some("1bit")]);
    let clip = prop::sample::select(vec![None, Some(0.01), Some(30.0)]);
    let dtype = prop::sample::select(vec![DType::F32, DType::F16, DType::Bf16, DType::F64]);
    (
        prop::collection::vec(dims, 1..5),
        dtype,
        1_usize..5,
        optimizer,
        (compression, clip),
        prop::collection::vec(push, 1..8),
    )
        .prop_map(|(keys, dtype, size, optimizer, (compression, clip), mut pushes)| {
            for push in &mut pushes {
                push.is_rows &= compression.is_none();
                for key in &mut push.keys {
                    *key %= keys.len();
                }
            }
            let clip = clip.filter(|_| compression.is_none());
            Program { keys, dtype, size, optimizer, compression, clip, pushes }
        })
}

fn optimizer(name: &str) -> Optimizer {
    let optimizer = Optimizer::new(name).unwrap();
    match name {
        "sgd" | "lars" => optimizer.with("momentum", 0.9).unwrap(),
        _ => optimizer,
    }
}

impl Program {
    fn prepare(&self, store: &dyn KvStore, backends: &Backends) {
        if let Some(name) = self.optimizer {
            store.set_optimizer(optimizer(name)).unwrap();
        }
        store.set_clip_global_norm(self.clip).unwrap();
        for (number, dims) in self.keys.iter().enumerate() {
            let value = tensor(backends, self.dtype, dims, number);
            store.init(&[key(&number.to_string())], &[value.into()]).unwrap();
        }
    }

    /// Returns the keys and values of a worker's push.
    fn values(&self, backends: &Backends, number: usize, rank: usize) -> (Vec<Key>, Vec<Value>) {
        let push = &self.pushes[number];
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (place, &index) in push.keys.iter().enumerate() {
            for value in 0..push.num_values {
                let seed = number * 1000 + rank * 100 + place * 10 + value;
                let dims = &self.keys[index];
                keys.push(key(&index.to_string()));
                values.push(if push.is_rows {
                    let ids = (0..dims[0]).filter(|id| (id * 7 + seed).is_multiple_of(5));
                    let ids: Vec<i64> = ids.map(|id| i64::try_from(id).unwrap()).collect();
                    let mut row_dims = dims.clone();
                    row_dims[0] = ids.len();
                    let rows = tensor(backends, self.dtype, &row_dims, seed);
                    Value::Rows(RowSparse::new(dims.clone(), ids, rows).unwrap())
                } else {
                    tensor(backends, self.dtype, dims, seed).into()
                });
            }
        }
        (keys, values)
    }

    fn bytes(&self, store: &dyn KvStore) -> Vec<Vec<u8>> {
        let keys: Vec<Key> = (0..self.keys.len()).map(|number| key(&number.to_string())).collect();
        store.pull(&keys, 0).unwrap().iter().map(|value| value.to_bytes().unwrap()).collect()
    }

    /// Returns the values of a single store that receives the sum of each worker as a value.
    fn expected(&self, backends: &Backends) -> Vec<Vec<u8>> {
        let store = LocalStore::new("local", backends.clone()).unwrap();
        self.prepare(&store, backends);
        let compression = self.compression.map(|name| Compression::new(name, 0.5).unwrap());
        store.set_compression(compression).unwrap();
        for number in 0..self.pushes.len() {
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for rank in 0..self.size {
                let sums = LocalStore::new("local", backends.clone()).unwrap();
                Program { optimizer: None, clip: None, ..self.clone() }.prepare(&sums, backends);
                let (pushed, addends) = self.values(backends, number, rank);
                sums.push(&pushed, &addends, 0).unwrap();
                let mut unique = pushed;
                unique.sort_unstable();
                unique.dedup();
                values.extend(sums.stored(&unique).unwrap());
                keys.extend(unique);
            }
            store.push(&keys, &values, 0).unwrap();
        }
        self.bytes(&store)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn workers_match_one_store_that_receives_their_sums(program in programs()) {
        let backends = backends();
        let expected = program.expected(&backends);
        let found = on_workers("dist_sync", program.size, &backends, |store| {
            program.prepare(store, &backends);
            let compression = program.compression.map(|name| Compression::new(name, 0.5).unwrap());
            store.set_compression(compression).unwrap();
            for number in 0..program.pushes.len() {
                let (keys, values) = program.values(&backends, number, store.rank().unwrap());
                store.push(&keys, &values, program.pushes[number].priority).unwrap();
            }
            program.bytes(store)
        });
        for (rank, found) in found.iter().enumerate() {
            for (key, (expected, found)) in expected.iter().zip(found).enumerate() {
                prop_assert!(expected == found, "key {key} of rank {rank}");
            }
        }
    }
}

/// Takes a snapshot after three steps, and checks that stores restored from it continue with the
/// bits of a store that was not interrupted: the same store, another number of workers, and one
/// process.
fn after_a_snapshot(name: &str, dtype: DType, compression: Option<&str>, sizes: [usize; 2]) {
    let backends = backends();
    let program = Program {
        keys: vec![vec![3], vec![70, 33], vec![3, 5000]],
        dtype,
        size: sizes[0],
        optimizer: Some("adam"),
        compression: None,
        clip: None,
        pushes: vec![Push { keys: vec![0, 1, 2], num_values: 2, priority: 0, is_rows: false }],
    };
    // One worker pushes the value and the others push zeros, so that the sums do not depend on the
    // number of workers.
    let push = |store: &dyn KvStore, seed: usize, is_mine: bool| {
        let keys: Vec<Key> = (0..3).map(|number| key(&number.to_string())).collect();
        let value = |dims: &Vec<usize>| -> Value {
            let value = tensor(&backends, dtype, dims, seed);
            if is_mine { value.into() } else { tensor_of_zeros(&value).into() }
        };
        let values: Vec<Value> = program.keys.iter().map(value).collect();
        store.push(&keys, &values, 0).unwrap();
    };
    let set_up = |store: &dyn KvStore| {
        program.prepare(store, &backends);
        store.set_optimizer(optimizer(name)).unwrap();
        let compression = compression.map(|name| Compression::new(name, 0.5).unwrap());
        store.set_compression(compression).unwrap();
    };
    let found = on_workers("dist_sync", sizes[0], &backends, |store| {
        set_up(store);
        for seed in 0..3 {
            push(store, seed, store.rank().unwrap() == 0);
        }
        let snapshot = store.snapshot().unwrap();
        assert_eq!((snapshot.store_name(), snapshot.len()), ("dist_sync", 3));
        for seed in 3..6 {
            push(store, seed, store.rank().unwrap() == 0);
        }
        let expected = program.bytes(store);
        // Roll back and repeat the same steps.
        store.rollback(&snapshot).unwrap();
        for seed in 3..6 {
            push(store, seed, store.rank().unwrap() == 0);
        }
        assert!(program.bytes(store) == expected);
        (snapshot.to_bytes().unwrap(), expected)
    });
    for (bytes, expected) in &found {
        assert!(*bytes == found[0].0 && *expected == found[0].1, "ranks differ");
    }
    // Another number of workers continues from the file.
    let (bytes, expected) = &found[0];
    let continued = on_workers("dist_device_sync", sizes[1], &backends, |store| {
        store.rollback(&Snapshot::from_bytes(&backends, bytes).unwrap()).unwrap();
        for seed in 3..6 {
            push(store, seed, store.rank().unwrap() == 0);
        }
        program.bytes(store)
    });
    for found in continued {
        assert!(found == *expected, "{name} on {sizes:?} workers");
    }
    // A store of one process continues from the file too. Its values of a key use the residuals of
    // the workers, in order.
    let store = LocalStore::new("local", backends.clone()).unwrap();
    store.rollback(&Snapshot::from_bytes(&backends, bytes).unwrap()).unwrap();
    for seed in 3..6 {
        push(&store, seed, true);
    }
    if compression.is_none() || sizes[0] == 1 {
        assert!(program.bytes(&store) == *expected);
    }
}

fn tensor_of_zeros(value: &Tensor) -> Tensor {
    let mut zeros = value.clone();
    zeros.fill(Scalar::from(0.0)).unwrap();
    zeros
}

#[test]
fn any_number_of_workers_continues_from_a_snapshot() {
    for sizes in [[1, 2], [2, 3], [3, 1], [4, 4]] {
        after_a_snapshot("adam", DType::F32, None, sizes);
        after_a_snapshot("nadam", DType::F16, None, sizes);
        after_a_snapshot("sgld", DType::F32, None, sizes);
        after_a_snapshot("lars", DType::F32, None, sizes);
        after_a_snapshot("lamb", DType::F32, None, sizes);
        after_a_snapshot("lamb", DType::F16, None, sizes);
        after_a_snapshot("groupadagrad", DType::Bf16, None, sizes);
    }
    after_a_snapshot("sgd", DType::F32, Some("2bit"), [2, 2]);
    after_a_snapshot("adam", DType::Bf16, Some("1bit"), [3, 3]);
}

/// A call with invalid arguments fails on its own rank only. The other ranks do not see it.
#[test]
fn invalid_arguments_fail_before_other_ranks_are_involved() {
    let backends = backends();
    on_workers("dist_sync", 2, &backends, |store| {
        let value = || [full(&backends, &[2], 1.0)];
        store.init(&[key("a")], &value()).unwrap();
        if store.rank().unwrap() == 1 {
            let code = |result: Result<(), Error>| result.unwrap_err().code();
            assert_eq!(code(store.push(&[key("b")], &value(), 0)), ErrorCode::KeyNotFound);
            let other = [full(&backends, &[3], 1.0)];
            assert_eq!(code(store.push(&[key("a")], &other, 0)), ErrorCode::SpecMismatch);
            assert_eq!(code(store.push(&[key("a")], &[], 0)), ErrorCode::LengthMismatch);
            assert_eq!(code(store.init(&[key("c")], &[])), ErrorCode::LengthMismatch);
            assert_eq!(store.num_dead_node(7).unwrap_err().code(), ErrorCode::Unsupported);
            store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
            let row = tensor(&backends, DType::F32, &[1], 0);
            let rows = Value::Rows(RowSparse::new([2], vec![1], row).unwrap());
            assert_eq!(code(store.push(&[key("a")], &[rows], 0)), ErrorCode::InvalidArgument);
            store.set_compression(None).unwrap();
        }
        store.push(&[key("a")], &value(), 0).unwrap();
        assert_eq!(floats(store, "a"), [2.0, 2.0]);
        assert_eq!(store.init(&[key("a")], &value()).unwrap_err().code(), ErrorCode::KeyExists);
        store.remove(&[key("a")]).unwrap();
        assert!(store.keys().unwrap().is_empty());
        store.init(&[key("a")], &value()).unwrap();
        assert_eq!(floats(store, "a"), [1.0, 1.0]);
    });
}

#[test]
fn an_updater_runs_on_every_rank_and_push_returns_its_error() {
    #[derive(Debug)]
    struct Add {
        store: Weak<DistStore>,
    }

    impl Updater for Add {
        fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
            let store = self.store.upgrade().ok_or("no store")?;
            // An updater may read its store but not change it.
            assert!(store.pull(from_ref(key), 0)?[0].to_bytes()? == stored.to_bytes()?);
            let error = store.push(from_ref(key), &[pushed.clone().into()], 0).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            if pushed.read_as::<f32>()?[0] > 10.0 {
                return Err("too large".into());
            }
            *stored = stored.binary(BinaryOp::Add, pushed)?;
            Ok(())
        }
    }

    let backends = backends();
    thread::scope(|scope| {
        for member in LocalCollective::group(2) {
            let backends = &backends;
            scope.spawn(move || {
                let group = Group::new(Arc::new(member)).unwrap();
                let store = Arc::new(DistStore::new("dist_sync", backends, &group).unwrap());
                let updater = Add { store: Arc::downgrade(&store) };
                store.set_updater(Some(Arc::new(updater))).unwrap();
                store.init(&[key("a")], &[full(backends, &[2000], 1.0)]).unwrap();
                let push =
                    |number: f32| store.push(&[key("a")], &[full(backends, &[2000], number)], 0);
                push(2.0).unwrap();
                assert_eq!(floats(&*store, "a")[1999], 5.0);
                let error = push(6.0).unwrap_err();
                assert!(error.chain().contains("too large"), "{}", error.chain());
                push(1.0).unwrap();
                assert_eq!(floats(&*store, "a")[0], 7.0);
            });
        }
    });
}

/// A long list is sent in several batches: with an optimizer, with compression, and with an updater
/// that fails on a key.
#[test]
fn a_list_that_is_sent_in_several_batches_is_one_call() {
    #[derive(Debug)]
    struct FailsOnKey;

    impl Updater for FailsOnKey {
        fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
            if key.as_str() == "5" {
                return Err("not this one".into());
            }
            *stored = stored.binary(BinaryOp::Add, pushed)?;
            Ok(())
        }
    }

    let backends = backends();
    let dims = [300, 1000];
    let keys: Vec<Key> = (0..9).map(|number| key(&number.to_string())).collect();
    let found = on_workers("dist_sync", 2, &backends, |store| {
        store.init(&keys, &vec![full(&backends, &dims, 0.0); keys.len()]).unwrap();
        store.set_optimizer(Optimizer::new("test").unwrap()).unwrap();
        let push = |number: f32| {
            let values = vec![full(&backends, &dims, number); keys.len()];
            store.push(&keys, &values, 0)
        };
        let last =
            || keys.iter().map(|key| floats(store, key.as_str())[299_999]).collect::<Vec<_>>();
        push(1.0 + rank(store)).unwrap();
        let mut found = vec![last()];
        store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
        push(0.75).unwrap();
        push(0.25).unwrap();
        found.push(last());
        store.set_compression(None).unwrap();
        store.set_updater(Some(Arc::new(FailsOnKey))).unwrap();
        assert!(push(1.0).unwrap_err().chain().contains("not this one"));
        found.push(last());
        found
    });
    let mut updated = [7.0; 9];
    updated[5..].fill(5.0);
    let expected = vec![vec![3.0; 9], vec![5.0; 9], updated.to_vec()];
    assert_eq!(found, [expected.clone(), expected]);
}

/// Several stores of a process share its group.
#[test]
fn several_stores_of_a_process_share_its_group() {
    let backends = backends();
    thread::scope(|scope| {
        for member in LocalCollective::group(3) {
            let backends = &backends;
            scope.spawn(move || {
                let group = Group::new(Arc::new(member)).unwrap();
                let stores = ["dist", "dist_device_sync"]
                    .map(|name| DistStore::new(name, backends, &group).unwrap());
                for store in &stores {
                    store.init(&[key("a")], &[full(backends, &[5], 0.0)]).unwrap();
                }
                stores[1].set_optimizer(Optimizer::new("test").unwrap()).unwrap();
                for _ in 0..20 {
                    for store in &stores {
                        store.push(&[key("a")], &[full(backends, &[5], 1.0)], 0).unwrap();
                    }
                    stores[0].pull(&[key("a")], 0).unwrap();
                }
                assert_eq!(floats(&stores[0], "a"), [3.0; 5]);
                assert_eq!(floats(&stores[1], "a"), [60.0; 5]);
            });
        }
    });
}

/// Calls of a higher priority overtake others in an order that depends on timing. The results do
/// not change.
#[test]
fn priorities_change_no_result() {
    let backends = backends();
    let found = on_workers("dist_sync", 3, &backends, |store| {
        let keys: Vec<Key> = (0..20).map(|number| key(&number.to_string())).collect();
        let values = vec![full(&backends, &[1500], 0.0); keys.len()];
        store.init(&keys, &values).unwrap();
        store.set_optimizer(Optimizer::new("test").unwrap()).unwrap();
        for round in 0..10 {
            for (priority, key) in (-10..).zip(&keys) {
                let value = full(&backends, &[1500], rank(store) + 1.0);
                store.push(from_ref(key), &[value], priority).unwrap();
                if (round + store.rank().unwrap()).is_multiple_of(3) {
                    thread::yield_now();
                }
            }
            // One rank pulls in between.
            if store.rank().unwrap() == round % 3 {
                store.pull(&keys[3..5], 0).unwrap();
            }
        }
        keys.iter().map(|key| floats(store, key.as_str())[7]).collect::<Vec<_>>()
    });
    assert_eq!(found, vec![vec![60.0; 20]; 3]);
}

#[test]
fn errors_name_the_rank_that_does_not_make_the_call() {
    let backends = backends();
    let texts = thread::scope(|scope| {
        let workers: Vec<_> = LocalCollective::group(3)
            .into_iter()
            .map(|member| {
                let backends = &backends;
                scope.spawn(move || {
                    let group = Group::new(Arc::new(member)).unwrap();
                    let store = DistStore::new("dist_sync", backends, &group).unwrap();
                    store.set_barrier_before_exit(false).unwrap();
                    store.init(&[key("w")], &[full(backends, &[4], 0.0)]).unwrap();
                    group.set_timeout(Duration::from_millis(200));
                    if store.rank().unwrap() == 2 {
                        // This rank makes another call, so all ranks report the difference.
                        let error = store.barrier().unwrap_err();
                        return error.chain();
                    }
                    store.push(&[key("w")], &[full(backends, &[4], 1.0)], 0).unwrap();
                    let error = store.pull(&[key("w")], 0).unwrap_err();
                    // Rank 2 has left the group, so later calls fail too.
                    let value = [full(backends, &[4], 1.0)];
                    assert!(store.init(&[key("x")], &value).is_err());
                    error.chain()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    // Every rank receives the calls of all ranks.
    let calls = "(ranks 0, 1: push of `w` [4] f32; rank 2: barrier)";
    assert!(texts.iter().all(|text| text.contains(calls)), "{texts:?}");

    let text = thread::scope(|scope| {
        let mut members = LocalCollective::group(2).into_iter();
        let (first, second) = (members.next().unwrap(), members.next().unwrap());
        let waiting = scope.spawn(|| {
            let group = Group::new(Arc::new(first)).unwrap();
            group.set_timeout(Duration::from_millis(100));
            let store = DistStore::new("dist_sync", &backends, &group).unwrap();
            store.set_barrier_before_exit(false).unwrap();
            let error = store.init(&[key("w")], &[full(&backends, &[4], 0.0)]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Timeout);
            error.chain()
        });
        let text = waiting.join().unwrap();
        drop(second);
        text
    });
    assert!(text.contains("init of `w`, round 1: ") && text.contains("rank 1"), "{text}");
}

/// A rank that pushes more than the queue can hold waits for the other ranks. All pushes arrive.
#[test]
fn a_rank_that_is_ahead_waits() {
    const NUM_PUSHES: usize = 40;
    // Each push has 16 MiB. Up to 256 MiB may be queued, and one more push may be in progress.
    const MOST_AHEAD: usize = 17;
    let backends = backends();
    let value = full(&backends, &[4 << 20], 1.0);
    let (counts, changed) = (Mutex::new([0; 2]), Condvar::new());
    let most_ahead = on_workers("dist_sync", 2, &backends, |store| {
        store.init(&[key("a")], from_ref(&value)).unwrap();
        store.set_optimizer(Optimizer::new("test").unwrap()).unwrap();
        let mut most_ahead = 0;
        for _ in 0..NUM_PUSHES {
            if store.rank().unwrap() == 1 {
                // Wait until rank 0 is as far ahead as it can get. The timeout also gives it time
                // to get further ahead, in case the queue has no limit.
                let is_waited_for = |counts: &mut [usize; 2]| {
                    counts[0] < (counts[1] + MOST_AHEAD + 1).min(NUM_PUSHES)
                };
                let timeout = Duration::from_millis(20);
                drop(changed.wait_timeout_while(counts.lock().unwrap(), timeout, is_waited_for));
            }
            store.push(&[key("a")], from_ref(&value), 0).unwrap();
            let mut counts = counts.lock().unwrap();
            counts[store.rank().unwrap()] += 1;
            most_ahead = most_ahead.max(counts[0] - counts[1].min(counts[0]));
            changed.notify_all();
        }
        store.barrier().unwrap();
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let expected = 1.0 + 2.0 * NUM_PUSHES as f32;
        assert_eq!(floats(store, "a")[0], expected);
        most_ahead
    });
    println!("{most_ahead:?} pushes ahead");
    assert!(most_ahead.iter().all(|count| (1..=MOST_AHEAD).contains(count)), "{most_ahead:?}");
}

//! Workers that make different calls, have different settings, or fail. Every worker receives an
//! error, and no worker continues with other values.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use kvstore_core::{
    BinaryOp, BoxError, Compression, Device, Error, ErrorCode, Key, KvStore, LocalStore,
    OnExisting, Optimizer, OptimizerStates, Result, Snapshot, Tensor, Updater, Value, WorkerGroup,
};
use kvstore_dist::DistStore;
use values::{floats, full, key, rank};
use workers::{backends, on_workers};

mod threads;
mod values;
mod workers;

fn small(number: f32) -> Value {
    full(&backends(), &[4], number)
}

fn push(store: &dyn KvStore, name: &str, number: f32) -> Result<()> {
    store.push(&[key(name)], &[small(number)], 0)
}

fn two(work: impl Fn(&DistStore) + Sync) {
    on_workers("dist_sync", 2, &backends(), work);
}

fn text(result: Result<()>) -> String {
    result.unwrap_err().chain()
}

/// Checks that `work` returns the same with two workers as with a store of one process, to which
/// [`push_twice`] pushes the values of both workers.
fn as_one_store(work: impl Fn(&dyn KvStore) -> Vec<f32> + Sync) {
    let expected = work(&LocalStore::new("local", backends()).unwrap());
    let found = on_workers("dist_sync", 2, &backends(), |store| work(store));
    assert_eq!(found, [expected.clone(), expected]);
}

/// Pushes a number once for each of two workers.
fn push_twice(store: &dyn KvStore, number: f32) -> Result<()> {
    let count = if store.num_workers().unwrap() == 1 { 2 } else { 1 };
    store.push(&vec![key("a"); count], &vec![small(number); count], 0)
}

#[derive(Debug)]
struct Add;

impl Updater for Add {
    fn update(&self, _key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
        let first = pushed.read_as::<f32>()?[0];
        assert!(first >= 0.0, "less than nothing");
        if first > 0.9 {
            return Err("too large".into());
        }
        *stored = stored.binary(BinaryOp::Add, pushed)?;
        Ok(())
    }
}

/// Small values are assigned to the ranks in the order of initialisation, so a replaced value moves
/// to the other worker.
#[test]
fn replacing_a_key_changes_its_owner() {
    as_one_store(|store| {
        let sgd = Optimizer::sgd().with("momentum", 0.9).unwrap();
        store.set_optimizer(sgd.with("learning_rate", 1.0).unwrap()).unwrap();
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        push_twice(store, 1.0).unwrap();
        store.init_with(&[key("a")], &[small(0.0)], OnExisting::Replace).unwrap();
        push_twice(store, 1.0).unwrap();
        let snapshot = store.snapshot().unwrap();
        push_twice(store, 1.0).unwrap();
        let before = floats(store, "a")[0];
        store.rollback(&snapshot).unwrap();
        push_twice(store, 1.0).unwrap();
        vec![before, floats(store, "a")[0]]
    });
}

#[test]
fn a_panic_of_an_updater_is_an_error() {
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        store.set_updater(Some(Arc::new(Add))).unwrap();
        let text = text(push(store, "a", -1.0));
        assert!(text.contains("a panic: less than nothing"), "{text}");
        // `push` has returned the error, so later calls do not return it again.
        store.barrier().unwrap();
        push(store, "a", 0.25).unwrap();
        assert_eq!(floats(store, "a"), [0.5; 4]);
    });
}

#[test]
fn a_failing_updater_keeps_the_residuals() {
    as_one_store(|store| {
        store.set_updater(Some(Arc::new(Add))).unwrap();
        store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        assert_eq!(push_twice(store, 0.7).unwrap_err().code(), ErrorCode::Updater);
        let found = |store: &dyn KvStore| floats(store, "a")[0];
        let mut all = Vec::new();
        for number in [0.2, 0.2, 0.2] {
            all.push(f32::from(u8::from(push_twice(store, number).is_ok())));
            all.push(found(store));
        }
        all
    });
}

/// Only the messages between workers are compressed, also after a rollback.
#[test]
fn pushes_after_a_rollback_compress_once() {
    for optimizer in [None, Some("sgld"), Some("sgd")] {
        as_one_store(|store| {
            if let Some(name) = optimizer {
                store.set_optimizer(Optimizer::new(name).unwrap()).unwrap();
            }
            store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
            store.init(&[key("a")], &[small(0.0)]).unwrap();
            let mut found = Vec::new();
            let mut push = || {
                push_twice(store, 0.75).unwrap();
                found.push(floats(store, "a")[0]);
            };
            push();
            let snapshot = store.snapshot().unwrap();
            push();
            push();
            store.rollback(&snapshot).unwrap();
            push();
            push();
            found
        });
    }
}

#[test]
fn workers_agree_again_after_a_mistake() {
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        if store.rank().unwrap() == 1 {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        assert!(text(store.barrier()).starts_with("barrier: the ranks have different optimizers"));
        store.set_optimizer(Optimizer::sgd()).unwrap();
        push(store, "a", 1.0).unwrap();
        assert_eq!(floats(store, "a"), [-0.02; 4]);
        // A rollback also restores the optimizer, so an optimizer that only rank 0 has set before
        // it is no difference.
        let snapshot = store.snapshot().unwrap();
        if store.rank().unwrap() == 0 {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        store.rollback(&snapshot).unwrap();
        push(store, "a", 1.0).unwrap();
        store.barrier().unwrap();
        // Updaters have no states, so ranks may set them at different times.
        if store.rank().unwrap() == 0 {
            store.set_updater(Some(Arc::new(Add))).unwrap();
        }
        store.init(&[key("b")], &[small(0.0)]).unwrap();
        if store.rank().unwrap() == 1 {
            store.set_updater(Some(Arc::new(Add))).unwrap();
        }
        push(store, "b", 0.25).unwrap();
        assert_eq!(floats(store, "b"), [0.5; 4]);
    });
}

#[test]
fn snapshots_are_the_same_on_every_rank_or_fail() {
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        if store.rank().unwrap() == 0 {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        let text = text(store.snapshot().map(drop));
        assert!(text.starts_with("snapshot: the ranks have different optimizers"), "{text}");
        store.barrier().unwrap();
        let before = store.snapshot().unwrap();
        push(store, "a", 1.0).unwrap();
        let after = store.snapshot().unwrap();
        // The ranks have snapshots of different steps, as after a crash.
        let own = if store.rank().unwrap() == 0 { &before } else { &after };
        assert_eq!(store.rollback(own).unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(floats(store, "a"), [-0.02; 4]);
        store.rollback(&before).unwrap();
        assert_eq!(floats(store, "a"), [0.0; 4]);
    });
}

#[test]
fn a_file_with_an_updater_requires_an_updater_on_every_rank() {
    two(|store| {
        let local = LocalStore::new("local", backends()).unwrap();
        local.init(&[key("a")], &[small(5.0)]).unwrap();
        local.set_updater(Some(Arc::new(Add))).unwrap();
        let bytes = local.snapshot().unwrap().to_bytes().unwrap();
        let file = Snapshot::from_bytes(&backends(), &bytes).unwrap();
        store.init(&[key("a")], &[small(1.0)]).unwrap();
        if store.rank().unwrap() == 0 {
            store.set_updater(Some(Arc::new(Add))).unwrap();
        }
        assert!(text(store.rollback(&file)).contains("the ranks have different optimizers"));
        assert_eq!(floats(store, "a"), [1.0; 4]);
        if store.rank().unwrap() == 1 {
            store.set_updater(Some(Arc::new(Add))).unwrap();
        }
        store.rollback(&file).unwrap();
        push(store, "a", 0.125).unwrap();
        assert_eq!(floats(store, "a"), [5.25; 4]);
    });
}

/// Machines may have files of different runs under the same name.
#[test]
fn files_of_different_runs_are_rejected() {
    two(|store| {
        let local = LocalStore::new("local", backends()).unwrap();
        local.init(&[key("a")], &[small(1.0 + rank(store))]).unwrap();
        let file = local.snapshot().unwrap().to_bytes().unwrap();
        let read = Snapshot::from_bytes(&backends(), &file);
        let shared = store.share_snapshot(read).unwrap();
        store.init(&[key("b")], &[small(0.0)]).unwrap();
        let text = text(store.rollback(&shared));
        for rank in [0, 1] {
            let call = format!("rank {rank}: rollback of ");
            assert!(text.contains(&call), "{text}");
        }
        // The files differ only in their checksums.
        assert_eq!(text.matches("a file with checksum").count(), 2, "{text}");
        assert_eq!(store.keys().unwrap(), [key("b")]);
        // A shared file is the same on all ranks.
        let own = if store.rank().unwrap() == 0 {
            Ok(shared)
        } else {
            Err(Error::InvalidArgument("no file".to_owned()))
        };
        let shared = store.share_snapshot(own).unwrap();
        store.rollback(&shared).unwrap();
        assert_eq!(floats(store, "a"), [1.0; 4]);
    });
}

/// A delta has another checksum than the contents that the other ranks receive.
#[test]
fn ranks_without_a_delta_and_its_base_receive_the_contents() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalStore::new("local", backends()).unwrap();
    local.init(&[key("a"), key("b")], &[small(1.0), small(2.0)]).unwrap();
    let base = local.snapshot().unwrap();
    base.write(folder.path().join("base")).unwrap();
    local.push(&[key("b")], &[small(3.0)], 0).unwrap();
    local.snapshot().unwrap().write_since(folder.path().join("delta"), &base).unwrap();
    two(|store| {
        let is_first = store.rank().unwrap() == 0;
        let path = folder.path().join(if is_first { "delta" } else { "none" });
        let shared = store.share_snapshot(Snapshot::read(&backends(), path)).unwrap();
        assert_eq!(shared.file().is_some(), is_first);
        store.rollback(&shared).unwrap();
        assert_eq!((floats(store, "a"), floats(store, "b")), (vec![1.0; 4], vec![3.0; 4]));
    });
}

/// After a crash, the file may be on the machine of one rank only.
#[test]
fn all_ranks_receive_the_snapshot_of_one_rank() {
    let lost = |rank: usize| Err::<Snapshot, _>(Error::InvalidArgument(format!("no file {rank}")));
    two(|store| {
        store.init(&[key("a")], &[small(1.0)]).unwrap();
        let before = store.snapshot().unwrap();
        push(store, "a", 1.0).unwrap();
        for first in [0, 1] {
            let is_here = store.rank().unwrap() == first;
            let own = if is_here { Ok(before.clone()) } else { lost(store.rank().unwrap()) };
            let shared = store.share_snapshot(own).unwrap();
            assert!(shared.is_identical(&before).unwrap());
            store.rollback(&shared).unwrap();
            assert_eq!(floats(store, "a"), [1.0; 4]);
        }
        // A rank that has its own snapshot keeps it. The rollback detects differences.
        push(store, "a", 1.0).unwrap();
        let after = store.snapshot().unwrap();
        let own = if store.rank().unwrap() == 0 { before } else { after };
        assert!(store.share_snapshot(Ok(own.clone())).unwrap().is_identical(&own).unwrap());
        // Each rank receives its own reason first, then those of the others.
        let text = text(store.share_snapshot(lost(store.rank().unwrap())).map(drop));
        let (own, other) = (store.rank().unwrap(), 1 - store.rank().unwrap());
        assert_eq!(text, format!("no file {own}; rank {other}: no file {other}"));
    });
}

#[test]
fn states_must_be_loaded_on_every_rank() {
    let all = backends();
    let local = LocalStore::new("local", all.clone()).unwrap();
    local.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap();
    let value = |number: f32| full(&backends(), &[4000], number);
    local.init(&[key("a")], &[value(0.0)]).unwrap();
    local.push(&[key("a")], &[value(1.0)], 0).unwrap();
    let bytes = local.snapshot().unwrap().optimizer_states_to_bytes(true).unwrap();
    two(|store| {
        let load = || {
            let found = OptimizerStates::from_bytes(&all, &bytes).unwrap();
            store.set_optimizer_states(found.optimizer, found.states).unwrap();
        };
        store.init(&[key("a")], &[value(0.0)]).unwrap();
        if store.rank().unwrap() == 0 {
            load();
        }
        let text = text(store.barrier());
        assert!(text.contains("rank 0 has loaded optimizer states"), "{text}");
        load();
        store.push(&[key("a")], &[value(1.0)], 0).unwrap();
        let found = floats(store, "a");
        assert!(found[0] < -0.02 && found.iter().all(|it| *it == found[0]), "{}", found[0]);
    });
}

/// Calls that all ranks have queued are made, even if a later call of a higher priority differs
/// between the ranks.
#[test]
fn different_calls_are_found_among_equal_calls() {
    two(|store| {
        for name in ["a", "b", "c"] {
            store.init(&[key(name)], &[small(0.0)]).unwrap();
        }
        push(store, "a", 1.0).unwrap();
        let [name, priority] = if store.rank().unwrap() == 0 { ["b", "5"] } else { ["c", "-5"] };
        store.push(&[key(name)], &[small(1.0)], priority.parse().unwrap()).unwrap();
        assert_eq!(floats(store, "a"), [2.0; 4]);
        let text = text(store.pull(&[key(name)], 0).map(drop));
        let calls = "(rank 0: push with priority 5 of `b` [4] f32; \
                     rank 1: push with priority -5 of `c` [4] f32)";
        assert!(text.contains(calls), "{text}");
        assert!(store.barrier().is_err());
        // Afterwards, the ranks can make calls again.
        push(store, "a", rank(store)).unwrap();
        assert_eq!(floats(store, "a"), [1.0; 4]);
        store.barrier().unwrap();
    });
}

#[test]
fn a_rollback_forgets_failed_pushes_of_every_key() {
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        let before = store.snapshot().unwrap();
        store.init(&[key("b")], &[small(0.0)]).unwrap();
        // The priorities differ between the ranks, so the pushes fail.
        let priority = i32::try_from(store.rank().unwrap()).unwrap();
        for key in [key("a"), key("b")] {
            store.push(std::slice::from_ref(&key), &[small(1.0)], priority).unwrap();
            let error = store.pull(&[key], 0).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        }
        store.rollback(&before).unwrap();
        assert_eq!(floats(store, "a"), [0.0; 4]);
        // The snapshot lacks this key.
        let error = store.pull(&[key("b")], 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::KeyNotFound, "{error}");
    });
}

/// A push that fails in the background reports its error in the pull, on every rank and regardless
/// of timing.
#[test]
fn pulls_return_the_errors_of_earlier_pushes() {
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        if store.rank().unwrap() == 1 {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        for number in 0..3000 {
            push(store, "a", 1.0).unwrap_or_else(|error| panic!("push {number}: {error}"));
            let text = text(store.pull(&[key("a")], 0).map(drop));
            assert!(text.contains("the ranks have different optimizers"), "{text}");
        }
        // The barrier returns the error again.
        assert!(store.barrier().is_err());
        store.set_optimizer(Optimizer::sgd()).unwrap();
    });
}

/// A distributed store returns the same errors as a store of one process.
#[test]
fn errors_are_the_same_as_in_one_store() {
    let codes = |store: &dyn KvStore| {
        let code = |result: Result<(), Error>| result.unwrap_err().code();
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        let twice = [key("a"), key("a")];
        let kept = store.init_with(&twice, &[small(0.0), small(0.0)], OnExisting::Keep);
        store.set_optimizer(Optimizer::sgd()).unwrap();
        let integers = Tensor::from_slice(&backends(), Device::cpu(0), [4], &[1i32; 4]).unwrap();
        let integers: Value = integers.into();
        vec![
            code(kept),
            code(store.push(&[key("a")], std::slice::from_ref(&integers), 0)),
            code(store.push(&[key("none")], std::slice::from_ref(&integers), 0)),
            code(store.push(&twice, &[integers], 0)),
        ]
    };
    let expected = codes(&LocalStore::new("local", backends()).unwrap());
    two(|store| assert_eq!(codes(store), expected));
}

fn momentum() -> Optimizer {
    let sgd = Optimizer::sgd().with("momentum", 0.9).unwrap();
    sgd.with("learning_rate", 1.0).unwrap()
}

/// Pushes a gradient once for each of two workers. The value is long, so each worker has a part.
fn push_long(store: &dyn KvStore) {
    let count = if store.num_workers().unwrap() == 1 { 2 } else { 1 };
    let values = vec![full(&backends(), &[4000], 1.0); count];
    store.push(&vec![key("a"); count], &values, 0).unwrap();
}

/// If only rank 0 sets an optimizer or hyper-parameters, all ranks keep or drop their states as one
/// store would.
#[test]
fn settings_of_rank_0_have_the_effect_that_they_have_in_one_store() {
    /// The name, the calls of all ranks before, and the call of rank 0.
    type Program = (&'static str, fn(&dyn KvStore), fn(&dyn KvStore));
    let programs: [Program; 7] = [
        (
            "the same optimizer after a rollback",
            |store| {
                store.set_optimizer(momentum()).unwrap();
                push_long(store);
                store.rollback(&store.snapshot().unwrap()).unwrap();
            },
            |store| store.set_optimizer(momentum()).unwrap(),
        ),
        (
            "another one after a rollback",
            |store| {
                store.set_optimizer(momentum()).unwrap();
                push_long(store);
                store.rollback(&store.snapshot().unwrap()).unwrap();
            },
            |store| store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap(),
        ),
        (
            "the first one after a rollback",
            |store| store.rollback(&store.snapshot().unwrap()).unwrap(),
            |store| store.set_optimizer(momentum()).unwrap(),
        ),
        (
            "the first one after none",
            |store| store.set_updater(None).unwrap(),
            |store| store.set_optimizer(momentum()).unwrap(),
        ),
        (
            "a learning rate after pushes",
            |store| {
                store.set_optimizer(momentum()).unwrap();
                push_long(store);
                push_long(store);
            },
            |store| store.set_hyper_parameters(&[("learning_rate", 0.5)]).unwrap(),
        ),
        (
            "a learning rate before any push",
            |store| {
                store.set_optimizer(momentum()).unwrap();
                store.barrier().unwrap();
            },
            |store| store.set_hyper_parameters(&[("learning_rate", 0.5)]).unwrap(),
        ),
        (
            "nothing after pushes",
            |store| {
                store.set_optimizer(momentum()).unwrap();
                push_long(store);
            },
            |store| store.set_updater(None).unwrap(),
        ),
    ];
    for (name, before, set) in programs {
        println!("{name}");
        as_one_store(|store| {
            store.init(&[key("a")], &[full(&backends(), &[4000], 0.0)]).unwrap();
            before(store);
            if store.rank().unwrap() == 0 {
                set(store);
            }
            store.barrier().unwrap();
            for _ in 0..2 {
                push_long(store);
            }
            floats(store, "a")
        });
    }
}

#[test]
fn rank_0_may_change_loaded_states_and_updaters_of_all_ranks() {
    let all = backends();
    let local = LocalStore::new("local", all.clone()).unwrap();
    local.set_optimizer(momentum()).unwrap();
    local.init(&[key("a")], &[small(0.0)]).unwrap();
    push(&local, "a", 1.0).unwrap();
    let bytes = local.snapshot().unwrap().optimizer_states_to_bytes(true).unwrap();
    two(|store| {
        store.init(&[key("a")], &[small(0.0)]).unwrap();
        let found = OptimizerStates::from_bytes(&all, &bytes).unwrap();
        store.set_optimizer_states(found.optimizer, found.states).unwrap();
        store.barrier().unwrap();
        if store.rank().unwrap() == 0 {
            store.set_hyper_parameters(&[("learning_rate", 0.5)]).unwrap();
        }
        store.barrier().unwrap();
        push(store, "a", 1.0).unwrap();
        // The step is 0.9 of the momentum plus 0.5 of a gradient of 2.
        assert_eq!(floats(store, "a"), [-1.9; 4]);
        store.set_updater(Some(Arc::new(Add))).unwrap();
        store.barrier().unwrap();
        if store.rank().unwrap() == 0 {
            store.set_compression(Some(Compression::new("2bit", 0.25).unwrap())).unwrap();
        }
        store.barrier().unwrap();
        assert!(store.compression().unwrap().is_some());
    });
}

/// An updater that fails on one rank leaves the ranks with different values. All ranks receive an
/// error.
#[test]
fn an_updater_that_fails_on_one_rank_ends_the_group() {
    #[derive(Debug)]
    struct FailsOn(bool);

    impl Updater for FailsOn {
        fn update(&self, key: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
            if self.0 && key.as_str() == "1" {
                return Err("no room".into());
            }
            *stored = pushed.clone();
            Ok(())
        }
    }

    // A short list, and a list that is sent in several batches.
    for len in [4, 600_000] {
        let keys: Vec<Key> = (0..4).map(|number| key(&number.to_string())).collect();
        let values = |number| vec![full(&backends(), &[len], number); keys.len()];
        two(|store| {
            store.init(&keys, &values(0.0)).unwrap();
            store.set_updater(Some(Arc::new(FailsOn(store.rank().unwrap() == 1)))).unwrap();
            let text = text(store.push(&keys, &values(1.0), 0));
            assert!(text.contains("of rank 1 has failed on key `1`"), "{text}");
            assert_eq!(text.contains("no room"), store.rank().unwrap() == 1, "{text}");
            assert!(store.barrier().is_err() && store.push(&keys, &values(1.0), 0).is_err());
        });
    }
}

/// A local action that panics returns an error to the caller that waits for it.
#[test]
fn a_panic_of_one_rank_is_an_error() {
    #[derive(Debug)]
    struct Bomb;

    impl Updater for Bomb {
        fn update(&self, _: &Key, _: &Tensor, _: &mut Tensor) -> Result<(), BoxError> {
            Ok(())
        }
    }

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an updater that is in the way");
        }
    }

    on_workers("dist_sync", 1, &backends(), |store| {
        store.set_updater(Some(Arc::new(Bomb))).unwrap();
        assert!(text(store.set_updater(None)).contains("has panicked"));
    });
}

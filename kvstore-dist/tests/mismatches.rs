//! Errors of ranks that make different calls or cannot read a file.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{
    Device, Error, ErrorCode, KvStore, OnExisting, Optimizer, Result, Snapshot, Tensor, Value,
    WorkerGroup,
};
use kvstore_dist::DistStore;
use values::{floats, full, key};
use workers::{backends, on_workers};

mod threads;
#[allow(dead_code, reason = "each program of tests uses some of it")]
mod values;
mod workers;

fn small(number: f32) -> Value {
    full(&backends(), &[4], number)
}

fn two(work: impl Fn(&DistStore) + Sync) {
    on_workers("dist_sync", 2, &backends(), work);
}

fn text(result: Result<()>) -> String {
    result.unwrap_err().chain()
}

/// The reason why a rank has no file survives another failure of the call.
#[test]
fn a_failed_restore_names_the_missing_file() {
    two(|store| {
        store.init(&[key("a")], &[small(1.0)]).unwrap();
        let text = if store.rank().unwrap() == 0 {
            text(store.share_snapshot(Err(Error::InvalidArgument("no file".to_owned()))).map(drop))
        } else {
            text(store.remove(&[key("a")]))
        };
        assert!(text.contains("(rank 0: restore; rank 1: remove of `a`)"), "{text}");
        let lacks = text.ends_with("; this rank has no snapshot: no file");
        assert_eq!(lacks, store.rank().unwrap() == 0, "{text}");
        store.barrier().unwrap();
    });
}

/// The error keeps its kind and lists the reasons of all ranks.
#[test]
fn a_file_that_no_rank_can_read_names_the_cause_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged");
    std::fs::write(&damaged, [0; 100]).unwrap();
    let missing = folder.path().join("missing");
    two(|store| {
        let path = if store.rank().unwrap() == 0 { &missing } else { &damaged };
        let error = store.share_snapshot(Snapshot::read(&backends(), path)).map(drop).unwrap_err();
        let expected = if store.rank().unwrap() == 0 { ErrorCode::Io } else { ErrorCode::Corrupt };
        assert_eq!(error.code(), expected);
        let text = error.to_string();
        for part in ["missing: reading a checkpoint: No such file", "damaged is damaged: "] {
            assert!(text.contains(part), "{text}");
        }
    });
}

/// Every rank receives the same text, with the call of each rank.
#[test]
fn different_calls_are_named_on_every_rank() {
    type Program = fn(&DistStore) -> Result<()>;
    let programs: [(&str, Program, Program); 6] = [
        (
            "(rank 0: remove of `a`; ranks 1, 2: barrier)",
            |store| store.remove(&[key("a")]),
            DistStore::barrier,
        ),
        (
            "(rank 0: init of `x` [4] f32; ranks 1, 2: init of `x` [2, 2] f32)",
            |store| store.init(&[key("x")], &[small(0.0)]),
            |store| store.init(&[key("x")], &[full(&backends(), &[2, 2], 0.0)]),
        ),
        (
            "(rank 0: init of `x` [4] f32; ranks 1, 2: init of `x` [4] i32)",
            |store| store.init(&[key("x")], &[small(0.0)]),
            |store| {
                let value = Tensor::from_slice(&backends(), Device::cpu(0), [4], &[0i32; 4])?;
                store.init(&[key("x")], &[value.into()])
            },
        ),
        (
            "(rank 0: init of `x` [4] f32; ranks 1, 2: init that keeps keys of `x` [4] f32)",
            |store| store.init(&[key("x")], &[small(0.0)]),
            |store| store.init_with(&[key("x")], &[small(0.0)], OnExisting::Keep),
        ),
        (
            "(rank 0: remove of `x`, number 4 of 5; ranks 1, 2: remove of `y`, number 4 of 5)",
            |store| store.remove(&["a", "b", "c", "x", "d"].map(key)),
            |store| store.remove(&["a", "b", "c", "y", "d"].map(key)),
        ),
        (
            "(rank 0: remove of `a`, `b`; ranks 1, 2: remove of `b`, `a`)",
            |store| store.remove(&["a", "b"].map(key)),
            |store| store.remove(&["b", "a"].map(key)),
        ),
    ];
    for (expected, of_first, of_others) in programs {
        let texts = on_workers("dist_sync", 3, &backends(), |store| {
            store.init(&[key("a")], &[small(0.0)]).unwrap();
            let act = if store.rank().unwrap() == 0 { of_first } else { of_others };
            let error = act(store).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            // Nothing has changed, and the next call is made.
            store.barrier().unwrap();
            assert_eq!(store.keys().unwrap(), [key("a")]);
            error.to_string()
        });
        assert!(texts[0].contains(expected), "{}", texts[0]);
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
}

#[test]
fn errors_show_the_call_and_the_configuration_of_every_rank() {
    let backends = backends();
    on_workers("dist_sync", 3, &backends, |store| {
        let dims = [2, 2 + usize::from(store.rank().unwrap() == 2)];
        let error = store.init(&[key("a")], &[full(&backends, &dims, 0.0)]).unwrap_err();
        let calls = "(ranks 0, 1: init of `a` [2, 2] f32; rank 2: init of `a` [2, 3] f32)";
        assert!(error.to_string().contains(calls), "{error}");
        // The store is unchanged and usable.
        assert!(!store.contains(&key("a")).unwrap());
        store.init(&[key("a")], &[full(&backends, &[2], 0.0)]).unwrap();
        if store.rank().unwrap() == 1 {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        store.push(&[key("a")], &[full(&backends, &[2], 1.0)], 0).unwrap();
        let error = store.pull(&[key("a")], 0).unwrap_err();
        assert!(
            error.to_string().contains("(ranks 0, 2: no optimizer; rank 1: optimizer {"),
            "{error}"
        );
        // A key that is removed and initialised again is not affected.
        store.remove(&[key("a")]).unwrap();
        store.init(&[key("a")], &[full(&backends, &[2], 3.0)]).unwrap();
        assert_eq!(floats(store, "a"), [3.0, 3.0]);
        // Only rank 0 may set an optimizer alone.
        let error = store.barrier().unwrap_err();
        assert!(error.to_string().contains("rank 1: optimizer {"), "{error}");
        store.set_optimizer(Optimizer::sgd()).unwrap();
    });
}

/// Only the owner of a small value has its state.
#[test]
fn a_state_that_its_owner_cannot_save_is_an_error_of_all_ranks() {
    let long = key(&"k".repeat(70_000));
    two(|store| {
        let keys = [key("a"), long.clone()];
        store.init(&keys, &[small(1.0), small(1.0)]).unwrap();
        store.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap();
        store.push(&keys, &[small(1.0), small(1.0)], 0).unwrap();
        let error = store.snapshot().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
        assert!(error.chain().contains("rank "), "{}", error.chain());
        // No rank waits for the others, and the store still works.
        store.remove(std::slice::from_ref(&long)).unwrap();
        store.push(&keys[..1], &[small(1.0)], 0).unwrap();
        assert!(store.snapshot().is_ok());
    });
}

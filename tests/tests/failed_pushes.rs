//! A failed push changes nothing that a snapshot can see, no matter when it fails.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use kvstore::{Compression, ErrorCode, Key, KvStore, Optimizer, Tensor, Value};
use kvstore_core::{Backend, Backends, CpuBackend, Device, LocalStore, RowSparse};
use kvstore_tests::suite::assert_code;

const SMALL: usize = 4;
/// A length whose sum, state or residual does not fit into the remaining memory.
const LARGE: usize = 1 << 20;
const LEFT: usize = 1 << 20;

/// Pushes three values each to a small and a large key, with little memory left.
fn assert_a_failed_push_changes_nothing(
    prepare: impl FnOnce(&LocalStore, &dyn Fn(usize, f32) -> Value),
) {
    let backend = CpuBackend::new();
    let backends = Backends::new(vec![Arc::clone(&backend) as Arc<dyn Backend>]);
    let value = |len: usize, number: f32| -> Value {
        let elements = vec![number; len];
        Tensor::from_slice(&backends, Device::cpu(0), [len, 1], &elements).unwrap().into()
    };
    let store = LocalStore::new("local", backends.clone()).unwrap();
    let keys = ["small", "large"].map(|text| Key::new(text).unwrap());
    let values = [value(SMALL, 1.0), value(LARGE, 1.0)];
    store.init(&keys, &values).unwrap();
    prepare(&store, &value);
    let before = store.snapshot().unwrap();
    let pushed: Vec<Value> =
        [SMALL, LARGE].iter().flat_map(|&len| vec![value(len, 0.5); 3]).collect();
    let [small, large] = &keys;
    let lists = [small, small, small, large, large, large].map(Clone::clone);
    backend.trim();
    backend.set_memory_limit(Some(backend.live_bytes() + LEFT));
    assert_code(store.push(&lists, &pushed, 0), ErrorCode::OutOfMemory);
    backend.set_memory_limit(None);
    let after = store.snapshot().unwrap();
    assert_eq!(before.changed_keys(&after).unwrap(), []);
    assert!(before.is_identical(&after).unwrap());
    assert_eq!(before.to_bytes().unwrap(), after.to_bytes().unwrap());
    // With enough memory, the push succeeds and gives the normal result.
    let other = LocalStore::new("local", backends).unwrap();
    other.rollback(&before).unwrap();
    for store in [&store, &other] {
        store.push(&lists, &pushed, 0).unwrap();
    }
    assert!(store.snapshot().unwrap().is_identical(&other.snapshot().unwrap()).unwrap());
}

fn optimizer(name: &str) -> Optimizer {
    Optimizer::new(name).unwrap()
}

#[test]
fn a_failed_sum_changes_nothing() {
    assert_a_failed_push_changes_nothing(|_, _| {});
}

#[test]
fn a_failed_first_step_changes_nothing() {
    for name in ["adam", "dcasgd", "ftml", "lamb", "groupadagrad"] {
        assert_a_failed_push_changes_nothing(|store, _| {
            store.set_optimizer(optimizer(name)).unwrap();
        });
    }
}

#[test]
fn a_failed_step_of_a_new_optimizer_changes_nothing() {
    assert_a_failed_push_changes_nothing(|store, value| {
        store.set_optimizer(optimizer("adagrad")).unwrap();
        store.push(&[Key::new("small").unwrap()], &[value(SMALL, 2.0)], 0).unwrap();
        store.set_optimizer(optimizer("adam")).unwrap();
    });
}

#[test]
fn a_failed_step_of_another_formula_changes_nothing() {
    assert_a_failed_push_changes_nothing(|store, value| {
        store.set_optimizer(Optimizer::sgd()).unwrap();
        for (text, len) in [("small", SMALL), ("large", LARGE)] {
            store.push(&[Key::new(text).unwrap()], &[value(len, 2.0)], 0).unwrap();
        }
        store.set_hyper_parameters(&[("momentum", 0.9)]).unwrap();
    });
}

#[test]
fn a_failed_compressed_push_changes_nothing() {
    for with_optimizer in [false, true] {
        assert_a_failed_push_changes_nothing(|store, value| {
            store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
            // The key has one residual now, and gets two more.
            store.push(&[Key::new("small").unwrap()], &[value(SMALL, 2.0)], 0).unwrap();
            if with_optimizer {
                store.set_optimizer(optimizer("adam")).unwrap();
            }
        });
    }
}

#[test]
fn a_failed_step_of_a_row_sparse_key_changes_nothing() {
    assert_a_failed_push_changes_nothing(|store, value| {
        let (key, rows) = (Key::new("small").unwrap(), value(2, 3.0).to_dense().unwrap());
        store.remove(std::slice::from_ref(&key)).unwrap();
        let rows = RowSparse::new([SMALL, 1], vec![0, 2], rows).unwrap();
        store.init(&[key], &[rows.into()]).unwrap();
        store.set_optimizer(optimizer("adam")).unwrap();
    });
}

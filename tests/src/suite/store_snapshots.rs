//! Checks of snapshots of a complete store: each is a state that the store had, and a rollback
//! restores all of it.

#![expect(clippy::float_cmp, reason = "small whole numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use kvstore::{ErrorCode, Key, OnExisting, Optimizer, RowSparse, Snapshot, Store, Value};

use super::concurrency::{adding, on_threads};
use super::{array, assert_code, before_the_deadline, floats, stored};
use crate::place::device;
use crate::reduced;

const KEYS: [&str; 3] = ["a", "b", "c"];

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Returns the one number that all keys have.
fn agreed(snapshot: &Snapshot) -> f32 {
    let first = |text: &str| {
        snapshot.get(&key(text)).unwrap().unwrap().to_dense().unwrap().to_vec::<f32>().unwrap()[0]
    };
    let numbers = KEYS.map(first);
    assert!(numbers.iter().all(|number| *number == numbers[0]), "half of a call: {numbers:?}");
    numbers[0]
}

/// While threads push all keys at once, a snapshot has the same number of pushes for all keys: at
/// least the pushes that returned before it, and at most those that began before its end.
pub fn a_snapshot_is_a_state_that_the_store_had(store: &Store) {
    for set_rule in [adding as fn(&Store), subtracting_gradients] {
        let store = store.clone();
        let zeros = KEYS.map(|_| array(&[0.0; 50])).to_vec();
        store.init_with(KEYS, zeros, OnExisting::Replace).unwrap();
        set_rule(&store);
        let (begun, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        on_threads(4, move |number| {
            for _ in 0..reduced::times(60) {
                if number > 1 {
                    begun.fetch_add(1, Ordering::SeqCst);
                    store.push(KEYS, KEYS.map(|_| array(&[1.0; 50])).to_vec()).unwrap();
                    ended.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let least = ended.load(Ordering::SeqCst);
                let found = agreed(&store.snapshot().unwrap());
                let most = begun.load(Ordering::SeqCst);
                #[expect(clippy::cast_precision_loss, reason = "a small count")]
                let range = least as f32..=most as f32;
                assert!(range.contains(&found), "{found} pushes, of {range:?}");
            }
        });
    }
}

/// While threads push some of the keys each, a snapshot has, for each key, the value, state, count
/// and residual after the same number of pushes, bit for bit.
pub fn a_snapshot_has_value_and_state_after_the_same_push(store: &Store) {
    let num_pushes = reduced::times(60);
    let push = |store: &Store, keys: &[&str]| {
        store.push(keys, vec![array(&[1.5; 50]); keys.len()]).unwrap();
    };
    let begin = |store: &Store| {
        store.init(KEYS, KEYS.map(|_| array(&[0.0; 50])).to_vec()).unwrap();
        store.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap();
        store.set_gradient_compression("2bit", 1.0).unwrap();
    };
    begin(store);
    let mut after = vec![store.snapshot().unwrap()];
    for _ in 0..2 * num_pushes {
        push(store, &KEYS);
        after.push(store.snapshot().unwrap());
    }
    // Start again.
    store.remove(KEYS).unwrap();
    begin(store);
    let store = store.clone();
    on_threads(4, move |number| {
        for _ in 0..num_pushes {
            match number {
                2 => push(&store, &["a", "b"]),
                3 => push(&store, &["b", "c"]),
                _ => {
                    let found = store.snapshot().unwrap();
                    let stats: Vec<_> = found.stats().collect();
                    assert_eq!(stats[0].num_pushes + stats[2].num_pushes, stats[1].num_pushes);
                    for stats in stats {
                        let expected = &after[usize::try_from(stats.num_pushes).unwrap()];
                        let changed = expected.changed_keys(&found).unwrap();
                        assert!(!changed.contains(&stats.key), "{stats:?}");
                    }
                }
            }
        }
    });
}

/// Negates gradients, so that a gradient of 1 adds 1.
fn subtracting_gradients(store: &Store) {
    let optimizer = Optimizer::sgd().with("learning_rate", 1.0).unwrap();
    store.set_optimizer(optimizer.with("rescale_grad", -1.0).unwrap()).unwrap();
}

/// A rollback during pushes restores all keys together, and nothing deadlocks.
pub fn a_rollback_restores_all_keys_together(store: &Store) {
    store.init(KEYS, KEYS.map(|_| array(&[0.0; 50])).to_vec()).unwrap();
    adding(store);
    let store = store.clone();
    on_threads(4, move |number| {
        let start = store.snapshot().unwrap();
        for round in 0..reduced::times(40) {
            match number {
                0 if round % 4 == 0 => store.rollback(&start).unwrap(),
                1 => {
                    agreed(&store.snapshot().unwrap());
                }
                _ => store.push(KEYS, KEYS.map(|_| array(&[1.0; 50])).to_vec()).unwrap(),
            }
        }
        agreed(&store.snapshot().unwrap());
    });
}

/// A rollback restores keys, values, counts, states, residuals and settings, and the next steps
/// give the same bits as after the snapshot.
pub fn a_rollback_restores_values_states_and_settings(store: &Store) {
    let momentum = Optimizer::sgd().with("momentum", 0.9).unwrap();
    store.set_optimizer(momentum.with("learning_rate", 0.1).unwrap()).unwrap();
    store.set_gradient_compression("2bit", 0.5).unwrap();
    store.init(["a", "b"], vec![array(&[1.0, 2.0]), array(&[3.0])]).unwrap();
    let push = |value: f32| store.push("a", &array(&[value, -0.3])).unwrap();
    push(0.3);
    let (before, stats) = (store.snapshot().unwrap(), store.stats().unwrap());
    let mut runs = Vec::new();
    for _ in 0..2 {
        let mut values = Vec::new();
        for value in [0.4, 0.2, -0.9] {
            push(value);
            values.push(stored(store, "a"));
        }
        runs.push(values);
        store.init("new", &array(&[7.0])).unwrap();
        store.remove("b").unwrap();
        store.set_hyper_parameters(&[("learning_rate", 9.0)]).unwrap();
        store.clear_gradient_compression().unwrap();
        store.clear_updater().unwrap();
        store.rollback(&before).unwrap();
        assert_eq!(store.keys().unwrap(), [key("a"), key("b")]);
        assert_eq!(store.stats().unwrap(), stats);
        assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(store.hyper_parameters().unwrap()[0], ("learning_rate", 0.1));
    assert!(store.gradient_compression().unwrap().is_some());
    // A new key comes after the restored ones.
    store.init("later", &array(&[1.0])).unwrap();
    assert_eq!(store.keys().unwrap(), [key("a"), key("b"), key("later")]);
}

/// Changes to the store, to pulled arrays and to the snapshot's own tensors do not change a
/// snapshot.
pub fn a_snapshot_never_changes(store: &Store) {
    store.init("a", &array(&[1.0, 2.0])).unwrap();
    adding(store);
    let snapshot = store.snapshot().unwrap();
    store.push("a", &array(&[1.0, 1.0])).unwrap();
    let pulled = &store.pull_new("a").unwrap()[0];
    store.rollback(&snapshot).unwrap();
    pulled.fill(99.into()).unwrap();
    store.push("a", &array(&[5.0, 5.0])).unwrap();
    let mut own = snapshot.get(&key("a")).unwrap().unwrap().to_dense().unwrap();
    own.fill(98.into()).unwrap();
    assert_eq!(
        snapshot.get(&key("a")).unwrap().unwrap().to_dense().unwrap().to_vec::<f32>().unwrap(),
        [1.0, 2.0]
    );
    assert_eq!(stored(store, "a"), [6.0, 7.0]);
    assert_eq!(snapshot.stats().map(|stats| stats.num_pushes).sum::<u64>(), 0);
    assert!(snapshot.keys().eq([&key("a")]));
    assert!(snapshot.get(&key("b")).unwrap().is_none());
}

/// `changed_keys` returns the keys whose value, state or presence differs.
pub fn changed_keys_returns_the_keys_that_differ(store: &Store) {
    store.init(KEYS, KEYS.map(|_| array(&[1.0])).to_vec()).unwrap();
    store.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap();
    store.push(KEYS, KEYS.map(|_| array(&[0.0])).to_vec()).unwrap();
    let before = store.snapshot().unwrap();
    assert!(before.changed_keys(&before).unwrap().is_empty());
    // The value stays, but the count of updates changes.
    store.push("b", &array(&[0.0])).unwrap();
    store.remove("c").unwrap();
    store.init("d", &array(&[1.0])).unwrap();
    let after = store.snapshot().unwrap();
    assert_eq!(before.changed_keys(&after).unwrap(), ["b", "c", "d"].map(key));
    assert_eq!(after.changed_keys(&before).unwrap(), ["b", "d", "c"].map(key));
    assert!(!after.is_identical(&before).unwrap());
}

/// Row-sparse and dense values are equal if their bits are.
pub fn row_sparse_and_dense_values_with_equal_bits_are_identical(store: &Store) {
    let rows = |indices: &[i64], data: &[f32]| {
        let data = kvstore::array(data, [indices.len(), 2], device(0)).unwrap();
        Value::from(RowSparse::new([3, 2], indices.to_vec(), data.tensor()).unwrap())
    };
    let dense = |data: &[f32]| Value::from(kvstore::array(data, [3, 2], device(0)).unwrap());
    let holding = |value: Value| {
        store.init_with("a", &value, OnExisting::Replace).unwrap();
        store.snapshot().unwrap()
    };
    let same = [
        holding(dense(&[0.0, 0.0, 0.0, 0.0, 1.0, 0.0])),
        holding(rows(&[2], &[1.0, 0.0])),
        holding(rows(&[0, 2], &[0.0, 0.0, 1.0, 0.0])),
        holding(rows(&[1, 2], &[0.0, 0.0, 1.0, 0.0])),
    ];
    let others = [
        holding(dense(&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0])),
        holding(dense(&[0.0, -0.0, 0.0, 0.0, 1.0, 0.0])),
        holding(rows(&[1], &[1.0, 0.0])),
        holding(rows(&[0, 2], &[0.0, -0.0, 1.0, 0.0])),
        holding(rows(&[], &[])),
    ];
    // In both orders, because the operands may have different forms.
    for one in &same {
        assert!(same.iter().all(|other| one.is_identical(other).unwrap()));
        assert!(!others.iter().any(|other| one.is_identical(other).unwrap()));
        assert!(!others.iter().any(|other| other.is_identical(one).unwrap()));
    }
}

/// An updater cannot take a snapshot.
pub fn an_updater_cannot_take_a_snapshot(store: &Store) {
    store.init("a", &array(&[1.0])).unwrap();
    let (inner, before) = (store.clone(), store.snapshot().unwrap());
    let update = move |_: &Key, _: &kvstore::NDArray, _: &kvstore::NDArray| {
        assert_code(inner.snapshot(), ErrorCode::InvalidArgument);
        assert_code(inner.rollback(&before), ErrorCode::InvalidArgument);
        Ok(())
    };
    store.set_updater(update).unwrap();
    store.push("a", &array(&[1.0])).unwrap();
    // Breaks the cycle: the updater holds the store that holds it.
    store.clear_updater().unwrap();
}

/// A snapshot waits for running updaters. A pull waits for neither.
pub fn a_snapshot_waits_for_updaters_but_a_pull_does_not(store: &Store) {
    store.init(KEYS, KEYS.map(|_| array(&[0.0])).to_vec()).unwrap();
    let (go, is_inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (gate, inside) = (Arc::clone(&go), Arc::clone(&is_inside));
    let update = move |_: &Key, pushed: &kvstore::NDArray, stored: &kvstore::NDArray| {
        inside.store(true, Ordering::SeqCst);
        while !gate.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        Ok(stored.add_assign(pushed)?)
    };
    store.set_updater(update).unwrap();
    let store = store.clone();
    before_the_deadline(move || {
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        };
        let taken = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| store.push(KEYS, KEYS.map(|_| array(&[1.0])).to_vec()).unwrap());
            wait_for(&is_inside);
            scope.spawn(|| {
                assert_eq!(agreed(&store.snapshot().unwrap()), 1.0);
                taken.store(true, Ordering::SeqCst);
            });
            // Pauses give the snapshot time to finish too early.
            for _ in 0..100 {
                assert_eq!(floats(&store.pull_new("a").unwrap()[0]), [0.0]);
                thread::yield_now();
            }
            assert!(!taken.load(Ordering::SeqCst), "a snapshot inside a push");
            go.store(true, Ordering::SeqCst);
        });
    });
}

/// An updater that is dropped because another rule replaces it may call the store.
pub fn a_dropped_updater_may_call_the_store(store: &Store) {
    struct CallsOnDrop(Store);
    impl Drop for CallsOnDrop {
        fn drop(&mut self) {
            drop(self.0.optimizer().unwrap());
            self.0.push("a", &array(&[1.0])).unwrap();
            let snapshot = self.0.snapshot().unwrap();
            self.0.rollback(&snapshot).unwrap();
        }
    }
    let store = store.clone();
    before_the_deadline(move || {
        store.init("a", &array(&[0.0])).unwrap();
        let empty = store.snapshot().unwrap();
        let replace: [&dyn Fn(); 4] = [
            &|| store.clear_updater().unwrap(),
            &|| store.set_optimizer(Optimizer::sgd()).unwrap(),
            &|| store.rollback(&empty).unwrap(),
            // The running push is the last to hold the updater.
            &|| store.push("a", &array(&[1.0])).unwrap(),
        ];
        for (number, replace) in replace.into_iter().enumerate() {
            let (inner, calls) = (store.clone(), CallsOnDrop(store.clone()));
            let update = move |_: &Key, _: &kvstore::NDArray, _: &kvstore::NDArray| {
                let _calls = &calls;
                if number == 3 {
                    // In another thread, because this thread is inside an updater and may not
                    // change the store.
                    thread::scope(|scope| scope.spawn(|| inner.clear_updater()).join()).unwrap()?;
                }
                Ok(())
            };
            store.set_updater(update).unwrap();
            replace();
        }
    });
}

/// A panic in an updater poisons its key. A snapshot then fails, and a rollback restores the key.
pub fn a_rollback_restores_a_poisoned_key(store: &Store) {
    store.init("a", &array(&[1.0])).unwrap();
    let before = store.snapshot().unwrap();
    store.set_updater(|_, _, _| panic!("as asked")).unwrap();
    let pusher = store.clone();
    let outcome = thread::spawn(move || pusher.push("a", &array(&[1.0]))).join();
    assert!(!matches!(outcome, Ok(Ok(()))), "the panic went unnoticed");
    assert_code(store.snapshot(), ErrorCode::Poisoned);
    store.rollback(&before).unwrap();
    store.push("a", &array(&[2.0])).unwrap();
    assert_eq!(stored(store, "a"), [2.0]);
}

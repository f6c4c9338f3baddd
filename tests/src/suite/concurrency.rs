//! Checks of concurrent calls: no lost updates, no partial reads, no deadlocks.

use std::sync::{Arc, Barrier};
use std::thread;

use kvstore::{BinaryOp, ErrorCode, NDArray, Optimizer, Result, Store};
use rayon::prelude::*;

use super::{array, before_the_deadline, floats, stored};
use crate::reduced;

/// A length that a kernel splits between threads.
pub(super) const LONG: usize = reduced::length(1 << 18);

/// Returns an array of [`LONG`] equal elements.
fn long(value: f32) -> NDArray {
    array(&vec![value; LONG])
}

fn sgd(name: &str, value: f64) -> Optimizer {
    Optimizer::sgd().with(name, value).expect("SGD has this hyper-parameter")
}

pub(super) fn adding(store: &Store) {
    store.set_updater(|_, pushed, stored| Ok(stored.add_assign(pushed)?)).unwrap();
}

/// Runs the same work on several threads at once. Each gets its index.
pub(super) fn on_threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    before_the_deadline(move || {
        thread::scope(|scope| {
            for number in 0..count {
                let work = &work;
                scope.spawn(move || work(number));
            }
        });
    });
}

/// Pushes to one key from many threads all take effect.
pub fn pushes_of_one_key_are_not_lost(store: &Store) {
    store.init("w", &array(&[0.0; 100])).unwrap();
    adding(store);
    let pusher = store.clone();
    on_threads(8, move |_| {
        for _ in 0..reduced::times(100) {
            pusher.push("w", &array(&[1.0; 100])).unwrap();
        }
    });
    assert_eq!(stored(store, "w"), [8.0 * f32::from(reduced::times(100)); 100]);
}

/// Threads with different keys do not affect each other. The order of initialisation has no gaps.
pub fn different_keys_are_independent(store: &Store) {
    adding(store);
    let pusher = store.clone();
    on_threads(8, move |number| {
        let name = number.to_string();
        pusher.init(&name, &array(&[0.0; 10])).unwrap();
        for _ in 0..=number {
            pusher.push(&name, &array(&[1.0; 10])).unwrap();
        }
    });
    for number in 0_u8..8 {
        assert_eq!(stored(store, &number.to_string()), [f32::from(number + 1); 10]);
    }
    assert_eq!(store.keys().unwrap().len(), 8);
}

/// If several threads initialise one key, one succeeds, and its value is stored.
pub fn only_one_concurrent_init_of_a_key_succeeds(store: &Store) {
    let racer = store.clone();
    let winners = before_the_deadline(move || {
        let race = |number: u8| (racer.init("w", &array(&[f32::from(number)])), f32::from(number));
        (0..8).into_par_iter().map(race).collect::<Vec<_>>()
    });
    let (won, lost): (Vec<_>, Vec<_>) = winners.into_iter().partition(|(result, _)| result.is_ok());
    assert_eq!(stored(store, "w"), [won[0].1]);
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|(result, _)| code(result) == Some(ErrorCode::KeyExists)));
}

pub(super) fn code(result: &Result<()>) -> Option<ErrorCode> {
    result.as_ref().err().map(kvstore::Error::code)
}

/// A reader sees a value before or after an update, never between.
pub fn readers_see_complete_updates(store: &Store) {
    store.init("w", &long(0.0)).unwrap();
    adding(store);
    let shared = store.clone();
    on_threads(3, move |number| {
        for _ in 0..reduced::times(20) {
            if number == 0 {
                shared.push("w", &long(1.0)).unwrap();
                continue;
            }
            let seen = stored(&shared, "w");
            assert!(seen.iter().all(|x| x.to_bits() == seen[0].to_bits()), "half an update");
        }
    });
    assert_eq!(stored(store, "w")[LONG - 1].to_bits(), f32::from(reduced::times(20)).to_bits());
}

/// Calls that name the same keys in opposite orders do not deadlock.
pub fn opposite_orders_of_keys_do_not_deadlock(store: &Store) {
    store.init(["a", "b"], vec![array(&[0.0]), array(&[0.0])]).unwrap();
    adding(store);
    let shared = store.clone();
    let (x, y) = (array(&[0.0]), array(&[0.0]));
    on_threads(4, move |number| {
        let turned = number % 2 == 0;
        let keys = if turned { ["a", "b"] } else { ["b", "a"] };
        let outs = if turned { vec![x.clone(), y.clone()] } else { vec![y.clone(), x.clone()] };
        for _ in 0..reduced::times(300) {
            shared.push(keys, vec![array(&[1.0]), array(&[1.0])]).unwrap();
            shared.pull(keys, outs.clone()).unwrap();
            shared.pushpull(keys, vec![array(&[1.0]), array(&[1.0])], outs.clone()).unwrap();
        }
    });
    let total = 8.0 * f32::from(reduced::times(300));
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![total], vec![total]));
}

/// Two threads whose updaters pull each other's key at the same time do not deadlock.
pub fn updaters_may_pull_each_others_keys(store: &Store) {
    store.init(["a", "b"], vec![array(&[1.0]), array(&[2.0])]).unwrap();
    let (inner, both_inside) = (store.clone(), Barrier::new(2));
    store
        .set_updater(move |own, _, stored| {
            both_inside.wait();
            let other = if own.as_str() == "a" { "b" } else { "a" };
            let pulled = inner.pull_new(other)?;
            both_inside.wait();
            Ok(stored.assign(&pulled[0].tensor())?)
        })
        .unwrap();
    let pusher = store.clone();
    on_threads(2, move |number| {
        pusher.push(["a", "b"][number], &array(&[0.0])).unwrap();
    });
    assert_eq!((stored(store, "a"), stored(store, "b")), (vec![2.0], vec![1.0]));
}

/// A pull from another thread does not wait for a running updater.
pub fn a_running_updater_does_not_block_pulls_of_other_keys(store: &Store) {
    store.init(["slow", "other"], vec![array(&[1.0]), array(&[2.0])]).unwrap();
    let meet = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&meet);
    store
        .set_updater(move |_, pushed, stored| {
            // Between the two waits, the other thread pulls while the updater is running.
            inside.wait();
            inside.wait();
            Ok(stored.assign(&pushed.tensor())?)
        })
        .unwrap();
    let shared = store.clone();
    on_threads(2, move |number| {
        if number == 0 {
            shared.push("slow", &array(&[9.0])).unwrap();
            return;
        }
        meet.wait();
        assert_eq!(stored(&shared, "other"), [2.0]);
        meet.wait();
    });
    assert_eq!(stored(store, "slow"), [9.0]);
}

/// Tasks of a thread pool may push. A thread that waits for a kernel may run another task that
/// pushes the same key, and must not deadlock with itself.
pub fn tasks_of_a_thread_pool_may_push(store: &Store) {
    for num_threads in [1, 2, 4] {
        let name = format!("w{num_threads}");
        store.init(&name, &long(0.0)).unwrap();
        let pusher = store.clone();
        adding(store);
        let pushed_name = name.clone();
        before_the_deadline(move || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build().unwrap();
            pool.install(|| {
                (0..reduced::times(24)).into_par_iter().for_each(|_| {
                    let values = vec![long(1.0), long(1.0)];
                    pusher.push(&pushed_name, values).unwrap();
                });
            });
        });
        assert!(
            stored(store, &name)
                .iter()
                .all(|x| x.to_bits() == (2.0 * f32::from(reduced::times(24))).to_bits())
        );
    }
}

/// The same in rayon's global pool, with an optimizer on the store.
pub fn tasks_of_the_global_pool_may_push(store: &Store) {
    store.init("w", &long(0.0)).unwrap();
    store.set_optimizer(sgd("learning_rate", 1.0)).unwrap();
    let pusher = store.clone();
    before_the_deadline(move || {
        (0..reduced::times(24)).into_par_iter().for_each(|_| {
            pusher.push("w", vec![long(1.0), long(1.0)]).unwrap();
            assert_eq!(stored(&pusher, "w").len(), LONG);
        });
    });
    assert!(
        stored(store, "w")
            .iter()
            .all(|x| x.to_bits() == (-2.0 * f32::from(reduced::times(24))).to_bits())
    );
}

/// If keys are removed and initialised during pushes and pulls, the calls return only the errors
/// for that.
pub fn keys_may_be_removed_during_pushes_and_pulls(store: &Store) {
    let shared = store.clone();
    on_threads(4, move |number| {
        for _ in 0..reduced::times(300) {
            let (result, allowed) = match number {
                0 => (shared.init("w", &array(&[1.0])), ErrorCode::KeyExists),
                1 => (shared.remove("w"), ErrorCode::KeyNotFound),
                2 => (shared.push("w", &array(&[2.0])), ErrorCode::KeyNotFound),
                _ => (shared.pull("w", &array(&[0.0])), ErrorCode::KeyNotFound),
            };
            assert!(code(&result).is_none_or(|code| code == allowed), "{result:?}");
        }
    });
    let _ = store.remove("w");
    store.init("w", &array(&[5.0])).unwrap();
    assert_eq!(stored(store, "w"), [5.0]);
}

/// A push uses the updater that was set when it began, for all its keys.
pub fn the_updater_may_change_during_pushes(store: &Store) {
    store.init("w", &array(&[0.0; 8])).unwrap();
    let shared = store.clone();
    on_threads(4, move |number| {
        for _ in 0..reduced::times(200) {
            match number {
                0 => adding(&shared),
                1 => shared.set_optimizer(sgd("momentum", 0.9)).unwrap(),
                2 => shared.clear_updater().unwrap(),
                _ => shared.push("w", &array(&[1.0; 8])).unwrap(),
            }
        }
    });
    let values = stored(store, "w");
    assert!(values.iter().all(|x| x.to_bits() == values[0].to_bits()));
}

/// Two threads may use the same arrays as operands in both orders, also of operations in place.
pub fn arrays_may_be_operands_in_any_order(_store: &Store) {
    let (a, b) = (array(&[1.0; 64]), array(&[1.0; 64]));
    let (left, right) = (a.clone(), b.clone());
    on_threads(2, move |number| {
        let (target, operand) = if number == 0 { (&left, &right) } else { (&right, &left) };
        for _ in 0..reduced::times(300) {
            target.binary_assign(BinaryOp::Maximum, operand).unwrap();
            operand.copy_to(target).unwrap();
        }
    });
    a.add_assign(&a).unwrap();
    a.copy_to(&a).unwrap();
    assert_eq!((floats(&a), floats(&b)), (vec![2.0; 64], vec![1.0; 64]));
}

//! Optimizers that divide values differently between workers: between elements, blocks or rows.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::ops::Range;

use kvstore_core::{
    DType, Key, KvStore, LocalStore, Optimizer, OptimizerStates, Value, WorkerGroup,
};
use tensors::tensor;
use workers::{backends, on_workers};

mod tensors;
mod threads;
mod workers;

/// Optimizers that divide values between elements, blocks or rows, or step complete values. The
/// number is the momentum, if there is one. `None` is no optimizer.
const OF_EVERY_UNIT: [Option<(&str, Option<f64>)>; 9] = [
    Some(("lamb", None)),
    Some(("adam", None)),
    Some(("groupadagrad", None)),
    None,
    Some(("lars", Some(0.9))),
    Some(("sgld", None)),
    Some(("groupadagrad", None)),
    Some(("lars", None)),
    Some(("lamb", None)),
];

/// Keys of different sizes. LARS steps the last three without norms, because of their names.
const KEYS: [(&str, &[usize]); 7] = [
    ("few", &[3]),
    ("two blocks", &[5000]),
    ("four blocks", &[3, 5000]),
    ("rows", &[70, 33]),
    ("one_bias", &[1024]),
    ("two_gamma", &[5000]),
    ("four_beta", &[3, 5000]),
];
/// The keys of a push: all, or only those without norms.
const PUSHES: [Range<usize>; 3] = [0..7, 4..7, 0..7];

fn optimizer((name, momentum): (&str, Option<f64>)) -> Optimizer {
    let optimizer = Optimizer::new(name).unwrap();
    momentum.map_or(Ok(optimizer.clone()), |momentum| optimizer.with("momentum", momentum)).unwrap()
}

fn keys() -> Vec<Key> {
    KEYS.iter().map(|(name, _)| Key::new(name).unwrap()).collect()
}

fn values(seed: usize) -> Vec<Value> {
    let value = |(_, dims): &(&str, &[usize])| tensor(&backends(), DType::F32, dims, seed).into();
    KEYS.iter().map(value).collect()
}

fn bytes(store: &dyn KvStore) -> Vec<Vec<u8>> {
    store.pull(&keys(), 0).unwrap().iter().map(|value| value.to_bytes().unwrap()).collect()
}

/// Pushes the values of these ranks.
fn push(store: &dyn KvStore, step: usize, ranks: Range<usize>) {
    for (number, pushed) in PUSHES.into_iter().enumerate() {
        let (mut all_keys, mut all_values) = (Vec::new(), Vec::new());
        for rank in ranks.clone() {
            all_keys.extend_from_slice(&keys()[pushed.clone()]);
            all_values.extend_from_slice(&values(100 * step + 10 * number + rank)[pushed.clone()]);
        }
        store.push(&all_keys, &all_values, 0).unwrap();
    }
}

/// Runs a program on one store, which receives the values of all ranks, and on workers. Compares
/// the results. Each result has a label.
fn compare_with_one_store(
    size: usize,
    run: impl Fn(&dyn KvStore, Range<usize>) -> Vec<(String, Vec<Vec<u8>>)> + Sync,
) {
    let one_store = LocalStore::new("local", backends()).unwrap();
    let expected = run(&one_store, 0..size);
    let found = on_workers("dist_sync", size, &backends(), |store| {
        let rank = store.rank().unwrap();
        run(store, rank..rank + 1)
    });
    for (rank, found) in found.iter().enumerate() {
        for ((label, expected), (_, found)) in expected.iter().zip(found) {
            assert!(found == expected, "{label} on rank {rank} of {size}");
        }
    }
}

#[test]
fn optimizers_may_change_to_another_division_of_values() {
    for size in 1..=4 {
        compare_with_one_store(size, |store, ranks| {
            store.init(&keys(), &values(0)).unwrap();
            let steps = OF_EVERY_UNIT.into_iter().enumerate().map(|(step, named)| {
                match named {
                    Some(named) => store.set_optimizer(optimizer(named)).unwrap(),
                    None => store.set_updater(None).unwrap(),
                }
                push(store, step, ranks.clone());
                (format!("step {step}, {named:?}"), bytes(store))
            });
            steps.collect()
        });
    }
}

/// The states of one optimizer are set while another one runs.
#[test]
fn states_of_another_division_of_values_may_be_set() {
    let named: Vec<_> = OF_EVERY_UNIT.into_iter().flatten().collect();
    let states = |named| {
        let store = LocalStore::new("local", backends()).unwrap();
        store.init(&keys(), &values(0)).unwrap();
        store.set_optimizer(optimizer(named)).unwrap();
        push(&store, 0, 0..1);
        let saved = store.snapshot().unwrap().optimizer_states_to_bytes(true).unwrap();
        OptimizerStates::from_bytes(&backends(), &saved).unwrap()
    };
    for (before, after) in named.iter().zip(named.iter().cycle().skip(1)) {
        for size in 1..=3 {
            compare_with_one_store(size, |store, ranks| {
                store.init(&keys(), &values(1)).unwrap();
                store.set_optimizer(optimizer(*before)).unwrap();
                push(store, 1, ranks.clone());
                let found = states(*after);
                store.set_optimizer_states(found.optimizer, found.states).unwrap();
                push(store, 2, ranks);
                vec![(format!("{before:?}, then {after:?}"), bytes(store))]
            });
        }
    }
}

#[test]
fn states_are_divided_between_workers() {
    let backends = backends();
    let (keys, dims) = ([Key::new("w").unwrap()], [64, 4096]);
    for (name, state_bytes) in [
        ("adam", 8 * 64 * 4096),
        ("lamb", 8 * 64 * 4096),
        ("lars", 4 * 64 * 4096),
        ("groupadagrad", 4 * 64),
    ] {
        for size in 1..=4 {
            let found = on_workers("dist_sync", size, &backends, |store| {
                let optimizer = Optimizer::new(name).unwrap();
                let optimizer =
                    if name == "lars" { optimizer.with("momentum", 0.9) } else { Ok(optimizer) };
                store.set_optimizer(optimizer.unwrap()).unwrap();
                store.init(&keys, &[tensor(&backends, DType::F32, &dims, 0).into()]).unwrap();
                store.push(&keys, &[tensor(&backends, DType::F32, &dims, 1).into()], 0).unwrap();
                store.pull(&keys, 0).unwrap();
                store.stats().unwrap()[0].state_bytes
            });
            assert_eq!(found.iter().sum::<usize>(), state_bytes, "{name} on {size} workers");
            let most = state_bytes.div_ceil(size) + state_bytes / 64;
            assert!(
                found.iter().all(|bytes| *bytes <= most),
                "{name} on {size} workers: {found:?}"
            );
        }
    }
}

//! Optimizers that divide values differently between workers: between elements, blocks or rows.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{DType, Key, KvStore, LocalStore, Optimizer, Value, WorkerGroup};
use tensors::tensor;
use workers::{backends, on_workers};

mod tensors;
mod threads;
mod workers;

/// Optimizers that divide values between elements, blocks or rows, or step complete values. `None`
/// is no optimizer.
const OF_EVERY_UNIT: [Option<&str>; 8] = [
    Some("lamb"),
    Some("adam"),
    Some("groupadagrad"),
    None,
    Some("lars"),
    Some("sgld"),
    Some("groupadagrad"),
    Some("lamb"),
];

#[test]
fn optimizers_may_change_to_another_division_of_values() {
    let backends = backends();
    let dims: [&[usize]; 4] = [&[3], &[5000], &[3, 5000], &[70, 33]];
    let keys: Vec<Key> =
        (0..dims.len()).map(|number| Key::new(&number.to_string()).unwrap()).collect();
    let values = |seed: usize| -> Vec<Value> {
        dims.iter().map(|dims| tensor(&backends, DType::F32, dims, seed).into()).collect()
    };
    let set = |store: &dyn KvStore, name: Option<&str>| match name {
        Some(name) => store.set_optimizer(Optimizer::new(name).unwrap()).unwrap(),
        None => store.set_updater(None).unwrap(),
    };
    let bytes = |store: &dyn KvStore| -> Vec<Vec<u8>> {
        store.pull(&keys, 0).unwrap().iter().map(|value| value.to_bytes().unwrap()).collect()
    };
    for size in 1..=4 {
        let expected = {
            let store = LocalStore::new("local", backends.clone()).unwrap();
            store.init(&keys, &values(0)).unwrap();
            let mut expected = Vec::new();
            for (step, name) in OF_EVERY_UNIT.into_iter().enumerate() {
                set(&store, name);
                for seed in [2 * step, 2 * step + 1] {
                    let pushed: Vec<Value> =
                        (0..size).flat_map(|rank| values(10 * seed + rank)).collect();
                    let all_keys = vec![keys.clone(); size].concat();
                    store.push(&all_keys, &pushed, 0).unwrap();
                }
                expected.push(bytes(&store));
            }
            expected
        };
        let found = on_workers("dist_sync", size, &backends, |store| {
            let rank = store.rank().unwrap();
            store.init(&keys, &values(0)).unwrap();
            let mut found = Vec::new();
            for (step, name) in OF_EVERY_UNIT.into_iter().enumerate() {
                set(store, name);
                for seed in [2 * step, 2 * step + 1] {
                    store.push(&keys, &values(10 * seed + rank), 0).unwrap();
                }
                found.push(bytes(store));
            }
            found
        });
        for (rank, found) in found.iter().enumerate() {
            for (step, name) in OF_EVERY_UNIT.into_iter().enumerate() {
                assert!(found[step] == expected[step], "{name:?} on rank {rank} of {size}");
            }
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

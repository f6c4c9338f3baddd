//! A failed allocation in a call with long lists returns an error, and the store is unchanged.
//!
//! This file has one test, because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore::{
    DType, Device, Error, ErrorCode, Key, NDArray, Optimizer, Pairs, Result, RowSparse, Store,
    Value, create, full, zeros,
};
use kvstore_allocators::{Case, FailingAllocator, case, run_cases, without_failures};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// The number of keys. A list of this many pointers is a long allocation.
const NUM_KEYS: usize = 2800;

fn keys(prefix: &str) -> Vec<Key> {
    (0..NUM_KEYS).map(|number| Key::new(&format!("{prefix}{number}")).unwrap()).collect()
}

fn texts(prefix: &str) -> Vec<String> {
    (0..NUM_KEYS).map(|number| format!("{prefix}{number}")).collect()
}

fn arrays(number: f64, dtype: DType) -> Vec<NDArray> {
    let array = |_| full([2, 1], number, dtype, Device::cpu(0)).unwrap();
    (0..NUM_KEYS).map(array).collect()
}

fn ones() -> Vec<NDArray> {
    arrays(1.0, DType::F32)
}

fn twos() -> Vec<NDArray> {
    arrays(2.0, DType::F32)
}

fn outs() -> Vec<NDArray> {
    arrays(0.0, DType::F32)
}

/// Returns a store of many keys.
fn store() -> Store {
    let store = create("local").unwrap();
    store.init(keys("w"), ones()).unwrap();
    store
}

/// Returns a case whose failed call must leave the store unchanged.
fn change<T: Send + 'static>(
    name: &'static str,
    prepare: impl Fn(&Store) -> T + 'static,
    call: impl Fn(&Store, T) -> Result<()> + Clone + Send + 'static,
) -> Case<Error> {
    let prepare = move || {
        let store = store();
        let given = prepare(&store);
        (store.snapshot().unwrap(), store, given)
    };
    case(name, prepare, move |(before, store, given)| {
        let done = call(&store, given);
        without_failures(|| {
            if done.is_err() {
                assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
            }
        });
        done
    })
}

/// Returns a case whose failed call must leave the outputs unchanged. A successful call writes
/// `expected` to each output.
fn pull(
    name: &'static str,
    outs: fn() -> Vec<NDArray>,
    expected: f64,
    call: impl Fn(&Store, &[NDArray]) -> Result<()> + Clone + Send + 'static,
) -> Case<Error> {
    change(
        name,
        move |_| outs(),
        move |store, outs| {
            let done = call(store, &outs);
            without_failures(|| {
                let expected = if done.is_ok() { expected } else { 0.0 };
                for out in &outs {
                    assert_eq!(out.tensor().read_as::<f64>().unwrap(), [expected, expected]);
                }
            });
            done
        },
    )
}

/// Returns outputs of another dtype.
fn doubles() -> Vec<NDArray> {
    arrays(0.0, DType::F64)
}

/// Returns outputs that are parts of one array.
fn parts() -> Vec<NDArray> {
    let array = zeros([2 * NUM_KEYS, 1], DType::F32, Device::cpu(0)).unwrap();
    (0..NUM_KEYS).map(|at| array.slice(2 * at, 2 * at + 2).unwrap()).collect()
}

fn reversed<T>(items: Vec<T>) -> Vec<T> {
    items.into_iter().rev().collect()
}

fn one_by_one<T>(items: Vec<T>) -> Vec<Vec<T>> {
    items.into_iter().map(|item| vec![item]).collect()
}

fn pushes() -> Vec<Case<Error>> {
    let given = |_: &Store| (keys("w"), twos());
    vec![
        change("push", given, |store, (keys, values)| store.push(keys, values)),
        change("push of a slice", given, |store, (keys, values)| store.push(&*keys, &*values)),
        change("push of a borrowed list", given, |store, (keys, values)| {
            store.push(&*keys, &values)
        }),
        change(
            "push of strings",
            |_| (texts("w"), twos()),
            |store, (texts, values)| store.push(&*texts, &*values),
        ),
        change(
            "push of lists",
            |_| (keys("w"), one_by_one(twos())),
            |store, (keys, values)| store.push(keys, values),
        ),
        change(
            "push of a slice of lists",
            |_| (keys("w"), one_by_one(twos())),
            |store, (keys, values)| store.push(keys, &*values),
        ),
        change("push of many values", given, |store, (keys, values)| {
            store.push(&keys[0], &*values)
        }),
        change("push of one list", given, |store, (keys, values)| {
            store.push(&keys[0], without_failures(|| vec![values]))
        }),
        change(
            "push of arrays and rows",
            |_| {
                let rows = |it: NDArray| RowSparse::new([2, 1], vec![0, 1], it.tensor()).unwrap();
                let rows = twos().into_iter().map(|array| Value::Rows(rows(array)));
                (keys("w"), rows.collect::<Vec<_>>())
            },
            |store, (keys, values)| store.push(keys, &*values),
        ),
        change(
            "push to an optimizer",
            |store| {
                store.set_optimizer(Optimizer::sgd()).unwrap();
                (keys("w"), twos())
            },
            |store, (keys, values)| store.push(keys, values),
        ),
    ]
}

fn pulls() -> Vec<Case<Error>> {
    let given = || without_failures(|| keys("w"));
    vec![
        pull("pull", outs, 1.0, move |store, outs| store.pull(given(), outs)),
        pull("pull in reverse", outs, 1.0, move |store, outs| {
            store.pull(without_failures(|| reversed(given())), outs)
        }),
        pull("pull with a cast", doubles, 1.0, move |store, outs| store.pull(given(), outs)),
        pull("pull of one key", outs, 1.0, |store, outs| store.pull("w0", outs)),
        pull("pull into parts", parts, 1.0, |store, outs| store.pull("w0", outs)),
        pull("pull of keys into parts", parts, 1.0, move |store, outs| store.pull(given(), outs)),
        change("pull_new", |_| keys("w"), |store, keys| store.pull_new(keys).map(drop)),
        change(
            "pull_rows",
            |_| (keys("w"), vec![vec![1]; NUM_KEYS]),
            |store, (keys, ids)| store.pull_rows(keys, &ids).map(drop),
        ),
    ]
}

fn pushpulls() -> Vec<Case<Error>> {
    let given = || without_failures(|| (keys("w"), twos()));
    let new = || without_failures(|| (keys("v"), twos()));
    vec![
        pull("pushpull", outs, 2.0, move |store, outs| {
            let (keys, values) = given();
            store.pushpull(keys, values, outs)
        }),
        pull("pushpull of a slice", outs, 2.0, move |store, outs| {
            let (keys, values) = given();
            store.pushpull(&*keys, &*values, outs)
        }),
        pull("pushpull in reverse", outs, 2.0, move |store, outs| {
            let (keys, values) = given();
            store.pushpull(without_failures(|| reversed(keys)), values, outs)
        }),
        pull("pushpull with a cast", doubles, 2.0, move |store, outs| {
            let (keys, values) = given();
            store.pushpull(keys, values, outs)
        }),
        pull("pushpull into parts", parts, 2.0, move |store, outs| {
            let values = without_failures(|| full([2, 1], 2, DType::F32, Device::cpu(0)))?;
            store.pushpull_pairs(&Pairs::new("w0", &values)?, &Pairs::new("w0", outs)?, 0)
        }),
        pull("broadcast", outs, 2.0, move |store, outs| {
            let (keys, values) = new();
            store.broadcast(keys, values, outs)
        }),
        pull("broadcast with a cast", doubles, 2.0, move |store, outs| {
            let (keys, values) = new();
            store.broadcast(keys, values, outs)
        }),
        change(
            "broadcast in reverse",
            |_| (keys("v"), twos(), outs()),
            |store, (keys, values, outs)| {
                let reverse = without_failures(|| reversed(keys.clone()));
                let outs = Pairs::new(reverse, &*outs)?;
                store.broadcast_pairs(&Pairs::new(keys, values)?, &outs, 0)
            },
        ),
        change("init", |_| (keys("v"), ones()), |store, (keys, values)| store.init(keys, values)),
        change("remove", |_| keys("w"), |store, keys| store.remove(&*keys)),
    ]
}

#[test]
fn a_failed_allocation_is_an_error() {
    let cases = [pushes(), pulls(), pushpulls()].into_iter().flatten().collect();
    run_cases("a_failed_allocation_is_an_error", cases, |error: &Error| {
        error.code() == ErrorCode::OutOfMemory
    });
}

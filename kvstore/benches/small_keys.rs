//! Measures calls with a thousand small keys and calls with one, and how a push grows with the
//! number of keys, of values and of elements. `scripts/charts.py` draws the growth.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constant, constants, copy};
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use kvstore::{DType, Key, NDArray, OnExisting, Optimizer, Pairs, Store, create};

const NUM_KEYS: usize = 1000;
const LEN: usize = 64;

fn keys(num_keys: usize) -> Vec<Key> {
    (0..num_keys).map(|n| Key::new(&format!("k{n}")).expect("a key")).collect()
}

/// Returns `num_values` arrays of `len` elements for each key.
fn pairs(keys: &[Key], num_values: usize, len: usize) -> Pairs {
    let lists: Vec<Vec<NDArray>> =
        keys.iter().map(|_| constants(num_values, len, DType::F32, 1.0)).collect();
    Pairs::new(keys, lists).expect("a list per key")
}

fn store(keys: &[Key], len: usize, optimizer: Option<Optimizer>) -> Store {
    let store = create("local").expect("a known name");
    store.init_pairs(&pairs(keys, 1, len), OnExisting::Reject).expect("new keys");
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer).expect("an optimizer");
    }
    store
}

fn small_keys(criterion: &mut Criterion) {
    let keys = keys(NUM_KEYS);
    let (values, outs) = (pairs(&keys, 4, LEN), pairs(&keys, 1, LEN));
    let mut group = criterion.benchmark_group("small keys");
    let bytes = NUM_KEYS * LEN * 4;
    copy(&mut group, bytes);
    let momentum = Optimizer::sgd().with("momentum", 0.9).expect("a hyper-parameter of SGD");
    for (name, optimizer) in [("no optimizer", None), ("sgd with momentum", Some(momentum))] {
        let store = store(&keys, LEN, optimizer);
        group.throughput(Throughput::Bytes(5 * bytes as u64));
        group.bench_function(format!("push 1000 keys x 4, {name}"), |bencher| {
            bencher.iter(|| store.push_pairs(&values, 0).expect("a push that fits"));
        });
        group.throughput(Throughput::Bytes(7 * bytes as u64));
        group.bench_function(format!("push 1000 keys x 4 and pull, {name}"), |bencher| {
            bencher.iter(|| {
                store.push_pairs(&values, 0).expect("a push that fits");
                store.pull_pairs(&outs, 0).expect("a pull that fits");
            });
        });
    }
    let (value, out) = (constant(1000, DType::F32, 0, 1.0), constant(1000, DType::F32, 0, 0.0));
    let one = create("local").expect("a known name");
    one.init("w", &value).expect("a new key");
    group.throughput(Throughput::Bytes(2 * 4000));
    group.bench_function("push and pull one key of 1000", |bencher| {
        bencher.iter(|| {
            one.push("w", &value).expect("a push that fits");
            one.pull("w", &out).expect("a pull that fits");
        });
    });
    group.finish();
}

/// Measures a push to `num_keys` keys, each with `num_values` arrays of `len` elements. `parameter`
/// is the number that varies.
fn push(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    parameter: usize,
    [num_keys, num_values, len]: [usize; 3],
) {
    let keys = keys(num_keys);
    let (store, values) = (store(&keys, len, None), pairs(&keys, num_values, len));
    let num_bytes = num_keys * (num_values + 1) * len * size_of::<f32>();
    group.throughput(Throughput::Bytes(num_bytes as u64));
    group.bench_function(BenchmarkId::new(name, parameter), |bencher| {
        bencher.iter(|| store.push_pairs(&values, 0).expect("a push that fits"));
    });
}

fn scaling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scaling");
    group.sample_size(20);
    copy(&mut group, 4 * LARGE);
    for num_keys in [1, 10, 100, 1000, 10_000, 100_000] {
        push(&mut group, "keys", num_keys, [num_keys, 4, LEN]);
    }
    for num_values in [2, 4, 8, 16] {
        push(&mut group, "values", num_values, [1, num_values, LARGE]);
    }
    for len in (8..=24).step_by(4).map(|power| 1 << power) {
        push(&mut group, "elements", len, [1, 4, len]);
    }
    group.finish();
}

criterion_group!(benches, small_keys, scaling);
criterion_main!(benches);

//! Measures calls with a thousand small keys and calls with one.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{constant, constants, copy};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{DType, Key, NDArray, OnExisting, Optimizer, Pairs, Store, create};

const NUM_KEYS: usize = 1000;
const LEN: usize = 64;

fn pairs(keys: &[Key], num_values: usize) -> Pairs {
    let lists: Vec<Vec<NDArray>> =
        keys.iter().map(|_| constants(num_values, LEN, DType::F32, 1.0)).collect();
    Pairs::new(keys, lists).expect("a list per key")
}

fn store(keys: &[Key], optimizer: Option<Optimizer>) -> Store {
    let store = create("local").expect("a known name");
    store.init_pairs(&pairs(keys, 1), OnExisting::Reject).expect("new keys");
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer).expect("an optimizer");
    }
    store
}

fn small_keys(criterion: &mut Criterion) {
    let keys: Vec<Key> =
        (0..NUM_KEYS).map(|n| Key::new(&format!("k{n}")).expect("a key")).collect();
    let (values, outs) = (pairs(&keys, 4), pairs(&keys, 1));
    let mut group = criterion.benchmark_group("small keys");
    let bytes = NUM_KEYS * LEN * 4;
    copy(&mut group, bytes);
    let momentum = Optimizer::sgd().with("momentum", 0.9).expect("a hyper-parameter of SGD");
    for (name, optimizer) in [("no optimizer", None), ("sgd with momentum", Some(momentum))] {
        let store = store(&keys, optimizer);
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

criterion_group!(benches, small_keys);
criterion_main!(benches);

//! Measures calls that the JVM benchmark makes, too. `make bench-jvm` compares both.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use std::time::Duration;

use common::constant;
use criterion::{Criterion, criterion_group, criterion_main};
use kvstore::{DType, Key, NDArray, OnExisting, Pairs, Store, create};

/// The same number as in `clojure/bench`.
const NUM_KEYS: usize = 1000;
const LEN: usize = 64;

fn arrays(value: f64) -> Vec<NDArray> {
    (0..NUM_KEYS).map(|_| constant(LEN, DType::F32, 0, value)).collect()
}

fn store(keys: &[Key]) -> Store {
    let store = create("local").expect("a known name");
    let values = Pairs::new(keys, arrays(1.0)).expect("a value per key");
    store.init_pairs(&values, OnExisting::Reject).expect("new keys");
    store
}

fn jvm_calls(criterion: &mut Criterion) {
    let keys: Vec<Key> =
        (0..NUM_KEYS).map(|n| Key::new(&format!("k{n}")).expect("a key")).collect();
    let store = store(&keys);
    let (value, out) = (constant(LEN, DType::F32, 0, 1.0), constant(LEN, DType::F32, 0, 0.0));
    let values = Pairs::new(&*keys, arrays(1.0)).expect("a value per key");
    let outs = Pairs::new(&*keys, arrays(0.0)).expect("an out per key");
    let mut group = criterion.benchmark_group("jvm_calls");
    group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    group.bench_function("push", |bencher| {
        bencher.iter(|| store.push("k7", &value).expect("a push that fits"));
    });
    group.bench_function("pull", |bencher| {
        bencher.iter(|| store.pull("k7", &out).expect("a pull that fits"));
    });
    group.bench_function("push_1000", |bencher| {
        bencher.iter(|| store.push_pairs(&values, 0).expect("a push that fits"));
    });
    group.bench_function("pull_1000", |bencher| {
        bencher.iter(|| store.pull_pairs(&outs, 0).expect("a pull that fits"));
    });
    store.set_updater(|_, _, _| Ok(())).expect("an updater");
    group.bench_function("updater_1000", |bencher| {
        bencher.iter(|| store.push_pairs(&values, 0).expect("a push that fits"));
    });
    group.finish();
}

criterion_group!(benches, jvm_calls);
criterion_main!(benches);

//! Compares row-sparse pushes to an embedding with dense pushes.
//!
//! The embedding has a million rows of 64 floats. A step changes ten thousand rows, a quarter of
//! them in each of four values.

#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

use criterion::{Criterion, criterion_group, criterion_main};
use kvstore::{DType, Device, Optimizer, RowSparse, Store, create, full};

const SHAPE: [usize; 2] = [1_000_000, 64];
const NUM_VALUES: usize = 4;
/// The number of rows of each value.
const TOUCHED: usize = 10_000 / NUM_VALUES;

/// Returns pseudo-random row indices with duplicates, like the tokens of a batch.
fn ids(seed: u64) -> Vec<i64> {
    let mut state = seed;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((state >> 33) % SHAPE[0] as u64).expect("a row index")
    };
    std::iter::repeat_with(next).take(TOUCHED).collect()
}

fn value(ids: &[i64]) -> RowSparse {
    let rows = full([ids.len(), SHAPE[1]], 1e-3, DType::F32, Device::cpu(0)).expect("memory");
    RowSparse::from_ids(SHAPE, ids, rows.tensor()).expect("rows of the shape")
}

fn store(optimizer: Option<Optimizer>) -> Store {
    let store = create("local").expect("a known name");
    let start = full(SHAPE, 1.0, DType::F32, Device::cpu(0)).expect("memory");
    store.init("w", &start).expect("a new key");
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer).expect("an optimizer");
    }
    store
}

fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rows");
    group.sample_size(10);
    let batches: Vec<_> = (1..=NUM_VALUES as u64).map(ids).collect();
    let rows: Vec<_> = batches.iter().map(|ids| value(ids)).collect();
    for (name, optimizer) in [
        ("no optimizer", None),
        ("sgd", Some(Optimizer::sgd())),
        ("adam", Some(Optimizer::new("adam").expect("a known optimizer"))),
    ] {
        let sparse = store(optimizer.clone());
        group.bench_function(format!("push of rows, {name}"), |bencher| {
            bencher.iter(|| sparse.push("w", &rows).expect("a push that fits"));
        });
        drop(sparse);
        let dense = store(optimizer);
        let gradients: Vec<_> = (0..NUM_VALUES)
            .map(|_| full(SHAPE, 1e-3, DType::F32, Device::cpu(0)).expect("memory"))
            .collect();
        group.bench_function(format!("dense push, {name}"), |bencher| {
            bencher.iter(|| dense.push("w", &gradients).expect("a push that fits"));
        });
    }
    let store = store(None);
    group.bench_function("pull of rows", |bencher| {
        bencher.iter(|| store.pull_rows("w", &batches[..1]).expect("rows of the shape"));
    });
    group.bench_function("rows from a batch of ids", |bencher| {
        bencher.iter(|| value(&batches[0]));
    });
    group.finish();
}

criterion_group!(benches, rows);
criterion_main!(benches);

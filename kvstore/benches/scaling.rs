//! Measures how the time of a push grows with the number of keys, values and elements.
//! `scripts/charts.py` draws the results.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constants, copy};
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use kvstore::{DType, Key, NDArray, OnExisting, Pairs, create};

/// Pushes `num_values` arrays of `len` elements to each of `num_keys` keys. `parameter` is the
/// number that varies.
fn push(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    parameter: usize,
    [num_keys, num_values, len]: [usize; 3],
) {
    let keys: Vec<Key> =
        (0..num_keys).map(|n| Key::new(&format!("k{n}")).expect("a key")).collect();
    let values: Vec<Vec<NDArray>> =
        keys.iter().map(|_| constants(num_values, len, DType::F32, 1.0)).collect();
    let first = values.iter().map(|values| vec![values[0].clone()]).collect::<Vec<_>>();
    let store = create("local").expect("a known name");
    let first = Pairs::new(keys.as_slice(), first).expect("a list per key");
    store.init_pairs(&first, OnExisting::Reject).expect("new keys");
    let pushed = Pairs::new(keys, values).expect("a list per key");
    let num_bytes = num_keys * (num_values + 1) * len * size_of::<f32>();
    group.throughput(Throughput::Bytes(num_bytes as u64));
    group.bench_function(BenchmarkId::new(name, parameter), |bencher| {
        bencher.iter(|| store.push_pairs(&pushed, 0).expect("a push that fits"));
    });
}

fn scaling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scaling");
    group.sample_size(20);
    copy(&mut group, 4 * LARGE);
    for num_keys in [1, 10, 100, 1000, 10_000, 100_000] {
        push(&mut group, "keys", num_keys, [num_keys, 4, 64]);
    }
    for num_values in [2, 4, 8, 16] {
        push(&mut group, "values", num_values, [1, num_values, LARGE]);
    }
    for len in (8..=24).step_by(4).map(|power| 1 << power) {
        push(&mut group, "elements", len, [1, 4, len]);
    }
    group.finish();
}

criterion_group!(benches, scaling);
criterion_main!(benches);

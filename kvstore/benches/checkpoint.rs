//! Measures snapshots, checkpoints beside a plain write of the same size, and pushes while a
//! checkpoint is written.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use common::constant;
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use kvstore::{DType, Device, NDArray, Optimizer, RowSparse, Store, create, full};

const NUM_KEYS: usize = 16;
/// The number of elements per key. All keys together have 1 GiB.
const LENGTH: usize = (1 << 30) / 4 / NUM_KEYS;

fn store_of(num_keys: usize, length: usize) -> (Store, Vec<String>) {
    let store = create("local").expect("a store");
    let keys: Vec<String> = (0..num_keys).map(|number| number.to_string()).collect();
    for key in &keys {
        store.init(key.as_str(), &constant(length, DType::F32, 0, 0.5)).expect("a new key");
    }
    (store, keys)
}

fn snapshots(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1000 keys with the states of Adam");
    let (store, keys) = store_of(1000, 256);
    store.set_optimizer(Optimizer::new("adam").expect("a known name")).expect("an optimizer");
    for key in &keys {
        store.push(key.as_str(), &constant(256, DType::F32, 0, 0.1)).expect("a known key");
    }
    group.bench_function("snapshot", |bencher| {
        bencher.iter_with_large_drop(|| store.snapshot().expect("no key is poisoned"));
    });
    let snapshot = store.snapshot().expect("no key is poisoned");
    group.bench_function("rollback", |bencher| {
        bencher.iter(|| store.rollback(&snapshot).expect("outside of an updater"));
    });
    group.finish();
}

/// Writes `num_bytes` bytes to a file as fast as possible, as the baseline.
fn write_plainly(path: &Path, num_bytes: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    let mut left = usize::try_from(num_bytes).expect("less than the address space");
    while left > 0 {
        let piece = bytes.get(..left).unwrap_or(bytes);
        file.write_all(piece)?;
        left -= piece.len();
    }
    file.sync_all()
}

fn files(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1 GiB to the disk");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (store, keys) = store_of(NUM_KEYS, LENGTH);
    let snapshot = store.snapshot().expect("no key is poisoned");
    let path = folder.path().join("model");
    snapshot.write(&path).expect("room for it");
    let num_bytes = path.metadata().expect("it is there").len();
    group.throughput(Throughput::Bytes(num_bytes));
    let bytes = vec![1; 4 * LENGTH];
    group.bench_function("plain write", |bencher| {
        bencher.iter(|| write_plainly(&path, num_bytes, &bytes).expect("room for it"));
    });
    group.bench_function("checkpoint", |bencher| {
        bencher.iter(|| snapshot.write(&path).expect("room for it"));
    });
    group.bench_function("restore", |bencher| {
        bencher.iter(|| store.restore(&path).expect("a complete file"));
    });
    drop(snapshot);
    group.finish();

    let mut group = criterion.benchmark_group("push of 64 MiB, SGD");
    group.sample_size(20).throughput(Throughput::Bytes((4 * LENGTH) as u64));
    store.set_optimizer(Optimizer::sgd()).expect("an optimizer");
    let gradient = constant(LENGTH, DType::F32, 0, 0.1);
    let mut keys = keys.iter().cycle();
    let mut push = || time_of_a_push(&store, keys.next().expect("no end"), &gradient);
    group.bench_function("alone", |bencher| {
        bencher.iter_custom(|count| (0..count).map(|_| push()).sum());
    });
    group.bench_function("while 1 GiB is written", |bencher| {
        bencher.iter_custom(|count| {
            let (mut done, mut total) = (0, Duration::ZERO);
            while done < count {
                let checkpoint = store.checkpoint(&path).expect("a thread");
                while done < count && !checkpoint.is_done() {
                    total += push();
                    done += 1;
                }
                checkpoint.wait().expect("room for it");
            }
            total
        });
    });
    group.finish();
}

/// A table of 1 GiB, of which one of 100 rows has changed.
fn deltas(criterion: &mut Criterion) {
    const NUM_ROWS: usize = 1 << 22;
    const ROW: usize = (1 << 30) / 4 / NUM_ROWS;
    let mut group = criterion.benchmark_group("delta of a table of 1 GiB");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let store = create("local").expect("a store");
    let device = Device::cpu(0);
    let table = full([NUM_ROWS, ROW], 0.5, DType::F32, device).expect("enough memory");
    store.init("table", &table).expect("a new key");
    store.set_optimizer(Optimizer::sgd()).expect("an optimizer");
    drop(table);
    let base = store.snapshot().expect("no key is poisoned");
    base.write(path("base")).expect("room for it");
    let unchanged = store.snapshot().expect("no key is poisoned");
    let indices: Vec<i64> = (0..i64::try_from(NUM_ROWS).expect("few rows")).step_by(100).collect();
    let rows = full([indices.len(), ROW], 0.1, DType::F32, device).expect("enough memory").tensor();
    let rows = RowSparse::new([NUM_ROWS, ROW], indices, rows).expect("ascending indices");
    store.push("table", &rows).expect("a known key");
    let changed = store.snapshot().expect("no key is poisoned");
    for (name, snapshot) in [("nothing changed", &unchanged), ("1 % of the rows", &changed)] {
        let path = path("delta");
        snapshot.write_since(&path, &base).expect("room for it");
        println!("{name}: {} bytes", path.metadata().expect("it is there").len());
        group.bench_function(name, |bencher| {
            bencher.iter(|| snapshot.write_since(&path, &base).expect("room for it"));
        });
    }
    group.bench_function("restore of 1 % of the rows", |bencher| {
        bencher.iter(|| store.restore(path("delta")).expect("a complete chain"));
    });
    group.finish();

    let mut group = criterion.benchmark_group("delta of 1000 keys with the states of Adam");
    let (store, keys) = store_of(1000, 256);
    store.set_optimizer(Optimizer::new("adam").expect("a known name")).expect("an optimizer");
    for key in &keys {
        store.push(key.as_str(), &constant(256, DType::F32, 0, 0.1)).expect("a known key");
    }
    let base = store.snapshot().expect("no key is poisoned");
    base.write(path("base")).expect("room for it");
    group.bench_function("nothing changed", |bencher| {
        bencher.iter(|| {
            let now = store.snapshot().expect("no key is poisoned");
            now.write_since(path("delta"), &base).expect("room for it");
        });
    });
    group.finish();
}

fn time_of_a_push(store: &Store, key: &str, gradient: &NDArray) -> Duration {
    let start = Instant::now();
    store.push(key, gradient).expect("a known key");
    start.elapsed()
}

criterion_group!(benches, snapshots, files, deltas);
criterion_main!(benches);

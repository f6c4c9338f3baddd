//! The work of the host for a GPU: calls of the driver, copied bytes and pinned memory, counted by
//! a driver that does nothing.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{
    Backends, BinaryOp, CpuBackend, DType, Device, Distribution, Generator, Key, KvStore,
    LocalStore, Optimizer, Reduction, RowSparse, Scalar, Tensor, TensorSpec, Value,
};
use kvstore_cuda::CudaBackend;
use kvstore_emulator::null;

/// Lets only one test run at a time, because the driver counts the calls of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backends() -> Backends {
    backends_of(1)
}

/// Returns backends with this number of devices, which share a GPU.
fn backends_of(num_devices: usize) -> Backends {
    null::load().unwrap();
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), Some(num_devices)).unwrap();
    Backends::new(vec![host, gpus])
}

/// What was counted during a call. Prints it, so that a failed check shows all counts.
fn counted(name: &str, call: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = null::counts().unwrap();
    call();
    let mut counts = null::counts().unwrap();
    for (name, count) in &mut counts {
        *count -= before[name];
    }
    counts.retain(|_, count| *count > 0);
    println!("{name}: {counts:?}");
    counts
}

fn count(counts: &BTreeMap<String, u64>, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or_default()
}

fn tensor(backends: &Backends, dims: &[usize]) -> Tensor {
    let spec = TensorSpec::new(dims.to_vec(), DType::F32);
    Tensor::full(backends, Device::gpu(0), spec, Scalar::Float(0.5)).unwrap()
}

fn keys(num_keys: usize) -> Vec<Key> {
    (0..num_keys).map(|number| Key::new(&format!("w{number}")).unwrap()).collect()
}

/// Pushes and reads need pinned memory for what is under way, and no more for later calls.
#[test]
fn pinned_memory_is_reused() {
    let _alone = alone();
    let backends = backends();
    null::be_lazy(true).unwrap();
    let store = LocalStore::new("device", backends.clone()).unwrap();
    store.set_optimizer(Optimizer::sgd()).unwrap();
    let key = keys(1).remove(0);
    let value = tensor(&backends, &[1024]);
    store.init(std::slice::from_ref(&key), &[value.clone().into()]).unwrap();
    let counts = counted("200 pushes and reads, five times", || {
        for _ in 0..5 {
            for _ in 0..200 {
                let values: [Value; 2] = [value.clone().into(), value.clone().into()];
                store.push(&[key.clone(), key.clone()], &values, 0).unwrap();
            }
            for _ in 0..200 {
                value.to_bytes().unwrap();
            }
        }
    });
    null::be_lazy(false).unwrap();
    // 256 pieces of 64 KiB, 16 of them in an allocation.
    assert!(count(&counts, "cuMemHostAlloc") <= 16, "{counts:?}");
    assert_eq!(count(&counts, "cuMemFreeHost"), 0, "{counts:?}");
    assert!(count(&counts, "bytes_pinned") <= 16 << 20, "{counts:?}");
}

/// Returning many blocks to the driver waits for the queued work once.
#[test]
fn trim_waits_once() {
    let _alone = alone();
    let backends = backends();
    let gpus = backends.of(Device::gpu(0)).unwrap();
    let blocks: Vec<Tensor> = (1..=1000).map(|len| tensor(&backends, &[len])).collect();
    drop(blocks);
    let counts = counted("trim of 1000 blocks", || gpus.trim());
    assert_eq!(count(&counts, "cuMemFree_v2"), 1000, "{counts:?}");
    assert_eq!(count(&counts, "cuStreamSynchronize"), 1, "{counts:?}");
}

/// The work of the host for one push, when everything is allocated and loaded.
fn work_of_a_push(
    name: &str,
    store: &LocalStore,
    keys: &[Key],
    values: &[Value],
) -> BTreeMap<String, u64> {
    for _ in 0..3 {
        store.push(keys, values, 0).unwrap();
    }
    counted(name, || store.push(keys, values, 0).unwrap())
}

/// Checks that a call of the driver, or a number of bytes, was counted at most this often.
fn at_most(counts: &BTreeMap<String, u64>, limits: &[(&str, u64)]) {
    for (name, limit) in limits {
        assert!(count(counts, name) <= *limit, "{name}: at most {limit}, {counts:?}");
    }
}

/// A push is one launch and one copy of its list of jobs, whatever the number of keys.
#[test]
fn a_push_of_any_number_of_keys_is_one_launch() {
    let _alone = alone();
    let backends = backends();
    for (optimizer, bytes_per_key) in [(None, 40), (Some(Optimizer::new("adamw").unwrap()), 224)] {
        for num_keys in [1, 4096] {
            let store = LocalStore::new("device", backends.clone()).unwrap();
            if let Some(optimizer) = &optimizer {
                store.set_optimizer(optimizer.clone()).unwrap();
            }
            let keys = keys(num_keys);
            let values: Vec<Value> =
                keys.iter().map(|_| tensor(&backends, &[256]).into()).collect();
            store.init(&keys, &values).unwrap();
            let pushed_keys: Vec<Key> =
                keys.iter().flat_map(|key| [key.clone(), key.clone()]).collect();
            let pushed: Vec<Value> =
                values.iter().flat_map(|value| [value.clone(), value.clone()]).collect();
            let name = format!("{num_keys} keys");
            let counts = work_of_a_push(&name, &store, &pushed_keys, &pushed);
            let num_keys = num_keys as u64;
            at_most(
                &counts,
                &[
                    ("cuLaunchKernel", 1),
                    ("cuMemcpyHtoDAsync_v2", 1),
                    ("cuEventRecord", 1),
                    ("cuEventCreate", 1),
                    ("cuMemHostAlloc", 0),
                    ("cuMemAlloc_v2", 0),
                    ("cuStreamSynchronize", 0),
                    ("bytes_in", num_keys * (bytes_per_key + 2 * 8)),
                    ("cuCtxSetCurrent", 20),
                ],
            );
        }
    }
}

/// The number of elements of a row.
const WIDTH: usize = 8;
/// The number of rows of a dense value.
const NUM_ROWS: usize = 1 << 17;

/// Returns ascending row indices. Those of different seeds overlap in part.
fn some_ids(seed: usize, num_ids: usize) -> Vec<i64> {
    let place = |n: usize| n * (NUM_ROWS / num_ids) + n * (seed + 1) % 3;
    (0..num_ids).map(|n| i64::try_from(place(n)).unwrap()).collect()
}

fn rows(backends: &Backends, seed: usize, num_ids: usize) -> RowSparse {
    let elements = tensor(backends, &[num_ids, WIDTH]);
    RowSparse::new([NUM_ROWS, WIDTH], some_ids(seed, num_ids), elements).unwrap()
}

fn store_of_rows(
    backends: &Backends,
    keys: &[Key],
    optimizer: Option<&Optimizer>,
    num_rows: usize,
) -> LocalStore {
    let store = LocalStore::new("device", backends.clone()).unwrap();
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer.clone()).unwrap();
    }
    let values: Vec<Value> =
        keys.iter().map(|_| tensor(backends, &[num_rows, WIDTH]).into()).collect();
    store.init(keys, &values).unwrap();
    store
}

/// The limits of a call when everything is allocated and loaded.
fn limits(launches: u64, copies: u64, bytes_in: u64) -> [(&'static str, u64); 6] {
    [
        ("cuLaunchKernel", launches),
        ("cuMemcpyHtoDAsync_v2", copies),
        ("bytes_in", bytes_in),
        ("cuMemHostAlloc", 0),
        ("cuMemAlloc_v2", 0),
        ("cuStreamSynchronize", 0),
    ]
}

/// The row indices of a value are copied to the GPU once. A later push of the value copies only
/// lists of jobs, whatever the number of rows.
#[test]
fn row_indices_are_copied_once() {
    let _alone = alone();
    let backends = backends();
    for optimizer in [None, Some(Optimizer::sgd())] {
        for num_ids in [100, 20_000] {
            let keys = keys(1);
            let store = store_of_rows(&backends, &keys, optimizer.as_ref(), NUM_ROWS);
            let pushed_keys = vec![keys[0].clone(); 4];
            let values = || -> Vec<Value> {
                (0..4).map(|seed| rows(&backends, seed, num_ids).into()).collect()
            };
            for _ in 0..3 {
                store.push(&pushed_keys, &values(), 0).unwrap();
            }
            let mut values = values();
            let bytes_of_ids = 4 * 8 * num_ids as u64;
            let is_long = num_ids > 8192;
            // Merges, counts, adds and scans the counts, lists the rows, and sums or steps them.
            let launches = if is_long { 6 } else { 4 };
            let job_bytes = 4 * 64 + 300;
            let counts = counted(&format!("push of {num_ids} new rows"), || {
                store.push(&pushed_keys, &values, 0).unwrap();
            });
            let copies = if is_long { 4 } else { 1 };
            at_most(&counts, &limits(launches, copies + 2, bytes_of_ids + job_bytes));
            assert!(count(&counts, "bytes_in") > bytes_of_ids, "{counts:?}");
            // Other values with the same indices use the same copies.
            values.rotate_left(1);
            let counts = counted(&format!("push of {num_ids} known rows"), || {
                store.push(&pushed_keys, &values, 0).unwrap();
            });
            at_most(&counts, &limits(launches, 2, job_bytes));
        }
    }
}

/// A pull of rows copies the requested indices. The pulled value keeps them on the GPU.
#[test]
fn pulled_rows_keep_their_indices_on_the_gpu() {
    let _alone = alone();
    let backends = backends();
    let keys = keys(1);
    let store = store_of_rows(&backends, &keys, None, NUM_ROWS);
    for num_ids in [100, 8000] {
        let ids = some_ids(1, num_ids);
        for _ in 0..3 {
            let pulled = store.pull_rows(&keys, &[&ids], 0).unwrap();
            pulled[0].to_dense().unwrap();
        }
        let mut pulled = Vec::new();
        let counts = counted(&format!("pull of {num_ids} rows"), || {
            pulled = store.pull_rows(&keys, &[&ids], 0).unwrap();
        });
        at_most(&counts, &limits(2, 3, 8 * num_ids as u64 + 200));
        let counts = counted("the pulled rows made dense", || {
            pulled[0].to_dense().unwrap();
        });
        at_most(&counts, &limits(1, 1, 100));
    }
}

/// The sum of rows keeps its indices on the GPU, where they have been computed.
#[test]
fn summed_rows_keep_their_indices_on_the_gpu() {
    let _alone = alone();
    let backends = backends();
    let values: Vec<Value> = (0..4).map(|seed| rows(&backends, seed, 5000).into()).collect();
    let sum = || Value::sum(&values).unwrap();
    sum().to_dense().unwrap();
    let sum = sum();
    sum.to_dense().unwrap();
    let counts = counted("the sum made dense", || {
        sum.to_dense().unwrap();
    });
    at_most(&counts, &limits(1, 1, 100));
}

/// The number of launches and copies does not depend on the number of keys.
#[test]
fn rows_of_many_keys_are_planned_together() {
    let _alone = alone();
    let backends = backends();
    for optimizer in [None, Some(Optimizer::sgd())] {
        let keys = keys(300);
        let store = store_of_rows(&backends, &keys, optimizer.as_ref(), NUM_ROWS);
        let pushed_keys: Vec<Key> =
            keys.iter().flat_map(|key| [key.clone(), key.clone()]).collect();
        let values = || -> Vec<Value> {
            (0..2 * keys.len()).map(|seed| rows(&backends, seed, 10).into()).collect()
        };
        for _ in 0..3 {
            store.push(&pushed_keys, &values(), 0).unwrap();
        }
        let values = values();
        let counts = counted("push of rows of 300 keys", || {
            store.push(&pushed_keys, &values, 0).unwrap();
        });
        let bytes = 600 * (10 * 8 + 64) + 300 * 300;
        at_most(&counts, &limits(4, 5, bytes));
    }
}

/// Row indices on the GPU count as its memory, and are freed with their value.
#[test]
fn row_indices_on_the_gpu_are_freed_with_their_value() {
    let _alone = alone();
    let backends = backends();
    let gpus = backends.of(Device::gpu(0)).unwrap();
    let value = rows(&backends, 0, 10_000);
    let before = gpus.live_bytes();
    drop(value.to_dense().unwrap());
    assert!(gpus.live_bytes() >= before + 10_000 * 8);
    let on_host = value.to_device(&backends, Device::cpu(0)).unwrap();
    let (ids, elements) = (8 * 10_000, value.rows().num_bytes());
    drop(value);
    assert!(gpus.live_bytes() <= before - elements, "{ids} bytes of indices are still there");
    assert_eq!(on_host.indices(), some_ids(0, 10_000));
}

/// A value of another device is copied in each push, but its row indices only in the first one.
#[test]
fn row_indices_are_copied_once_to_each_device() {
    let _alone = alone();
    let backends = backends_of(2);
    let keys = keys(1);
    let store = store_of_rows(&backends, &keys, None, NUM_ROWS);
    let values: Vec<Value> = (0..2_u32)
        .map(|device| {
            let value = rows(&backends, device as usize, 5000);
            value.to_device(&backends, Device::gpu(device)).unwrap().into()
        })
        .collect();
    let pushed_keys = vec![keys[0].clone(); 2];
    store.push(&pushed_keys, &values, 0).unwrap();
    let counts = counted("push of known rows on two devices", || {
        store.push(&pushed_keys, &values, 0).unwrap();
    });
    assert!(count(&counts, "bytes_in") < 500, "{counts:?}");
}

/// The name of an operation, its number of launches, and the operation.
type Call<'a> = (&'a str, u64, Box<dyn Fn() -> Tensor + 'a>);

/// Reductions, transposes, random numbers and expansions only queue kernels: no elements are copied
/// to or from the host, and the host does not wait.
#[test]
fn elements_stay_on_the_gpu() {
    let _alone = alone();
    let backends = backends();
    for dtype in DType::ALL {
        let of = |dims: &[usize]| tensor(&backends, dims).cast(dtype).unwrap();
        let (wide, tall, line) = (of(&[300, 500]), of(&[3, 70_000]), of(&[1, 5000]));
        let (row, column, matrix) = (of(&[1, 7]), of(&[50, 1]), of(&[50, 7]));
        let mut calls: Vec<Call<'_>> = Vec::new();
        for op in Reduction::ALL.iter().copied() {
            let wide = &wide;
            calls.push((op.name(), 2, Box::new(move || wide.reduce(op).unwrap())));
        }
        calls.push(("transpose", 1, Box::new(|| wide.transpose().unwrap())));
        calls.push(("transpose of few rows", 1, Box::new(|| tall.transpose().unwrap())));
        calls.push(("transpose of one row", 0, Box::new(|| line.transpose().unwrap())));
        calls.push(("argmax", 2, Box::new(|| wide.argmax_channel().unwrap())));
        calls.push(("argmax of long rows", 3, Box::new(|| tall.argmax_channel().unwrap())));
        let greater =
            |left: &Tensor, right: &Tensor| left.binary(BinaryOp::Greater, right).unwrap();
        calls.push(("repeated row", 2, Box::new(|| greater(&row, &matrix))));
        calls.push(("repeated column", 2, Box::new(|| greater(&matrix, &column))));
        if dtype.is_float() {
            for distribution in [
                Distribution::Uniform { low: 0.0, high: 1.0 },
                Distribution::Normal { mean: 0.0, deviation: 1.0 },
            ] {
                let backends = &backends;
                let call = move || {
                    let spec = TensorSpec::new([1000], dtype);
                    let mut generator = Generator::new(3);
                    generator.tensor(backends, Device::gpu(0), spec, distribution).unwrap()
                };
                calls.push(("random numbers", 1, Box::new(call)));
            }
        }
        for (name, num_launches, call) in calls {
            drop(call());
            let counts = counted(&format!("{name} {dtype}"), || drop(call()));
            assert_eq!(count(&counts, "cuLaunchKernel"), num_launches, "{name} {dtype}");
            at_most(
                &counts,
                &[
                    ("bytes_in", 0),
                    ("bytes_out", 0),
                    ("cuMemAlloc_v2", 0),
                    ("cuMemHostAlloc", 0),
                    ("cuStreamSynchronize", 0),
                    ("cuEventSynchronize", 0),
                ],
            );
        }
    }
}

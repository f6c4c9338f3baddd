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
    Backends, CpuBackend, DType, Device, Key, KvStore, LocalStore, Optimizer, Scalar, Tensor,
    TensorSpec, Value,
};
use kvstore_cuda::CudaBackend;
use kvstore_emulator::null;

/// Lets only one test run at a time, because the driver counts the calls of all threads.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn backends() -> Backends {
    null::load().unwrap();
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), None).unwrap();
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

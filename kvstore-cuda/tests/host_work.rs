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

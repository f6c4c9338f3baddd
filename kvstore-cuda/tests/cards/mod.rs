//! Backends for tests, on real GPUs or on the emulated driver.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Backends, CpuBackend};
use kvstore_cuda::CudaBackend;
use kvstore_emulator as emulator;

/// Lets only one test run at a time, because a driver failure affects all tests.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_real() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

/// Returns new backends with this number of devices.
pub(crate) fn backends(num_devices: usize) -> Backends {
    if !is_real() {
        emulator::load().unwrap();
    }
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), Some(num_devices)).unwrap();
    Backends::new(vec![host, gpus])
}

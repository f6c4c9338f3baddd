//! Backends for tests, on emulated cards where there are no others.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Backends, CpuBackend};
use kvstore_cuda::CudaBackend;
use kvstore_emulator as emulator;

/// One test at a time: a driver that fails fails for all.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn is_real() -> bool {
    Path::new("/proc/driver/nvidia/version").exists()
}

/// Returns a backend of its own with so many devices.
pub(crate) fn backends(num_devices: usize) -> Backends {
    if !is_real() {
        emulator::load().unwrap();
    }
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), Some(num_devices)).unwrap();
    Backends::new(vec![host, gpus])
}

//! Selects the devices of the checks: the host, or GPUs if `KVSTORE_TEST_DEVICE=gpu` is set.

use std::sync::Arc;

use kvstore::Device;
use kvstore_core::{Backend, Backends, CpuBackend};

use crate::reduced;

/// Returns whether the checks run on GPUs.
///
/// # Panics
/// - If the environment variable has another value.
pub fn is_gpu() -> bool {
    match std::env::var("KVSTORE_TEST_DEVICE").as_deref() {
        Ok("gpu") => true,
        Ok("cpu") | Err(_) => false,
        Ok(other) => panic!("KVSTORE_TEST_DEVICE is `{other}`, expected cpu or gpu"),
    }
}

/// Returns the device for values.
pub fn device(ordinal: u32) -> Device {
    if is_gpu() { Device::gpu(ordinal) } else { Device::cpu(ordinal) }
}

/// Returns named tables of backends. On the host, there is one for each number of threads; for
/// GPUs, there is one.
pub fn backends(threads: &[usize]) -> Vec<(String, Backends)> {
    if is_gpu() {
        return vec![("GPUs".to_owned(), kvstore::backends().clone())];
    }
    let of_host = |num_threads| {
        let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
        (format!("{num_threads} threads"), backends)
    };
    reduced::threads(threads).map(of_host).collect()
}

/// Returns the backend of the values' devices.
pub fn backend(backends: &Backends) -> &Arc<dyn Backend> {
    backends.of(device(0)).unwrap_or_else(|error| panic!("{error}"))
}

//! Functions about the process: its memory, its devices, and the names of dtypes and errors.

use kvstore::DType;
use pyo3::prelude::*;

use crate::interpreter::error::{codes, detached};

/// A device (the name of its kind, and its number), the bytes in use, and its total bytes.
type Memory = (&'static str, u32, usize, Option<usize>);

/// Returns the version of the library.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the findings about this machine, each as a name and a sentence.
#[pyfunction]
pub(crate) fn doctor(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    detached(py, || Ok(kvstore::doctor()))
}

/// Returns the number of bytes that arrays and stored values occupy on all devices.
#[pyfunction]
pub(crate) fn live_bytes() -> usize {
    kvstore::live_bytes()
}

/// Returns the number of bytes that are kept for reuse.
#[pyfunction]
pub(crate) fn pooled_bytes() -> usize {
    kvstore::pooled_bytes()
}

/// Returns the memory that is kept for reuse to the system.
#[pyfunction]
pub(crate) fn trim(py: Python<'_>) -> PyResult<()> {
    detached(py, || {
        kvstore::trim();
        Ok(())
    })
}

/// Returns the host's memory limit in bytes, or ``None`` without a limit.
#[pyfunction]
pub(crate) fn memory_limit() -> Option<usize> {
    kvstore::memory_limit()
}

/// Sets the host's memory limit in bytes. ``None`` removes the limit.
#[pyfunction]
#[pyo3(signature = (num_bytes))]
pub(crate) fn set_memory_limit(num_bytes: Option<usize>) {
    kvstore::set_memory_limit(num_bytes);
}

/// Returns the memory of each device: its kind and number, the bytes in use, and the total bytes
/// if they are known.
#[pyfunction]
pub(crate) fn device_memory(py: Python<'_>) -> PyResult<Vec<Memory>> {
    detached(py, || {
        let described = kvstore::device_memory().into_iter().map(|memory| {
            let device = memory.device;
            (device.kind().name(), device.ordinal(), memory.live, memory.total)
        });
        Ok(described.collect())
    })
}

/// Returns the number of GPUs.
#[pyfunction]
pub(crate) fn num_gpus(py: Python<'_>) -> PyResult<usize> {
    detached(py, || Ok(kvstore::num_gpus()))
}

/// Waits until all work on every device is done.
#[pyfunction]
pub(crate) fn synchronize(py: Python<'_>) -> PyResult<()> {
    detached(py, kvstore::synchronize)
}

/// Returns the name of every error code, in the order of its number.
#[pyfunction]
pub(crate) fn error_codes() -> Vec<&'static str> {
    codes()
}

/// Returns the name of every dtype.
#[pyfunction]
pub(crate) fn dtype_names() -> Vec<&'static str> {
    DType::ALL.iter().map(|dtype| dtype.name()).collect()
}

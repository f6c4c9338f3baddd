//! The only list of the backends of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvstore_core::process::PerProcess;
use kvstore_core::{Backend, Backends, CpuBackend, DeviceKind, DeviceMemory, Result};

use crate::memory_limit::default_limit;

/// Returns the backends of this process, always the same ones. They look for GPUs at the first
/// request for one, because initialising a driver takes long and does not work after a fork. A
/// forked child creates its own backends.
pub fn backends() -> &'static Backends {
    static BACKENDS: PerProcess<Backends> = PerProcess::new();
    BACKENDS.get_or_init(|inherited| {
        note_used_gpus(inherited);
        let host = CpuBackend::new();
        let inherited =
            inherited.and_then(|parents| parents.initialised().find(|backend| is_host(backend)));
        host.set_memory_limit(
            inherited.map_or_else(default_limit, |backend| backend.memory_limit()),
        );
        Backends::builder()
            .with(Arc::clone(&host) as Arc<dyn Backend>)
            .with_lazy(DeviceKind::Gpu, move || gpus(Arc::clone(&host) as Arc<dyn Backend>))
            .build()
    })
}

/// Whether an ancestor used GPUs. Their driver does not work in a forked child.
static GPUS_ARE_LOST: AtomicBool = AtomicBool::new(false);

fn note_used_gpus(inherited: Option<&Backends>) {
    let is_gpu = |backend: &Arc<dyn Backend>| backend.kind() == DeviceKind::Gpu;
    if inherited.is_some_and(|parents| parents.initialised().any(is_gpu)) {
        GPUS_ARE_LOST.store(true, Ordering::Relaxed);
    }
}

/// Returns the backend of GPUs, or the reason why there is none.
fn gpus(host: Arc<dyn Backend>) -> Result<Arc<dyn Backend>, String> {
    if GPUS_ARE_LOST.load(Ordering::Relaxed) {
        let text = "GPUs were used before this process was forked: start it with `spawn`";
        return Err(text.to_owned());
    }
    find_gpus(host)
}

#[cfg(feature = "cuda")]
fn find_gpus(host: Arc<dyn Backend>) -> Result<Arc<dyn Backend>, String> {
    kvstore_cuda::CudaBackend::new(host).map_err(|absence| absence.to_string())
}

#[cfg(not(feature = "cuda"))]
fn find_gpus(_host: Arc<dyn Backend>) -> Result<Arc<dyn Backend>, String> {
    Err("this build has no GPU support (feature `cuda`)".to_owned())
}

/// Returns a report for people: names of components, each with a sentence about its state on this
/// machine.
///
/// ```
/// for (name, finding) in kvstore::doctor() {
///     println!("{name}: {finding}");
/// }
/// ```
pub fn doctor() -> Vec<(String, String)> {
    let mut findings = Vec::from([("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    for (kind, backend) in backends().find_all() {
        let finding = match backend {
            Ok(backend) => format!("available, {}", backend.description()),
            Err(reason) => format!("not available: {reason}"),
        };
        findings.push((format!("backend {}", kind.name()), finding));
    }
    findings
}

/// Returns the bytes of arrays and stored values on all devices, without memory kept for reuse.
pub fn live_bytes() -> usize {
    backends().initialised().map(|backend| backend.live_bytes()).sum()
}

/// Returns the bytes of arrays and stored values in host memory, without memory kept for reuse.
pub fn host_live_bytes() -> usize {
    host().map(|backend| backend.live_bytes()).sum()
}

/// Returns the bytes that all devices keep for reuse.
pub fn pooled_bytes() -> usize {
    backends().initialised().map(|backend| backend.pooled_bytes()).sum()
}

/// Returns the memory of the host, which all its devices share, then the memory of every GPU.
pub fn device_memory() -> Vec<DeviceMemory> {
    let found = backends().find_all().into_iter();
    found.filter_map(|(_, backend)| backend.ok()).flat_map(|backend| backend.memory()).collect()
}

/// Returns the number of GPUs.
pub fn num_gpus() -> usize {
    device_memory().iter().filter(|memory| memory.device.kind() == DeviceKind::Gpu).count()
}

/// Returns memory kept for reuse to the system.
pub fn trim() {
    backends().initialised().for_each(|backend| backend.trim());
}

/// Returns the limit of host memory in bytes, or `None` if there is no limit.
///
/// The limit covers arrays, stored values and memory kept for reuse together. The default is 80
/// percent of the memory of the machine or container. The library reads that size at its first use.
/// [`set_memory_limit`] changes the limit.
///
/// ```
/// let default = kvstore::memory_limit();
/// kvstore::set_memory_limit(Some(1 << 30));
/// assert_eq!(kvstore::memory_limit(), Some(1 << 30));
/// kvstore::set_memory_limit(default);
/// ```
pub fn memory_limit() -> Option<usize> {
    host().find_map(|backend| backend.memory_limit())
}

/// Sets the [limit of host memory](memory_limit). `None` removes it.
///
/// An allocation above the limit first frees memory kept for reuse. If that is not enough, it fails
/// with [`OutOfMemory`](crate::Error::OutOfMemory). Existing arrays and stored values stay. The
/// limit does not apply to GPU memory.
pub fn set_memory_limit(num_bytes: Option<usize>) {
    host().for_each(|backend| backend.set_memory_limit(num_bytes));
}

fn is_host(backend: &Arc<dyn Backend>) -> bool {
    backend.kind() == DeviceKind::Cpu
}

fn host() -> impl Iterator<Item = &'static Arc<dyn Backend>> {
    backends().initialised().filter(|backend| is_host(backend))
}

/// Waits until all work on every device is complete.
///
/// # Errors
/// - [`Backend`](crate::Error::Backend) if a device fails. The call waits for all devices, then
///   returns the first error.
pub fn synchronize() -> Result<()> {
    let of_backend = |backend: &Arc<dyn Backend>| {
        backend.memory().iter().map(|memory| backend.synchronize(memory.device)).collect::<Vec<_>>()
    };
    // Collect first, so that an error does not skip the wait for later devices.
    backends().initialised().flat_map(of_backend).collect::<Vec<_>>().into_iter().collect()
}

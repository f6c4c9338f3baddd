//! Which backends exist in this process. The only place that lists them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvstore_core::process::PerProcess;
use kvstore_core::{Backend, Backends, CpuBackend, DeviceKind, DeviceMemory, Result};

use crate::memory_limit::default_limit;

/// Returns the backends of this process, the same ones ever after. The first request for a GPU
/// looks for GPUs: initialising a driver takes long, and it does not work after a fork. A forked
/// child creates its own backends.
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

/// Whether an ancestor used GPUs: their driver does not work in a forked child.
static GPUS_ARE_LOST: AtomicBool = AtomicBool::new(false);

fn note_used_gpus(inherited: Option<&Backends>) {
    let is_gpu = |backend: &Arc<dyn Backend>| backend.kind() == DeviceKind::Gpu;
    if inherited.is_some_and(|parents| parents.initialised().any(is_gpu)) {
        GPUS_ARE_LOST.store(true, Ordering::Relaxed);
    }
}

/// Returns the backend of GPUs, or why there is none.
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
    Err("this build was made without GPUs (feature `cuda`)".to_owned())
}

/// Returns, for people, what was found on this machine: a name and a sentence each.
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

/// Returns the bytes that arrays and stored values hold on all devices, without the memory that
/// is kept for reuse.
pub fn live_bytes() -> usize {
    backends().initialised().map(|backend| backend.live_bytes()).sum()
}

/// Returns those of them that are in the host's memory.
pub fn host_live_bytes() -> usize {
    host().map(|backend| backend.live_bytes()).sum()
}

/// Returns the bytes that are kept for reuse.
pub fn pooled_bytes() -> usize {
    backends().initialised().map(|backend| backend.pooled_bytes()).sum()
}

/// Returns the memory of each device: the host's, which all of its devices share, then that of every GPU.
pub fn device_memory() -> Vec<DeviceMemory> {
    let found = backends().find_all().into_iter();
    found.filter_map(|(_, backend)| backend.ok()).flat_map(|backend| backend.memory()).collect()
}

/// Returns how many GPUs there are.
pub fn num_gpus() -> usize {
    device_memory().iter().filter(|memory| memory.device.kind() == DeviceKind::Gpu).count()
}

/// Gives the memory that is kept for reuse back to the system.
pub fn trim() {
    backends().initialised().for_each(|backend| backend.trim());
}

/// Returns the limit of the host's memory in bytes, or `None`.
///
/// It bounds arrays, stored values and pooled memory together. The default, determined at the first
/// use of the library, is 80 percent of the memory of the machine or container.
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

/// Sets the [limit of the host's memory](memory_limit); `None` removes it.
///
/// An allocation above the limit first frees pooled memory, then fails with
/// [`OutOfMemory`](crate::Error::OutOfMemory). Existing arrays and stored values stay. GPUs have no
/// limit but their memory.
pub fn set_memory_limit(num_bytes: Option<usize>) {
    host().for_each(|backend| backend.set_memory_limit(num_bytes));
}

fn is_host(backend: &Arc<dyn Backend>) -> bool {
    backend.kind() == DeviceKind::Cpu
}

fn host() -> impl Iterator<Item = &'static Arc<dyn Backend>> {
    backends().initialised().filter(|backend| is_host(backend))
}

/// Waits until all work on every device is done.
pub fn synchronize() -> Result<()> {
    let of_backend = |backend: &Arc<dyn Backend>| {
        backend.memory().iter().map(|it| backend.synchronize(it.device)).collect::<Vec<_>>()
    };
    // All are waited for, and then the first error counts.
    backends().initialised().flat_map(of_backend).collect::<Vec<_>>().into_iter().collect()
}

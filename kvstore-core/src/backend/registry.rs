//! [`Backends`]: the backends of a process, by kind of device.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::interop::DeviceInterop;
use super::{Backend, DequantizeJob, MeasureJob, QuantizeJob, RowSumJob, RowUpdateJob};
use crate::types::{Device, DeviceKind, Error, Result};

/// The backends of a process, at most one per kind of device. A clone shares the table.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, Device, DeviceKind};
/// let backends = Backends::builder().with_lazy(DeviceKind::Cpu, || Ok(CpuBackend::new())).build();
/// assert_eq!(backends.initialised().count(), 0);
/// assert!(backends.of(Device::cpu(0)).is_ok());
/// assert_eq!(backends.initialised().count(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Backends(Arc<Vec<BackendSource>>);

/// A backend, or the function that finds it.
#[derive(Debug)]
enum BackendSource {
    Present(Arc<dyn Backend>),
    Lazy(Lazy),
}

/// A backend that is searched for when a device of its kind is first used, because the search may
/// be slow and need memory.
struct Lazy {
    kind: DeviceKind,
    find: Box<Find>,
    found: OnceLock<Result<Arc<dyn Backend>, String>>,
}

/// Returns a backend, or the reason why it is not available.
type Find = dyn Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync;

/// A backend, or the reason why it is not available.
pub type Availability<'a> = Result<&'a Arc<dyn Backend>, &'a str>;

impl BackendSource {
    fn kind(&self) -> DeviceKind {
        match self {
            Self::Present(backend) => backend.kind(),
            Self::Lazy(lazy) => lazy.kind,
        }
    }

    /// Returns the backend. The first call searches for it.
    fn find(&self) -> Availability<'_> {
        match self {
            Self::Present(backend) => Ok(backend),
            Self::Lazy(lazy) => {
                lazy.found.get_or_init(|| (lazy.find)()).as_ref().map_err(String::as_str)
            }
        }
    }

    /// Returns the backend if it is initialised.
    fn initialised(&self) -> Option<&Arc<dyn Backend>> {
        match self {
            Self::Present(backend) => Some(backend),
            Self::Lazy(lazy) => lazy.found.get()?.as_ref().ok(),
        }
    }
}

/// Builds a [`Backends`] table.
#[derive(Debug, Default)]
#[must_use]
pub struct BackendsBuilder(Vec<BackendSource>);

impl BackendsBuilder {
    /// Adds a backend. Ignores it if the table has one of the same kind.
    pub fn with(self, backend: Arc<dyn Backend>) -> Self {
        self.add(BackendSource::Present(backend))
    }

    /// Adds a backend that is searched for when a device of its kind is first used. Ignores it if
    /// the table has one of the same kind.
    ///
    /// `find` runs at most once. It returns the backend, or the reason why it is not available.
    pub fn with_lazy(
        self,
        kind: DeviceKind,
        find: impl Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(BackendSource::Lazy(Lazy { kind, find: Box::new(find), found: OnceLock::new() }))
    }

    fn add(mut self, source: BackendSource) -> Self {
        if self.0.iter().all(|other| other.kind() != source.kind()) {
            self.0.push(source);
        }
        self
    }

    /// Returns the table.
    pub fn build(self) -> Backends {
        Backends(Arc::new(self.0))
    }
}

impl Backends {
    /// Returns an empty builder.
    pub fn builder() -> BackendsBuilder {
        BackendsBuilder::default()
    }

    /// Returns the table of these backends. Ignores a backend whose kind the table already has.
    pub fn new(present: Vec<Arc<dyn Backend>>) -> Self {
        present.into_iter().fold(Self::builder(), BackendsBuilder::with).build()
    }

    /// Returns the backend for `device`.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the backend is not available. The message gives the
    ///   reason.
    pub fn of(&self, device: Device) -> Result<&Arc<dyn Backend>> {
        let kind = device.kind();
        let reason =
            match self.0.iter().find(|source| source.kind() == kind).map(BackendSource::find) {
                Some(Ok(backend)) => return Ok(backend),
                Some(Err(reason)) => reason.to_owned(),
                None => format!("this build has no backend for `{}` devices", kind.name()),
            };
        Err(Error::DeviceUnavailable { device, reason })
    }

    /// Returns the interface for sharing memory of `device` with other libraries.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the backend of the device is not available.
    /// - [`Error::Unsupported`] if the backend cannot share its memory.
    pub fn interop(&self, device: Device) -> Result<&dyn DeviceInterop> {
        self.of(device)?.interop().ok_or_else(|| {
            Error::Unsupported(format!("{device} cannot share memory with other libraries"))
        })
    }

    /// Returns every initialised backend.
    pub fn initialised(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter().filter_map(BackendSource::initialised)
    }

    /// Searches for all backends. Returns each kind of device with its backend, or with the reason
    /// why that is not available.
    pub fn find_all(&self) -> Vec<(DeviceKind, Availability<'_>)> {
        self.0.iter().map(|source| (source.kind(), source.find())).collect()
    }
}

impl fmt::Debug for Lazy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy")
            .field("kind", &self.kind)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

/// A job on the memory of one device.
pub(crate) trait OnDevice {
    fn device(&self) -> Device;
}

macro_rules! job {
    ($($Job:ident),+) => {
        $(impl OnDevice for $Job<'_> {
            fn device(&self) -> Device {
                self.device
            }
        })+
    };
}

job!(MeasureJob, QuantizeJob, DequantizeJob, RowSumJob, RowUpdateJob);

/// The first device of each kind in a call. There are as many places as kinds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds([Option<Device>; 2]);

impl Kinds {
    pub(crate) fn add(&mut self, device: Device) {
        let has_kind = |first: &Device| first.kind() == device.kind();
        if let Some(place) = self.0.iter_mut().find(|place| place.as_ref().is_none_or(has_kind)) {
            place.get_or_insert(device);
        }
    }

    /// Returns whether there is at most one kind.
    pub(crate) fn is_one(&self) -> bool {
        self.0.iter().flatten().count() <= 1
    }

    /// Returns a device of each kind, the CPU last. Its backend can reserve the memory for a batch
    /// before the others change something.
    fn devices(self) -> impl Iterator<Item = Device> {
        let is_cpu = |device: &Device| device.kind() == DeviceKind::Cpu;
        let all = move || self.0.into_iter().flatten();
        all().filter(move |device| !is_cpu(device)).chain(all().filter(is_cpu))
    }
}

impl Backends {
    /// Calls `call` with the backend of each kind.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the backend of a device is not available.
    /// - The first error of `call`.
    pub(crate) fn for_each(
        &self,
        kinds: Kinds,
        mut call: impl FnMut(&dyn Backend) -> Result<()>,
    ) -> Result<()> {
        kinds.devices().try_for_each(|device| call(&**self.of(device)?))
    }

    /// Calls `run` with the backend of each kind. `run` returns whether the backend has changed
    /// something.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the backend of a device is not available.
    /// - The first error of `run`, converted by [`error_after_change`].
    pub(crate) fn run_each(
        &self,
        kinds: Kinds,
        mut run: impl FnMut(&dyn Backend) -> Result<bool>,
    ) -> Result<()> {
        let mut has_begun = false;
        self.for_each(kinds, |backend| {
            has_begun |= run(backend).map_err(|error| error_after_change(error, has_begun))?;
            Ok(())
        })
    }

    /// Runs the jobs on their backends, as one batch per backend. Changes the order of the jobs.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the backend of a device is not available.
    /// - The first error of a backend, converted by [`error_after_change`].
    pub(crate) fn run<J: OnDevice>(
        &self,
        jobs: &mut [J],
        run: impl Fn(&dyn Backend, &mut [J]) -> Result<()>,
    ) -> Result<()> {
        jobs.sort_unstable_by_key(|job| job.device().kind());
        let mut has_begun = false;
        for jobs in jobs.chunk_by_mut(|a, b| a.device().kind() == b.device().kind()) {
            if let Some(first) = jobs.first() {
                let backend = self.of(first.device())?;
                run(&**backend, jobs).map_err(|error| error_after_change(error, has_begun))?;
                has_begun = true;
            }
        }
        Ok(())
    }
}

/// Returns the error of a call that has failed after it changed something.
///
/// Converts [`Error::OutOfMemory`] to [`Error::Backend`], because a caller may free memory and
/// retry after `OutOfMemory`, and this call must not run twice.
pub(crate) fn error_after_change(error: Error, has_begun: bool) -> Error {
    match error {
        Error::OutOfMemory { device, .. } if has_begun => {
            let operation = "out of memory after the call had changed something".to_owned();
            Error::Backend { device, operation, source: error.into() }
        }
        error => error,
    }
}

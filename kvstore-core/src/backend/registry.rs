//! [`Backends`]: the backends of a process, and which of them drives a device.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::interop::Exchange;
use super::{Backend, DequantizeJob, QuantizeJob, RowSumJob, RowUpdateJob, SumJob, UpdateJob};
use crate::types::{Device, DeviceKind, Error, Result};

/// The backends of this process, one per kind of device. A clone shares the table.
#[derive(Clone, Debug)]
pub struct Backends(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    present: Vec<Arc<dyn Backend>>,
    later: Vec<Later>,
}

/// A backend that is looked for when somebody asks for a device of its kind, and not before: to look may take a while,
/// and memory.
struct Later {
    kind: DeviceKind,
    look: Box<Look>,
    found: OnceLock<Result<Arc<dyn Backend>, String>>,
}

/// Returns a backend, or the reason why there is none.
type Look = dyn Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync;

/// A backend that was looked for, or the reason why there is none.
pub type Looked<'a> = Result<&'a Arc<dyn Backend>, &'a str>;

impl Later {
    fn found(&self) -> Looked<'_> {
        self.found.get_or_init(|| (self.look)()).as_ref().map_err(String::as_str)
    }
}

impl Backends {
    /// Returns the table of these backends; of two for the same kind the first one counts.
    pub fn new(present: Vec<Arc<dyn Backend>>) -> Self {
        Self(Arc::new(Table { present, later: Vec::new() }))
    }

    /// Returns the table of a backend that is there and one of another kind, which is looked for when somebody asks for
    /// a device of its kind. `look` is called once, and returns the reason where there is none.
    pub fn with_later(
        present: Arc<dyn Backend>,
        kind: DeviceKind,
        look: impl Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync + 'static,
    ) -> Self {
        let later = Later { kind, look: Box::new(look), found: OnceLock::new() };
        Self(Arc::new(Table { present: Vec::from([present]), later: Vec::from([later]) }))
    }

    /// Returns the backend that drives `device`.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`] with the reason when there is none.
    pub fn of(&self, device: Device) -> Result<&Arc<dyn Backend>> {
        let kind = device.kind();
        let Table { present, later } = &*self.0;
        if let Some(backend) = present.iter().find(|backend| backend.kind() == kind) {
            return Ok(backend);
        }
        let reason = match later.iter().find(|later| later.kind == kind).map(Later::found) {
            Some(Ok(backend)) => return Ok(backend),
            Some(Err(reason)) => reason.to_owned(),
            None => format!("this build has no backend for `{}` devices", kind.name()),
        };
        Err(Error::DeviceUnavailable { device, reason })
    }

    /// Returns how memory of `device` crosses to other libraries, and theirs to here.
    ///
    /// # Errors
    /// [`Error::DeviceUnavailable`], and [`Error::Unsupported`] for a device whose backend has no such way.
    pub fn exchange(&self, device: Device) -> Result<&dyn Exchange> {
        self.of(device)?.exchange().ok_or_else(|| {
            Error::Unsupported(format!("{device} exchanges no memory with other libraries"))
        })
    }

    /// Returns every backend that is in use: all but those that nobody has asked for.
    pub fn in_use(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        let Table { present, later } = &*self.0;
        present.iter().chain(later.iter().filter_map(|later| later.found.get()?.as_ref().ok()))
    }

    /// Looks for all backends, and returns of each kind of device the one that there is, or the reason why there is
    /// none.
    pub fn look_for_all(&self) -> Vec<(DeviceKind, Looked<'_>)> {
        let Table { present, later } = &*self.0;
        let present = present.iter().map(|backend| (backend.kind(), Ok(backend)));
        present.chain(later.iter().map(|later| (later.kind, later.found()))).collect()
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("kind", &self.kind)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

/// A piece of work on the memory of one device.
pub(crate) trait Job {
    fn device(&self) -> Device;
}

macro_rules! job {
    ($($Job:ident),+) => {
        $(impl Job for $Job<'_> {
            fn device(&self) -> Device {
                self.device
            }
        })+
    };
}

job!(SumJob, UpdateJob, QuantizeJob, DequantizeJob, RowSumJob, RowUpdateJob);

impl Backends {
    /// Hands the jobs to their backends, those of one backend as one batch.
    pub(crate) fn run<J: Job>(
        &self,
        jobs: &mut [J],
        run: impl Fn(&dyn Backend, &mut [J]) -> Result<()>,
    ) -> Result<()> {
        jobs.sort_unstable_by_key(|job| job.device().kind());
        let mut has_begun = false;
        for jobs in jobs.chunk_by_mut(|one, other| one.device().kind() == other.device().kind()) {
            if let Some(first) = jobs.first() {
                let backend = self.of(first.device())?;
                run(&**backend, jobs).map_err(|error| in_the_midst(error, has_begun))?;
                has_begun = true;
            }
        }
        Ok(())
    }
}

/// Returns the error of a call that has changed something before: one that may not be tried again, as calls are that
/// found no memory.
pub(crate) fn in_the_midst(error: Error, has_begun: bool) -> Error {
    match error {
        Error::OutOfMemory { device, .. } if has_begun => {
            let operation = "no memory in the midst of a call".to_owned();
            Error::Backend { device, operation, source: error.into() }
        }
        error => error,
    }
}

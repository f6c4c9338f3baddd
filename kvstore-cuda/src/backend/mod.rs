//! [`CudaBackend`]: the [`Backend`] for NVIDIA GPUs. Its methods are in `verbs.rs`.

pub mod broadcast;
mod elementwise;
mod host;
mod interop;
mod launch;
mod measure;
mod methods;
mod plan_rows;
mod reduce;
mod row_ids;
mod rows;
mod transpose;

use std::fmt;
use std::sync::Arc;

use kvstore_core::process::Origin;
use kvstore_core::{Backend, Device, Result};

use crate::driver::card::Card;
use crate::driver::devices::Devices;
use crate::driver::memory::Memory;
use crate::driver::probe::{Absence, Driver, probe};
use crate::driver::staging::Staging;

/// The backend for NVIDIA GPUs.
///
/// Each device has one stream for all of its work. Work that reads memory of another device waits
/// for it through events. Calls return when their work is queued. Reads wait for it.
pub struct CudaBackend {
    // Declared before `memory`, and so dropped first: its blocks need the GPUs of `memory`.
    staging: Staging,
    memory: Arc<Memory>,
    driver: Driver,
    /// Runs operations without a kernel.
    host: Arc<dyn Backend>,
    /// The process that opened the driver. The driver does not work in a forked child.
    origin: Origin,
}

impl CudaBackend {
    /// Returns the backend for all GPUs, or the reason why there is none. `host` runs operations
    /// without a kernel.
    ///
    /// The environment variable `KVSTORE_GPUS` sets the number of devices. The default is one
    /// device per GPU. With `KVSTORE_CUDA_EXACT=1`, each block of memory has the length of its
    /// tensor and is freed with it, for tools that check accesses to memory.
    ///
    /// # Errors
    /// - The [`Absence`] if there is no usable driver or GPU, or if `KVSTORE_GPUS` is not a number.
    #[allow(clippy::new_ret_no_self, reason = "backends are only used as trait objects")]
    pub fn new(host: Arc<dyn Backend>) -> Result<Arc<dyn Backend>, Absence> {
        let wanted = std::env::var("KVSTORE_GPUS").ok().filter(|text| !text.is_empty());
        let wanted = wanted.map(|text| text.parse().map_err(|_| Absence::Misconfigured(text)));
        Self::with_devices(host, wanted.transpose()?)
    }

    /// Returns the backend for this number of devices, or for one device per GPU. With more devices
    /// than GPUs, several devices share a GPU, each with its own stream. With fewer devices, the
    /// last GPUs are not used.
    ///
    /// # Errors
    /// - The errors of [`CudaBackend::new`].
    pub fn with_devices(
        host: Arc<dyn Backend>,
        num_devices: Option<usize>,
    ) -> Result<Arc<dyn Backend>, Absence> {
        let driver = probe()?;
        let num_cards = driver.num_devices;
        let is_exact = std::env::var("KVSTORE_CUDA_EXACT").is_ok_and(|text| text == "1");
        let devices = Devices::new(num_cards, num_devices.unwrap_or(num_cards), is_exact);
        let devices = devices.map_err(|error| Absence::Failed {
            function: "telling what its devices are",
            error: error.chain(),
        })?;
        let (staging, memory) = (Staging::default(), Memory::new(devices));
        let origin = Origin::current();
        Ok(Arc::new(Self { staging, memory, driver, host, origin }))
    }

    pub(crate) fn pool(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(crate) fn host(&self) -> &dyn Backend {
        &*self.host
    }

    pub(crate) fn card(&self, device: Device) -> Result<&Arc<Card>> {
        self.memory.devices().card(device)
    }
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend").field("memory", &self.memory).finish_non_exhaustive()
    }
}

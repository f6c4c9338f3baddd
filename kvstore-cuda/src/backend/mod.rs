//! [`CudaBackend`]: cards as a [`Backend`]. Its verbs are in `verbs.rs`.

pub mod broadcast;
mod host;
mod interop;
mod launch;
mod measure;
mod operations;
mod verbs;

use std::fmt;
use std::sync::Arc;

use kvstore_core::process::Origin;
use kvstore_core::{Backend, Device, Result};

use crate::driver::card::Card;
use crate::driver::devices::Devices;
use crate::driver::memory::Memory;
use crate::driver::probe::{Absence, Driver, probe};
use crate::driver::staging::Staging;

/// The backend of NVIDIA's cards.
///
/// Every device has one stream, which all of its work goes into; what one reads of another waits for it by events. Calls
/// return when their work is queued, and reads wait.
pub struct CudaBackend {
    // Before the memory, whose cards its pieces were made by.
    staging: Staging,
    memory: Arc<Memory>,
    driver: Driver,
    /// Does what has no kernel.
    host: Arc<dyn Backend>,
    /// The process that opened the driver, which does not work in a forked child.
    origin: Origin,
}

impl CudaBackend {
    /// Returns the backend of all cards, or why there is none. `host` does what has no kernel.
    ///
    /// The environment variable `KVSTORE_GPUS` says how many devices there are to be, if not one for each card.
    ///
    /// # Errors
    /// The [`Absence`], in words for people.
    // The table of backends is the only thing that one is made for, and it holds trait objects.
    #[allow(clippy::new_ret_no_self, reason = "a backend is only ever used behind its seam")]
    pub fn new(host: Arc<dyn Backend>) -> Result<Arc<dyn Backend>, Absence> {
        let wanted = std::env::var("KVSTORE_GPUS").ok().filter(|text| !text.is_empty());
        let wanted = wanted.map(|text| text.parse().map_err(|_| Absence::Misconfigured(text)));
        Self::with_devices(host, wanted.transpose()?)
    }

    /// Returns the backend of so many devices, or of one for each card. With more devices than cards a card is several
    /// of them, with streams of their own; with fewer the last cards are not used.
    ///
    /// # Errors
    /// As [`CudaBackend::new`].
    pub fn with_devices(
        host: Arc<dyn Backend>,
        num_devices: Option<usize>,
    ) -> Result<Arc<dyn Backend>, Absence> {
        let driver = probe()?;
        let num_cards = driver.num_devices;
        let devices = Devices::new(num_cards, num_devices.unwrap_or(num_cards));
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

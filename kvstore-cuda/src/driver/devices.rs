//! [`Devices`]: all devices. A device is opened at its first use, because opening takes time and
//! memory of the GPU.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kvstore_core::{Device, Error, Result};

use super::card::{Card, Identity};

/// The devices of this process.
#[derive(Debug)]
pub(crate) struct Devices {
    all: Vec<DeviceEntry>,
    /// Held while a device is being opened.
    opening: Mutex<()>,
    /// Whether each block of memory has the length of its tensor and is freed with it, in the order
    /// of the work. Then tools that check memory see each tensor.
    is_exact: bool,
}

#[derive(Debug)]
struct DeviceEntry {
    device: Device,
    identity: Identity,
    card: OnceLock<Arc<Card>>,
}

impl Devices {
    /// Returns `num_devices` devices on `num_cards` GPUs. With more devices than GPUs, several
    /// devices share a GPU.
    pub(crate) fn new(num_cards: usize, num_devices: usize, is_exact: bool) -> Result<Self> {
        let entry = |number: usize| {
            let device = Device::gpu(u32::try_from(number).unwrap_or(u32::MAX));
            let identity = Identity::of(number % num_cards, device)?;
            Ok(DeviceEntry { device, identity, card: OnceLock::new() })
        };
        Ok(Self {
            all: (0..num_devices).map(entry).collect::<Result<_>>()?,
            opening: Mutex::default(),
            is_exact,
        })
    }

    /// Returns every device with its properties.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Device, &Identity)> {
        self.all.iter().map(|entry| (entry.device, &entry.identity))
    }

    /// Returns the open devices.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Arc<Card>> {
        self.all.iter().filter_map(|slot| slot.card.get())
    }

    /// Returns whether blocks of memory have the lengths of their tensors.
    pub(crate) fn are_exact(&self) -> bool {
        self.is_exact
    }

    fn entry(&self, device: Device) -> Result<&DeviceEntry> {
        let ordinal = usize::try_from(device.ordinal()).ok();
        ordinal.and_then(|ordinal| self.all.get(ordinal)).ok_or_else(|| {
            let reason = format!("there are {} of them", self.all.len());
            Error::DeviceUnavailable { device, reason }
        })
    }

    /// Waits for the work of a device. A device that is not open has no work.
    pub(crate) fn synchronize(&self, device: Device) -> Result<()> {
        self.entry(device)?.card.get().map_or(Ok(()), |card| card.synchronize())
    }

    /// Returns a device, and opens it if necessary.
    ///
    /// # Errors
    /// - [`Error::DeviceUnavailable`] if the device does not exist or has no kernels.
    /// - [`Error::Backend`] if the driver fails.
    pub(crate) fn card(&self, device: Device) -> Result<&Arc<Card>> {
        let slot = self.entry(device)?;
        if let Some(card) = slot.card.get() {
            return Ok(card);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        // Check again with the lock held: another thread may have opened the device meanwhile.
        if slot.card.get().is_none() {
            slot.identity.check(device)?;
            let card = Card::open(&slot.identity, device)?;
            for peer in self.open() {
                let enabled = card.enable_peer(peer, self.is_exact);
                let enabled = enabled.and_then(|()| peer.enable_peer(&card, self.is_exact));
                if let Err(error) = enabled {
                    tracing::warn!(
                        %error,
                        "no peer access between two devices: copies go through the host"
                    );
                }
            }
            // This thread holds the lock, so no other thread has set the card.
            let _ = slot.card.set(Arc::new(card));
        }
        slot.card.get().ok_or_else(|| Error::Internal(format!("{device} is not open")))
    }
}

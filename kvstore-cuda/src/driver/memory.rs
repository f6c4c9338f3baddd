//! The memory of GPUs. Blocks are reused after their last owner drops them.
//!
//! All work of a device goes into one stream. So a block can be reused while work on its old
//! contents is still queued: the next owner's work runs later. Memory of other libraries is also a
//! storage, but has no block.

#![expect(unsafe_code, reason = "returns blocks to the driver")]

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::storage::{InOut, Span, SpanMut, Storage, open};
use kvstore_core::{Backend, Device, DeviceMemory, Error, ForeignMemory, Layout, Result, fallible};

use super::card::{Card, Identity};
use super::devices::Devices;
use crate::args::batch::{Address, Extent};
use crate::args::update::FromTo;

/// Blocks are multiples of this many bytes.
const GRANULE: usize = 512;

/// The memory of all GPUs.
#[derive(Debug)]
pub(crate) struct Memory {
    devices: Devices,
    /// For each device, the blocks that are not in use.
    free: Vec<Mutex<FreeBlock>>,
    /// The number of bytes in use on all GPUs.
    live: AtomicUsize,
    /// The upper bound of `live` plus the pooled bytes.
    limit: AtomicUsize,
}

/// The unused blocks of a device, and the number of bytes in use.
#[derive(Debug, Default)]
struct FreeBlock {
    /// The addresses of blocks by length.
    blocks: HashMap<usize, Vec<Address>>,
    num_bytes: usize,
    live: usize,
}

impl FreeBlock {
    fn take(&mut self, block_bytes: usize) -> Option<Address> {
        let address = self.blocks.get_mut(&block_bytes)?.pop()?;
        self.num_bytes -= block_bytes;
        Some(address)
    }
}

impl Memory {
    pub(crate) fn new(devices: Devices) -> Arc<Self> {
        let free = devices.all().map(|_| Mutex::default()).collect();
        let (live, limit) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { devices, free, live, limit })
    }

    /// Returns the devices.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn pooled_bytes(&self) -> usize {
        self.of_devices().iter().map(|memory| memory.pooled).sum()
    }

    /// Returns the memory of each device.
    pub(crate) fn of_devices(&self) -> Vec<DeviceMemory> {
        let of_device = |(device, identity): (Device, &Identity)| {
            let free = self.free_of(device)?;
            let total = Some(identity.num_bytes);
            Some(DeviceMemory { device, live: free.live, pooled: free.num_bytes, total })
        };
        self.devices.all().filter_map(of_device).collect()
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }

    pub(crate) fn set_limit(&self, num_bytes: Option<usize>) {
        self.limit.store(num_bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.keep_limit();
    }

    /// Empties the pool if live and pooled bytes exceed the limit.
    fn keep_limit(&self) {
        let held = self.live_bytes().saturating_add(self.pooled_bytes());
        if held > self.limit.load(Ordering::Relaxed) {
            // The next call on a failed card reports the error.
            let _ = self.trim();
        }
    }

    /// Returns a storage with unspecified contents.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        device: Device,
        num_bytes: usize,
    ) -> Result<CudaStorage> {
        let card = Arc::clone(self.devices.card(device)?);
        let block_bytes = if self.devices.are_exact() { num_bytes } else { block_bytes(num_bytes) };
        let in_use = self.live.fetch_add(block_bytes, Ordering::Relaxed);
        if let Some(mut free) = self.free_of(device) {
            free.live += block_bytes;
        }
        // From here on, the block counts as live until the storage is dropped.
        let holder = Holder::Pool { block_bytes, memory: Arc::clone(self) };
        let mut storage = CudaStorage { card, address: 0, num_bytes, holder, owner: None };
        let limit = self.limit.load(Ordering::Relaxed);
        if block_bytes > limit.saturating_sub(in_use) {
            let limit = Some(limit);
            return Err(Error::OutOfMemory { device, requested: num_bytes, in_use, limit });
        }
        if block_bytes > 0 {
            let kept = self.free_of(device).and_then(|mut free| free.take(block_bytes));
            storage.address = if let Some(address) = kept {
                address
            } else {
                self.keep_limit();
                self.grow(&storage.card, block_bytes)?
            };
        }
        Ok(storage)
    }

    fn grow(&self, card: &Card, block_bytes: usize) -> Result<Address> {
        if self.devices.are_exact() {
            let address = card.allocate_in_order(block_bytes)?;
            return address.ok_or_else(|| self.out_of_memory(card, block_bytes));
        }
        if let Some(address) = card.allocate(block_bytes)? {
            return Ok(address);
        }
        // Return unused blocks to the driver and try again. Ignores errors of other GPUs.
        let _ = self.trim();
        card.allocate(block_bytes)?.ok_or_else(|| self.out_of_memory(card, block_bytes))
    }

    fn out_of_memory(&self, card: &Card, block_bytes: usize) -> Error {
        Error::OutOfMemory {
            device: card.device(),
            requested: block_bytes,
            in_use: self.live_bytes().saturating_sub(block_bytes),
            limit: None,
        }
    }

    /// Keeps a block for reuse. Address 0 means that no block was allocated.
    fn take_back(&self, card: &Card, address: Address, block_bytes: usize) {
        self.live.fetch_sub(block_bytes, Ordering::Relaxed);
        let Some(mut free) = self.free_of(card.device()) else { return };
        free.live -= block_bytes;
        if address == 0 {
            return;
        }
        if self.devices.are_exact() {
            // Ignores errors of earlier work, which other calls report.
            // SAFETY: the caller was the last owner.
            let _ = unsafe { card.free_in_order(address) };
            return;
        }
        if fallible::push(free.blocks.entry(block_bytes).or_default(), address).is_ok() {
            free.num_bytes += block_bytes;
            return;
        }
        drop(free);
        // There is not enough memory for the list, so free the block. Ignores errors of earlier
        // work, which other calls report.
        // SAFETY: the caller was the last owner.
        let _ = unsafe { card.free([address]) };
    }

    /// Returns unused blocks to the driver.
    pub(crate) fn trim(&self) -> Result<()> {
        let mut result = Ok(());
        for card in self.devices.open() {
            let Some(mut free) = self.free_of(card.device()) else { continue };
            free.num_bytes = 0;
            let blocks = std::mem::take(&mut free.blocks);
            drop(free);
            // SAFETY: the blocks have no owner.
            result = unsafe { card.free(blocks.into_values().flatten()) }.and(result);
        }
        result
    }

    fn free_of(&self, device: Device) -> Option<MutexGuard<'_, FreeBlock>> {
        let ordinal = usize::try_from(device.ordinal()).ok()?;
        Some(self.free.get(ordinal)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Ignores errors of earlier work, which other calls report.
        let _ = self.trim();
    }
}

/// Returns the length of the block for `num_bytes` bytes. There are eight lengths per doubling, and
/// steps of at most 32 MiB, so that a block fits later tensors of a similar size.
fn block_bytes(num_bytes: usize) -> usize {
    let step =
        (num_bytes.checked_next_power_of_two().unwrap_or(1 << 60) / 16).clamp(GRANULE, 32 << 20);
    num_bytes.checked_next_multiple_of(step).unwrap_or(usize::MAX)
}

/// A block of a GPU's memory, or imported memory of another library.
pub(crate) struct CudaStorage {
    card: Arc<Card>,
    address: Address,
    num_bytes: usize,
    holder: Holder,
    owner: Option<Arc<dyn Backend>>,
}

/// The owner that the memory returns to.
enum Holder {
    Pool {
        block_bytes: usize,
        memory: Arc<Memory>,
    },
    /// Imported memory. `Some` until it is dropped.
    Other(Option<ForeignMemory>),
}

impl CudaStorage {
    /// Returns a storage of imported memory.
    pub(crate) fn external(card: Arc<Card>, memory: ForeignMemory) -> Self {
        let (address, num_bytes) = (memory.address() as Address, memory.num_bytes());
        Self { card, address, num_bytes, holder: Holder::Other(Some(memory)), owner: None }
    }

    /// Returns the layout of strided elements in imported memory, or `None`.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        match &self.holder {
            Holder::Pool { .. } => None,
            Holder::Other(memory) => memory.as_ref()?.layout(),
        }
    }

    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.card
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Returns the address of a range.
    fn at(&self, start: usize, num_bytes: usize) -> Result<Address> {
        match start.checked_add(num_bytes) {
            Some(end) if end <= self.num_bytes && self.layout().is_none() => {
                Ok(self.address + start as u64)
            }
            _ => Err(Error::Internal("a range leaves its storage".to_owned())),
        }
    }
}

impl Storage for CudaStorage {
    fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    fn is_external(&self) -> bool {
        matches!(self.holder, Holder::Other(_))
    }

    fn owner(&self) -> Option<&Arc<dyn Backend>> {
        self.owner.as_ref()
    }

    fn set_owner(&mut self, owner: Option<Arc<dyn Backend>>) -> Option<Arc<dyn Backend>> {
        std::mem::replace(&mut self.owner, owner)
    }
}

impl Drop for CudaStorage {
    fn drop(&mut self) {
        match &mut self.holder {
            Holder::Pool { block_bytes, memory } => {
                memory.take_back(&self.card, self.address, *block_bytes);
            }
            Holder::Other(memory) => {
                let queue = memory.as_ref().and_then(ForeignMemory::released_to);
                let released = queue.is_some_and(|queue| self.card.let_stream_wait(queue).is_ok());
                // Otherwise, the owner may reuse the memory in any stream, so wait for the work of
                // this device first.
                if !released && let Err(error) = self.card.synchronize() {
                    tracing::warn!(
                        %error,
                        "memory of another library is leaked: work may still use it"
                    );
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "leaks memory that may still be in use"
                    )]
                    std::mem::forget(memory.take());
                }
            }
        }
    }
}

impl fmt::Debug for CudaStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaStorage[{} bytes on {}]", self.num_bytes, self.card.device())
    }
}

/// Returns the GPU and the address of a range.
pub(crate) fn locate(span: Span<'_>) -> Result<(&Arc<Card>, Address)> {
    let storage = open::<CudaStorage>(span.storage)?;
    Ok((storage.card(), storage.at(span.start, span.num_bytes)?))
}

/// Returns the address of a range. Fails if the range is on another device.
pub(crate) fn address_on(card: &Card, span: Span<'_>) -> Result<Address> {
    let (found, address) = locate(span)?;
    if std::ptr::eq(&raw const **found, card) || found.device() == card.device() {
        return Ok(address);
    }
    Err(Error::Internal(format!("memory of {} in work of {}", found.device(), card.device())))
}

/// Returns the address of a destination. Fails if it is on another device.
pub(crate) fn address_of(card: &Card, span: &SpanMut<'_>) -> Result<Address> {
    address_on(card, reading(span))
}

/// Returns the address and length of a range, like [`address_on`].
pub(crate) fn extent(card: &Card, span: Span<'_>) -> Result<Extent> {
    Ok(Extent { address: address_on(card, span)?, num_bytes: span.num_bytes })
}

/// Returns the addresses of an operand.
pub(crate) fn from_to(card: &Card, in_out: &InOut<'_>) -> Result<FromTo> {
    Ok(match in_out {
        InOut::InPlace(span) => {
            let address = address_of(card, span)?;
            FromTo { from: address, to: address }
        }
        InOut::Into { src, dst } => {
            FromTo { from: address_on(card, *src)?, to: address_of(card, dst)? }
        }
    })
}

/// Returns a destination as a source.
pub(crate) fn reading<'a>(span: &'a SpanMut<'_>) -> Span<'a> {
    Span { storage: &*span.storage, start: span.start, num_bytes: span.num_bytes }
}

#[cfg(test)]
mod tests {
    use super::{GRANULE, block_bytes};

    #[test]
    fn blocks_are_slightly_larger_than_requested() {
        assert_eq!(block_bytes(0), 0);
        assert_eq!(block_bytes(1), GRANULE);
        for num_bytes in (1..100_000).chain((100_000..1 << 40).step_by(1 << 33)) {
            let block = block_bytes(num_bytes);
            assert!((num_bytes..=num_bytes + (num_bytes / 8).max(GRANULE)).contains(&block));
        }
        assert!(block_bytes(usize::MAX - 1) >= usize::MAX - 1);
    }
}

//! Memory of cards that other libraries see by its address, and theirs that we see: streams wait for each other by events.

use std::sync::Arc;

use kvstore_core::storage::{Span, Storage};
use kvstore_core::{Device, Error, Exchange, ForeignMemory, Queue, Result};

use crate::backend::CudaBackend;
use crate::driver::number_at;
use crate::memory::{CudaStorage, locate};

/// Other libraries use a card by its primary context, as we do, so addresses and streams mean the same to all of them.
impl Exchange for CudaBackend {
    fn hardware(&self, device: Device) -> Result<u32> {
        Ok(self.card(device)?.number())
    }

    fn device_at(&self, address: usize) -> Result<Device> {
        let number = number_at(Device::gpu(0), address as u64)?;
        let number = number.ok_or_else(|| {
            Error::invalid(format!(
                "address {address:#x} is no memory that the driver of NVIDIA knows"
            ))
        })?;
        let device = Device::gpu(number);
        self.card(device)?;
        Ok(device)
    }

    fn queue(&self, device: Device) -> Result<Queue> {
        Ok(self.card(device)?.queue())
    }

    fn wait_for(&self, device: Device, other: Queue) -> Result<()> {
        self.card(device)?.wait_for_stream(other)
    }

    fn let_wait(&self, other: Queue, device: Device) -> Result<()> {
        self.card(device)?.let_stream_wait(other)
    }

    fn wait_for_all(&self, device: Device) -> Result<()> {
        self.card(device)?.synchronize_all()
    }

    fn lend(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>> {
        let card = Arc::clone(self.card(memory.device())?);
        Ok(Arc::new(CudaStorage::lent(card, memory)))
    }

    fn address(&self, src: Span<'_>) -> Result<usize> {
        let (_, address) = locate(src)?;
        usize::try_from(address)
            .map_err(|_| Error::Internal("an address beyond all memory".to_owned()))
    }
}

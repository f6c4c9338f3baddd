//! Interoperation with other libraries on the same GPU: memory by its address, and streams that
//! wait for each other through events.

#![expect(unsafe_code, reason = "queues work on memory of a GPU")]

use std::sync::Arc;

use kvstore_core::storage::{Span, SpanMut, Storage, open};
use kvstore_core::{CurrentDevice, Device, DeviceInterop, Error, ForeignMemory, Queue, Result};

use super::CudaBackend;
use crate::args::strided::{StridedArgs, kernel};
use crate::driver::card::number_at;
use crate::driver::memory::{CudaStorage, address_on, locate, reading};

/// Like other libraries, the backend uses the primary context of a GPU. So addresses and streams
/// have the same meaning in all of them.
impl DeviceInterop for CudaBackend {
    fn hardware(&self, device: Device) -> Result<u32> {
        Ok(self.card(device)?.number())
    }

    fn device_at(&self, address: usize) -> Result<Device> {
        let number = number_at(Device::gpu(0), address as u64)?;
        let number = number.ok_or_else(|| {
            Error::invalid(format!("address {address:#x} is not known to the NVIDIA driver"))
        })?;
        let device = Device::gpu(number);
        self.card(device)?;
        Ok(device)
    }

    fn queue(&self, device: Device) -> Result<Queue> {
        Ok(self.card(device)?.queue())
    }

    fn enter(&self, device: Device) -> Result<CurrentDevice> {
        self.card(device)?.context().bind().map(CurrentDevice::new)
    }

    fn check_queue(&self, device: Device) -> Result<()> {
        self.card(device)?.check_stream()
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

    fn import(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>> {
        let card = Arc::clone(self.card(memory.device())?);
        Ok(Arc::new(CudaStorage::external(card, memory)))
    }

    fn gather(&self, dst: SpanMut<'_>, src: &dyn Storage) -> Result<()> {
        copy_strided(reading(&dst), open::<CudaStorage>(src)?, true)
    }

    fn scatter(&self, dst: &mut dyn Storage, src: Span<'_>) -> Result<()> {
        copy_strided(src, open::<CudaStorage>(dst)?, false)
    }

    fn address(&self, src: Span<'_>) -> Result<usize> {
        let (_, address) = locate(src)?;
        usize::try_from(address)
            .map_err(|_| Error::Internal("an address beyond all memory".to_owned()))
    }
}

/// Queues a copy between a contiguous range and strided elements on the same GPU.
fn copy_strided(packed: Span<'_>, strided: &CudaStorage, is_gather: bool) -> Result<()> {
    let (card, num_bytes) = (strided.card(), packed.num_bytes);
    let packed = address_on(card, packed)?;
    let layout = strided.layout().ok_or_else(|| {
        Error::Internal(
            "elements one after the other, where some at distances were expected".to_owned(),
        )
    })?;
    if num_bytes != strided.num_bytes() {
        return Err(Error::Internal("a copy between different lengths".to_owned()));
    }
    let args = StridedArgs::new(packed, strided.address(), layout).ok_or_else(|| {
        Error::Unsupported(format!("an array of {} axes on {}", layout.axes.len(), card.device()))
    })?;
    let function = card.function(&kernel(layout.size, is_gather))?;
    // SAFETY: the range is memory of the GPU and has the same length. The owner of the strided
    // memory guarantees that the elements exist. The destination is exclusive during this call.
    unsafe { card.launch(function, &args, args.num_tiles()) }
}

//! Memory of devices that crosses between a backend and other libraries by its address: the [`Exchange`].
//!
//! Both sides queue work, so an address is not all: each has to wait for what the other one has queued, and for its own
//! work before it lets go of the other one's memory.

#![expect(unsafe_code, reason = "what is at an address, only who gives it can promise")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::storage::{Span, SpanMut, Storage};
use crate::types::{Device, Layout, Result};

/// A queue of a device's work as its driver numbers it: a backend's, or another library's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(usize);

impl Queue {
    /// Returns the queue that a driver knows by this number.
    ///
    /// # Safety
    /// The driver of the device that it is used for has such a queue, and keeps it until the call returns that it is
    /// given to.
    pub const unsafe fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn number(self) -> usize {
        self.0
    }
}

/// Memory of a device that another library has, and lets somebody use.
pub struct ForeignMemory {
    device: Device,
    address: usize,
    num_bytes: usize,
    layout: Option<Layout>,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl ForeignMemory {
    /// Returns the memory of these bytes, which is there until `owner` is dropped, by whatever thread.
    ///
    /// # Safety
    /// - The device may read, and where it is said to be an output write, `num_bytes` from `address` on until `owner` is
    ///   dropped.
    /// - From when it is given to a call of the crate until that returns and all that it was made into is dropped, nobody
    ///   else writes there, and if it is an output nobody reads: but for work that the device's [`Exchange::queue`] has
    ///   been made to wait for.
    pub unsafe fn new(
        device: Device,
        address: usize,
        num_bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { device, address, num_bytes, layout: None, _owner: owner }
    }

    /// Returns the memory of elements at regular distances, the first one at `address`; they are copied before they are
    /// used.
    ///
    /// # Safety
    /// As [`ForeignMemory::new`], for the bytes of the elements.
    pub unsafe fn strided(
        device: Device,
        address: usize,
        layout: Layout,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let num_elements =
            layout.axes.iter().fold(1_usize, |all, it| all.saturating_mul(it.length));
        let num_bytes = num_elements.saturating_mul(layout.size);
        Self { device, address, num_bytes, layout: Some(layout), _owner: owner }
    }

    /// Returns where the memory is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns its first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns how many bytes its elements have.
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Returns where its elements stand, if not one after the other.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }
}

impl fmt::Debug for ForeignMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignMemory[{} bytes on {}]", self.num_bytes, self.device)
    }
}

/// What a backend does whose memory other libraries of the process see by its address, and which sees theirs: part of
/// its [`Backend`](crate::Backend).
pub trait Exchange {
    /// Returns the number by which the driver and other libraries know the hardware of a device.
    fn hardware(&self, device: Device) -> Result<u32>;

    /// Returns the device whose memory an address is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for one that the driver does not know,
    /// [`Error::DeviceUnavailable`](crate::Error::DeviceUnavailable) for memory of hardware that the backend does not use.
    fn device_at(&self, address: usize) -> Result<Device>;

    /// Returns the queue that all work on the device goes into. Another library that lets it wait for its own work may
    /// lend memory then.
    fn queue(&self, device: Device) -> Result<Queue>;

    /// Lets work that is queued on the device from now on wait for what is in another library's queue.
    fn wait_for(&self, device: Device, other: Queue) -> Result<()>;

    /// Lets what another library queues from now on wait for all that is queued on the device.
    fn let_wait(&self, other: Queue, device: Device) -> Result<()>;

    /// Waits for all work on the hardware of the device, that of other libraries, too.
    fn wait_for_all(&self, device: Device) -> Result<()>;

    /// Returns the memory as a storage, which says that it [is lent](Storage::is_lent). Whoever drops it last waits for
    /// all work on the device, and drops the owner after that. Of elements at regular distances it has no ranges.
    fn lend(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>>;

    /// Queues a copy of elements at regular distances, of a storage that was [lent](Exchange::lend) so, to one after the
    /// other.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) for more axes than a backend knows.
    fn gather(&self, dst: SpanMut<'_>, src: &dyn Storage) -> Result<()>;

    /// Queues the copy the other way.
    ///
    /// # Errors
    /// As [`Exchange::gather`].
    fn scatter(&self, dst: &mut dyn Storage, src: Span<'_>) -> Result<()>;

    /// Returns where a range of a storage of the backend's is.
    fn address(&self, src: Span<'_>) -> Result<usize>;
}

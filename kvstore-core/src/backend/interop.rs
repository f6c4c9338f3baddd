//! [`DeviceInterop`]: shares device memory with other libraries of the process, by address.
//!
//! Both sides queue work on the device. Before one side uses the memory, its queue must wait for
//! the work that the other side has queued. Before it releases the memory, its own work must be
//! complete.

#![expect(unsafe_code, reason = "only the caller can vouch for a raw address")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::storage::{Span, SpanMut, Storage};
use crate::types::{Device, Layout, Result};

/// A work queue (stream) of a device, identified by the driver's number. It belongs to a backend or
/// to another library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue(usize);

impl Queue {
    /// Wraps the number of a queue.
    ///
    /// # Safety
    /// - The driver of the device has a queue with this number.
    /// - The queue exists until the call that receives it returns.
    pub const unsafe fn from_number(number: usize) -> Self {
        Self(number)
    }

    /// Returns the driver's number of the queue.
    pub const fn number(self) -> usize {
        self.0
    }
}

/// Device memory that another library owns.
pub struct ForeignMemory {
    device: Device,
    address: usize,
    num_bytes: usize,
    layout: Option<Layout>,
    released_to: Option<Queue>,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl ForeignMemory {
    /// Describes `num_bytes` bytes that start at `address`. `owner` keeps them alive. Any thread
    /// may drop it.
    ///
    /// # Safety
    /// Until `owner` is dropped:
    /// - The device may read the bytes.
    /// - If the bytes are an output, the device may write them.
    ///
    /// While a call that received the memory runs, and until everything built from it is dropped:
    /// - No one else writes to the bytes.
    /// - If the bytes are an output, no one else reads them.
    ///
    /// Work that [`DeviceInterop::queue`] already waits for is exempt from the second list.
    pub unsafe fn new(
        device: Device,
        address: usize,
        num_bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { device, address, num_bytes, layout: None, released_to: None, _owner: owner }
    }

    /// Describes strided elements. The first one is at `address`. They are copied before use.
    ///
    /// # Safety
    /// - The conditions of [`ForeignMemory::new`] hold for the bytes of the elements.
    pub unsafe fn strided(
        device: Device,
        address: usize,
        layout: Layout,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let num_elements =
            layout.axes.iter().fold(1_usize, |count, axis| count.saturating_mul(axis.length));
        let num_bytes = num_elements.saturating_mul(layout.size);
        let layout = Some(layout);
        Self { device, address, num_bytes, layout, released_to: None, _owner: owner }
    }

    /// Releases the memory to a queue of its owner: work that is queued there later waits for the
    /// device. Otherwise, the thread that drops the memory waits.
    ///
    /// # Safety
    /// - The owner uses the memory, and lets others use it, only in later work of the queue.
    /// - The queue exists until the memory is dropped.
    #[must_use]
    pub unsafe fn release_to(self, queue: Queue) -> Self {
        Self { released_to: Some(queue), ..self }
    }

    /// Returns the queue to which the memory is released, if there is one.
    pub fn released_to(&self) -> Option<Queue> {
        self.released_to
    }

    /// Returns the device whose memory this is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the number of bytes of the elements.
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Returns the layout of strided elements, or `None` for contiguous ones.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }
}

impl fmt::Debug for ForeignMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForeignMemory[{} bytes on {}]", self.num_bytes, self.device)
    }
}

/// Keeps the hardware of a device current in this thread. Dropping it restores the hardware from
/// before.
pub struct CurrentDevice(#[expect(dead_code, reason = "it is held, not read")] Box<dyn Any>);

impl CurrentDevice {
    /// Wraps the guard of a backend.
    pub fn new(guard: impl Any) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for CurrentDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentDevice")
    }
}

/// Shares device memory with other libraries of the process. This is the optional part of a
/// [`Backend`](crate::Backend) whose memory has addresses.
pub trait DeviceInterop {
    /// Returns the index by which the driver and other libraries identify the device's hardware.
    fn hardware(&self, device: Device) -> Result<u32>;

    /// Returns the device whose memory contains an address.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the driver does not know the
    ///   address.
    /// - [`Error::DeviceUnavailable`](crate::Error::DeviceUnavailable) if the backend does not use
    ///   the hardware at that address.
    fn device_at(&self, address: usize) -> Result<Device>;

    /// Returns the queue of all work on the device. Another library may pass its memory to this
    /// crate after this queue waits for that library's work.
    fn queue(&self, device: Device) -> Result<Queue>;

    /// Makes the hardware of the device current in this thread until the result is dropped. Other
    /// libraries use the thread's current hardware when they are called.
    fn enter(&self, device: Device) -> Result<CurrentDevice>;

    /// Checks that the queue of the device executes its work. After a wait for a queue that is
    /// captured into a graph, it would only add its work to the graph.
    ///
    /// # Errors
    /// - [`Error::Unsupported`](crate::Error::Unsupported) if the work would be captured.
    fn check_queue(&self, device: Device) -> Result<()>;

    /// Makes later work on the device wait for the work in another library's queue.
    fn wait_for(&self, device: Device, other: Queue) -> Result<()>;

    /// Makes later work in another library's queue wait for the work queued on the device.
    fn let_wait(&self, other: Queue, device: Device) -> Result<()>;

    /// Waits for all work on the hardware of the device, including that of other libraries.
    fn wait_for_all(&self, device: Device) -> Result<()>;

    /// Imports the memory as an [external](Storage::is_external) storage.
    ///
    /// Dropping its last reference waits for all work on the device, or lets the queue of
    /// [`ForeignMemory::release_to`] wait, and then drops the owner. Strided memory has no ranges.
    /// Use [`DeviceInterop::gather`] and [`DeviceInterop::scatter`] for it.
    fn import(&self, memory: ForeignMemory) -> Result<Arc<dyn Storage>>;

    /// Queues a copy from strided elements of an [imported](DeviceInterop::import) storage to
    /// contiguous elements.
    ///
    /// # Errors
    /// - [`Error::Unsupported`](crate::Error::Unsupported) if the layout has more axes than the
    ///   backend supports.
    fn gather(&self, dst: SpanMut<'_>, src: &dyn Storage) -> Result<()>;

    /// Queues a copy from contiguous elements to strided elements of an imported storage.
    ///
    /// # Errors
    /// - The errors of [`DeviceInterop::gather`].
    fn scatter(&self, dst: &mut dyn Storage, src: Span<'_>) -> Result<()>;

    /// Returns the address of a range of a storage of the backend.
    fn address(&self, src: Span<'_>) -> Result<usize>;
}

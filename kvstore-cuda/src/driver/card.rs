//! [`Card`]: a device and the one stream that all of its work goes into, as functions of the driver.
//!
//! Addresses are numbers here, and what they promise is said at each function. A call returns when its work is queued.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use kvstore_core::{Device, Error, Queue, Result};

use super::call::{call, check};
use super::context::Context;
use super::handles::Event;
use super::modules::{MODULES, module_of};
use crate::args::batch::{Address, THREADS};

/// The largest number of blocks in a grid. Each block has one tile, and loops only if there are more
/// tiles: a card moves more bytes per second with many short blocks than with a few that loop.
const MAX_BLOCKS: u32 = 0x7fff_ffff;

/// What a card is.
#[derive(Debug)]
pub(crate) struct Identity {
    ordinal: sys::CUdevice,
    name: String,
    /// All the memory of the card.
    pub(crate) num_bytes: usize,
    /// The compute capability: 8.6 is 86.
    capability: i32,
}

/// The oldest cards that kernels are compiled for, Volta's.
const OLDEST_CAPABILITY: i32 = 70;

impl Identity {
    /// Asks the driver for the card with this number, which `device` is to be.
    pub(crate) fn of(number: usize, device: Device) -> Result<Self> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let (mut ordinal, mut num_bytes, mut name) = (0, 0, [0; 128]);
        // Pointers to local values may be written; that of the name has room for a 0 behind it.
        call!(device, cuDeviceGet(&raw mut ordinal, number))?;
        call!(device, cuDeviceTotalMem_v2(&raw mut num_bytes, ordinal))?;
        call!(device, cuDeviceGetName(name.as_mut_ptr(), 127, ordinal))?;
        // SAFETY: there is a 0 behind the name, and nobody writes it now.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let [major, minor] = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ]
        .map(|attribute| attribute_of(device, ordinal, attribute));
        Ok(Self { ordinal, name, num_bytes, capability: 10 * major? + minor? })
    }

    /// Fails when there are no kernels for the card.
    pub(crate) fn check(&self, device: Device) -> Result<()> {
        if self.capability >= OLDEST_CAPABILITY {
            return Ok(());
        }
        let [found, needed] =
            [self.capability, OLDEST_CAPABILITY].map(|it| format!("{}.{}", it / 10, it % 10));
        let reason =
            format!("{} has compute capability {found}, and {needed} is needed", self.name);
        Err(Error::DeviceUnavailable { device, reason })
    }
}

fn attribute_of(
    device: Device,
    ordinal: sys::CUdevice,
    attribute: CUdevice_attribute,
) -> Result<i32> {
    let mut value = 0;
    // A pointer to a local value may be written.
    call!(device, cuDeviceGetAttribute(&raw mut value, attribute, ordinal))?;
    Ok(value)
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} MiB", self.name, self.num_bytes >> 20)
    }
}

/// A device: its context and a stream. Several may be on one card, as far as anybody can tell.
pub(crate) struct Card {
    device: Device,
    ordinal: sys::CUdevice,
    context: Context,
    stream: sys::CUstream,
    kernels: Mutex<Kernels>,
}

// SAFETY: the handles may be used by any thread that has made the context its own, which every function does.
unsafe impl Send for Card {}
// SAFETY: the same; the driver's functions may be called by several threads at once.
unsafe impl Sync for Card {}

/// A kernel of a card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(sys::CUfunction);

/// What has been loaded, by number and by name.
#[derive(Default)]
struct Kernels {
    modules: HashMap<usize, sys::CUmodule>,
    functions: HashMap<String, sys::CUfunction>,
}

impl Card {
    /// Opens a card as a device.
    pub(crate) fn open(identity: &Identity, device: Device) -> Result<Self> {
        const NON_BLOCKING: u32 = 1;
        let ordinal = identity.ordinal;
        let mut handle = ptr::null_mut();
        // A pointer to a local value may be written.
        call!(device, cuDevicePrimaryCtxRetain(&raw mut handle, ordinal))?;
        let mut card = Self {
            device,
            ordinal,
            context: Context { device, handle },
            stream: ptr::null_mut(),
            kernels: Mutex::default(),
        };
        let _bound = card.context.bind()?;
        call!(device, cuStreamCreate(&raw mut card.stream, NON_BLOCKING))?;
        Ok(card)
    }

    /// Returns the device that it is.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Lets this card read the memory of another one, where the hardware has a way; copies find one anyhow.
    pub(crate) fn enable_peer(&self, peer: &Self) -> Result<()> {
        if self.ordinal == peer.ordinal {
            return Ok(());
        }
        let mut can = 0;
        let device = self.device;
        call!(device, cuDeviceCanAccessPeer(&raw mut can, self.ordinal, peer.ordinal))?;
        if can == 0 {
            return Ok(());
        }
        let _bound = self.context.bind()?;
        // SAFETY: both contexts are there.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context.handle, 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            result => check(device, "cuCtxEnablePeerAccess", result),
        }
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Returns new memory, aligned to 256 bytes, or none where there is not so much.
    pub(crate) fn allocate(&self, num_bytes: usize) -> Result<Option<Address>> {
        let _bound = self.context.bind()?;
        let mut address = 0;
        // SAFETY: a pointer to a local integer may be written.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, num_bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => check(self.device, "cuMemAlloc", result).map(|()| Some(address)),
        }
    }

    /// Gives memory back to the driver.
    ///
    /// # Safety
    /// It is this card's, and nobody uses it any more but work that is queued.
    pub(crate) unsafe fn free(&self, address: Address) -> Result<()> {
        let _bound = self.context.bind()?;
        self.synchronize()?;
        // The work that was queued is done.
        call!(self.device, cuMemFree_v2(address))
    }

    /// Queues a copy of the host's memory into this card's.
    ///
    /// # Safety
    /// `src` is pinned memory of as many bytes, which nobody changes before the copy is done; `dst` is this card's.
    pub(crate) unsafe fn copy_in(
        &self,
        dst: Address,
        src: *const u8,
        num_bytes: usize,
    ) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyHtoDAsync_v2(dst, src.cast(), num_bytes, self.stream))
    }

    /// Queues a copy of this card's memory into the host's.
    ///
    /// # Safety
    /// `dst` is pinned memory of as many bytes, which nobody uses before the copy is done; `src` is this card's.
    pub(crate) unsafe fn copy_out(
        &self,
        dst: *mut u8,
        src: Address,
        num_bytes: usize,
    ) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyDtoHAsync_v2(dst.cast(), src, num_bytes, self.stream))
    }

    /// Queues a copy between ranges of this card.
    ///
    /// # Safety
    /// Both are this card's and do not overlap.
    pub(crate) unsafe fn copy(&self, dst: Address, src: Address, num_bytes: usize) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyDtoDAsync_v2(dst, src, num_bytes, self.stream))
    }

    /// Queues a copy of another card's memory into this one's: after what is queued there, and before what will be.
    ///
    /// # Safety
    /// `dst` is this card's and `src` the other one's.
    pub(crate) unsafe fn copy_from(
        &self,
        dst: Address,
        (peer, src): (&Self, Address),
        num_bytes: usize,
    ) -> Result<()> {
        self.wait_for(&peer.record()?)?;
        let _bound = self.context.bind()?;
        let (to, from) = (self.context.handle, peer.context.handle);
        if to == from {
            call!(self.device, cuMemcpyDtoDAsync_v2(dst, src, num_bytes, self.stream))?;
        } else {
            call!(self.device, cuMemcpyPeerAsync(dst, to, src, from, num_bytes, self.stream))?;
        }
        // Without that the memory might be handed out again too early.
        let done = self.record().and_then(|event| peer.wait_for(&event));
        done.or_else(|error| self.synchronize().and(Err(error)))
    }

    /// Returns the stream as other libraries name it.
    pub(crate) fn queue(&self) -> Queue {
        // SAFETY: the driver has it until the card is dropped, which is when its backend is.
        unsafe { Queue::from_number(self.stream.expose_provenance()) }
    }

    /// Returns the number that the driver knows the card by.
    pub(crate) fn number(&self) -> u32 {
        self.ordinal.cast_unsigned()
    }

    /// Lets what is queued from now on wait for what is in another library's stream.
    pub(crate) fn wait_for_stream(&self, other: Queue) -> Result<()> {
        let _bound = self.context.bind()?;
        let event = Event::new(self)?;
        // It is a stream of the driver's: who made the queue has promised that.
        call!(self.device, cuEventRecord(event.handle(), stream_of(other)))?;
        self.wait_for(&event)
    }

    /// Lets what another library puts into its stream from now on wait for what is queued now.
    pub(crate) fn let_stream_wait(&self, other: Queue) -> Result<()> {
        let event = self.record()?;
        let _bound = self.context.bind()?;
        // As above; an event may be dropped while others wait for it.
        call!(self.device, cuStreamWaitEvent(stream_of(other), event.handle(), 0))
    }

    /// Waits for all that anybody has queued on the card.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuCtxSynchronize())
    }

    /// Returns an event that is there when all that is queued now has been done.
    pub(crate) fn record(&self) -> Result<Event> {
        let _bound = self.context.bind()?;
        let event = Event::new(self)?;
        call!(self.device, cuEventRecord(event.handle(), self.stream))?;
        Ok(event)
    }

    /// Lets what is queued from now on wait for an event, of any card.
    fn wait_for(&self, event: &Event) -> Result<()> {
        let _bound = self.context.bind()?;
        // An event may be dropped while others wait for it.
        call!(self.device, cuStreamWaitEvent(self.stream, event.handle(), 0))
    }

    /// Waits for an event of this card.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuEventSynchronize(event.handle()))
    }

    /// Returns whether an event of this card is there.
    pub(crate) fn is_there(&self, event: &Event) -> Result<bool> {
        let _bound = self.context.bind()?;
        // SAFETY: the event is there.
        match unsafe { sys::cuEventQuery(event.handle()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check(self.device, "cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until all that is queued has been done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuStreamSynchronize(self.stream))
    }

    /// Queues a kernel with one argument, of as many blocks as are useful for so many tiles.
    ///
    /// # Safety
    /// The argument is the kernel's, and every address in it is that of this card's memory, as long as it says.
    pub(crate) unsafe fn launch<A>(
        &self,
        function: Function,
        args: &A,
        num_tiles: u64,
    ) -> Result<()> {
        let num_blocks = u32::try_from(num_tiles).unwrap_or(MAX_BLOCKS).min(MAX_BLOCKS);
        if num_blocks == 0 {
            return Ok(());
        }
        let _bound = self.context.bind()?;
        let mut parameters = [ptr::from_ref(args).cast_mut().cast::<c_void>()];
        let (parameters, none) = (parameters.as_mut_ptr(), ptr::null_mut());
        // The argument is copied before the call returns.
        #[rustfmt::skip]
        let result = call!(
            self.device,
            cuLaunchKernel(
                function.0, num_blocks, 1, 1, THREADS, 1, 1, 0, self.stream, parameters, none
            )
        );
        result
    }

    /// Returns a kernel; the driver compiles its module when it is asked for the first time.
    pub(crate) fn function(&self, name: &str) -> Result<Function> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let _bound = self.context.bind()?;
        if let Some(function) = kernels.functions.get(name) {
            return Ok(Function(*function));
        }
        let no_kernel = || Error::Internal(format!("no kernel `{name}`"));
        let number = module_of(name).ok_or_else(no_kernel)?;
        let module = if let Some(module) = kernels.modules.get(&number) {
            *module
        } else {
            let source = MODULES.get(number).copied().ok_or_else(no_kernel)?;
            let source = CString::new(source).map_err(|_| no_kernel())?;
            let mut module = ptr::null_mut();
            // The text ends with a 0.
            call!(self.device, cuModuleLoadData(&raw mut module, source.as_ptr().cast()))?;
            kernels.modules.insert(number, module);
            module
        };
        let text = CString::new(name).map_err(|_| no_kernel())?;
        let mut function = ptr::null_mut();
        call!(self.device, cuModuleGetFunction(&raw mut function, module, text.as_ptr()))?;
        kernels.functions.insert(name.to_owned(), function);
        Ok(Function(function))
    }
}

/// Returns the stream that other libraries name so.
fn stream_of(queue: Queue) -> sys::CUstream {
    ptr::with_exposed_provenance_mut(queue.number())
}

/// Returns the number of the card that has the memory at an address; none where there is no such memory.
pub(crate) fn number_at(device: Device, address: Address) -> Result<Option<u32>> {
    let mut ordinal: sys::CUdevice = 0;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let to = (&raw mut ordinal).cast();
    // SAFETY: a pointer to a local integer, which is what this attribute is, may be written.
    match unsafe { sys::cuPointerGetAttribute(to, attribute, address) } {
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
        result => {
            check(device, "cuPointerGetAttribute", result).map(|()| u32::try_from(ordinal).ok())
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Errors would be those of work before, which others hear of.
        if !self.stream.is_null() {
            let _bound = self.context.bind();
            let _ = self.synchronize();
            let _ = call!(self.device, cuStreamDestroy_v2(self.stream));
        }
        let _ = call!(self.device, cuDevicePrimaryCtxRelease_v2(self.ordinal));
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card[{}]", self.device)
    }
}

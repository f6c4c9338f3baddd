//! [`Card`]: a device with one stream for all of its work, as calls of the driver.
//!
//! Addresses are plain integers here, so each function states what it requires of them. A call
//! returns when its work is queued.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use kvstore_core::{Device, Error, Queue, Result};

use super::call::{advice, call, check};
use super::context::Context;
use super::handles::Event;
use super::probe::name_of;
use crate::args::batch::{Address, THREADS};
use crate::compiled::{code, module_of, ptx};

/// The largest number of blocks in a grid. Each block has one tile, and loops only if there are
/// more tiles: a GPU moves more bytes per second with many short blocks than with a few that loop.
const MAX_BLOCKS: u32 = 0x7fff_ffff;

/// The properties of a GPU.
#[derive(Debug)]
pub(crate) struct Identity {
    ordinal: sys::CUdevice,
    name: String,
    /// The total memory in bytes.
    pub(crate) num_bytes: usize,
    /// The compute capability. 8.6 is 86.
    capability: i32,
}

/// The oldest compute capability that the kernels are compiled for: Volta.
const OLDEST_CAPABILITY: i32 = 70;

impl Identity {
    /// Queries the GPU with this number. Errors name `device`.
    pub(crate) fn of(number: usize, device: Device) -> Result<Self> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let (mut ordinal, mut num_bytes, mut name) = (0, 0, [0; 128]);
        // The pointers refer to local variables. The buffer of the name stays terminated by a 0.
        call!(device, cuDeviceGet(&raw mut ordinal, number))?;
        call!(device, cuDeviceTotalMem_v2(&raw mut num_bytes, ordinal))?;
        call!(device, cuDeviceGetName(name.as_mut_ptr(), 127, ordinal))?;
        // SAFETY: the name ends with a 0, and no one else writes to the buffer.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let [major, minor] = [
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ]
        .map(|attribute| attribute_of(device, ordinal, attribute));
        Ok(Self { ordinal, name, num_bytes, capability: 10 * major? + minor? })
    }

    /// Fails if there are no kernels for this GPU.
    pub(crate) fn check(&self, device: Device) -> Result<()> {
        if self.capability >= OLDEST_CAPABILITY {
            return Ok(());
        }
        let [found, needed] = [self.capability, OLDEST_CAPABILITY]
            .map(|capability| format!("{}.{}", capability / 10, capability % 10));
        let reason =
            format!("{}: expected compute capability {needed} or newer, found {found}", self.name);
        Err(Error::DeviceUnavailable { device, reason })
    }
}

fn attribute_of(
    device: Device,
    ordinal: sys::CUdevice,
    attribute: CUdevice_attribute,
) -> Result<i32> {
    let mut value = 0;
    // The pointer refers to a local variable.
    call!(device, cuDeviceGetAttribute(&raw mut value, attribute, ordinal))?;
    Ok(value)
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} MiB", self.name, self.num_bytes >> 20)
    }
}

/// A device: a context and a stream. Several devices may share a GPU and its context.
pub(crate) struct Card {
    device: Device,
    ordinal: sys::CUdevice,
    /// As in [`Identity`].
    capability: i32,
    context: Context,
    stream: sys::CUstream,
    kernels: Mutex<Kernels>,
}

// SAFETY: any thread may use the handles if the context is current, and every method makes it
// current.
unsafe impl Send for Card {}
// SAFETY: as above. Several threads may call the driver's functions at the same time.
unsafe impl Sync for Card {}

/// A kernel that is loaded on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(sys::CUfunction);

/// The modules whose code is loaded by number, and the loaded kernels by name.
#[derive(Default)]
struct Kernels {
    modules: HashMap<usize, sys::CUmodule>,
    functions: HashMap<String, sys::CUfunction>,
}

impl Card {
    /// Opens a GPU as a device.
    pub(crate) fn open(identity: &Identity, device: Device) -> Result<Self> {
        const NON_BLOCKING: u32 = 1;
        let ordinal = identity.ordinal;
        let mut handle = ptr::null_mut();
        // The pointer refers to a local variable.
        call!(device, cuDevicePrimaryCtxRetain(&raw mut handle, ordinal))?;
        let mut card = Self {
            device,
            ordinal,
            capability: identity.capability,
            context: Context { device, handle },
            stream: ptr::null_mut(),
            kernels: Mutex::default(),
        };
        let _bound = card.context.bind()?;
        call!(device, cuStreamCreate(&raw mut card.stream, NON_BLOCKING))?;
        Ok(card)
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Allows this GPU to read the memory of another GPU directly, if the hardware can. Without
    /// this, copies between the GPUs still work. `is_exact` is that of
    /// [`Devices`](super::devices::Devices).
    pub(crate) fn enable_peer(&self, peer: &Self, is_exact: bool) -> Result<()> {
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
        // SAFETY: both contexts exist.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context.handle, 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            result => check(device, "cuCtxEnablePeerAccess", result)?,
        }
        if is_exact { peer.share_in_order(self) } else { Ok(()) }
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    /// Allocates memory, aligned to 256 bytes. Returns `None` if there is not enough memory.
    pub(crate) fn allocate(&self, num_bytes: usize) -> Result<Option<Address>> {
        let _bound = self.context.bind()?;
        let mut address = 0;
        // SAFETY: the pointer refers to a local integer.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, num_bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => check(self.device, "cuMemAlloc", result).map(|()| Some(address)),
        }
    }

    /// Allocates memory in the order of the queued work. Returns `None` if there is not enough.
    pub(crate) fn allocate_in_order(&self, num_bytes: usize) -> Result<Option<Address>> {
        let _bound = self.context.bind()?;
        let mut address = 0;
        // SAFETY: the pointer refers to a local integer, and the stream exists.
        match unsafe { sys::cuMemAllocAsync(&raw mut address, num_bytes, self.stream) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => check(self.device, "cuMemAllocAsync", result).map(|()| Some(address)),
        }
    }

    /// Frees memory when the queued work is done.
    ///
    /// # Safety
    /// - `allocate_in_order` of this GPU returned the address, and it has not been freed.
    /// - Only work that is already queued uses the memory.
    pub(crate) unsafe fn free_in_order(&self, address: Address) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemFreeAsync(address, self.stream))
    }

    /// Allows another GPU to use the memory that is allocated in the order of the work.
    pub(crate) fn share_in_order(&self, peer: &Self) -> Result<()> {
        let mut pool = ptr::null_mut();
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: peer.ordinal,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // The pointers refer to local variables.
        call!(self.device, cuDeviceGetDefaultMemPool(&raw mut pool, self.ordinal))?;
        call!(self.device, cuMemPoolSetAccess(pool, &raw const access, 1))
    }

    /// Returns blocks of memory to the driver, after one wait for the queued work.
    ///
    /// # Safety
    /// - `allocate` of this GPU returned each address, and it has not been freed.
    /// - Only work that is already queued uses the memory.
    pub(crate) unsafe fn free(&self, blocks: impl IntoIterator<Item = Address>) -> Result<()> {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return Ok(());
        }
        let _bound = self.context.bind()?;
        self.synchronize()?;
        // The queued work is done, so the memory is unused.
        let mut result = Ok(());
        for block in blocks {
            result = call!(self.device, cuMemFree_v2(block)).and(result);
        }
        result
    }

    /// Queues a copy from the host to this GPU.
    ///
    /// # Safety
    /// - `src` is pinned memory of `num_bytes` bytes. It does not change before the copy is done.
    /// - `dst` is memory of this GPU, of `num_bytes` bytes.
    pub(crate) unsafe fn copy_in(
        &self,
        dst: Address,
        src: *const u8,
        num_bytes: usize,
    ) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyHtoDAsync_v2(dst, src.cast(), num_bytes, self.stream))
    }

    /// Queues a copy from this GPU to the host.
    ///
    /// # Safety
    /// - `dst` is pinned memory of `num_bytes` bytes. It is not used before the copy is done.
    /// - `src` is memory of this GPU, of `num_bytes` bytes.
    pub(crate) unsafe fn copy_out(
        &self,
        dst: *mut u8,
        src: Address,
        num_bytes: usize,
    ) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyDtoHAsync_v2(dst.cast(), src, num_bytes, self.stream))
    }

    /// Queues a copy within this GPU.
    ///
    /// # Safety
    /// - `dst` and `src` are memory of this GPU, of `num_bytes` bytes each.
    /// - They do not overlap.
    pub(crate) unsafe fn copy(&self, dst: Address, src: Address, num_bytes: usize) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuMemcpyDtoDAsync_v2(dst, src, num_bytes, self.stream))
    }

    /// Queues a copy from another GPU to this one. The copy runs after the work that is already
    /// queued on the other GPU, and before its later work.
    ///
    /// # Safety
    /// - `dst` is memory of this GPU, of `num_bytes` bytes.
    /// - `src` is memory of `peer`, of `num_bytes` bytes.
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
        // Make the peer wait for the copy. Otherwise its memory might be reused too early.
        let done = self.record().and_then(|event| peer.wait_for(&event));
        done.or_else(|error| self.synchronize().and(Err(error)))
    }

    /// Returns the stream in the form that other libraries use.
    pub(crate) fn queue(&self) -> Queue {
        // SAFETY: the stream exists until the card is dropped, which happens with its backend.
        unsafe { Queue::from_number(self.stream.expose_provenance()) }
    }

    /// Returns the number of the GPU in the driver.
    pub(crate) fn number(&self) -> u32 {
        self.ordinal.cast_unsigned()
    }

    /// Checks that the stream executes its work. If it waits for a captured stream, it is captured,
    /// too.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the stream is being captured into a graph.
    pub(crate) fn check_stream(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // The pointer refers to a local variable, and the stream exists.
        call!(self.device, cuStreamIsCapturing(self.stream, &raw mut status))?;
        if status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(());
        }
        Err(Error::Unsupported(
            "calls with arrays of a stream that is being captured into a graph".to_owned(),
        ))
    }

    /// Makes work that is queued later wait for the work in a stream of another library.
    pub(crate) fn wait_for_stream(&self, other: Queue) -> Result<()> {
        let _bound = self.context.bind()?;
        let event = Event::new(self)?;
        // The creator of the queue guarantees that it is a stream of the driver.
        call!(self.device, cuEventRecord(event.handle(), stream_of(other)))?;
        self.wait_for(&event)
    }

    /// Makes later work in a stream of another library wait for the work that is queued now.
    pub(crate) fn let_stream_wait(&self, other: Queue) -> Result<()> {
        let event = self.record()?;
        let _bound = self.context.bind()?;
        // As above. An event may be destroyed while a stream waits for it.
        call!(self.device, cuStreamWaitEvent(stream_of(other), event.handle(), 0))
    }

    /// Waits for all work on the GPU, including work of other libraries.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuCtxSynchronize())
    }

    /// Returns an event that completes when all work that is queued now is done.
    pub(crate) fn record(&self) -> Result<Event> {
        let _bound = self.context.bind()?;
        let event = Event::new(self)?;
        call!(self.device, cuEventRecord(event.handle(), self.stream))?;
        Ok(event)
    }

    /// Makes work that is queued later wait for an event of any GPU.
    fn wait_for(&self, event: &Event) -> Result<()> {
        let _bound = self.context.bind()?;
        // An event may be destroyed while a stream waits for it.
        call!(self.device, cuStreamWaitEvent(self.stream, event.handle(), 0))
    }

    /// Waits for an event of this GPU.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuEventSynchronize(event.handle()))
    }

    /// Returns whether an event of this GPU has completed.
    pub(crate) fn is_there(&self, event: &Event) -> Result<bool> {
        let _bound = self.context.bind()?;
        // SAFETY: the event exists.
        match unsafe { sys::cuEventQuery(event.handle()) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => check(self.device, "cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until all queued work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        call!(self.device, cuStreamSynchronize(self.stream))
    }

    /// Queues a kernel with one argument. The number of blocks is `num_tiles`, up to the maximum.
    ///
    /// # Safety
    /// - `args` has the type of the kernel's argument.
    /// - Every address in it refers to memory of this GPU, of the length that the argument gives.
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
        // The driver copies the argument before the call returns.
        #[rustfmt::skip]
        let result = call!(
            self.device,
            cuLaunchKernel(
                function.0, num_blocks, 1, 1, THREADS, 1, 1, 0, self.stream, parameters, none
            )
        );
        result
    }

    /// Returns a kernel. The first request for a kernel loads it: from its code, or from its PTX,
    /// which the driver compiles.
    pub(crate) fn function(&self, name: &str) -> Result<Function> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = kernels.functions.get(name) {
            return Ok(Function(*function));
        }
        let _bound = self.context.bind()?;
        let number = module_of(name)?;
        let module = match kernels.modules.get(&number) {
            Some(module) => *module,
            None => match self.load_code(number)? {
                Some(module) => {
                    kernels.modules.insert(number, module);
                    module
                }
                None => self.load_ptx(name)?,
            },
        };
        let text = CString::new(name).map_err(|_| Error::Internal("a 0 in a name".to_owned()))?;
        let mut function = ptr::null_mut();
        call!(self.device, cuModuleGetFunction(&raw mut function, module, text.as_ptr()))?;
        kernels.functions.insert(name.to_owned(), function);
        Ok(Function(function))
    }

    /// Loads the code of a module. Returns `None` if there is none that this GPU and its driver can
    /// run.
    fn load_code(&self, number: usize) -> Result<Option<sys::CUmodule>> {
        let Some(code) = code(number, self.capability)? else { return Ok(None) };
        let mut module = ptr::null_mut();
        // SAFETY: the code is an ELF file with its own length. The driver copies it.
        match unsafe { sys::cuModuleLoadData(&raw mut module, code.as_ptr().cast()) } {
            // A driver may be older than the format of the code.
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | CUresult::CUDA_ERROR_INVALID_IMAGE => Ok(None),
            result => check(self.device, "cuModuleLoadData", result).map(|()| Some(module)),
        }
    }

    /// Compiles a kernel.
    fn load_ptx(&self, name: &str) -> Result<sys::CUmodule> {
        const LOG_BYTES: usize = 4096;
        let source = ptx(name)?;
        let mut log = [0_u8; LOG_BYTES];
        let (mut module, mut options) = (
            ptr::null_mut(),
            [
                sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
                sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ],
        );
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
        let num_options = c_uint::try_from(options.len()).unwrap_or_default();
        // SAFETY: the string ends with a 0. Both options have their values: the log, and its length
        // in place of an address. The driver uses them only during the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut module,
                source.as_ptr().cast(),
                num_options,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result == CUresult::CUDA_SUCCESS {
            return Ok(module);
        }
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
        let log = String::from_utf8_lossy(log.get(..end).unwrap_or_default());
        let log = if log.trim().is_empty() { "no log" } else { log.trim() };
        Err(Error::Backend {
            device: self.device,
            operation: format!("the NVIDIA driver could not compile the kernel `{name}`"),
            source: format!("{}{}: {log}", name_of(result), advice(result)).into(),
        })
    }
}

/// Converts a queue to a stream of the driver.
fn stream_of(queue: Queue) -> sys::CUstream {
    ptr::with_exposed_provenance_mut(queue.number())
}

/// Returns the number of the GPU that owns the memory at an address, or `None` if the driver does
/// not know the address.
pub(crate) fn number_at(device: Device, address: Address) -> Result<Option<u32>> {
    let mut ordinal: sys::CUdevice = 0;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let to = (&raw mut ordinal).cast();
    // SAFETY: the pointer refers to a local integer, which is the type of this attribute.
    match unsafe { sys::cuPointerGetAttribute(to, attribute, address) } {
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(None),
        result => {
            check(device, "cuPointerGetAttribute", result).map(|()| u32::try_from(ordinal).ok())
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // Ignores errors. They come from earlier work, and other calls report them.
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

//! The structures and constants of DLPack: the layout of version 1 of `dlpack.h`.

use std::ffi::{CStr, c_void};
use std::fmt;

use kvstore::{DType, Device, DeviceKind};

use super::dtypes::{BFLOAT, INT, UINT, names};

pub(crate) const PLAIN: &CStr = c"dltensor";
pub(crate) const PLAIN_USED: &CStr = c"used_dltensor";
pub(crate) const VERSIONED: &CStr = c"dltensor_versioned";
pub(crate) const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// The supported major version. A higher minor version only adds constants that this crate does not
/// know.
pub(crate) const MAJOR: u32 = 1;
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const IS_COPIED: u64 = 2;

/// The kind of device for the host.
pub(crate) const HOST: i32 = 1;
/// The kinds for host memory that a GPU can also read: of CUDA and of ROCm.
const PINNED: [i32; 2] = [3, 11];
/// The kinds for an NVIDIA GPU, and for memory that migrates between a GPU and the host.
const CUDA: i32 = 2;
const MANAGED: i32 = 13;
/// DLPack's names of the kinds of devices, for messages.
const KINDS: [(i32, &str); 16] = [
    (HOST, "CPU"),
    (CUDA, "CUDA"),
    (3, "CUDA host"),
    (4, "OpenCL"),
    (7, "Vulkan"),
    (8, "Metal"),
    (9, "VPI"),
    (10, "ROCm"),
    (11, "ROCm host"),
    (12, "an extension"),
    (MANAGED, "CUDA managed"),
    (14, "oneAPI"),
    (15, "WebGPU"),
    (16, "Hexagon"),
    (17, "MAIA"),
    (18, "Trainium"),
];

/// DLPack's names of the kinds of numbers, for messages. All other kinds are floating-point
/// formats.
const NUMBERS: [(u8, &str); 6] = [
    (INT, "int"),
    (UINT, "uint"),
    (3, "handle"),
    (BFLOAT, "bfloat"),
    (5, "complex"),
    (BOOL, "bool"),
];
const BOOL: u8 = 6;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DlDevice {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DlType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DlDevice,
    pub(crate) rank: i32,
    pub(crate) dtype: DlType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

/// The contents of an unversioned capsule.
#[repr(C)]
pub(crate) struct Plain {
    pub(crate) tensor: DlTensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// The contents of a versioned capsule.
#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) version: [u32; 2],
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: DlTensor,
}

/// The location of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory that a device of this library can read.
    On(Device),
    /// In other memory.
    Elsewhere(DlDevice),
}

impl Place {
    /// Returns the location for a DLPack device.
    pub(crate) fn of(device: DlDevice) -> Self {
        let DlDevice { kind, id } = device;
        if kind == HOST || PINNED.contains(&kind) {
            return Self::On(Device::default());
        }
        match u32::try_from(id) {
            Ok(id) if kind == CUDA || kind == MANAGED => Self::On(Device::gpu(id)),
            _ => Self::Elsewhere(device),
        }
    }
}

impl fmt::Display for DlDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, id } = self;
        let name = KINDS
            .iter()
            .find(|(number, _)| number == kind)
            .map_or("an unknown kind", |entry| entry.1);
        write!(f, "device ({kind}, {id}), which is {name}")
    }
}

/// Returns the DLPack device for a device. All names of the host are device 0, and a GPU has its
/// hardware number, which all libraries use.
///
/// # Errors
/// - [`kvstore::Error::DeviceUnavailable`] if the GPU is not available.
pub(crate) fn device_of(device: Device) -> kvstore::Result<DlDevice> {
    Ok(match device.kind() {
        DeviceKind::Cpu => DlDevice { kind: HOST, id: 0 },
        DeviceKind::Gpu => {
            let number = kvstore::backends().interop(device)?.hardware(device)?;
            DlDevice { kind: CUDA, id: number.cast_signed() }
        }
    })
}

/// Returns the dtype, or the DLPack name if there is no such dtype.
pub(crate) fn dtype(dl: DlType) -> Result<DType, String> {
    DType::ALL.into_iter().find(|dtype| dl_type(*dtype) == dl).ok_or_else(|| {
        let DlType { code, bits, lanes } = dl;
        if (code, bits, lanes) == (BOOL, 8, 1) {
            return "bool".to_owned();
        }
        let kind =
            NUMBERS.iter().find(|(number, _)| *number == code).map_or("float", |(_, name)| *name);
        let lanes = if lanes == 1 { String::new() } else { format!("x{lanes}") };
        format!("{kind}{bits}{lanes}")
    })
}

/// Returns the DLPack type for a dtype.
pub(crate) fn dl_type(dtype: DType) -> DlType {
    let bits = u8::try_from(8 * dtype.size()).unwrap_or(u8::MAX);
    DlType { code: names(dtype).dlpack, bits, lanes: 1 }
}

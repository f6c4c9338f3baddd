//! The layout of what DLPack hands over, that of `dlpack.h`, version 1, and what its numbers mean.

use std::ffi::{CStr, c_void};
use std::fmt;

use kvstore::{DType, Device, DeviceKind};

use super::dtypes::{BFLOAT, INT, UINT, names};

pub(crate) const PLAIN: &CStr = c"dltensor";
pub(crate) const PLAIN_USED: &CStr = c"used_dltensor";
pub(crate) const VERSIONED: &CStr = c"dltensor_versioned";
pub(crate) const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// What this crate speaks; a higher minor version only adds numbers that it does not know.
pub(crate) const MAJOR: u32 = 1;
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const IS_COPIED: u64 = 2;

/// The host, as the format numbers kinds of devices.
pub(crate) const HOST: i32 = 1;
/// The host's memory that a GPU reads, too: of CUDA and of ROCm.
const PINNED: [i32; 2] = [3, 11];
/// A GPU of NVIDIA's, and memory of one that moves between it and the host.
const CUDA: i32 = 2;
const MANAGED: i32 = 13;
/// What the format calls kinds, for messages.
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

/// What the format calls kinds of numbers, for messages; the others are forms of floats.
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

/// What a capsule holds for consumers that know no versions.
#[repr(C)]
pub(crate) struct Plain {
    pub(crate) tensor: DlTensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Plain)>,
}

/// What a capsule holds for all others.
#[repr(C)]
pub(crate) struct Versioned {
    pub(crate) version: [u32; 2],
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    pub(crate) flags: u64,
    pub(crate) tensor: DlTensor,
}

/// Where elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory that a device of ours reads.
    On(Device),
    /// Somewhere else.
    Elsewhere(DlDevice),
}

impl Place {
    /// Returns where an array is.
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
        let name = KINDS.iter().find(|(it, _)| it == kind).map_or("an unknown kind", |it| it.1);
        write!(f, "device ({kind}, {id}), which is {name}")
    }
}

/// Returns the device as the format numbers it. All names of the host are one, and a GPU has the number that all libraries
/// know it by.
///
/// # Errors
/// [`kvstore::Error::DeviceUnavailable`].
pub(crate) fn device_of(device: Device) -> kvstore::Result<DlDevice> {
    Ok(match device.kind() {
        DeviceKind::Cpu => DlDevice { kind: HOST, id: 0 },
        DeviceKind::Gpu => {
            let number = kvstore::backends().interop(device)?.hardware(device)?;
            DlDevice { kind: CUDA, id: number.cast_signed() }
        }
    })
}

/// Returns the dtype, or the name of one that no tensor has.
pub(crate) fn dtype(dl: DlType) -> Result<DType, String> {
    DType::ALL.into_iter().find(|dtype| dl_type(*dtype) == dl).ok_or_else(|| {
        let DlType { code, bits, lanes } = dl;
        if (code, bits, lanes) == (BOOL, 8, 1) {
            return "bool".to_owned();
        }
        let kind = NUMBERS.iter().find(|(it, _)| *it == code).map_or("float", |(_, name)| *name);
        let lanes = if lanes == 1 { String::new() } else { format!("x{lanes}") };
        format!("{kind}{bits}{lanes}")
    })
}

/// Returns the dtype as the format describes it.
pub(crate) fn dl_type(dtype: DType) -> DlType {
    let bits = u8::try_from(8 * dtype.size()).unwrap_or(u8::MAX);
    DlType { code: names(dtype).dlpack, bits, lanes: 1 }
}

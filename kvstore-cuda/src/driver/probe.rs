//! Detection of a driver with a device. It must run before any other call, because the functions of
//! a missing driver panic.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ffi::{CStr, c_int};
use std::fmt;

use cudarc::driver::sys::{self, CUresult};

use super::call::advice;

/// The oldest supported CUDA version, as the driver numbers it: 12.0, the version of R525.
const OLDEST: c_int = 12_000;

/// A driver with at least one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The newest CUDA version that the driver supports. 12040 is 12.4.
    pub version: c_int,
    /// The number of devices.
    pub num_devices: usize,
}

/// The reason why there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No driver library can be loaded.
    NoDriver,
    /// The driver is older than CUDA 12.0. The field is its version.
    TooOld(c_int),
    /// There is a driver, but no device that it supports or that is visible.
    NoDevice,
    /// `KVSTORE_GPUS` is not a number.
    Misconfigured(String),
    /// A function of the driver failed.
    Failed {
        /// The function that failed.
        function: &'static str,
        /// The name of the error in the driver.
        error: String,
    },
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}, devices: {}", Version(self.version), self.num_devices)
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                f.write_str("the NVIDIA driver is not installed (libcuda was not found)")
            }
            Self::TooOld(version) => write!(
                f,
                "the NVIDIA driver is too old: expected CUDA {1} (driver R525) or newer, found \
                 CUDA {0}",
                Version(*version),
                Version(OLDEST)
            ),
            Self::NoDevice => f.write_str(
                "the NVIDIA driver finds no device (CUDA_VISIBLE_DEVICES may hide them)",
            ),
            Self::Misconfigured(text) => {
                write!(f, "KVSTORE_GPUS: expected the number of devices, found `{text}`")
            }
            Self::Failed { function, error } => {
                write!(f, "the NVIDIA driver failed in {function}: {error}")
            }
        }
    }
}

struct Version(c_int);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// Looks for a driver and its devices. Never panics, and uses no memory of a device.
///
/// # Errors
/// - The [`Absence`] if there is no usable driver or device.
pub fn probe() -> Result<Driver, Absence> {
    // SAFETY: loads a system library with the system's loader.
    let is_present = || unsafe { sys::is_culib_present() };
    // Miri cannot load libraries.
    if cfg!(miri) || !is_present() {
        return Err(Absence::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the library is loaded, and the pointer refers to a local integer.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < OLDEST {
        return Err(Absence::TooOld(version));
    }
    // SAFETY: `cuInit` may be called repeatedly, with flags 0.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    let mut num_devices = 0;
    // SAFETY: the driver is initialised, and the pointer refers to a local integer.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut num_devices) })?;
    match usize::try_from(num_devices) {
        Ok(num_devices) if num_devices > 0 => Ok(Driver { version, num_devices }),
        _ => Err(Absence::NoDevice),
    }
}

fn check(function: &'static str, result: CUresult) -> Result<(), Absence> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(Absence::NoDevice),
        error => {
            let error = format!("{}{}", name_of(error), advice(error));
            Err(Absence::Failed { function, error })
        }
    }
}

/// Returns the name of an error in the driver.
pub(crate) fn name_of(error: CUresult) -> String {
    let mut name = std::ptr::null();
    // SAFETY: the library is loaded, and the pointer refers to a local pointer.
    let result = unsafe { sys::cuGetErrorName(error, &raw mut name) };
    if result != CUresult::CUDA_SUCCESS || name.is_null() {
        return format!("{error:?}");
    }
    // SAFETY: the driver returned a pointer to a static string.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

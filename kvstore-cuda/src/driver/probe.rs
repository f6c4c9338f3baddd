//! Is there a driver with a device, and if not, why: asked before anything else, for the functions of a driver that
//! is not there would panic.

#![expect(unsafe_code, reason = "functions of the driver")]

use std::ffi::{CStr, c_int};
use std::fmt;

use cudarc::driver::sys::{self, CUresult};

/// The oldest release of CUDA whose driver will do, as drivers count: 12.0 is that of R525.
const OLDEST: c_int = 12_000;

/// A driver with devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The newest release of CUDA that it runs programs of: 12040 is 12.4.
    pub version: c_int,
    /// How many devices it has.
    pub num_devices: usize,
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No library of a driver can be loaded.
    NoDriver,
    /// The driver is older than CUDA 12.0; this is what it has.
    TooOld(c_int),
    /// There is a driver, and no device that it could drive or may see.
    NoDevice,
    /// The environment says how many devices there are to be, but not in a number.
    Misconfigured(String),
    /// The driver says something else.
    Failed {
        /// The function that failed.
        function: &'static str,
        /// What the driver calls its error.
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
            Self::NoDriver => f.write_str("no driver of NVIDIA is installed (no libcuda was found)"),
            Self::TooOld(version) => write!(
                f,
                "the driver of NVIDIA is too old: it has CUDA {}, and {} is needed, which is that of R525",
                Version(*version),
                Version(OLDEST)
            ),
            Self::NoDevice => f.write_str(
                "there is a driver of NVIDIA and no device for it (CUDA_VISIBLE_DEVICES may hide some)",
            ),
            Self::Misconfigured(text) => {
                write!(f, "KVSTORE_GPUS is `{text}`, expected the number of devices")
            }
            Self::Failed { function, error } => {
                write!(f, "the driver of NVIDIA fails in {function}: {error}")
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

/// Looks for a driver and its devices. Never panics, and takes no memory of a device.
///
/// # Errors
/// The [`Absence`], in words for people.
pub fn probe() -> Result<Driver, Absence> {
    // SAFETY: it loads a library of the system's, which the system's own loader runs.
    let is_present = || unsafe { sys::is_culib_present() };
    // Miri loads none.
    if cfg!(miri) || !is_present() {
        return Err(Absence::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the library is there, and a pointer to a local integer may be written.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < OLDEST {
        return Err(Absence::TooOld(version));
    }
    // SAFETY: it may be called any number of times, and its flags have to be 0.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    let mut num_devices = 0;
    // SAFETY: the driver is initialised, and a pointer to a local integer may be written.
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
        error => Err(Absence::Failed { function, error: name_of(error) }),
    }
}

/// Returns what the driver calls an error.
pub(crate) fn name_of(error: CUresult) -> String {
    let mut name = std::ptr::null();
    // SAFETY: the library is there, and a pointer to a local pointer may be written.
    let result = unsafe { sys::cuGetErrorName(error, &raw mut name) };
    if result != CUresult::CUDA_SUCCESS || name.is_null() {
        return format!("{error:?}");
    }
    // SAFETY: the driver has set it to a text of its own, which stays.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

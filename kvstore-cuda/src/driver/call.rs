//! Calls of the driver, whose errors name the function.

use cudarc::driver::sys::CUresult;
use kvstore_core::{Device, Error, Result};

use super::probe::name_of;

/// `call!(device, cuFunction(arguments))` calls a function of the driver. What is true of the arguments, so that it may
/// be called, is said where this is used.
macro_rules! call {
    ($device:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the driver is there, and the use says the rest.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        super::call::check($device, stringify!($function), result)
    }};
}

pub(crate) use call;

/// Returns what a function of the driver has answered.
pub(crate) fn check(device: Device, function: &str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let operation = format!("the driver of NVIDIA fails in {function}");
    Err(Error::Backend { device, operation, source: name_of(result).into() })
}

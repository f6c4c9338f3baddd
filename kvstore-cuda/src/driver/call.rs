//! Calls of driver functions. Their errors name the function.

use cudarc::driver::sys::CUresult;
use kvstore_core::{Device, Error, Result};

use super::probe::name_of;

/// `call!(device, cuFunction(arguments))` calls a function of the driver. A comment at each use
/// states why the arguments are valid.
macro_rules! call {
    ($device:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the driver is present. The comment at the use covers the arguments.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        super::call::check($device, stringify!($function), result)
    }};
}

pub(crate) use call;

/// Returns an error if the result of a driver function is not success.
pub(crate) fn check(device: Device, function: &str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let operation = format!("the NVIDIA driver failed in {function}");
    Err(Error::Backend { device, operation, source: name_of(result).into() })
}

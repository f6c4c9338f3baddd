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
    let source = format!("{}{}", name_of(result), advice(result)).into();
    Err(Error::Backend { device, operation, source })
}

/// Returns what the user can do about an error, or an empty string. It begins with a colon.
pub(super) fn advice(result: CUresult) -> &'static str {
    match result {
        // The driver reports these errors for all later calls of the process.
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            ": restart the process, which can no longer use the GPU"
        }
        // The store initialises the driver before all other calls, so only a fork can undo it.
        CUresult::CUDA_ERROR_NOT_INITIALIZED => {
            ": the driver does not work in a forked process, start the process with `spawn`"
        }
        CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND => {
            ": the driver's library libnvidia-ptxjitcompiler.so.1 is missing, which containers get \
             with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            ": on machines with NVSwitch, the service nvidia-fabricmanager must run"
        }
        CUresult::CUDA_ERROR_DEINITIALIZED => ": the process is ending",
        _ => "",
    }
}

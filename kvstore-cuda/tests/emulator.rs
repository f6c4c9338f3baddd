//! The emulated driver: it works, it is as strict as a real driver, and it detects missing waits.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![expect(unsafe_code, reason = "functions of the driver")]

use std::env;
use std::ffi::c_void;
use std::process::{Command, Output};
use std::ptr::{null_mut, slice_from_raw_parts_mut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use kvstore_core::{Backends, CpuBackend, DType, Device, Tensor, TensorSpec};
use kvstore_cuda::batch::{Args, Batch};
use kvstore_cuda::compiled;
use kvstore_cuda::fan::FanJob;
use kvstore_cuda::{CudaBackend, probe};
use kvstore_emulator as emulator;

/// Calls a function of the driver.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the emulated driver checks handles and addresses. Tests pass pointers to their
        // own memory.
        unsafe { sys::$function($($argument),*) }
    };
}

/// Calls a function that must succeed.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(cu!($function($($argument),*)), CUresult::CUDA_SUCCESS)
    };
}

/// Calls a function that must fail with this error.
macro_rules! rejected {
    ($error:ident, $function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(cu!($function($($argument),*)), CUresult::$error)
    };
}

/// Makes the context of a device current in this thread.
fn enter(device: i32) -> sys::CUcontext {
    emulator::load().unwrap();
    let mut context = null_mut();
    ok!(cuInit(0));
    ok!(cuDevicePrimaryCtxRetain(&raw mut context, device));
    ok!(cuCtxSetCurrent(context));
    context
}

fn allocate(num_bytes: usize) -> u64 {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, num_bytes));
    address
}

fn stream() -> sys::CUstream {
    let mut stream = null_mut();
    ok!(cuStreamCreate(&raw mut stream, 1));
    stream
}

fn event() -> sys::CUevent {
    let mut event = null_mut();
    ok!(cuEventCreate(&raw mut event, 2));
    event
}

/// Returns pinned memory, filled with a byte.
fn pinned(num_bytes: usize, byte: u8) -> &'static mut [u8] {
    let mut address = null_mut();
    ok!(cuMemHostAlloc(&raw mut address, num_bytes, 0));
    // SAFETY: the memory is new, and no test frees it while it has the slice.
    let bytes = unsafe { &mut *slice_from_raw_parts_mut(address.cast::<u8>(), num_bytes) };
    bytes.fill(byte);
    bytes
}

fn function(name: &std::ffi::CStr) -> sys::CUfunction {
    let text = compiled::ptx(name.to_str().unwrap()).unwrap();
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
    ok!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

fn launch(function: sys::CUfunction, stream: sys::CUstream, mut args: Args) -> CUresult {
    let mut arguments = [(&raw mut args).cast::<c_void>()];
    let (list, extra) = (arguments.as_mut_ptr(), null_mut());
    cu!(cuLaunchKernel(function, 3, 1, 1, 256, 1, 1, 0, stream, list, extra))
}

/// Copies values to the device, and returns their address.
fn sent<T: Copy>(values: &[T], stream: sys::CUstream) -> u64 {
    let address = allocate(size_of_val(values));
    ok!(cuMemcpyHtoDAsync_v2(address, values.as_ptr().cast(), size_of_val(values), stream));
    address
}

/// Returns the values at an address, after all earlier work of the stream.
fn received<const N: usize>(address: u64, stream: sys::CUstream) -> [f32; N] {
    let mut values = [0.0_f32; N];
    ok!(cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), address, 4 * N, stream));
    values
}

/// Runs one test in its own process with these environment variables. `is_alone` is true there.
fn alone(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

const ALONE: &str = "KVSTORE_TEST_EMULATOR";

fn is_alone() -> bool {
    env::var_os(ALONE).is_some()
}

/// Checks that a process ended with a message of the driver.
fn assert_died(output: &Output, message: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains(message), "expected {message:?}, found {text:?}");
    assert!(text.contains("KV_EMULATED_SEED="), "{text:?}");
}

#[test]
fn a_loaded_driver_is_found() {
    emulator::load().unwrap();
    let driver = probe().unwrap();
    assert_eq!((driver.version, driver.num_devices), (12_040, 2));
}

#[test]
fn a_driver_is_found_by_its_folder() {
    if is_alone() {
        match probe() {
            Ok(driver) => println!("found: {driver}"),
            Err(absence) => println!("found: {absence}"),
        }
        return;
    }
    let folder = emulator::folder().unwrap().to_str().unwrap();
    for (num_devices, expected) in [("3", "CUDA 12.4, devices: 3"), ("0", "finds no device")] {
        let variables = [("LD_LIBRARY_PATH", folder), ("KV_EMULATED_DEVICES", num_devices)];
        let output = alone("a_driver_is_found_by_its_folder", &variables);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(expected), "{text}");
    }
}

#[test]
fn copies_and_sums_give_the_right_bits() {
    enter(0);
    let (stream, function) = (stream(), function(c"kv_sum_f32"));
    for seed in 0..50 {
        emulator::seed(seed).unwrap();
        let (left, right) = ([1.5_f32; 1000], [0.25_f32; 1000]);
        let addends = [sent(&left, stream), sent(&right, stream)];
        let dst = allocate(4000);
        let mut batch = Batch::<FanJob>::default();
        batch.push(dst, &addends, 4000, 4).unwrap();
        let (jobs, list) = (sent(batch.jobs(), stream), sent(batch.addends(), stream));
        assert_eq!(launch(function, stream, batch.args(jobs, list)), CUresult::CUDA_SUCCESS);
        assert_eq!(received::<1000>(dst, stream), [1.75; 1000]);
        for address in addends.into_iter().chain([dst, jobs, list]) {
            ok!(cuMemFree_v2(address));
        }
    }
}

/// Copies bytes to the device in one stream and back in another, with or without a wait between
/// them.
fn copies_of_two_streams(seed: u64, waits: bool) -> u8 {
    emulator::seed(seed).unwrap();
    let (first, second, event) = (stream(), stream(), event());
    let (from, between, to) = (pinned(64, 7), allocate(64), pinned(64, 0));
    ok!(cuMemcpyHtoDAsync_v2(between, from.as_ptr().cast(), 64, first));
    if waits {
        ok!(cuEventRecord(event, first));
        ok!(cuStreamWaitEvent(second, event, 0));
    }
    ok!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), between, 64, second));
    ok!(cuStreamSynchronize(second));
    let found = to[63];
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(between));
    for handle in [first, second] {
        ok!(cuStreamDestroy_v2(handle));
    }
    ok!(cuEventDestroy_v2(event));
    found
}

#[test]
fn a_missing_wait_between_streams_is_detected() {
    enter(0);
    assert!((0..100).all(|seed| copies_of_two_streams(seed, true) == 7));
    assert!((0..100).any(|seed| copies_of_two_streams(seed, false) != 7));
}

/// Returns the byte that arrives from host memory that is reused after a wait, or at once.
fn copy_of_staging(seed: u64, waits: bool) -> u8 {
    emulator::seed(seed).unwrap();
    let (stream, event) = (stream(), event());
    let (staging, on_device) = (pinned(64, 7), allocate(64));
    ok!(cuMemcpyHtoDAsync_v2(on_device, staging.as_ptr().cast(), 64, stream));
    ok!(cuEventRecord(event, stream));
    if waits {
        ok!(cuEventSynchronize(event));
    }
    staging.fill(9);
    let mut found = [0; 64];
    ok!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), on_device, 64, stream));
    ok!(cuMemFree_v2(on_device));
    found[0]
}

#[test]
fn staging_memory_that_is_reused_too_early_is_detected() {
    enter(0);
    assert!((0..100).all(|seed| copy_of_staging(seed, true) == 7));
    assert!((0..100).any(|seed| copy_of_staging(seed, false) == 9));
}

#[test]
fn pageable_memory_is_read_at_the_call() {
    enter(0);
    let (stream, on_device) = (stream(), allocate(64));
    for seed in 0..50 {
        emulator::seed(seed).unwrap();
        let mut bytes = [7_u8; 64];
        ok!(cuMemcpyHtoDAsync_v2(on_device, bytes.as_ptr().cast(), 64, stream));
        bytes.fill(9);
        ok!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), on_device, 64, stream));
        assert_eq!(bytes, [7; 64]);
        ok!(cuMemsetD8Async(on_device, 1, 64, stream));
    }
}

#[test]
fn threads_share_a_device() {
    std::thread::scope(|scope| {
        for byte in 0..4 {
            scope.spawn(move || {
                enter(0);
                for round in 0..50 {
                    let (stream, on_device) = (stream(), allocate(4096));
                    ok!(cuMemsetD8Async(on_device, byte + round, 4096, stream));
                    let mut found = [0; 4096];
                    ok!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), on_device, 4096, stream));
                    assert_eq!(found, [byte + round; 4096]);
                    ok!(cuMemFree_v2(on_device));
                    ok!(cuStreamDestroy_v2(stream));
                }
            });
        }
    });
}

#[test]
fn an_event_completes_after_enough_queries() {
    enter(0);
    let (stream, on_device) = (stream(), allocate(64));
    let mut events = [null_mut(); 2];
    for event in &mut events {
        ok!(cuEventCreate(event, 0));
        ok!(cuEventRecord(*event, stream));
        ok!(cuMemsetD8Async(on_device, 1, 64, stream));
    }
    let answers = std::iter::repeat_with(|| cu!(cuEventQuery(events[1])));
    let last = answers.take(1000).find(|answer| *answer != CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!(last, Some(CUresult::CUDA_SUCCESS));
    let mut milliseconds = -1.0;
    ok!(cuEventElapsedTime(&raw mut milliseconds, events[0], events[1]));
    assert!(milliseconds >= 0.0);
}

#[test]
fn devices_copy_from_each_other() {
    let (first, second) = (enter(0), enter(1));
    let (stream, there) = (stream(), allocate(64));
    ok!(cuMemsetD8Async(there, 5, 64, stream));
    ok!(cuCtxSynchronize());
    ok!(cuCtxSetCurrent(first));
    let here = allocate(64);
    ok!(cuMemcpyPeerAsync(here, first, there, second, 64, stream));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeerAsync(here, second, there, first, 64, stream));
    ok!(cuStreamSynchronize(stream));
    let mut found = [0_u8; 64];
    let own = self::stream();
    ok!(cuMemcpyDtoHAsync_v2(found.as_mut_ptr().cast(), here, 64, own));
    assert_eq!(found, [5; 64]);
}

#[test]
fn allocations_beyond_the_memory_fail() {
    enter(1);
    let mut total = 0;
    let mut address = 0;
    ok!(cuDeviceTotalMem_v2(&raw mut total, 1));
    assert_eq!(total, 1 << 30);
    rejected!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, total + 1));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&raw mut address, 0));
    let first = allocate(total / 2);
    rejected!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, total / 2 + 1));
    let mut free = 0;
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    assert!(free <= total / 2);
    ok!(cuMemFree_v2(first));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(first));
    ok!(cuMemFree_v2(allocate(total / 2 + 1)));
}

/// The default streams have the same numbers in every context. Number 0 is not a stream.
#[test]
fn default_streams_are_streams() {
    for device in 0..2 {
        enter(device);
        for number in [1, 2] {
            let default = std::ptr::without_provenance_mut(number);
            let (address, other, event) = (sent(&[7.0_f32; 16], default), stream(), event());
            ok!(cuEventRecord(event, default));
            ok!(cuStreamWaitEvent(other, event, 0));
            assert_eq!(received::<16>(address, other), [7.0; 16]);
            rejected!(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(default));
            ok!(cuMemFree_v2(address));
        }
        rejected!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(null_mut()));
    }
}

#[test]
fn the_device_of_an_address_is_known() {
    const ORDINAL: sys::CUpointer_attribute =
        sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    for device in [1, 0] {
        enter(device);
        let (address, mut found) = (allocate(64), -1);
        ok!(cuPointerGetAttribute((&raw mut found).cast(), ORDINAL, address + 63));
        assert_eq!(found, device);
        ok!(cuMemFree_v2(address));
        let to = (&raw mut found).cast();
        rejected!(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(to, ORDINAL, address));
    }
}

#[test]
fn modules_have_the_kernels_of_their_source() {
    enter(0);
    let (mut module, mut function) = (null_mut(), null_mut());
    let ptx = compiled::ptx("kv_sum_f64").unwrap();
    let sum = compiled::module_of("kv_sum_f64").unwrap();
    let code = compiled::code(sum, 90).unwrap().unwrap();
    // PTX has one kernel, code has those of its module.
    for (image, expected) in
        [(ptx.to_bytes_with_nul(), [0, 500, 500, 500]), (code, [0, 0, 500, 500])]
    {
        ok!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        let names = [c"kv_sum_f64", c"kv_sum_f32", c"kv_cast_f32_f64", c"kv_fan_layout"];
        let found = names
            .map(|name| cu!(cuModuleGetFunction(&raw mut function, module, name.as_ptr())) as u32);
        assert_eq!(found, expected);
    }
    for other in [80, 100, 120] {
        let code = compiled::code(sum, other).unwrap().unwrap();
        let loaded = cu!(cuModuleLoadData(&raw mut module, code.as_ptr().cast()));
        assert_eq!(loaded, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let ptx = ptx.into_string().unwrap();
    for (version, expected) in [
        (".version 8.8", CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        (".Version", CUresult::CUDA_ERROR_INVALID_PTX),
    ] {
        let text = std::ffi::CString::new(ptx.replace(".version 8.0", version)).unwrap();
        assert_eq!(cu!(cuModuleLoadData(&raw mut module, text.as_ptr().cast())), expected);
    }
}

#[test]
fn the_emulator_rejects_what_a_real_driver_rejects() {
    let (first, second) = (enter(0), enter(1));
    let (theirs, their_event, memory) = (stream(), event(), allocate(64));
    ok!(cuCtxSetCurrent(first));
    let (own, function) = (stream(), function(c"kv_sum_f32"));
    let args = Batch::<FanJob>::default().args(0, 0);
    assert_eq!(launch(function, theirs, args), CUresult::CUDA_ERROR_INVALID_HANDLE);
    rejected!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(their_event, own));
    ok!(cuStreamWaitEvent(own, their_event, 0));
    let bytes = [0_u8; 65];
    let from = bytes.as_ptr().cast();
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(memory, from, 64, own));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(memory, from, 65, theirs));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(memory + 1, from, 64, theirs));
    ok!(cuMemcpyHtoDAsync_v2(memory + 1, from, 63, theirs));
    ok!(cuStreamDestroy_v2(own));
    rejected!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(own));
    ok!(cuCtxSetCurrent(second));
    assert_eq!(launch(function, theirs, args), CUresult::CUDA_ERROR_INVALID_HANDLE);
    ok!(cuCtxSetCurrent(null_mut()));
    rejected!(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(theirs));
}

#[test]
fn writing_beyond_memory_ends_the_process() {
    if !is_alone() {
        let output = alone("writing_beyond_memory_ends_the_process", &[]);
        return assert_died(&output, "kv_sum_f32: bytes after a block of 96 bytes of a device");
    }
    enter(0);
    let (stream, function) = (stream(), function(c"kv_sum_f32"));
    let (addend, dst) = (sent(&[1.0_f32; 25], stream), allocate(96));
    let mut batch = Batch::<FanJob>::default();
    batch.push(dst, &[addend], 100, 4).unwrap();
    let (jobs, list) = (sent(batch.jobs(), stream), sent(batch.addends(), stream));
    launch(function, stream, batch.args(jobs, list));
    ok!(cuStreamSynchronize(stream));
}

#[test]
fn writing_to_freed_memory_ends_the_process() {
    if !is_alone() {
        let output = alone("writing_to_freed_memory_ends_the_process", &[]);
        return assert_died(&output, "exit: byte 0 of a freed block of 96 bytes of a device");
    }
    enter(0);
    let (stream, function) = (stream(), function(c"kv_sum_f32"));
    let (addend, dst) = (sent(&[1.0_f32; 24], stream), allocate(96));
    let mut batch = Batch::<FanJob>::default();
    batch.push(dst, &[addend], 96, 4).unwrap();
    let (jobs, list) = (sent(batch.jobs(), stream), sent(batch.addends(), stream));
    ok!(cuMemFree_v2(dst));
    launch(function, stream, batch.args(jobs, list));
    ok!(cuStreamSynchronize(stream));
}

#[test]
fn freeing_memory_before_its_copy_ends_the_process() {
    if !is_alone() {
        let died = (0..20_u8).any(|seed| {
            let seed = [("KV_EMULATED_SEED", &*seed.to_string())];
            let output = alone("freeing_memory_before_its_copy_ends_the_process", &seed);
            let text = String::from_utf8_lossy(&output.stderr);
            !output.status.success() && text.contains("cuMemcpyHtoDAsync_v2: its memory was freed")
        });
        assert!(died);
        return;
    }
    enter(0);
    let (stream, staging, on_device) = (stream(), pinned(64, 1), allocate(64));
    ok!(cuMemcpyHtoDAsync_v2(on_device, staging.as_ptr().cast(), 64, stream));
    ok!(cuMemFreeHost(staging.as_mut_ptr().cast()));
    ok!(cuStreamSynchronize(stream));
}

#[test]
fn a_function_fails_at_the_requested_call() {
    if !is_alone() {
        let variables = [("KV_EMULATED_FAIL", "cuMemsetD8Async:2")];
        let output = alone("a_function_fails_at_the_requested_call", &variables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    enter(0);
    let (stream, on_device) = (stream(), allocate(64));
    let set = || cu!(cuMemsetD8Async(on_device, 0, 64, stream));
    let is_good = [set(), set(), set(), set()].map(|result| result == CUresult::CUDA_SUCCESS);
    assert_eq!(is_good, [true, true, false, true]);
    emulator::fail("cuMemsetD8Async:1+").unwrap();
    let is_good = [set(), set(), set()].map(|result| result == CUresult::CUDA_SUCCESS);
    assert_eq!(is_good, [true, false, false]);
    emulator::fail("").unwrap();
    assert_eq!(set(), CUresult::CUDA_SUCCESS);
}

#[test]
fn the_last_release_destroys_the_resources_of_a_context() {
    if !is_alone() {
        let output = alone("the_last_release_destroys_the_resources_of_a_context", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let context = enter(0);
    let (stream, memory) = (stream(), allocate(64));
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    rejected!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(stream));
    assert_eq!(enter(0), context);
    rejected!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
}

#[test]
fn memory_of_a_peer_needs_peer_access() {
    if !is_alone() {
        let output = alone("memory_of_a_peer_needs_peer_access", &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let first = enter(0);
    let theirs = allocate(64);
    enter(1);
    let (stream, own) = (stream(), allocate(64));
    rejected!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(own, theirs, 64, stream));
    ok!(cuCtxEnablePeerAccess(first, 0));
    rejected!(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(first, 0));
    ok!(cuMemcpyDtoDAsync_v2(own, theirs, 64, stream));
}

/// Other libraries in the process rely on the thread's current context.
#[test]
fn calls_restore_the_context_of_the_thread() {
    let other = enter(1);
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), Some(1)).unwrap();
    let backends = Backends::new(vec![host, gpus]);
    let work = || {
        let spec = TensorSpec::new([1000], DType::F32);
        let ones = Tensor::full(&backends, Device::gpu(0), spec, 1.0.into()).unwrap();
        assert_eq!(ones.to_vec::<f32>().unwrap(), [1.0; 1000]);
    };
    let current = || {
        let mut context = null_mut();
        ok!(cuCtxGetCurrent(&raw mut context));
        context
    };
    work();
    assert_eq!(current(), other);
    ok!(cuCtxSetCurrent(null_mut()));
    work();
    drop(backends);
    assert!(current().is_null());
}

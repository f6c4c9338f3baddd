//! The mode in which each tensor has its own block of memory: tools that check accesses see an
//! access that ends behind a tensor, and memory that is used after its tensor.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![expect(unsafe_code, reason = "functions of the driver")]

mod cards;

use std::env;
use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};

use cudarc::driver::sys::{self, CUresult};
use kvstore_core::{DType, Device, Tensor, TensorSpec};

/// The legacy default stream.
const LEGACY: sys::CUstream = without_provenance_mut(1);

const IS_CASE: &str = "KVSTORE_TEST_EXACT";

/// Runs this test in a process of its own, with or without the mode.
fn run(is_exact: bool) {
    let status = Command::new(env::current_exe().unwrap())
        .args(["--exact", "blocks_have_the_lengths_of_their_tensors", "--nocapture"])
        .env(IS_CASE, "1")
        .env("KVSTORE_CUDA_EXACT", if is_exact { "1" } else { "0" })
        .status();
    assert!(status.unwrap().success(), "exact: {is_exact}");
}

#[test]
fn blocks_have_the_lengths_of_their_tensors() {
    if cards::is_real() {
        println!("not run: only the emulated driver can be asked about blocks");
        return;
    }
    if env::var_os(IS_CASE).is_none() {
        [false, true].into_iter().for_each(run);
        return;
    }
    let is_exact = env::var("KVSTORE_CUDA_EXACT").unwrap() == "1";
    let _alone = cards::alone();
    let backends = cards::backends(4);
    let spec = || TensorSpec::new([100], DType::U8);
    let full = |device| Tensor::full(&backends, device, spec(), 7.into()).unwrap();
    let value = full(Device::gpu(0));
    let exported = value.clone().export().unwrap();
    let gpus = backends.of(Device::gpu(0)).unwrap();
    assert_eq!(gpus.live_bytes(), if is_exact { 100 } else { 512 });
    // A copy of one byte more than the tensor has.
    let mut bytes = [0_u8; 101];
    let mut context = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, 0) };
    // SAFETY: the emulated driver checks handles.
    let is_current = unsafe { sys::cuCtxSetCurrent(context) };
    assert_eq!([retained, is_current], [CUresult::CUDA_SUCCESS; 2]);
    let address = exported.address() as u64;
    // SAFETY: the emulated driver checks handles and addresses, and the bytes outlive the copy.
    let copied =
        unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, 101, LEGACY) };
    assert_eq!(copied == CUresult::CUDA_SUCCESS, !is_exact, "{copied:?}");
    drop(exported);
    gpus.synchronize(Device::gpu(0)).unwrap();
    // Work with several devices, and memory that is freed in the order of the work.
    for round in 0..20 {
        let other = full(Device::gpu(round % 4));
        let there = other.to_device(&backends, Device::gpu((round + 1) % 4)).unwrap();
        drop(other);
        assert_eq!(there.to_vec::<u8>().unwrap(), [7; 100]);
    }
    drop(value);
    assert_eq!(gpus.live_bytes(), 0);
    assert_eq!(gpus.pooled_bytes() == 0, is_exact);
}

//! How kernels come to a GPU: as code for its generation, or as PTX that its driver compiles.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::env;
use std::process::Command;
use std::sync::Arc;

use kvstore_core::{BinaryOp, CpuBackend, DType, Device, Result, Tensor, TensorSpec};
use kvstore_cuda::CudaBackend;
use kvstore_emulator as emulator;

/// Returns 1 + 1, computed by a kernel.
fn sum() -> Result<Vec<f32>> {
    emulator::load().unwrap();
    let host = CpuBackend::with_threads(1);
    let gpus = CudaBackend::with_devices(Arc::clone(&host), Some(1)).unwrap();
    let backends = kvstore_core::Backends::new(vec![host, gpus]);
    let spec = TensorSpec::new([100], DType::F32);
    let one = Tensor::full(&backends, Device::gpu(0), spec, 1.into())?;
    one.binary(BinaryOp::Add, &one)?.to_vec()
}

const CASE: &str = "KVSTORE_TEST_LOADING";

/// Runs a test in a process of its own, because a process has one driver. Returns its output.
fn run(name: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CASE, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Prints the sum or its error, for the processes of the tests.
#[test]
fn case() {
    if env::var_os(CASE).is_some() {
        match sum() {
            Ok(sum) => println!("sum: {}", sum == [2.0; 100]),
            Err(error) => println!("error: {}", error.chain()),
        }
    }
}

/// A driver that supports no PTX of ours can run the code for its GPU.
#[test]
fn known_generations_need_no_compiler() {
    for capability in ["80", "86", "89", "90", "100", "103", "120", "121"] {
        let variables = [("KV_EMULATED_CAPABILITY", capability), ("KV_EMULATED_PTX", "10")];
        let text = run("case", &variables);
        assert!(text.contains("sum: true"), "{capability}: {text}");
    }
}

#[test]
fn other_generations_compile_ptx() {
    for capability in ["70", "75", "110", "130"] {
        let text = run("case", &[("KV_EMULATED_CAPABILITY", capability)]);
        assert!(text.contains("sum: true"), "{capability}: {text}");
        let variables = [("KV_EMULATED_CAPABILITY", capability), ("KV_EMULATED_PTX", "10")];
        let text = run("case", &variables);
        for part in [
            "could not compile the kernel `kv_",
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "ptxas fatal",
        ] {
            assert!(text.contains(part), "expected {part:?}, found {text}");
        }
    }
}

/// A driver may be older than the code for its GPU.
#[test]
fn code_that_a_driver_rejects_is_replaced_with_ptx() {
    for error in [200, 209] {
        let fail = format!("cuModuleLoadData:0+={error}");
        let text = run("case", &[("KV_EMULATED_FAIL", &fail)]);
        assert!(text.contains("sum: true"), "{text}");
        let variables = [("KV_EMULATED_FAIL", &*fail), ("KV_EMULATED_PTX", "10")];
        let text = run("case", &variables);
        assert!(text.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), "{text}");
    }
    let text = run("case", &[("KV_EMULATED_FAIL", "cuModuleLoadData:0+=2")]);
    assert!(text.contains("cuModuleLoadData: CUDA_ERROR_OUT_OF_MEMORY"), "{text}");
    let variables =
        [("KV_EMULATED_CAPABILITY", "75"), ("KV_EMULATED_FAIL", "cuModuleLoadDataEx:0+=221")];
    let text = run("case", &variables);
    assert!(text.contains("libnvidia-ptxjitcompiler.so.1 is missing"), "{text}");
}

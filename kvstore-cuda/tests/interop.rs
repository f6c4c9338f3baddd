//! Memory that is imported from and exported to other libraries: what is rejected, and which owner
//! keeps it if the driver fails. The tests of the Python package cover the waits between streams.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![expect(unsafe_code, reason = "shares memory by its address")]

mod cards;

use std::sync::Arc;

use cards::{alone, is_real};
use kvstore_core::{
    Axis, Backends, DType, Device, Error, ErrorCode, ExportedTensor, ForeignMemory, Layout, Queue,
    Tensor, TensorSpec,
};
use kvstore_emulator as emulator;

/// Returns new backends with two devices.
fn backends() -> Backends {
    cards::backends(2)
}

fn spec(len: usize) -> TensorSpec {
    TensorSpec::new([len], DType::F32)
}

/// Returns ten numbers on the first device, as the memory of another library.
fn owner(backends: &Backends) -> Arc<ExportedTensor> {
    let numbers = [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let tensor = Tensor::from_slice(backends, Device::gpu(0), [10], &numbers).unwrap();
    Arc::new(tensor.export().unwrap())
}

/// Imports `num_bytes` of them, from `start` on, as memory of a device.
fn import(
    owner: &Arc<ExportedTensor>,
    device: Device,
    start: usize,
    num_bytes: usize,
) -> ForeignMemory {
    // SAFETY: the owner keeps its tensor, and no one writes to it. Both use the queue of the
    // device.
    unsafe { ForeignMemory::new(device, owner.address() + start, num_bytes, owner.clone()) }
}

fn every(owner: &Arc<ExportedTensor>, step: isize, len: usize, start: usize) -> ForeignMemory {
    let layout = Layout { size: 4, axes: vec![Axis { length: len, stride: step }] };
    let (device, address) = (Device::gpu(0), owner.address() + start);
    // SAFETY: as above.
    unsafe { ForeignMemory::strided(device, address, layout, owner.clone()) }
}

#[test]
fn imported_memory_is_read_and_kept_values_are_copies() {
    let _alone = alone();
    let backends = backends();
    let owner = owner(&backends);
    let imported =
        Tensor::from_foreign(&backends, spec(3), import(&owner, Device::gpu(0), 8, 12)).unwrap();
    assert_eq!(imported.device(), Device::gpu(0));
    assert_eq!(imported.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);
    let sum = imported.binary(kvstore_core::BinaryOp::Add, &imported).unwrap();
    let kept = imported.compact().unwrap();
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(imported);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [4.0, 6.0, 8.0]);
    assert_eq!(kept.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0]);

    // Strided elements are copied at once.
    let odd = Tensor::from_foreign(&backends, spec(5), every(&owner, 8, 5, 4)).unwrap();
    let back = Tensor::from_foreign(&backends, spec(4), every(&owner, -12, 4, 36)).unwrap();
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(odd.to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0, 7.0, 9.0]);
    assert_eq!(back.to_vec::<f32>().unwrap(), [9.0, 6.0, 3.0, 0.0]);
}

#[test]
fn memory_that_cannot_be_imported_or_exported_is_rejected() {
    let _alone = alone();
    let backends = backends();
    let owner = owner(&backends);
    let gpu = Device::gpu(0);
    let rejection = |spec: TensorSpec, memory| {
        let error = Tensor::from_foreign(&backends, spec, memory).unwrap_err();
        assert_eq!(Arc::strong_count(&owner), 1, "{error}");
        error
    };
    let text = rejection(spec(3), import(&owner, gpu, 0, 16)).to_string();
    assert!(text.contains("expected 12, found 16"), "{text}");
    let text = rejection(spec(3), import(&owner, gpu, 2, 12)).to_string();
    assert!(text.contains("unaligned external memory"), "{text}");
    let text = rejection(spec(2), every(&owner, 6, 2, 0)).to_string();
    assert!(text.contains("unaligned external memory"), "{text}");
    let error = rejection(spec(3), import(&owner, Device::gpu(2), 0, 12));
    assert_eq!(error.to_string(), "device gpu(2) is not available: there are 2 of them");
    let error = rejection(spec(3), import(&owner, Device::cpu(0), 0, 12));
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");

    let imported = Tensor::from_foreign(&backends, spec(3), import(&owner, gpu, 0, 12)).unwrap();
    let error = imported.export().map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    let host = Tensor::from_slice(&backends, Device::cpu(0), [3], &[1.0_f32; 3]).unwrap();
    let error = host.copy_to_foreign(import(&owner, gpu, 0, 12)).map(drop).unwrap_err();
    assert!(error.to_string().contains("on cpu(0) to memory of gpu(0)"), "{error}");
    assert!(host.export().is_err());
}

#[test]
fn devices_have_the_numbers_and_the_memory_of_their_gpus() {
    let _alone = alone();
    let backends = backends();
    for device in [Device::gpu(0), Device::gpu(1)] {
        let interop = backends.interop(device).unwrap();
        let shown =
            Tensor::from_slice(&backends, device, [1], &[1.0_f32]).unwrap().export().unwrap();
        let found = interop.device_at(shown.address()).unwrap();
        assert_eq!(found.ordinal(), interop.hardware(device).unwrap());
    }
    let interop = backends.interop(Device::gpu(0)).unwrap();
    let error = interop.device_at(0x1000).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    // SAFETY: it is not a stream. The emulated driver rejects it without using it.
    let nowhere = unsafe { Queue::from_number(3) };
    if !is_real() {
        let error = interop.let_wait(nowhere, Device::gpu(0)).unwrap_err();
        assert!(error.chain().contains("CUDA_ERROR_INVALID_HANDLE"), "{}", error.chain());
        assert!(interop.wait_for(Device::gpu(0), nowhere).is_err());
    }
}

/// Work that could not be waited for may still be running, so its memory is leaked.
#[test]
fn memory_is_leaked_if_the_driver_fails() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    let backends = backends();
    let gpus = backends.of(Device::gpu(0)).unwrap();
    let owner = owner(&backends);
    let imported =
        Tensor::from_foreign(&backends, spec(3), import(&owner, Device::gpu(0), 0, 12)).unwrap();
    emulator::fail("cuStreamSynchronize:0").unwrap();
    drop(imported);
    emulator::fail("").unwrap();
    assert_eq!(Arc::strong_count(&owner), 2);

    let live = gpus.live_bytes();
    let shown = Tensor::full(&backends, Device::gpu(0), spec(1000), 1.0.into()).unwrap().export();
    let with = gpus.live_bytes();
    emulator::fail("cuCtxSynchronize:0").unwrap();
    drop(shown.unwrap());
    emulator::fail("").unwrap();
    assert!(with > live);
    assert_eq!(gpus.live_bytes(), with);

    // After other failures, the owner is released, because no work uses the memory.
    for (function, expected) in [("cuLaunchKernel", 3), ("cuModuleLoadData", 3)] {
        let backends = self::backends();
        let owner = self::owner(&backends);
        emulator::fail(&format!("{function}:0")).unwrap();
        let result: Result<Tensor, Error> =
            Tensor::from_foreign(&backends, spec(expected), every(&owner, 8, expected, 0));
        emulator::fail("").unwrap();
        let error = result.map(drop).unwrap_err();
        assert!(error.to_string().contains(function), "{error}");
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}

//! A card gives the bits of the host, and gets all of its memory back. Where there is none, the test says so.
//!
//! It opens its backend itself and drops it, so a tool that looks for leaks finds none of what a process keeps.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;

use kvstore_core::{
    Backends, Compression, CpuBackend, DType, Device, Key, KvStore, LocalStore, Optimizer, Tensor,
    Value,
};
use kvstore_cuda::CudaBackend;

/// Lengths around those of vectors, and more than one block's tile.
const LENGTHS: [usize; 4] = [1, 17, 1024, 4999];

/// Returns numbers of many sizes and both signs, others for each seed.
fn numbers(backends: &Backends, device: Device, dtype: DType, len: usize, seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 4096.0 - 8.0
    };
    let elements: Vec<f32> = (0..len).map(|_| next()).collect();
    Tensor::from_slice(backends, device, [len], &elements).unwrap().cast(dtype).unwrap()
}

/// Returns the bytes that three pushes of three values leave.
fn pushed(
    backends: &Backends,
    device: Device,
    dtype: DType,
    prepare: impl Fn(&LocalStore),
) -> Vec<Vec<u8>> {
    let store = LocalStore::new("device", backends.clone()).unwrap();
    prepare(&store);
    let mut found = Vec::new();
    for len in LENGTHS {
        let keys = [Key::new(&format!("w{len}")).unwrap()];
        let value = |seed| Value::from(numbers(backends, device, dtype, len, seed));
        store.init(&keys, &[value(0)]).unwrap();
        for step in 1..=3 {
            let keys = vec![keys[0].clone(); 3];
            store.push(&keys, &[value(step), value(10 + step), value(20 + step)], 0).unwrap();
        }
        found.push(store.pull(&keys, 0).unwrap()[0].to_bytes().unwrap());
    }
    found
}

/// Returns the bytes of everything that there is a kernel for.
fn everything(backends: &Backends, device: Device) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut found = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::U8] {
        found.push((format!("sum {dtype}"), pushed(backends, device, dtype, |_| {})));
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for name in ["sgd", "nag", "adam", "rmsprop", "ftrl"] {
            let optimizer = Optimizer::new(name).unwrap();
            let set = |store: &LocalStore| store.set_optimizer(optimizer.clone()).unwrap();
            found.push((format!("{name} {dtype}"), pushed(backends, device, dtype, set)));
        }
        for name in ["2bit", "1bit"] {
            let compression = Compression::new(name, 0.5).unwrap();
            let set = |store: &LocalStore| {
                store.set_compression(Some(compression)).unwrap();
            };
            found.push((format!("{name} {dtype}"), pushed(backends, device, dtype, set)));
        }
    }
    found
}

#[test]
fn a_card_gives_the_bits_of_the_host_and_its_memory_back() {
    let host = CpuBackend::new();
    let gpus = match CudaBackend::new(Arc::clone(&host)) {
        Ok(gpus) => gpus,
        Err(absence) => return println!("not run: {absence}"),
    };
    println!("{}", gpus.description());
    let backends = Backends::new(vec![host, Arc::clone(&gpus)]);
    let expected = everything(&backends, Device::cpu(0));
    for ((name, expected), (_, found)) in expected.iter().zip(everything(&backends, Device::gpu(0)))
    {
        for (len, (expected, found)) in LENGTHS.iter().zip(expected.iter().zip(&found)) {
            assert_eq!(expected, found, "{name} of {len} elements");
        }
    }
    assert_eq!(gpus.live_bytes(), 0);
    gpus.trim();
    assert_eq!(gpus.pooled_bytes(), 0);
}

//! A GPU gives the same bits as the host, and returns all of its memory. Without a GPU, the test
//! prints that it did not run.
//!
//! The test opens and drops its own backend, so that a leak checker finds no memory that a process
//! keeps.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![expect(unsafe_code, reason = "shares memory by its address")]

use std::sync::Arc;

use kvstore_core::{
    Axis, Backends, BinaryOp, Compression, CpuBackend, DType, Device, Distribution, ForeignMemory,
    Generator, Key, KvStore, Layout, LocalStore, NDArray, Optimizer, Reduction, RowSparse, Scalar,
    Shape, Tensor, TensorSpec, UnaryOp, Value,
};
use kvstore_cuda::CudaBackend;

/// Lengths around the length of a vector, and lengths of several tiles.
const LENGTHS: [usize; 4] = [1, 17, 1024, 4999];

/// Returns numbers of different sizes and both signs, which depend on the seed.
fn numbers(
    backends: &Backends,
    device: Device,
    dtype: DType,
    shape: impl Into<Shape>,
    seed: u32,
) -> Tensor {
    let shape = shape.into();
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap()) / 4096.0 - 8.0
    };
    let elements: Vec<f32> = (0..shape.num_elements()).map(|_| next()).collect();
    Tensor::from_slice(backends, device, shape, &elements).unwrap().cast(dtype).unwrap()
}

/// Returns the bytes of a value after three pushes of three values each.
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
        let value = |seed| Value::from(numbers(backends, device, dtype, [len], seed));
        store.init(&keys, &[value(0)]).unwrap();
        for step in 1..=3 {
            let keys = vec![keys[0].clone(); 3];
            store.push(&keys, &[value(step), value(10 + step), value(20 + step)], 0).unwrap();
        }
        found.push(store.pull(&keys, 0).unwrap()[0].to_bytes().unwrap());
    }
    found
}

/// Returns the bytes of a value after three pushes of two row-sparse values each, and the bytes of
/// some of its rows.
fn pushed_rows(
    backends: &Backends,
    device: Device,
    dtype: DType,
    prepare: impl Fn(&LocalStore),
) -> Vec<Vec<u8>> {
    let store = LocalStore::new("device", backends.clone()).unwrap();
    prepare(&store);
    let mut found = Vec::new();
    for row_len in [1, 3, 32, 300] {
        let keys = [Key::new(&format!("w{row_len}")).unwrap()];
        let dense = numbers(backends, device, dtype, [200, row_len], 0);
        store.init(&keys, &[Value::from(dense)]).unwrap();
        for step in 1..=3 {
            let value = |seed: u32| {
                let ids: Vec<i64> =
                    (0..200).filter(|id| (id * 7 + i64::from(seed)) % 3 == 0).collect();
                let rows = numbers(backends, device, dtype, [ids.len(), row_len], seed);
                Value::Rows(RowSparse::new([200, row_len], ids, rows).unwrap())
            };
            store
                .push(&[keys[0].clone(), keys[0].clone()], &[value(step), value(11 + step)], 0)
                .unwrap();
        }
        let pulled = store.pull_rows(&keys, &[&[3, 5, 199, 8]], 0).unwrap();
        found.push(pulled[0].rows().to_bytes().unwrap());
        found.push(store.pull(&keys, 0).unwrap()[0].to_bytes().unwrap());
    }
    found
}

/// Returns the bytes of the results of elementwise operations and of copies to several parts.
fn elementwise(backends: &Backends, device: Device, dtype: DType) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for len in LENGTHS {
        let [a, b] = [1, 2].map(|seed| numbers(backends, device, dtype, [len], seed));
        let positive = b
            .unary(UnaryOp::Square)
            .unwrap()
            .binary_scalar(BinaryOp::Add, Scalar::from(1.0), false)
            .unwrap();
        let mut of = |tensor: Tensor| found.push(tensor.to_bytes().unwrap());
        for op in BinaryOp::ALL {
            of(a.binary(*op, &positive).unwrap());
            of(a.binary_scalar(*op, Scalar::from(3.0), false).unwrap());
        }
        for op in UnaryOp::ALL {
            // The bits of NaN differ on a GPU.
            let has_result = !matches!(op, UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Log);
            of(if has_result { &a } else { &positive }.unary(*op).unwrap());
        }
        of(a.clip(Scalar::from(-1.0), Scalar::from(2.0)).unwrap());
        let array = NDArray::new(numbers(backends, device, dtype, [4 * len], 3));
        let parts = [3, 0, 2].map(|n| array.slice(n * len, (n + 1) * len).unwrap());
        NDArray::land_all(parts.iter().map(|part| (part, a.clone()))).unwrap();
        of(array.tensor());
    }
    found
}

/// Returns the bytes of reductions, transposes, expanded values and random numbers.
fn shaped(backends: &Backends, device: Device, dtype: DType) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut of = |tensor: Tensor| found.push(tensor.to_bytes().unwrap());
    for (rows, columns) in [(1, 1), (3, 5), (64, 96), (100, 33), (2, 70_000), (9000, 3)] {
        let matrix = numbers(backends, device, dtype, [rows, columns], 4);
        for op in Reduction::ALL {
            of(matrix.reduce(*op).unwrap());
        }
        of(matrix.transpose().unwrap());
        of(matrix.argmax_channel().unwrap());
        let row = numbers(backends, device, dtype, [1, columns], 5);
        let column = numbers(backends, device, dtype, [rows, 1], 6);
        of(matrix.binary(BinaryOp::Greater, &row).unwrap());
        of(matrix.binary(BinaryOp::Less, &column).unwrap());
    }
    if dtype.is_float() {
        let mut generator = Generator::new(11);
        for distribution in [
            Distribution::Uniform { low: -1.0, high: 2.0 },
            Distribution::Normal { mean: 0.5, deviation: 3.0 },
        ] {
            for len in LENGTHS {
                let spec = TensorSpec::new([len], dtype);
                of(generator.tensor(backends, device, spec, distribution).unwrap());
            }
        }
    }
    found
}

/// Returns the bytes of the results of everything that has a kernel.
fn everything(backends: &Backends, device: Device) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut found = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::U8] {
        found.push((format!("sum {dtype}"), pushed(backends, device, dtype, |_| {})));
        found.push((format!("rows {dtype}"), pushed_rows(backends, device, dtype, |_| {})));
        found.push((format!("elementwise {dtype}"), elementwise(backends, device, dtype)));
        found.push((format!("shaped {dtype}"), shaped(backends, device, dtype)));
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for name in Optimizer::names() {
            let optimizer = Optimizer::new(name).unwrap();
            let set = |store: &LocalStore| store.set_optimizer(optimizer.clone()).unwrap();
            found.push((format!("{name} {dtype}"), pushed(backends, device, dtype, set)));
            found
                .push((format!("rows, {name} {dtype}"), pushed_rows(backends, device, dtype, set)));
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
fn a_gpu_gives_the_bits_of_the_host_and_returns_its_memory() {
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
        for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert!(expected == found, "{name}, result {number}");
        }
    }
    assert_eq!(gpus.live_bytes(), 0);
    gpus.trim();
    assert_eq!(gpus.pooled_bytes(), 0);
}

/// Exports a matrix and imports it again: contiguous, transposed, and copied back to its transpose.
#[test]
fn memory_of_a_gpu_is_exported_and_imported() {
    let host = CpuBackend::new();
    let gpus = match CudaBackend::new(Arc::clone(&host)) {
        Ok(gpus) => gpus,
        Err(absence) => return println!("not run: {absence}"),
    };
    let (backends, device) = (Backends::new(vec![host, Arc::clone(&gpus)]), Device::gpu(0));
    let (rows, columns) = (37, 129);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::I8] {
        let source = numbers(&backends, Device::cpu(0), dtype, [rows, columns], 5);
        let matrix = source.to_device(&backends, device).unwrap();
        let exported = Arc::new(matrix.clone().export().unwrap());
        let (address, num_bytes) = (exported.address(), matrix.num_bytes());
        // SAFETY: it is the exported memory of the tensor, which stays, and no one writes to it.
        let imported = unsafe { ForeignMemory::new(device, address, num_bytes, exported.clone()) };
        let imported = Tensor::from_foreign(&backends, matrix.spec().clone(), imported).unwrap();
        assert_eq!(imported.to_bytes().unwrap(), source.to_bytes().unwrap(), "{dtype}");

        let size = dtype.size();
        let layout = |address: usize, owner: &Arc<_>| {
            let along =
                |length: usize, stride: usize| Axis { length, stride: stride.cast_signed() };
            let axes = vec![along(columns, size), along(rows, columns * size)];
            // SAFETY: the memory contains a matrix of this shape, and `owner` keeps it.
            unsafe {
                ForeignMemory::strided(
                    device,
                    address,
                    Layout { size, axes },
                    Arc::clone(owner) as _,
                )
            }
        };
        let spec = TensorSpec::new([columns, rows], dtype);
        let turned = Tensor::from_foreign(&backends, spec, layout(address, &exported)).unwrap();
        let expected = source.transpose().unwrap();
        assert_eq!(turned.to_bytes().unwrap(), expected.to_bytes().unwrap(), "{dtype}");
        let target = Tensor::full(&backends, device, matrix.spec().clone(), Scalar::from(0.0));
        let target = Arc::new(target.unwrap().export().unwrap());
        drop(turned.copy_to_foreign(layout(target.address(), &target)).unwrap());
        let address = target.address();
        // SAFETY: as above. Dropping the result of the copy has waited for it.
        let back = unsafe { ForeignMemory::new(device, address, num_bytes, target.clone()) };
        let back = Tensor::from_foreign(&backends, matrix.spec().clone(), back).unwrap();
        assert_eq!(back.to_bytes().unwrap(), source.to_bytes().unwrap(), "{dtype}");
    }
    assert_eq!(gpus.live_bytes(), 0);
    gpus.trim();
}

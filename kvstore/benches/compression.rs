//! Measures the compression of values, beside a copy of the same value.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use std::sync::Arc;

use common::{LARGE, constants, copy};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{Compression, DType, Device, create, zeros};
use kvstore_core::backend::{DequantizeJob, QuantizeJob};
use kvstore_core::storage::{InOut, Span, SpanMut, Storage};
use kvstore_core::{Backend, CpuBackend, Scalar};

const NAMES: [&str; 2] = ["2bit", "1bit"];

/// Measures compressed pushes of one value and of four.
fn pushes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("push of 64 MiB f32");
    group.sample_size(20);
    let size = LARGE * DType::F32.size();
    copy(&mut group, size);
    for name in NAMES {
        for num_values in [1, 4] {
            let store = create("local").expect("a store");
            let value = zeros([LARGE], DType::F32, Device::cpu(0)).expect("enough memory");
            store.init("w", &value).expect("a new key");
            store
                .set_gradient_compression(name, Compression::DEFAULT_THRESHOLD)
                .expect("a compression");
            let gradients = constants(num_values, LARGE, DType::F32, 0.2);
            // Count only the values, because compression reads each of them.
            group.throughput(Throughput::Bytes((num_values * size) as u64));
            group.bench_function(format!("{name}, {num_values} values"), |bencher| {
                bencher.iter(|| store.push("w", &gradients[..]).expect("a known key"));
            });
        }
    }
    group.finish();
}

/// Measures the kernels of the CPU backend for each dtype, beside the backend's own copy.
fn kernels(criterion: &mut Criterion) {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        let mut group = criterion.benchmark_group(format!("kernels on 64 MiB {dtype}"));
        group.sample_size(20).throughput(Throughput::Bytes((4 * LARGE) as u64));
        kernels_on(&mut group, dtype);
        group.finish();
    }
}

fn kernels_on(group: &mut BenchmarkGroup<'_, WallTime>, dtype: DType) {
    let backend = CpuBackend::new();
    let len = 4 * LARGE / dtype.size();
    let arithmetic = dtype.arithmetic().expect("a float");
    let mut gradient = allocate(&*backend, 4 * LARGE);
    let mut residual = allocate(&*backend, len * arithmetic.size());
    let mut sum = allocate(&*backend, 4 * LARGE);
    backend.fill(dtype, span_mut(&mut gradient), Scalar::Float(0.2)).expect("a fill");
    backend.fill(arithmetic, span_mut(&mut residual), Scalar::Float(0.0)).expect("a fill");
    group.bench_function("copy", |bencher| {
        bencher.iter(|| backend.copy(span_mut(&mut sum), span(&gradient)).expect("a copy"));
    });
    let device = Device::cpu(0);
    for name in NAMES {
        let compression = Compression::new(name, Compression::DEFAULT_THRESHOLD);
        let quantizer = compression.and_then(|compression| compression.of(dtype)).expect("a float");
        let mut codes = allocate(&*backend, quantizer.code.num_bytes(len));
        group.bench_function(format!("quantize {name}"), |bencher| {
            bencher.iter(|| {
                let job = QuantizeJob {
                    quantizer,
                    device,
                    dtype,
                    gradient: span(&gradient),
                    residual: InOut::InPlace(span_mut(&mut residual)),
                    codes: span_mut(&mut codes),
                };
                backend.quantize(&mut [job]).expect("memory of the right length");
            });
        });
        group.bench_function(format!("dequantize {name}"), |bencher| {
            bencher.iter(|| {
                let codes = [span(&codes)];
                let dst = span_mut(&mut sum);
                let job = DequantizeJob { quantizer, device, dtype, codes: &codes, dst };
                backend.dequantize(&mut [job]).expect("memory of the right length");
            });
        });
    }
}

fn allocate(backend: &dyn Backend, num_bytes: usize) -> Arc<dyn Storage> {
    backend.allocate(Device::cpu(0), num_bytes).expect("enough memory")
}

fn span(storage: &Arc<dyn Storage>) -> Span<'_> {
    Span { storage: &**storage, start: 0, num_bytes: storage.num_bytes() }
}

fn span_mut(storage: &mut Arc<dyn Storage>) -> SpanMut<'_> {
    let num_bytes = storage.num_bytes();
    let storage = Arc::get_mut(storage).expect("no other reference");
    SpanMut { storage, start: 0, num_bytes }
}

criterion_group!(benches, kernels, pushes);
criterion_main!(benches);

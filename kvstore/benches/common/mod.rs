//! Shared parts of the benches: arrays, and a copy that shows the bandwidth of the machine.
#![allow(dead_code, reason = "no bench uses all of it")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Throughput};
use kvstore::{DType, Device, NDArray, full};

/// The number of elements of large values: 64 MiB of `f32`.
pub(crate) const LARGE: usize = 16 << 20;

/// Returns an array on the given device.
pub(crate) fn constant(len: usize, dtype: DType, device: usize, value: f64) -> NDArray {
    let device = u32::try_from(device).expect("a small number");
    full([len], value, dtype, Device::cpu(device)).expect("enough memory")
}

/// Returns `count` arrays, each on its own device.
pub(crate) fn constants(count: usize, len: usize, dtype: DType, value: f64) -> Vec<NDArray> {
    (0..count).map(|device| constant(len, dtype, device, value)).collect()
}

/// Measures a copy of `num_bytes` on all cores. The throughput counts bytes read plus bytes
/// written.
pub(crate) fn copy(group: &mut BenchmarkGroup<'_, WallTime>, num_bytes: usize) {
    let source = vec![1u8; num_bytes];
    let mut target = vec![0u8; num_bytes];
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = num_bytes.div_ceil(cores);
    group.throughput(Throughput::Bytes(2 * num_bytes as u64));
    group.bench_function("copy", |bencher| {
        bencher.iter(|| {
            std::thread::scope(|scope| {
                for (target, source) in target.chunks_mut(share).zip(source.chunks(share)) {
                    scope.spawn(move || target.copy_from_slice(source));
                }
            });
        });
    });
}

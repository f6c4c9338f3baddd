//! Measures pulls of a large value, with shared memory and with conversion.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constant, constants, copy};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{DType, create};

fn pull(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pull");
    group.sample_size(20);
    copy(&mut group, 4 * LARGE);
    let store = create("local").expect("a known name");
    store.init("w", &constant(LARGE, DType::F32, 0, 1.0)).expect("a new key");
    for (name, dtype) in
        [("4 x 64 MiB f32, shared", DType::F32), ("4 x f16, converted", DType::F16)]
    {
        let outs = constants(4, LARGE, dtype, 0.0);
        let bytes = 4 * LARGE * (4 + dtype.size());
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| store.pull("w", &outs).expect("a pull that fits"));
        });
    }
    group.finish();
}

criterion_group!(benches, pull);
criterion_main!(benches);

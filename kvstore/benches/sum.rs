//! Measures sums of the values of a key, beside a copy of the same number of bytes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constants, copy};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{DType, create};

fn sum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sum");
    group.sample_size(20);
    copy(&mut group, 4 * LARGE);
    for (name, dtype, count) in [
        ("2 x 64 MiB f32", DType::F32, 2),
        ("4 x 64 MiB f32", DType::F32, 4),
        ("8 x 64 MiB f32", DType::F32, 8),
        ("12 x 64 MiB f32", DType::F32, 12),
        ("4 x 32 MiB f16", DType::F16, 4),
        ("4 x 32 MiB bf16", DType::Bf16, 4),
        ("4 x 16 MiB i8", DType::I8, 4),
    ] {
        let values = constants(count, LARGE, dtype, 1.0);
        let store = create("local").expect("a known name");
        store.init("w", &values[0]).expect("a new key");
        let bytes = (count + 1) * LARGE * dtype.size();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| store.push("w", &values).expect("a push that fits"));
        });
    }
    group.finish();
}

criterion_group!(benches, sum);
criterion_main!(benches);

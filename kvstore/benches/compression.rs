//! How fast are values compressed, beside a copy of the same value?

#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constant, copy};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{Compression, DType, Device, create, zeros};

fn compression(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compression of 64 MiB f32");
    group.sample_size(20);
    let size = LARGE * DType::F32.size();
    copy(&mut group, size);
    // The value alone, which is what has to be compressed.
    group.throughput(Throughput::Bytes(size as u64));
    for name in ["2bit", "1bit"] {
        let store = create("local").expect("a store");
        let value = zeros([LARGE], DType::F32, Device::cpu(0)).expect("memory is to be had");
        store.init("w", &value).expect("a new key");
        store
            .set_gradient_compression(name, Compression::DEFAULT_THRESHOLD)
            .expect("a compression");
        let gradient = constant(LARGE, DType::F32, 0, 0.2);
        group.bench_function(name, |bencher| {
            bencher.iter(|| store.push("w", &gradient).expect("a known key"));
        });
    }
    group.finish();
}

criterion_group!(benches, compression);
criterion_main!(benches);

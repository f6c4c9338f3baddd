//! Measures elementwise operations, beside a copy of the same number of bytes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use common::{LARGE, constant, copy};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvstore::{BinaryOp, DType, NDArray, Result, Scalar, UnaryOp};

/// An operation that returns a new array, computed from both arrays or from the first one only.
type Operation = fn(&NDArray, &NDArray) -> Result<NDArray>;

/// The operations, with the number of arrays that each reads.
const OPERATIONS: [(&str, usize, Operation); 14] = [
    ("a + b", 2, |a, b| a.binary(BinaryOp::Add, b)),
    ("a > b", 2, |a, b| a.binary(BinaryOp::Greater, b)),
    ("maximum", 2, |a, b| a.binary(BinaryOp::Maximum, b)),
    ("a * 2", 1, |a, _| a.binary_scalar(BinaryOp::Mul, Scalar::from(2.0), false)),
    ("abs", 1, |a, _| a.unary(UnaryOp::Abs)),
    ("sqrt", 1, |a, _| a.unary(UnaryOp::Sqrt)),
    ("relu", 1, |a, _| a.unary(UnaryOp::Relu)),
    ("sign", 1, |a, _| a.unary(UnaryOp::Sign)),
    ("round", 1, |a, _| a.unary(UnaryOp::Round)),
    ("clip", 1, |a, _| a.clip(0.0, 1.0)),
    ("to i32", 1, |a, _| a.as_type(DType::I32)),
    ("to f16", 1, |a, _| a.as_type(DType::F16)),
    ("exp", 1, |a, _| a.unary(UnaryOp::Exp)),
    ("a % b", 2, |a, b| a.binary(BinaryOp::Rem, b)),
];

fn elementwise(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("elementwise 64 MiB f32");
    group.sample_size(20);
    let size = LARGE * DType::F32.size();
    copy(&mut group, size);
    let (a, b) = (constant(LARGE, DType::F32, 0, 1.5), constant(LARGE, DType::F32, 0, 2.5));
    for (name, num_read, operation) in OPERATIONS {
        group.throughput(Throughput::Bytes(((num_read + 1) * size) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| operation(&a, &b).expect("operands that fit"));
        });
    }
    group.finish();
}

criterion_group!(benches, elementwise);
criterion_main!(benches);

//! Measures a step of each optimizer on the sum of four values, beside a copy.

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
use kvstore::{DType, Optimizer, create};

/// Returns the bytes that a step reads and writes per element: it reads four gradients, and reads
/// and writes the weight and its states.
fn bytes_per_element(num_states: usize) -> usize {
    4 * (4 + 2 + 2 * num_states)
}

/// The bytes per element of layer-wise optimizers, for two passes that move as few bytes as
/// possible.
///
/// - LARS reads gradients and weight and writes the sum; then it reads sum, weight and momentum,
///   and writes weight and momentum.
/// - LAMB reads gradients, weight and states and writes the states; then it reads weight and
///   states, and writes the weight.
const LAYERWISE: [(&str, usize); 2] =
    [("lars", 4 * (4 + 1 + 1 + 3 + 2)), ("lamb", 4 * (4 + 3 + 2 + 3 + 1))];

fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    group.sample_size(20);
    copy(&mut group, 4 * LARGE);
    let gradients = constants(4, LARGE, DType::F32, 1e-3);
    let elementwise = [
        ("sgd", None, 0),
        ("sgd with momentum", Some(0.9), 1),
        ("nag", Some(0.9), 1),
        ("adam", None, 2),
        ("adagrad", None, 1),
        ("rmsprop", None, 1),
        ("ftrl", None, 2),
        ("ftml", None, 3),
    ];
    let elementwise =
        elementwise.map(|(name, momentum, states)| (name, momentum, bytes_per_element(states)));
    let layerwise = LAYERWISE.map(|(name, bytes)| (name, (name == "lars").then_some(0.9), bytes));
    for (name, momentum, num_bytes) in elementwise.into_iter().chain(layerwise) {
        let method = name.split(' ').next().unwrap_or(name);
        let mut optimizer = Optimizer::new(method).expect("a known optimizer");
        if let Some(momentum) = momentum {
            optimizer.set("momentum", momentum).expect("a hyper-parameter that it has");
        }
        let store = create("local").expect("a known name");
        store.init("w", &gradients[0]).expect("a new key");
        store.set_optimizer(optimizer).expect("an optimizer");
        group.throughput(Throughput::Bytes((num_bytes * LARGE) as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| store.push("w", &gradients).expect("a push that fits"));
        });
    }
    group.finish();
}

criterion_group!(benches, update);
criterion_main!(benches);

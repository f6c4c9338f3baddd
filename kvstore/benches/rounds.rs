//! Measures a round of four workers beside four pushes of one worker: 64 MiB and 4 KiB each, with
//! SGD on a server in this process.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(missing_docs, reason = "made by criterion's macros")]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::constant;
use criterion::{Criterion, criterion_group, criterion_main};
use kvstore::{DType, NetStoreOptions, Optimizer, Server, ServerOptions, Store, backends, connect};

const NUM_WORKERS: usize = 4;

fn rounds(criterion: &mut Criterion) {
    for (name, len) in [("64 MiB", 16 << 20), ("4 KiB", 1 << 10)] {
        let mut group = criterion.benchmark_group(format!("round of {NUM_WORKERS} x {name}"));
        let options = ServerOptions::new("127.0.0.1:0");
        let server = Server::start(backends(), &options).expect("a server");
        let options = NetStoreOptions::new(server.address().to_string());
        let value = constant(len, DType::F32, 0, 1.0);
        let one = connect(&options).expect("a server");
        one.init("w", &value).expect("a new key");
        one.set_optimizer(Optimizer::sgd()).expect("an optimizer");
        group.bench_function("pushes of one worker", |bencher| {
            bencher.iter(|| {
                for _ in 0..NUM_WORKERS {
                    one.push("w", &value).expect("a push that fits");
                }
            });
        });
        one.leave().expect("a member");
        let options = options.quorum(NUM_WORKERS).grace(Duration::from_secs(3600));
        let workers: Vec<Store> =
            (0..NUM_WORKERS).map(|_| connect(&options).expect("a server")).collect();
        group.bench_function("round", |bencher| {
            bencher.iter_custom(|num| {
                let start = Instant::now();
                thread::scope(|scope| {
                    for worker in &workers {
                        scope.spawn(|| {
                            for _ in 0..num {
                                worker.push("w", &value).expect("a round");
                            }
                        });
                    }
                });
                start.elapsed()
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = rounds
}
criterion_main!(benches);

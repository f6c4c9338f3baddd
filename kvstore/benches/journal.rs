//! Measures pushes and rounds of two members on a server without a journal and with one, and the
//! replay of the journal. Prints the time per push or round: the best and the median of several
//! runs, which take turns.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a bench may abort without memory"
)]
#![allow(clippy::expect_used, reason = "a bench that cannot run says why")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::constant;
use kvstore::{
    DType, JournalMode, NetStoreOptions, Optimizer, ReplayOptions, Server, ServerOptions, backends,
    connect, replay,
};

const RUNS: usize = 7;

/// The number of elements of a push, and the number of pushes of a run.
const WORKLOADS: [(usize, usize); 3] = [(1 << 10, 4000), (1 << 18, 400), (1 << 24, 12)];

/// Who pushes: one member, or two in rounds.
#[derive(Clone, Copy)]
enum Pushes {
    Alone,
    InRounds,
}

/// Pushes to a server, and returns the time per push or round.
fn pushes(
    pushes: Pushes,
    journal: Option<(&Path, JournalMode)>,
    (len, count): (usize, usize),
) -> Duration {
    let options = ServerOptions::new("127.0.0.1:0");
    let options = match journal {
        Some((file, mode)) => options.journal(file, mode),
        None => options,
    };
    let server = Server::start(backends(), &options).expect("a free port");
    let options = NetStoreOptions::new(server.address().to_string());
    let options = match pushes {
        Pushes::Alone => Vec::from([options]),
        Pushes::InRounds => ["a", "b"].map(|name| options.clone().name(name).quorum(2)).into(),
    };
    let members: Vec<_> =
        options.iter().map(|options| connect(options).expect("a server")).collect();
    members[0].set_optimizer(Optimizer::sgd()).expect("no updater");
    let value = constant(len, DType::F32, 0, 1.0);
    members[0].init("w", &value).expect("an empty store");
    let push_all = |count: usize| {
        std::thread::scope(|scope| {
            for member in &members {
                scope.spawn(|| {
                    for _ in 0..count {
                        member.push("w", &value).expect("a valid push");
                    }
                });
            }
        });
    };
    push_all(1);
    let start = Instant::now();
    push_all(count);
    per_push(start.elapsed(), count)
}

fn per_push(elapsed: Duration, count: usize) -> Duration {
    elapsed / u32::try_from(count).expect("few pushes")
}

fn show(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:.3} ({:.3})", milliseconds(times[0]), milliseconds(times[times.len() / 2]))
}

fn main() {
    for (kind, what) in [(Pushes::Alone, "push"), (Pushes::InRounds, "round of two members")] {
        println!("ms per {what}, best (median)");
        println!("{:>12} {:>18} {:>18} {:>18} {:>18}", "bytes", "none", "order", "full", "replay");
        measure(kind);
    }
}

fn measure(kind: Pushes) {
    for workload in WORKLOADS {
        let mut times: [Vec<Duration>; 4] = <_>::default();
        for _ in 0..RUNS {
            let folder = tempfile::tempdir().expect("a folder");
            let [order, full] = ["order", "full"].map(|name| folder.path().join(name));
            times[0].push(pushes(kind, None, workload));
            times[1].push(pushes(kind, Some((&order, JournalMode::Order)), workload));
            times[2].push(pushes(kind, Some((&full, JournalMode::Full)), workload));
            let report = replay(backends(), &full, &ReplayOptions::default()).expect("a journal");
            assert!(report.difference.is_none() && report.num_steps == workload.1 as u64 + 1);
            times[3].push(per_push(report.duration, workload.1));
        }
        let [none, order, full, replayed] = times.each_mut().map(|times| show(times));
        println!("{:>12} {none:>18} {order:>18} {full:>18} {replayed:>18}", 4 * workload.0);
    }
}

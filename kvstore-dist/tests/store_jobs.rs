//! Stores of jobs: what every store passes, and what the others say of a rank that stands still.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use jobs::{MPICH, MPICH_TCP, Mpi, OPEN_MPI, OPEN_MPI_TCP, group, signal};
use kvstore_core::{Backends, CpuBackend, ErrorCode, KvStore};
use kvstore_dist::DistStore;
use kvstore_tests::operations::program;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use values::{full, key};

mod checks;
mod jobs;
mod recorded;
mod values;

/// What ranks do, by name.
const PROGRAMS: [(&str, fn()); 4] = [
    ("suites", || checks::suites(&group())),
    ("recorded", recorded_programs),
    ("programs", random_programs),
    ("frozen", stand_still),
];

#[test]
fn rank() {
    jobs::act_as_rank(&PROGRAMS);
}

fn recorded_programs() {
    let (group, backends) = (group(), Backends::new(vec![CpuBackend::with_threads(1)]));
    checks::recorded_programs(&group);
    let store = || DistStore::new("dist_sync", &backends, &group).unwrap();
    match store().num_workers() {
        1 => recorded::of_one_worker(&store()),
        2 => {
            assert_eq!(recorded::run(&store()), recorded::EXPECTED);
            recorded::compressed(&store());
        }
        _ => {}
    }
}

/// The same ones on every rank.
fn random_programs() {
    let (group, mut runner) = (group(), TestRunner::deterministic());
    for _ in 0..100 {
        let program = program().new_tree(&mut runner).expect("nothing is rejected").current();
        checks::replay_program(&group, &program).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Runs a program with this many ranks.
fn succeeds(mpi: &Mpi, num_ranks: usize, programs: &[&str]) {
    for program in programs {
        let Some(job) = mpi.job(num_ranks, program) else { return };
        job.succeeds(num_ranks);
    }
}

/// MPICH's ranks keep their cores busy while they wait: one for each core.
fn num_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

#[test]
fn one_rank_of_open_mpi() {
    succeeds(&OPEN_MPI, 1, &["suites", "recorded", "programs"]);
}

#[test]
fn two_ranks_of_open_mpi() {
    succeeds(&OPEN_MPI, 2, &["suites", "recorded", "programs"]);
}

#[test]
fn three_ranks_of_open_mpi_over_tcp() {
    succeeds(&OPEN_MPI_TCP, 3, &["suites", "recorded", "programs"]);
}

#[test]
fn four_ranks_of_open_mpi() {
    succeeds(&OPEN_MPI, 4, &["suites", "recorded", "programs"]);
}

#[test]
fn one_rank_of_mpich() {
    succeeds(&MPICH, 1, &["recorded", "programs"]);
}

#[test]
fn as_many_ranks_of_mpich_as_cores() {
    succeeds(&MPICH, num_cores(), &["suites", "recorded", "programs"]);
}

#[test]
fn as_many_ranks_of_mpich_as_cores_over_tcp() {
    succeeds(&MPICH_TCP, num_cores(), &["recorded", "programs"]);
}

/// How long nothing here takes.
const LONG: Duration = Duration::from_secs(60);

/// Says which process stands still.
const FROZEN: &str = "stands still: ";

/// All push and pull, and the last rank stops amidst a push. The others get an error at the deadline that says what they
/// have waited for: key, round, and which rank.
fn stand_still() {
    let (group, backends) = (group(), Backends::new(vec![CpuBackend::with_threads(1)]));
    let store = DistStore::new("dist_sync", &backends, &group).unwrap();
    let value = || [full(&backends, &[100_000], 1.0)];
    store.init(&[key("other"), key("w")], &[value(), value()].concat()).unwrap();
    let last = store.num_workers() - 1;
    for _ in 0..5 {
        store.push(&[key("w")], &value(), 0).unwrap();
        store.pull(&[key("w")], 0).unwrap();
    }
    store.barrier().unwrap();
    group.set_timeout(Duration::from_secs(2));
    if store.rank() == last {
        println!("{FROZEN}{}", std::process::id());
        store.push(&[key("w")], &value(), 0).unwrap();
        signal("STOP");
        // Who ends it wakes it up before.
        let (_send, receive) = mpsc::channel::<()>();
        let _ = receive.recv_timeout(LONG);
        return;
    }
    // The first of these may be done. `init`, five pushes and a barrier were rounds 1 to 7.
    let (round, error) = (8..50)
        .find_map(|round| {
            let push = store.push(&[key("w")], &value(), 0);
            let pull = push.and_then(|()| store.pull(&[key("w")], 0));
            pull.err().map(|error| (round, error))
        })
        .expect("the last rank makes no more calls");
    assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
    let text = error.to_string();
    let place =
        format!("timed out: push of `w`, round {round}: rank {} of {}", store.rank(), last + 1);
    assert!(text.starts_with(&place), "{text}");
    // Those who wait for it themselves may be named beside it.
    let (_, named) = text.split_once(", still to ").expect("who was waited for");
    let is_number = |letter: char| letter.is_ascii_digit();
    let named: Vec<&str> = named.split(|letter| !is_number(letter)).collect();
    assert!(named.contains(&last.to_string().as_str()), "{text}");
    // All of it is over, and what was there can be read.
    assert!(store.barrier().is_err());
    assert_eq!(store.keys().len(), 2);
}

#[test]
fn others_tell_key_and_round_of_a_rank_that_stands_still() {
    for (mpi, num_ranks) in [(OPEN_MPI, 3), (OPEN_MPI_TCP, 2), (MPICH, 2)] {
        let Some(job) = mpi.job(num_ranks, "frozen") else { continue };
        job.is_ended(&mpi);
        job.ranks_are_done(num_ranks - 1);
        let text = job.text();
        let id = text.split(FROZEN).nth(1).and_then(|rest| rest.lines().next()).expect("a number");
        is_gone(id);
    }
}

/// Fails when a process runs for long. Nobody may have asked what has become of it (Z).
fn is_gone(id: &str) {
    let (status, begun) = (Path::new("/proc").join(id).join("stat"), Instant::now());
    let (_send, receive) = mpsc::channel::<()>();
    while std::fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z ")) {
        assert!(begun.elapsed() < Duration::from_secs(30), "process {id} is left over");
        let _ = receive.recv_timeout(Duration::from_millis(20));
    }
}

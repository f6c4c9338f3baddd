//! Stores of jobs, on one machine and on two hosts: what every store passes, and what ranks say of
//! one that stands still or is cut off.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::env;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jobs::{MPICH, MPICH_TCP, Mpi, OPEN_MPI, OPEN_MPI_TCP, group, signal};
use kvstore_core::{Backends, CpuBackend, ErrorCode, KvStore, Result, Value, WorkerGroup};
use kvstore_dist::{DistStore, Group};
use kvstore_tests::operations::program;
use namespaces::{Hosts, set_cable};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use values::{floats, full, key};

mod checks;
mod jobs;
mod namespaces;
mod recorded;
mod values;

/// What ranks do, by name.
const PROGRAMS: [(&str, fn()); 6] = [
    ("suites", || checks::suites(&group())),
    ("recorded", || recorded_programs(&group())),
    ("programs", || random_programs(&group())),
    ("hosts", on_hosts),
    ("frozen", stand_still),
    ("cut", lose_each_other),
];

#[test]
fn rank() {
    if jobs::act_as_rank(&PROGRAMS) {
        jobs::end();
    }
}

fn recorded_programs(group: &Arc<Group>) {
    checks::recorded_programs(group);
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
    let store = || DistStore::new("dist_sync", &backends, group).unwrap();
    match store().num_workers().unwrap() {
        1 => recorded::of_one_worker(&store()),
        2 => {
            assert_eq!(recorded::run(&store()), recorded::EXPECTED);
            recorded::compressed(&store());
        }
        _ => {}
    }
}

/// Runs the same random programs on every rank: 10, or as many as `PROPTEST_CASES` says.
fn random_programs(group: &Arc<Group>) {
    let mut runner = TestRunner::deterministic();
    let cases = env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    for _ in 0..cases.unwrap_or(10) {
        let program = program().new_tree(&mut runner).expect("nothing is rejected").current();
        checks::replay_program(group, &program).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Runs a program with this many ranks.
fn succeeds(mpi: &Mpi, num_ranks: usize, programs: &[&str]) {
    for program in programs {
        let Some(job) = mpi.job(num_ranks, program) else { return };
        job.succeeds_but_for_its_end(mpi, num_ranks);
    }
}

/// MPICH's ranks keep their cores busy while they wait: one for each core.
fn num_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(4)
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

/// What ranks of several hosts do: all of it.
fn on_hosts() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    println!("a rank on {name}");
    let group = group();
    checks::suites(&group);
    recorded_programs(&group);
    random_programs(&group);
}

#[test]
fn two_hosts() {
    let Some(hosts) = Hosts::new() else { return };
    for mpi in [OPEN_MPI, MPICH_TCP] {
        let Some(job) = hosts.job(&mpi, "hosts") else { continue };
        job.succeeds_but_for_its_end(&mpi, 2);
        let text = job.text();
        for name in &hosts.names {
            assert!(text.contains(&format!("a rank on {name}")), "no rank on {name}: {text}");
        }
    }
}

/// How long nothing here takes.
const LONG: Duration = Duration::from_secs(60);

/// Says which process stands still.
const FROZEN: &str = "stands still: ";

/// A store of a key that all ranks have pushed and pulled some times, with a deadline that is near.
struct PushReport {
    group: Arc<Group>,
    store: DistStore,
    backends: Backends,
}

impl PushReport {
    /// `init`, five pushes and a barrier: rounds 1 to 7.
    fn new() -> Self {
        let (group, backends) = (group(), Backends::new(vec![CpuBackend::with_threads(1)]));
        let store = DistStore::new("dist_sync", &backends, &group).unwrap();
        let pushed = Self { group, store, backends };
        let keys = ["other", "w"].map(key);
        pushed.store.init(&keys, &[pushed.value(), pushed.value()]).unwrap();
        for _ in 0..5 {
            pushed.push().unwrap();
            pushed.store.pull(&keys[1..], 0).unwrap();
        }
        pushed.store.barrier().unwrap();
        pushed.group.set_timeout(Duration::from_secs(2));
        pushed
    }

    fn value(&self) -> Value {
        full(&self.backends, &[100_000], 1.0)
    }

    fn push(&self) -> Result<()> {
        self.store.push(&[key("w")], &[self.value()], 0)
    }

    /// Pushes and pulls until there is an error. It comes at the deadline, and says what was waited
    /// for: key, round, and which rank. Then all of it is over, and what was there can be read.
    fn fails_because_of(&self, lost: usize) {
        // The first rounds may be done.
        let (round, error) = (8..10_000)
            .find_map(|round| {
                let pull = self.push().and_then(|()| self.store.pull(&[key("w")], 0));
                pull.err().map(|error| (round, error))
            })
            .expect("that rank makes no more calls");
        assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
        let (text, store) = (error.to_string(), &self.store);
        let place = format!("push of `w`, round {round}: rank {} of ", store.rank().unwrap());
        assert!(text.starts_with(&format!("timed out: {place}")), "{text}");
        // Those who wait for it themselves may be named beside it.
        let (_, named) = text.split_once(", waiting for ").expect("the awaited ranks");
        let named: Vec<&str> = named.split(|letter: char| !letter.is_ascii_digit()).collect();
        assert!(named.contains(&lost.to_string().as_str()), "{text}");
        assert!(store.barrier().is_err() && self.push().is_err());
        let sum = f32::from(u8::try_from(store.num_workers().unwrap()).unwrap());
        assert_eq!((floats(store, "w")[99_999], floats(store, "other")[99_999]), (sum, 1.0));
    }
}

/// The last rank stops amidst a push.
fn stand_still() {
    let pushed = PushReport::new();
    let last = pushed.store.num_workers().unwrap() - 1;
    if pushed.store.rank().unwrap() < last {
        pushed.fails_because_of(last);
        return wait_for_others(pushed.store.rank().unwrap(), last);
    }
    println!("{FROZEN}{}", std::process::id());
    pushed.push().unwrap();
    signal("STOP");
    // Who ends it wakes it up before.
    let (_send, receive) = mpsc::channel::<()>();
    let _ = receive.recv_timeout(LONG);
}

/// The cable between two hosts is pulled out amidst a push.
fn lose_each_other() {
    let pushed = PushReport::new();
    let rank = pushed.store.rank().unwrap();
    if rank > 0 {
        return pushed.fails_because_of(0);
    }
    let is_out = thread::spawn(|| set_cable("down"));
    let found = panic::catch_unwind(AssertUnwindSafe(|| pushed.fails_because_of(1)));
    is_out.join().unwrap();
    // The launcher needs it.
    set_cable("up");
    found.unwrap_or_else(|panic| panic::resume_unwind(panic));
}

#[test]
fn hosts_that_lose_each_other_tell_key_and_round() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some(hosts) = Hosts::new() else { return };
        let Some(job) = hosts.job(&mpi, "cut") else { continue };
        job.is_ended(&mpi);
    }
}

/// Where ranks say that they have been told.
const FOLDER: &str = "KVSTORE_TEST_FOLDER";

/// Waits until all ranks below one have come here: a launcher ends all of them when the first one
/// ends.
fn wait_for_others(rank: usize, end: usize) {
    let folder = PathBuf::from(env::var(FOLDER).expect("a folder"));
    fs::write(folder.join(rank.to_string()), "").unwrap();
    (0..end).for_each(|other| wait_until(|| folder.join(other.to_string()).exists()));
}

/// Fails when something does not come true for long.
fn wait_until(is_true: impl Fn() -> bool) {
    let (begun, (_send, receive)) = (Instant::now(), mpsc::channel::<()>());
    while !is_true() {
        assert!(begun.elapsed() < LONG / 2, "it does not come true");
        let _ = receive.recv_timeout(Duration::from_millis(20));
    }
}

#[test]
fn others_tell_key_and_round_of_a_rank_that_stands_still() {
    for (mpi, num_ranks) in [(OPEN_MPI, 3), (OPEN_MPI_TCP, 2), (MPICH, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let environment = [(FOLDER, folder.path().to_str().expect("a path of letters"))];
        let Some(job) = mpi.job_with(num_ranks, "frozen", &environment) else { continue };
        job.is_ended(&mpi);
        let num_told = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(num_told, num_ranks - 1, "{}", job.text());
        let text = job.text();
        let id = text.split(FROZEN).nth(1).and_then(|rest| rest.lines().next()).expect("a number");
        // It is not left over; nobody may have asked what has become of it (Z).
        let status = Path::new("/proc").join(id).join("stat");
        wait_until(|| !fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z ")));
    }
}

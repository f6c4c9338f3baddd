//! Stores in MPI jobs, on one machine and on two hosts: the suites for stores, and the errors for a
//! rank that is stopped or disconnected.

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
use kvstore_tests::hosts::set_cable;
use kvstore_tests::operations::program;
use namespaces::Hosts;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use values::{floats, full, key};

mod jobs;
mod namespaces;
mod recorded;
mod store_suite;
mod values;

/// The programs that ranks run, by name.
const PROGRAMS: [(&str, fn()); 5] = [
    ("suites and programs", || {
        let group = group();
        store_suite::suites(&group);
        recorded_programs(&group);
        random_programs(&group);
    }),
    ("programs", || {
        let group = group();
        recorded_programs(&group);
        random_programs(&group);
    }),
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
    store_suite::recorded_programs(group);
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

/// Runs the same random programs on every rank: 10 programs, or `PROPTEST_CASES` if it is set.
fn random_programs(group: &Arc<Group>) {
    let mut runner = TestRunner::deterministic();
    let cases = env::var("PROPTEST_CASES").ok().and_then(|number| number.parse().ok());
    for _ in 0..cases.unwrap_or(10) {
        let program = program().new_tree(&mut runner).expect("nothing is rejected").current();
        store_suite::replay_program(group, &program).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Asserts that the program succeeds with this number of ranks.
fn succeeds(mpi: &Mpi, num_ranks: usize, program: &str) {
    let Some(job) = mpi.job(num_ranks, program) else { return };
    job.succeeds_but_for_its_end(mpi, num_ranks);
}

/// Returns the number of ranks for MPICH: at most one for each core, because its ranks busy-wait.
fn num_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(4)
}

#[test]
fn one_rank_of_open_mpi() {
    succeeds(&OPEN_MPI, 1, "suites and programs");
}

#[test]
fn two_ranks_of_open_mpi() {
    succeeds(&OPEN_MPI, 2, "suites and programs");
}

#[test]
fn three_ranks_of_open_mpi_over_tcp() {
    succeeds(&OPEN_MPI_TCP, 3, "suites and programs");
}

#[test]
fn four_ranks_of_open_mpi() {
    succeeds(&OPEN_MPI, 4, "suites and programs");
}

#[test]
fn one_rank_of_mpich() {
    succeeds(&MPICH, 1, "programs");
}

#[test]
fn as_many_ranks_of_mpich_as_cores() {
    succeeds(&MPICH, num_cores(), "suites and programs");
}

#[test]
fn as_many_ranks_of_mpich_as_cores_over_tcp() {
    succeeds(&MPICH_TCP, num_cores(), "programs");
}

/// Runs all suites and programs on ranks on several hosts.
fn on_hosts() {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    println!("a rank on {name}");
    let group = group();
    store_suite::suites(&group);
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
        for name in hosts.names() {
            assert!(text.contains(&format!("a rank on {name}")), "no rank on {name}: {text}");
        }
    }
}

/// Longer than any operation in these tests takes.
const LONG: Duration = Duration::from_secs(60);

/// The text before the id of the stopped process in the output.
const FROZEN: &str = "stands still: ";

/// A store to which all ranks have pushed, with a short timeout.
struct PushReport {
    group: Arc<Group>,
    store: DistStore,
    backends: Backends,
}

impl PushReport {
    /// Creates the store. `init`, five pushes and a barrier are rounds 1 to 7.
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

    /// Pushes and pulls until a call fails. Asserts that the error is a timeout that names the key,
    /// the round and the lost rank, that later calls fail, and that the stored values can be
    /// pulled.
    fn fails_because_of(&self, lost: usize) {
        // The first rounds may still succeed.
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
        // The error may also name ranks that wait for the lost rank themselves.
        let (_, named) = text.split_once(", waiting for ").expect("the awaited ranks");
        let named: Vec<&str> = named.split(|letter: char| !letter.is_ascii_digit()).collect();
        assert!(named.contains(&lost.to_string().as_str()), "{text}");
        assert!(store.barrier().is_err() && self.push().is_err());
        let sum = f32::from(u8::try_from(store.num_workers().unwrap()).unwrap());
        assert_eq!((floats(store, "w")[99_999], floats(store, "other")[99_999]), (sum, 1.0));
    }
}

/// Stops the last rank during a push.
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
    // The launcher resumes the process before it ends it.
    let (_send, receive) = mpsc::channel::<()>();
    let _ = receive.recv_timeout(LONG);
}

/// Disconnects the cable between two hosts during a push.
fn lose_each_other() {
    let pushed = PushReport::new();
    let rank = pushed.store.rank().unwrap();
    if rank > 0 {
        return pushed.fails_because_of(0);
    }
    let is_out = thread::spawn(|| set_cable("down"));
    let found = panic::catch_unwind(AssertUnwindSafe(|| pushed.fails_because_of(1)));
    is_out.join().unwrap();
    // The launcher needs the connection to end the job.
    set_cable("up");
    found.unwrap_or_else(|panic| panic::resume_unwind(panic));
}

#[test]
fn disconnected_hosts_report_key_and_round() {
    for mpi in [OPEN_MPI, MPICH] {
        let Some(hosts) = Hosts::new() else { return };
        let Some(job) = hosts.job(&mpi, "cut") else { continue };
        job.is_ended(&mpi);
    }
}

/// The environment variable with the folder in which ranks report that they received an error.
const FOLDER: &str = "KVSTORE_TEST_FOLDER";

/// Waits until all ranks below `end` have called this. Otherwise the launcher would end all ranks
/// when the first one exits.
fn wait_for_others(rank: usize, end: usize) {
    let folder = PathBuf::from(env::var(FOLDER).expect("a folder"));
    fs::write(folder.join(rank.to_string()), "").unwrap();
    (0..end).for_each(|other| wait_until(|| folder.join(other.to_string()).exists()));
}

/// Waits until a condition is true. Panics if that takes too long.
fn wait_until(is_true: impl Fn() -> bool) {
    let (begun, (_send, receive)) = (Instant::now(), mpsc::channel::<()>());
    while !is_true() {
        assert!(begun.elapsed() < LONG / 2, "it does not come true");
        let _ = receive.recv_timeout(Duration::from_millis(20));
    }
}

#[test]
fn other_ranks_report_key_and_round_of_a_stopped_rank() {
    for (mpi, num_ranks) in [(OPEN_MPI, 3), (OPEN_MPI_TCP, 2), (MPICH, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let environment = [(FOLDER, folder.path().to_str().expect("a path of letters"))];
        let Some(job) = mpi.job_with(num_ranks, "frozen", &environment) else { continue };
        job.is_ended(&mpi);
        let num_reports = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(num_reports, num_ranks - 1, "{}", job.text());
        let text = job.text();
        let id = text.split(FROZEN).nth(1).and_then(|rest| rest.lines().next()).expect("a number");
        // The stopped process must not survive the job. It may remain as a zombie (Z) if its parent
        // has not waited for it.
        let status = Path::new("/proc").join(id).join("stat");
        wait_until(|| !fs::read_to_string(&status).is_ok_and(|text| !text.contains(") Z ")));
    }
}

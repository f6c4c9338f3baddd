//! Processes that exit while pushes are queued and the store is open. All queued pushes are made,
//! and the job succeeds.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "declares `atexit`")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::ffi::c_int;
use std::io::{self, Write as _};
use std::process;
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use jobs::{DONE, LIBRARY, MPICH, MPICH_5, MPICH_TCP, Mpi, OPEN_MPI, OPEN_MPI_5, OPEN_MPI_TCP};
use kvstore_core::{
    Backends, BoxError, CpuBackend, ErrorCode, Key, KvStore, Optimizer, Result, Tensor, Value,
    WorkerGroup,
};
use kvstore_dist::{
    Buffer, Collective, DistStore, Group, LastCalls, LocalCollective, MpiCollective, SharedSlices,
    Slices, Wait,
};
use values::{floats, full, key};

mod jobs;
mod values;

/// The programs that ranks run, by name.
const PROGRAMS: [(&str, fn()); 6] = [
    ("returned", || {
        UnclosedStore::after_pushes();
    }),
    ("exited", || {
        UnclosedStore::after_pushes();
        exit().unwrap();
    }),
    ("finalized", || {
        let left = UnclosedStore::after_pushes();
        MpiCollective::finalize(&Wait::new(&"the end", LONG)).unwrap();
        left.look();
    }),
    ("in_updater", exit_in_updater),
    ("deserted", push_alone),
    ("ignored", panic_on_one_rank),
];

#[test]
fn rank() {
    jobs::act_as_rank(&PROGRAMS);
}

unsafe extern "C" {
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

const NUM_PUSHES: u8 = 50;
const DIMS: [usize; 1] = [100_000];
/// Longer than any operation in these tests takes.
const LONG: Duration = Duration::from_secs(30);

/// A store that is never dropped.
struct UnclosedStore {
    store: DistStore,
    backends: Backends,
}

static UNCLOSED_STORE: OnceLock<UnclosedStore> = OnceLock::new();

impl UnclosedStore {
    /// Creates the store of this process. It has a key that starts at zero, and each push subtracts
    /// its value.
    fn begin(group: &Arc<Group>) -> &'static Self {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let store = DistStore::new("dist_sync", &backends, group).unwrap();
        UNCLOSED_STORE.get_or_init(|| Self::new(store, backends))
    }

    fn new(store: DistStore, backends: Backends) -> Self {
        let left = Self { store, backends };
        let sgd = Optimizer::new("sgd").unwrap().with("learning_rate", 1.0).unwrap();
        left.store.set_optimizer(sgd).unwrap();
        left.store.init(&[key("w")], &[left.value(0.0)]).unwrap();
        left
    }

    /// Pushes on all ranks without waiting. All ranks except rank 0 are delayed.
    fn after_pushes() -> &'static Self {
        // The function that is registered first is called last, after MPI has been finalised.
        static LOOKS: OnceLock<c_int> = OnceLock::new();
        LOOKS.get_or_init(|| atexit(look));
        let left = Self::begin(&jobs::group());
        for number in 0..NUM_PUSHES {
            if number % 10 == 0 && values::rank(&left.store) > 0.0 {
                pause(Duration::from_millis(20));
            }
            left.push().unwrap();
        }
        left
    }

    fn value(&self, number: f32) -> Value {
        full(&self.backends, &DIMS, number)
    }

    fn push(&self) -> Result<()> {
        self.store.push(&[key("w")], &[self.value(1.0 + values::rank(&self.store))], 0)
    }

    /// Prints the value of the key, and checks that later pushes fail.
    fn look(&self) {
        let found = floats(&self.store, "w");
        assert!(found.iter().all(|number| *number == found[0]));
        assert_eq!(self.push().unwrap_err().code(), ErrorCode::Closed);
        // Write the line at once: at exit, output is no longer buffered, and all ranks write to the
        // same place.
        let line = format!("rank {} holds {}\n", self.store.rank().unwrap(), found[0]);
        io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// Checks the store after MPI has been finalised. Uses a new thread, because the thread-local
/// values of the exiting thread are already destroyed.
extern "C" fn look() {
    let _ = thread::spawn(|| UNCLOSED_STORE.get().expect("there is a store").look()).join();
}

#[expect(clippy::disallowed_methods, reason = "the process belongs to this test")]
fn exit() -> Result<(), BoxError> {
    println!("{DONE}");
    process::exit(0)
}

fn pause(time: Duration) {
    let (_send, receive) = mpsc::channel::<()>();
    let _ = receive.recv_timeout(time);
}

/// Asserts that every rank has the sum of all pushes and that the job succeeds.
fn keeps_all(mpi: &Mpi, num_ranks: usize, program: &str) {
    let Some(job) = mpi.job(num_ranks, program) else { return };
    job.succeeds(num_ranks);
    let sum: usize = (1..=num_ranks).sum();
    for rank in 0..num_ranks {
        let line = format!("rank {rank} holds -{}", usize::from(NUM_PUSHES) * sum);
        assert!(job.text().contains(&line), "no `{line}`: {}", job.text());
    }
}

#[test]
fn ranks_of_open_mpi_exit_after_their_pushes_are_made() {
    for program in ["returned", "exited", "finalized"] {
        keeps_all(&OPEN_MPI, 2, program);
        keeps_all(&OPEN_MPI_TCP, 3, program);
    }
}

#[test]
fn ranks_of_mpich_exit_after_their_pushes_are_made() {
    for program in ["returned", "exited", "finalized"] {
        keeps_all(&MPICH, 2, program);
    }
}

/// Exits inside an updater on all ranks.
fn exit_in_updater() {
    let left = UnclosedStore::begin(&jobs::group());
    let updater = |_: &Key, _: &Tensor, _: &mut Tensor| exit();
    left.store.set_updater(Some(Arc::new(updater))).unwrap();
    unreachable!("the process continues after {:?}", left.push());
}

#[test]
fn exiting_in_an_updater_does_not_hang() {
    for mpi in [OPEN_MPI, MPICH] {
        let begun = Instant::now();
        let Some(job) = mpi.job(2, "in_updater") else { continue };
        job.is_ended(&mpi);
        assert!(begun.elapsed() < LONG, "{}", job.text());
    }
}

/// Rank 0 pushes and exits. The other rank makes no pushes and does not exit.
fn push_alone() {
    let group = jobs::group();
    let left = UnclosedStore::begin(&group);
    left.store.barrier().unwrap();
    group.set_timeout(Duration::from_secs(1));
    if values::rank(&left.store) > 0.0 {
        return pause(LONG);
    }
    (0..NUM_PUSHES).for_each(|_| left.push().unwrap());
}

#[test]
fn pushes_that_other_ranks_do_not_make_end_at_the_deadline() {
    for mpi in [OPEN_MPI, MPICH] {
        let begun = Instant::now();
        let Some(job) = mpi.job(2, "deserted") else { continue };
        job.is_ended(&mpi);
        assert!(begun.elapsed() < LONG, "{}", job.text());
    }
}

/// Rank 0 panics. The others ignore their errors and exit with status 0.
fn panic_on_one_rank() {
    let left = UnclosedStore::begin(&jobs::group());
    left.store.barrier().unwrap();
    assert!(values::rank(&left.store) > 0.0, "rank 0 panics on purpose");
    while left.push().is_ok() && left.store.barrier().is_ok() {}
}

#[test]
fn a_job_with_a_panicked_rank_fails_even_if_the_others_ignore_it() {
    for (mpi, num_ranks) in [
        (OPEN_MPI, 2),
        (OPEN_MPI_TCP, 3),
        (MPICH, 2),
        (MPICH_TCP, 2),
        (MPICH_5, 2),
        (OPEN_MPI_5, 2),
    ] {
        let Some(job) = mpi.job_with(num_ranks, "ignored", &[(LIBRARY, mpi.library)]) else {
            continue;
        };
        println!("{}", mpi.command);
        job.fails();
        assert!(job.text().contains("rank 0 panics on purpose"), "{}", job.text());
    }
}

/// A collective whose end a test triggers. It can also panic in `all_gather`, with which a group
/// starts each round.
#[derive(Debug)]
struct EndingMember {
    member: LocalCollective,
    panics: bool,
    last: Mutex<Option<Weak<dyn LastCalls>>>,
}

impl EndingMember {
    fn new(member: LocalCollective, panics: bool) -> Arc<Self> {
        Arc::new(Self { member, panics, last: Mutex::default() })
    }

    fn end(&self, timeout: Duration) -> Result<()> {
        let last = self.last.lock().unwrap().clone().expect("a group tells of itself");
        let Some(last) = last.upgrade() else { return Ok(()) };
        last.make(&Wait::new(&"the end", timeout))
    }
}

impl Collective for EndingMember {
    fn rank(&self) -> usize {
        self.member.rank()
    }

    fn size(&self) -> usize {
        self.member.size()
    }

    fn barrier(&self, wait: &Wait<'_>) -> Result<()> {
        self.member.barrier(wait)
    }

    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()> {
        self.member.broadcast(root, bytes, wait)
    }

    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()> {
        self.member.all_to_all(sent, received, wait)
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        assert!(!self.panics, "panics as requested");
        self.member.all_gather(slices, wait)
    }

    fn before_end(&self, last: Weak<dyn LastCalls>) {
        *self.last.lock().unwrap() = Some(last);
    }
}

/// Returns a store, its backends, and its collective.
fn watched(member: LocalCollective, panics: bool) -> (DistStore, Backends, Arc<EndingMember>) {
    let watched = EndingMember::new(member, panics);
    let collective: Arc<dyn Collective> = watched.clone();
    let group = Group::new(collective).unwrap();
    group.set_timeout(LONG);
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
    (DistStore::new("dist_sync", &backends, &group).unwrap(), backends, watched)
}

#[test]
fn a_closing_group_makes_the_queued_calls_and_rejects_later_calls() {
    let (store, backends, watched) = watched(LocalCollective::group(1).remove(0), false);
    let left = UnclosedStore::new(store, backends);
    (0..NUM_PUSHES).for_each(|_| left.push().unwrap());
    for _ in 0..2 {
        watched.end(LONG).unwrap();
        assert_eq!(floats(&left.store, "w")[0], -f32::from(NUM_PUSHES));
        assert_eq!(left.push().unwrap_err().code(), ErrorCode::Closed);
        assert_eq!(left.store.barrier().unwrap_err().code(), ErrorCode::Closed);
    }
    drop(left);
    watched.end(LONG).unwrap();
}

#[test]
fn closing_a_group_in_an_updater_is_an_error() {
    let (store, backends, watched) = watched(LocalCollective::group(1).remove(0), false);
    let left = UnclosedStore::new(store, backends);
    let (send, receive) = mpsc::channel();
    let inner = Arc::clone(&watched);
    let updater = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        let _ = send.send(inner.end(LONG));
        Ok(())
    };
    left.store.set_updater(Some(Arc::new(updater))).unwrap();
    left.push().unwrap();
    let error = receive.recv().unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
    // The group is still open.
    left.store.barrier().unwrap();
    watched.end(LONG).unwrap();
}

#[test]
fn closing_waits_for_unmatched_calls_until_its_deadline() {
    let mut members = LocalCollective::group(2);
    let (store, backends, watched) = watched(members.remove(0), false);
    let (send, receive) = mpsc::channel();
    let waits = thread::spawn(move || {
        let value = full(&backends, &DIMS, 1.0);
        send.send(()).unwrap();
        (store.init(&[key("w")], &[value]).unwrap_err(), store)
    });
    receive.recv().unwrap();
    pause(Duration::from_millis(100));
    let begun = Instant::now();
    let error = watched.end(Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
    assert!(begun.elapsed() < LONG / 2);
    // Dropping the other member ends the collective, and with it the thread of the group.
    drop(members);
    let (error, store) = waits.join().unwrap();
    assert!(!error.chain().is_empty());
    drop(store);
}

#[test]
fn a_group_whose_thread_has_panicked_is_closed() {
    let (store, backends, watched) = watched(LocalCollective::group(1).remove(0), true);
    let value = full(&backends, &DIMS, 1.0);
    let error = store.init(&[key("w")], &[value]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal, "{}", error.chain());
    watched.end(LONG).unwrap();
}

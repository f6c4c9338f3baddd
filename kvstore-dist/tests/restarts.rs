//! A rank that is killed during a push ends its job. A restarted job continues from its last
//! checkpoint, and its result has the bits of an uninterrupted run.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use jobs::{Job, MPICH, Mpi, OPEN_MPI, OPEN_MPI_TCP, open, signal};
use kvstore::{DType, Device, NDArray, Optimizer, Store};
use kvstore_core::Result;
use kvstore_dist::{
    Buffer, Collective, DistStore, Group, LastCalls, MpiCollective, SharedSlices, Slices, Wait,
};

mod jobs;

const NUM_STEPS: u64 = 40;
/// The number of steps between checkpoints.
const EVERY: u64 = 4;

/// The environment variable with the folder for the files of the ranks.
const FOLDER: &str = "KVSTORE_TEST_FOLDER";
const OPTIMIZER: &str = "KVSTORE_TEST_OPTIMIZER";
/// The environment variable with a [`Death`] as text.
const DEATH: &str = "KVSTORE_TEST_DEATH";

/// Keys for each partition: one owner, split between rows, split between elements, and half floats
/// with a master copy.
const KEYS: [(&str, &[usize], DType); 4] = [
    ("few", &[5], DType::F32),
    ("rows", &[300, 70], DType::F32),
    ("many", &[3, 60_001], DType::F32),
    ("half", &[5000], DType::F16),
];

#[test]
fn rank() {
    jobs::act_as_rank(&[("train", train)]);
}

fn folder() -> PathBuf {
    PathBuf::from(env::var(FOLDER).expect("a folder"))
}

/// The file that a rank writes before it kills itself.
const DIED: &str = "died";

/// The rank that kills itself during a push, and the time when it does.
#[derive(Clone, Copy, Debug)]
struct Death {
    rank: u64,
    /// The number of the exchange of bytes, from 0. A push has three exchanges: the fingerprints of
    /// calls, the sums for the owners of parts, and the new parts for all ranks.
    exchange: u64,
    /// Whether the rank dies before the exchange (0), during it (1), or after it (2).
    moment: u64,
}

impl Death {
    fn to_text(self) -> String {
        format!("{} {} {}", self.rank, self.exchange, self.moment)
    }

    fn from_text(text: &str) -> Self {
        let numbers = text.split(' ').map(|number| number.parse().expect("a number"));
        let [rank, exchange, moment] = *numbers.collect::<Vec<_>>() else {
            panic!("`{text}` is no death");
        };
        Self { rank, exchange, moment }
    }
}

/// A member of a group that may kill itself.
#[derive(Debug)]
struct Mortal {
    member: MpiCollective,
    death: Option<Death>,
    num_exchanges: AtomicU64,
}

impl Mortal {
    fn new() -> Self {
        let member = open();
        let death = env::var(DEATH).ok().map(|text| Death::from_text(&text));
        let death = death.filter(|death| death.rank == member.rank() as u64);
        Self { member, death, num_exchanges: AtomicU64::new(0) }
    }

    fn exchange(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let number = self.num_exchanges.fetch_add(1, Ordering::Relaxed);
        match self.death.filter(|death| death.exchange == number).map(|death| death.moment) {
            None => act(),
            Some(0) => die(),
            Some(1) => {
                // The exchange and the kill race, so the exchange may stop at any point.
                let end = thread::spawn(die);
                act().and_then(|()| end.join().expect("it does not panic"))
            }
            Some(_) => act().and_then(|()| die()),
        }
    }
}

fn die() -> Result<()> {
    // Write a file, because a launcher may lose printed output.
    fs::write(folder().join(DIED), "").unwrap();
    signal("KILL");
    unreachable!("SIGKILL ends the process")
}

impl Collective for Mortal {
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
        self.exchange(|| self.member.all_to_all(sent, received, wait))
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        self.exchange(|| self.member.all_gather(slices, wait))
    }

    fn before_end(&self, last: Weak<dyn LastCalls>) {
        self.member.before_end(last);
    }
}

fn optimizer(name: &str) -> Optimizer {
    let optimizer = Optimizer::new(name).unwrap().with("learning_rate", 0.05).unwrap();
    if name == "sgd" { optimizer.with("momentum", 0.9).unwrap() } else { optimizer }
}

/// Returns an array with different numbers for each worker, step and key.
fn value(key: usize, worker: usize, step: u64) -> NDArray {
    let (_, dims, dtype) = KEYS[key];
    let seed = key + 10 * worker + 100 * usize::try_from(step).unwrap();
    let number = |index: usize| f32::from(u16::try_from((index * 31 + seed * 101) % 509).unwrap());
    let numbers: Vec<f32> =
        (0..dims.iter().product()).map(|index| number(index) / 128.0 - 2.0).collect();
    let array = kvstore::array(&numbers, dims, Device::cpu(0)).unwrap();
    NDArray::new(array.tensor().cast(dtype).unwrap())
}

fn begin(store: &Store, optimizer_name: &str) {
    store.set_optimizer(optimizer(optimizer_name)).unwrap();
    let first: Vec<_> = (0..KEYS.len()).map(|key| value(key, 0, 1000)).collect();
    store.init(KEYS.map(|(name, ..)| name), first).unwrap();
}

/// Pushes the values of these workers for one step.
fn step(store: &Store, workers: &[usize], step: u64) {
    let values = |key| workers.iter().map(|worker| value(key, *worker, step)).collect::<Vec<_>>();
    let values: Vec<_> = (0..KEYS.len()).map(values).collect();
    store.push(KEYS.map(|(name, ..)| name), values).unwrap();
}

fn bytes(store: &Store) -> Vec<u8> {
    let values = store.pull_new(KEYS.map(|(name, ..)| name)).unwrap();
    values.iter().flat_map(|value| value.tensor().to_bytes().unwrap()).collect()
}

/// The program of a rank: trains from the checkpoint if there is one, otherwise from the beginning.
fn train() {
    let folder = folder();
    let group = Group::new(Arc::new(Mortal::new())).unwrap();
    group.set_timeout(Duration::from_secs(60));
    let dist = DistStore::new("dist_sync", kvstore::backends(), &group).unwrap();
    let store = Store::new(Arc::new(dist));
    let checkpoint = folder.join("checkpoint");
    if checkpoint.exists() {
        store.restore(&checkpoint).unwrap();
    } else {
        begin(&store, &env::var(OPTIMIZER).expect("a name"));
    }
    let first = store.stats().unwrap()[0].num_pushes;
    println!("{BEGINS}{first}.");
    for number in first..NUM_STEPS {
        step(&store, &[store.rank().unwrap()], number);
        if (number + 1).is_multiple_of(EVERY) {
            let snapshot = store.snapshot().unwrap();
            if store.rank().unwrap() == 0 {
                snapshot.write(&checkpoint).unwrap();
            }
        }
    }
    fs::write(folder.join(format!("rank{}", store.rank().unwrap())), bytes(&store)).unwrap();
}

const BEGINS: &str = "begins at step ";

/// Returns the result of a single store that receives the values of all workers.
fn expected(num_workers: usize, optimizer: &str) -> Vec<u8> {
    let store = kvstore::create("local").unwrap();
    begin(&store, optimizer);
    let workers: Vec<usize> = (0..num_workers).collect();
    (0..NUM_STEPS).for_each(|number| step(&store, &workers, number));
    bytes(&store)
}

/// Runs a job that keeps its files in `folder`.
fn start(
    mpi: &Mpi,
    (num_ranks, optimizer): (usize, &str),
    folder: &Path,
    death: Option<Death>,
) -> Option<Job> {
    let folder = folder.to_str().expect("a path of letters");
    let death = death.map(Death::to_text);
    let mut environment = vec![(FOLDER, folder), (OPTIMIZER, optimizer)];
    environment.extend(death.as_deref().map(|death| (DEATH, death)));
    mpi.job_with(num_ranks, "train", &environment)
}

/// Asserts that the job succeeded and that all ranks have the expected bits.
fn ends_with(job: &Job, num_ranks: usize, folder: &Path, expected: &[u8]) {
    job.succeeds(num_ranks);
    for rank in 0..num_ranks {
        let found = fs::read(folder.join(format!("rank{rank}"))).unwrap();
        assert!(found == expected, "other bits on rank {rank}: {}", job.text());
    }
}

/// Asserts that a job that is killed three times ends with the bits of an uninterrupted job.
fn survives_kills(mpi: &Mpi, num_ranks: usize, optimizer: &str) {
    let what = (num_ranks, optimizer);
    let (undisturbed, disturbed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(job) = start(mpi, what, undisturbed.path(), None) else { return };
    let expected = expected(num_ranks, optimizer);
    ends_with(&job, num_ranks, undisturbed.path(), &expected);

    let mut random = Random::new();
    for number in 0..3 {
        // The first death comes after a checkpoint. All three come before the end of the training.
        let exchange = if number == 0 { 25 + random.below(15) } else { random.below(30) };
        let rank = random.below(num_ranks as u64);
        let death = Death { rank, exchange, moment: random.below(3) };
        println!("{death:?}");
        let job = start(mpi, what, disturbed.path(), Some(death)).expect("it is installed");
        job.is_killed(mpi);
        fs::remove_file(disturbed.path().join(DIED)).expect("it has come so far");
    }
    let job = start(mpi, what, disturbed.path(), None).expect("it is installed");
    ends_with(&job, num_ranks, disturbed.path(), &expected);
    assert!(!job.text().contains(&format!("{BEGINS}0.")), "from the beginning: {}", job.text());
}

/// Random numbers, different in each run.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        Self(u64::try_from(now.as_nanos() % (1 << 60)).unwrap() | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % end
    }
}

#[test]
fn a_job_of_open_mpi_continues_after_a_kill() {
    survives_kills(&OPEN_MPI, 3, "adam");
}

#[test]
fn a_job_of_open_mpi_continues_after_a_kill_over_tcp() {
    survives_kills(&OPEN_MPI_TCP, 2, "sgd");
}

#[test]
fn a_job_of_mpich_continues_after_a_kill() {
    survives_kills(&MPICH, 2, "sgd");
}

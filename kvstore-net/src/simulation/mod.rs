//! Deterministic simulation: the real client and server on simulated time and a simulated network
//! (`turmoil`), with partitions, delays, lost messages, crashes and restarts.
//!
//! A seed determines a [`Schedule`]: which workers join, what they call, and what goes wrong when.
//! Two workers may have the same name, so a process that was cut off finds its name taken. Each run
//! of a seed is the same, event by event.
//!
//! ```text
//! cargo test -p kvstore-net --lib simulation                          # 1,000 schedules
//! KVSTORE_SIMULATION_SCHEDULES=100000 cargo test ..                   # more
//! KVSTORE_SIMULATION_SEED=17 cargo test .. -- --nocapture             # one, and its history
//! ```
//!
//! A test that fails prints the seed. The kept seeds run first.
//!
//! # What is checked
//!
//! Each push adds 1 to an element of its own, and the updater of the server records each addition.
//! So it is known which pushes took effect, in which order, in which run of the server.
//! [`History`] checks:
//! - A push takes effect at most once, also after a restart of the server.
//! - An acknowledged push has taken effect. A push that failed never does, unless the error says
//!   that this is not known. An error has a reason: a timeout, a restart, or a later process.
//! - A push never takes effect after a later call of its worker.
//! - A pull returns the first pushes of the run, among them all that had taken effect when it
//!   began. So a worker reads its own writes, and versions only grow.
//! - While a process has a name, no call of another process with this name is accepted, and a
//!   replaced process never gets its name back.
//! - A barrier is passed when all live workers have arrived.
//! - The clock of a worker counts its pushes, and a bounded pull waits for the slowest worker.
//! - A round has as many pushes as its quorum, and one of each name. They are added in the order of
//!   the names. A late push is rejected if the rule of the round says so.
//! - When everything runs and is connected again, calls succeed and all workers finish.
//!
//! The last test plants each [`Fault`](crate::faults::Fault) and shows that these checks find it.
//! [`several`] simulates several servers, [`quorum`] their rounds, [`recovery`] a server that
//! continues after crashes, and [`cuts`] several of them.
//!
//! The simulation does not cover the end of the connections when a server shuts down in order,
//! because tokio ends them in a random order.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]

mod checked;
mod cuts;
mod effects;
mod history;
mod network;
mod observations;
mod process;
mod quorum;
mod recovery;
mod report;
mod rounds;
mod schedule;
mod server;
mod several;
mod tests;
mod worker;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use kvstore_core::{Backends, CpuBackend, Key, KvStore, LocalStore};
use tokio::sync::Notify;
use turmoil::{Builder, Sim};

use self::checked::Checked;
use self::history::History;
use self::schedule::{Event, NUM_WORKERS, QUIET, STEP, Schedule};
use crate::server::group::Group;

/// The last step of a simulation in which a worker does not finish.
const LAST: usize = QUIET + 2000;

/// A simulation that runs.
struct Simulation {
    schedule: Schedule,
    history: Mutex<History>,
    server: Mutex<Option<Running>>,
    /// Drains the server.
    drain: Notify,
}

/// The state of the server's process.
struct Running {
    group: Arc<Group>,
    store: Arc<LocalStore>,
}

impl Simulation {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the state of the server after a step.
    fn see(&self) {
        let seen = self.server.lock().unwrap().as_ref().map(|server| server.group.seen(&key()));
        if let Some(seen) = seen {
            self.history().see(seen);
        }
    }

    fn check_final(&self) {
        if let Some(server) = &*self.server.lock().unwrap() {
            let value = server.store.pull(&[key()], 0).unwrap()[0].to_vec::<f32>().unwrap();
            self.history().check_final(&value);
        }
    }
}

fn backends() -> &'static Backends {
    static BACKENDS: OnceLock<Backends> = OnceLock::new();
    BACKENDS.get_or_init(|| Backends::new(vec![CpuBackend::new()]))
}

/// The key of all pushes.
fn key() -> Key {
    Key::new("w").unwrap()
}

fn host(worker: usize) -> String {
    format!("worker-{worker}")
}

fn happen(event: Event, simulation: &Simulation, sim: &mut Sim) {
    if event == Event::DrainServer {
        simulation.history().drain();
        simulation.drain.notify_one();
    }
    happen_to(event, sim);
}

/// Lets an event happen to a host or a link.
fn happen_to(event: Event, sim: &mut Sim) {
    let server = &network::server_host(0);
    match event {
        Event::DrainServer => {}
        Event::CrashServer => sim.crash(server.as_str()),
        Event::StartServer => sim.bounce(server.as_str()),
        Event::Crash(worker) => sim.crash(host(worker)),
        Event::Start(worker) => sim.bounce(host(worker)),
        Event::Partition(worker) => sim.partition(host(worker), server.as_str()),
        Event::PartitionToServer(worker) => sim.partition_oneway(host(worker), server.as_str()),
        Event::PartitionFromServer(worker) => sim.partition_oneway(server.as_str(), host(worker)),
        Event::Repair(worker) => sim.repair(host(worker), server.as_str()),
        Event::Hold(worker) => sim.hold(host(worker), server.as_str()),
        Event::Release(worker) => sim.release(host(worker), server.as_str()),
    }
}

/// Keeps other simulations from running.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts tasks until the next one has a number that every simulation begins with, modulo 64. The
/// numbers determine the order in which tokio ends the tasks of a host that crashes.
fn align_tasks() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    while !runtime.spawn(async {}).id().to_string().parse::<u64>().unwrap().is_multiple_of(64) {}
}

/// Returns the network and the hosts of a simulation.
fn hosts(seed: u64, max_latency: Duration) -> Sim<'static> {
    Builder::new()
        .rng_seed(seed)
        .tick_duration(STEP)
        .epoch(UNIX_EPOCH)
        .simulation_duration(Duration::MAX)
        // A message arrives after the step, so each step is seen before its effects elsewhere.
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(max_latency)
        .build()
}

/// Runs a simulation until all workers have finished or `is_violated` returns true after a step.
/// `is_violated` gets what the step itself violates. Returns whether all workers have finished.
fn run<E: Copy>(
    sim: &mut Sim<'_>,
    (events, last): (&[(usize, E)], usize),
    happen: impl Fn(E, &mut Sim<'_>),
    is_violated: impl Fn(Option<String>) -> bool,
) -> bool {
    let mut events = events.iter().copied().peekable();
    for step in 0.. {
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= step) {
            happen(event, sim);
        }
        let failed = sim.step().err().map(|error| format!("a process failed: {error}"));
        let runs = (0..NUM_WORKERS).filter(|worker| sim.is_host_running(host(*worker)));
        let running: Vec<usize> = runs.collect();
        let has_finished = running.is_empty() && events.peek().is_none();
        let late =
            (!has_finished && step == last).then(|| format!("workers {running:?} do not finish"));
        if is_violated(failed.or(late)) || has_finished {
            return has_finished;
        }
    }
    false
}

/// Runs the schedule of a seed, until a promise is broken. Returns its history.
fn simulate(seed: u64) -> History {
    let _alone = alone();
    align_tasks();
    let schedule = Schedule::new(seed);
    let mut sim = hosts(seed, schedule.max_latency);
    let quiet = STEP * u32::try_from(QUIET).unwrap();
    let simulation = Arc::new(Simulation {
        history: Mutex::new(History::new(&schedule, quiet)),
        server: Mutex::new(None),
        drain: Notify::new(),
        schedule,
    });
    let shared = Arc::clone(&simulation);
    sim.host(network::server_host(0), move || server::run(Arc::clone(&shared)));
    for worker in 0..NUM_WORKERS {
        let shared = Arc::clone(&simulation);
        sim.host(host(worker), move || worker::run(Arc::clone(&shared), worker));
    }
    let events = (&simulation.schedule.events[..], LAST);
    let has_finished = run(
        &mut sim,
        events,
        |event, sim| happen(event, &simulation, sim),
        |text| {
            if let Some(text) = text {
                simulation.history().violate(text);
            }
            simulation.see();
            simulation.history().violation().is_some()
        },
    );
    if has_finished {
        simulation.check_final();
    }
    drop(sim);
    let simulation = Arc::into_inner(simulation).expect("no process runs");
    simulation.history.into_inner().unwrap_or_else(PoisonError::into_inner)
}

//! Deterministic simulation of [`NetStore`](crate::NetStore) on several servers, which divide the
//! rows of large values among them.
//!
//! A store blocks its thread, and the simulation must not. So each worker has a thread of its own,
//! which runs only while the process of its worker waits for it: see [`process`](super::process).
//!
//! ```text
//! cargo test -p kvstore-net --lib several                          # 500 schedules
//! KVSTORE_SIMULATION_SCHEDULES=100000 cargo test ..                # more
//! KVSTORE_SIMULATION_SEED=17 cargo test .. -- --nocapture          # one, and its history
//! ```
//!
//! # What is checked
//!
//! Each `init` stores a number of its own in every part of its value, its *generation*. Each push
//! adds 1 to an element of its own in every part, and the updaters of the servers record each
//! addition. [`History`] checks:
//! - All parts of a pulled value have the same generation, which was not removed or replaced before
//!   the pull began.
//! - Each part is the result of the first pushes on its server, among them all that had taken
//!   effect when the pull began.
//! - A push takes effect at most once on a server, and in one generation, and never after a later
//!   call of its worker for this key.
//! - An acknowledged push has taken effect on all servers of its value, unless a worker has
//!   removed or replaced the key. A push that failed never does, unless the error says that this is
//!   not known, or that some servers have made it.
//! - A snapshot has the values that a pull could have returned when it was taken, and never
//!   changes.
//! - Two calls of `init` do not both add a key.
//! - A call that fails has a reason: a timeout, a key that may be missing, or a server that has
//!   lost its contents.
//! - When everything runs and is connected again, each worker can replace a key, push,
//!   pull and read a snapshot.

mod history;
mod schedule;
mod server;
mod tests;
mod worker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use turmoil::Sim;

use self::history::History;
use self::schedule::{Event, Schedule};
use super::checked::Checked;
use super::network::server_host;
use super::schedule::{NUM_WORKERS, QUIET};
use super::{align_tasks, alone, host, hosts, run};

/// The last step of a simulation in which a worker does not finish.
const LAST: usize = QUIET + 12_000;

/// A simulation that runs.
struct Simulation {
    schedule: Schedule,
    history: Mutex<History>,
}

impl Simulation {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn happen(event: Event, simulation: &Simulation, sim: &mut Sim) {
    match event {
        Event::CrashServer(server) => {
            simulation.history().lose_server();
            sim.crash(server_host(server));
        }
        Event::StartServer(server) => sim.bounce(server_host(server)),
        Event::Crash(worker) => sim.crash(host(worker)),
        Event::Start(worker) => sim.bounce(host(worker)),
        Event::Partition(link) => sim.partition(host(link.worker), server_host(link.server)),
        Event::PartitionToServer(link) => {
            sim.partition_oneway(host(link.worker), server_host(link.server));
        }
        Event::PartitionFromServer(link) => {
            sim.partition_oneway(server_host(link.server), host(link.worker));
        }
        Event::Repair(link) => sim.repair(host(link.worker), server_host(link.server)),
        Event::Hold(link) => sim.hold(host(link.worker), server_host(link.server)),
        Event::Release(link) => sim.release(host(link.worker), server_host(link.server)),
    }
}

/// Runs the schedule of a seed, until a promise is broken. Returns its history.
fn simulate(seed: u64) -> History {
    let _alone = alone();
    align_tasks();
    let schedule = Schedule::new(seed);
    let mut sim = hosts(seed, schedule.max_latency);
    let history = Mutex::new(History::new(schedule.timeout, schedule.num_servers));
    let simulation = Arc::new(Simulation { schedule, history });
    for server in 0..simulation.schedule.num_servers {
        let shared = Arc::clone(&simulation);
        sim.host(server_host(server), move || server::run(Arc::clone(&shared), server));
    }
    for worker in 0..NUM_WORKERS {
        let shared = Arc::clone(&simulation);
        sim.host(host(worker), move || worker::run(Arc::clone(&shared), worker));
    }
    let events = (&simulation.schedule.events[..], LAST);
    run(
        &mut sim,
        events,
        |event, sim| happen(event, &simulation, sim),
        |text| {
            if let Some(text) = text {
                simulation.history().violate(text);
            }
            simulation.history().violation().is_some()
        },
    );
    drop(sim);
    let simulation = Arc::into_inner(simulation).expect("no process runs");
    simulation.history.into_inner().unwrap_or_else(PoisonError::into_inner)
}

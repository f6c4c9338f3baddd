//! Deterministic simulation of rounds over several servers, which also lose the connections between
//! each other.
//!
//! ```text
//! cargo test -p kvstore-net --lib quorum                           # 300 schedules
//! KVSTORE_SIMULATION_SCHEDULES=100000 cargo test ..                # more
//! KVSTORE_SIMULATION_SEED=17 cargo test .. -- --nocapture          # one, and its history
//! ```
//!
//! # What is checked
//!
//! Each push adds 1 to an element of its own in every part of the values, and a number to another
//! element whose sum shows the order of the additions. [`History`] checks what the updaters of the
//! servers get:
//! - A round has as many pushes as its quorum, and one of each name. They are added in the order of
//!   the names.
//! - All servers that apply a push apply it with the same other pushes, once.
//! - A push that is acknowledged has taken effect on all servers. A push that failed has no effect,
//!   unless the error says that this is not known.
//! - With the rule `reject`, a push has taken effect only if its worker had seen the round before.
//! - When everything is connected again, and no server has lost its values, all servers have
//!   applied the same pushes, and workers can push.

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
        Event::Partition(link) => sim.partition(link.from(), link.to()),
        Event::PartitionOneWay(link) => sim.partition_oneway(link.from(), link.to()),
        Event::Repair(link) => sim.repair(link.from(), link.to()),
        Event::Hold(link) => sim.hold(link.from(), link.to()),
        Event::Release(link) => sim.release(link.from(), link.to()),
    }
}

/// Runs the schedule of a seed, until a promise is broken. Returns its history.
fn simulate(seed: u64) -> History {
    let _alone = alone();
    align_tasks();
    let schedule = Schedule::new(seed);
    let mut sim = hosts(seed, schedule.max_latency);
    let history = Mutex::new(History::new(&schedule));
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
    let has_finished = run(
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
    if has_finished {
        simulation.history().check_final();
    }
    drop(sim);
    let simulation = Arc::into_inner(simulation).expect("no process runs");
    simulation.history.into_inner().unwrap_or_else(PoisonError::into_inner)
}

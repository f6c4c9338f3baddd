//! [`Schedule`]: what happens in a simulation of several servers, drawn from a seed.

use std::time::Duration;

use crate::simulation::schedule::{NUM_WORKERS, QUIET, Random};

/// What happens to a host, or to the link of a worker to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    CrashServer(usize),
    StartServer(usize),
    Crash(usize),
    Start(usize),
    /// Messages are lost in both directions.
    Partition(Link),
    /// Messages of the worker are lost.
    PartitionToServer(Link),
    /// Messages to the worker are lost.
    PartitionFromServer(Link),
    Repair(Link),
    /// Messages are delayed until the release.
    Hold(Link),
    Release(Link),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) worker: usize,
    pub(super) server: usize,
}

/// The seeds with this bit are those of schedules whose workers also take snapshots.
pub(super) const SNAPSHOTS: u64 = 1 << 40;

/// What happens in a simulation.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) num_servers: usize,
    /// How long a call waits.
    pub(super) timeout: Duration,
    pub(super) max_latency: Duration,
    /// How often a client tests its connections.
    pub(super) keep_alive: Duration,
    /// The number of calls of each process.
    pub(super) num_calls: u64,
    /// The events with their steps, in order.
    pub(super) events: Vec<(usize, Event)>,
}

impl Schedule {
    /// Returns whether the workers also take snapshots.
    pub(super) fn has_snapshots(&self) -> bool {
        self.seed & SNAPSHOTS != 0
    }

    /// Draws a schedule.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let num_servers = random.step(2, 3);
        let timeout =
            if random.one_in(3) { random.millis(200, 600) } else { Duration::from_secs(3) };
        let max_latency = random.millis(5, 40);
        let keep_alive = random.millis(100, 400);
        let num_calls = random.between(3, 8);
        let mut events = Vec::new();
        if random.one_in(4) {
            let (server, crash) = (random.step(0, num_servers - 1), random.step(10, 180));
            events.push((crash, Event::CrashServer(server)));
            events.push((crash + random.step(2, 60), Event::StartServer(server)));
        }
        for worker in 0..NUM_WORKERS {
            if random.one_in(2) {
                let crash = random.step(10, 200);
                events.push((crash, Event::Crash(worker)));
                events.push((crash + random.step(2, 100), Event::Start(worker)));
            }
            for server in 0..num_servers {
                let link = Link { worker, server };
                let mut step = random.step(5, 300);
                while step < QUIET - 120 {
                    let (begin, end) = match random.between(0, 5) {
                        0 | 1 => (Event::Partition(link), Event::Repair(link)),
                        2 => (Event::PartitionToServer(link), Event::Repair(link)),
                        3 => (Event::PartitionFromServer(link), Event::Repair(link)),
                        _ => (Event::Hold(link), Event::Release(link)),
                    };
                    events.push((step, begin));
                    step += random.step(2, 100);
                    events.push((step, end));
                    step += random.step(10, 200);
                }
            }
        }
        events.sort_by_key(|(step, _)| *step);
        Self { seed, num_servers, timeout, max_latency, keep_alive, num_calls, events }
    }
}

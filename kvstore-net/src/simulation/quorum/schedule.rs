//! [`Schedule`]: what happens in a simulation of rounds over several servers, drawn from a seed.

use std::time::Duration;

use crate::client::LatePush;
use crate::simulation::host;
use crate::simulation::network::server_host;
use crate::simulation::schedule::{NUM_WORKERS, QUIET, Random};

/// What happens to a host or to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    CrashServer(usize),
    StartServer(usize),
    Crash(usize),
    Start(usize),
    /// Messages are lost in both directions.
    Partition(Link),
    /// Messages are lost in one direction.
    PartitionOneWay(Link),
    Repair(Link),
    /// Messages are delayed until the release.
    Hold(Link),
    Release(Link),
}

/// A link to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    OfWorker(usize, usize),
    ToWorker(usize, usize),
    /// From a server to another one.
    OfServer(usize, usize),
}

impl Link {
    pub(super) fn from(self) -> String {
        match self {
            Self::OfWorker(worker, _) => host(worker),
            Self::OfServer(server, _) | Self::ToWorker(server, _) => server_host(server),
        }
    }

    pub(super) fn to(self) -> String {
        match self {
            Self::OfWorker(_, server) | Self::OfServer(_, server) => server_host(server),
            Self::ToWorker(_, worker) => host(worker),
        }
    }
}

/// What happens in a simulation.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) num_servers: usize,
    pub(super) min: usize,
    pub(super) grace: Duration,
    pub(super) late: LatePush,
    /// How long a call waits.
    pub(super) timeout: Duration,
    pub(super) max_latency: Duration,
    /// How often a client and the first server test their connections.
    pub(super) keep_alive: Duration,
    /// The number of calls of each process.
    pub(super) num_calls: u64,
    /// The events with their steps, in order.
    pub(super) events: Vec<(usize, Event)>,
}

impl Schedule {
    /// Draws a schedule.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let num_servers = random.step(2, 3);
        let mut events = Vec::new();
        if random.one_in(5) {
            let (server, crash) = (random.step(0, num_servers - 1), random.step(10, 180));
            events.push((crash, Event::CrashServer(server)));
            events.push((crash + random.step(2, 60), Event::StartServer(server)));
        }
        let mut links = Vec::new();
        for worker in 0..NUM_WORKERS {
            if random.one_in(2) {
                let crash = random.step(10, 200);
                events.push((crash, Event::Crash(worker)));
                events.push((crash + random.step(2, 100), Event::Start(worker)));
            }
            for server in 0..num_servers {
                links.push((Link::OfWorker(worker, server), Link::ToWorker(server, worker)));
            }
        }
        for other in 1..num_servers {
            links.push((Link::OfServer(0, other), Link::OfServer(other, 0)));
        }
        for (link, back) in links {
            let mut step = random.step(5, 300);
            while step < QUIET - 120 {
                let (begin, end) = match random.between(0, 5) {
                    0 | 1 => (Event::Partition(link), Event::Repair(link)),
                    2 => (Event::PartitionOneWay(link), Event::Repair(link)),
                    3 => (Event::PartitionOneWay(back), Event::Repair(link)),
                    _ => (Event::Hold(link), Event::Release(link)),
                };
                events.push((step, begin));
                step += random.step(2, 80);
                events.push((step, end));
                step += random.step(20, 250);
            }
        }
        events.sort_by_key(|(step, _)| *step);
        Self {
            seed,
            num_servers,
            min: random.step(1, 2),
            grace: random.millis(0, 3) * 40,
            late: if random.one_in(2) { LatePush::Reject } else { LatePush::Next },
            timeout: random.millis(200, 800),
            max_latency: random.millis(5, 30),
            keep_alive: random.millis(60, 250),
            num_calls: random.between(3, 8),
            events,
        }
    }
}

//! [`Schedule`]: what happens in a simulation, drawn from a seed.

use std::time::Duration;

use crate::proto;

/// The simulated time of a step.
pub(super) const STEP: Duration = Duration::from_millis(5);

/// How long a lease lasts.
pub(super) const LEASE: Duration = Duration::from_millis(200);

/// The part of a seed whose schedule has rounds.
pub(super) const ROUNDS: u64 = 1 << 62;

/// The number of workers. Each runs on a host of its own.
pub(super) const NUM_WORKERS: usize = 3;

/// No event happens after this step, and everything runs and is connected.
pub(super) const QUIET: usize = 360;

/// Random numbers (`SplitMix64`, which starts well from every seed).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `from` to `to`, inclusive.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.number() % (to - from + 1)
    }

    /// Returns an index or a step from `from` to `to`, inclusive.
    pub(super) fn step(&mut self, from: usize, to: usize) -> usize {
        usize::try_from(self.between(from as u64, to as u64)).unwrap()
    }

    /// Returns true once in `num` times on average.
    pub(super) fn one_in(&mut self, num: u64) -> bool {
        self.between(1, num) == 1
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }
}

/// What happens to a host or to its link to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The server accepts no further calls, as before it ends in order.
    DrainServer,
    CrashServer,
    StartServer,
    Crash(usize),
    Start(usize),
    /// Messages of this worker and to it are lost.
    Partition(usize),
    /// Messages of this worker are lost.
    PartitionToServer(usize),
    /// Messages to this worker are lost.
    PartitionFromServer(usize),
    Repair(usize),
    /// Messages of this worker and to it are delayed until the release.
    Hold(usize),
    Release(usize),
}

/// What happens in a simulation.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    /// The name under which each worker joins. Two may be the same.
    pub(super) names: [&'static str; NUM_WORKERS],
    /// How long a call waits.
    pub(super) timeout: Duration,
    pub(super) max_latency: Duration,
    /// How often a client tests its connection.
    pub(super) keep_alive: Duration,
    /// The number of calls of each process.
    pub(super) num_calls: u64,
    pub(super) has_barriers: bool,
    /// The staleness of bounded pulls.
    pub(super) staleness: Option<u64>,
    /// How pushes take part in rounds.
    pub(super) rounds: Option<proto::RoundPush>,
    /// The events with their steps, in order.
    pub(super) events: Vec<(usize, Event)>,
}

impl Schedule {
    /// Draws a schedule.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let names = if random.one_in(2) { ["a", "b", "a"] } else { ["a", "b", "c"] };
        let timeout = if random.one_in(3) { random.millis(200, 600) } else { secs(20) };
        let max_latency = random.millis(5, 40);
        // A client may notice a delay before or after its lease ends.
        let keep_alive = if random.one_in(2) { LEASE / 2 } else { LEASE * 2 };
        let num_calls = random.between(3, 8);
        let has_barriers = random.one_in(3);
        let staleness = random.one_in(2).then(|| random.between(0, 2));
        let mut events = Vec::new();
        if random.one_in(3) {
            let mut crash = random.step(10, 180);
            if random.one_in(2) {
                events.push((crash, Event::DrainServer));
                crash += random.step(1, 40);
            }
            events.push((crash, Event::CrashServer));
            events.push((crash + random.step(2, 60), Event::StartServer));
        }
        for worker in 0..NUM_WORKERS {
            if random.one_in(2) {
                let crash = random.step(10, 200);
                events.push((crash, Event::Crash(worker)));
                events.push((crash + random.step(2, 100), Event::Start(worker)));
            }
            let mut step = random.step(5, 300);
            while step < QUIET - 120 {
                let begin = match random.between(0, 5) {
                    0 | 1 => Event::Partition(worker),
                    2 => Event::PartitionToServer(worker),
                    3 => Event::PartitionFromServer(worker),
                    _ => Event::Hold(worker),
                };
                let is_held = begin == Event::Hold(worker);
                let end = if is_held { Event::Release(worker) } else { Event::Repair(worker) };
                events.push((step, begin));
                step += random.step(2, 100);
                events.push((step, end));
                step += random.step(10, 200);
            }
        }
        events.sort_by_key(|(step, _)| *step);
        let rounds = (seed & ROUNDS != 0).then(|| proto::RoundPush {
            min: random.between(1, 2),
            grace_ms: random.between(0, 3) * 40,
            late: i32::from(random.one_in(2)),
            weight: None,
        });
        // A push may wait for members that have finished.
        let timeout = if rounds.is_some() { random.millis(200, 500) } else { timeout };
        Self {
            seed,
            names,
            timeout,
            max_latency,
            keep_alive,
            num_calls,
            has_barriers,
            staleness,
            rounds,
            events,
        }
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

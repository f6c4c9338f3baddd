//! Simulation of several servers that continue from recovery points of the same moment: any of them
//! crashes and restarts, again and again, while workers push to all of them, crash and lose their
//! connections, and the servers lose those to each other.
//!
//! Each push adds 1 to an element of its own in every part of the values, which several servers
//! have, and a number to the first element whose sum shows the order of the additions. What is
//! checked:
//! - All parts of a recovery point have the same pushes, apart from those of a worker that crashed
//!   during the push. With rounds, they have the same pushes in any case.
//! - If a point has a push, it has the earlier pushes of the worker, unless they were lost before.
//! - A server continues with the first pushes of its earlier run, with their bits.
//! - No push takes effect twice, and every push succeeds, apart from late pushes to rounds.
//! - All workers finish. Then all parts have the same pushes, among them all that were acknowledged
//!   when the worker knew that the servers had gone back for the last time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::{Device, ErrorCode, Key, KvStore, LocalStore, OnExisting, Tensor, Value};
use turmoil::Sim;

use super::checked::Checked;
use super::effects::{prefix, value_of_parts};
use super::history::mark;
use super::process::{join_all, now, run_thread, sleep};
use super::schedule::{LEASE, NUM_WORKERS, QUIET, Random};
use super::server::{runs, serve_runs};
use super::tests::{Kept, check, check_kills, check_repetition, find};
use super::{align_tasks, alone, backends, host, hosts, network, run};
use crate::client::driver::Driver;
use crate::client::{LatePush, NetStore, NetStoreOptions};
use crate::faults::Fault;
use crate::quiet::needs_quiet;
use crate::server::group::Group;
use crate::server::recovery::{Disk, Point, PointStore};
use crate::server::service::Service;

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 100;

/// The last step of a simulation in which a worker does not finish.
const LAST: usize = QUIET + 12_000;

/// Longer than a simulation: calls wait for the servers.
const TIMEOUT: Duration = Duration::from_secs(500);

/// The number of elements of a part.
const PART: usize = 160;

/// The keys. The rows of the first one are divided among the servers.
const KEYS: [&str; 3] = ["divided", "one", "two"];

const NAMES: [&str; NUM_WORKERS] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum Event {
    CrashServer(usize),
    StartServer(usize),
    Crash(usize),
    Start(usize),
    /// Messages between a server and another host are lost, or delayed.
    Partition(usize, Other),
    Repair(usize, Other),
    Hold(usize, Other),
    Release(usize, Other),
}

#[derive(Clone, Copy, Debug)]
enum Other {
    Worker(usize),
    Server(usize),
}

impl Other {
    fn host(self) -> String {
        match self {
            Self::Worker(worker) => host(worker),
            Self::Server(server) => network::server_host(server),
        }
    }
}

/// What happens in a simulation.
#[derive(Clone, Debug)]
struct Schedule {
    seed: u64,
    num_servers: usize,
    max_latency: Duration,
    /// How often the servers make a point.
    every: Duration,
    /// How long each server writes a point, and which writes fail.
    disks: [Disk; 3],
    keep_alive: Duration,
    /// The number of pushes of each process.
    num_pushes: usize,
    /// The grace of rounds, and what becomes of late pushes, if there are rounds.
    rounds: Option<(Duration, LatePush)>,
    events: Vec<(usize, Event)>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let num_servers = random.step(2, 3);
        let mut events = Vec::new();
        let mut step = random.step(40, 120);
        while step < QUIET - 80 {
            let server = random.step(0, num_servers - 1);
            events.push((step, Event::CrashServer(server)));
            events.push((step + random.step(2, 60), Event::StartServer(server)));
            step += random.step(20, 250);
        }
        for worker in 0..NUM_WORKERS {
            if random.one_in(2) {
                let crash = random.step(10, 200);
                events.push((crash, Event::Crash(worker)));
                events.push((crash + random.step(2, 100), Event::Start(worker)));
            }
        }
        let workers = (0..NUM_WORKERS).map(Other::Worker);
        let others: Vec<Other> = workers.chain((1..num_servers).map(Other::Server)).collect();
        for other in others {
            if random.one_in(3) {
                continue;
            }
            let server =
                if let Other::Server(_) = other { 0 } else { random.step(0, num_servers - 1) };
            let begin = random.step(5, 350);
            let (event, end) = if random.one_in(2) {
                (Event::Partition(server, other), Event::Repair(server, other))
            } else {
                (Event::Hold(server, other), Event::Release(server, other))
            };
            events.push((begin, event));
            events.push((begin + random.step(2, 80), end));
        }
        events.sort_by_key(|(step, _)| *step);
        let late = if random.one_in(2) { LatePush::Reject } else { LatePush::Next };
        let rounds = (random.millis(0, 3) * 40, late);
        // Some write longer than another server needs to restart.
        let writing = [0; 3].map(|_| random.millis(0, 3) * if random.one_in(4) { 200 } else { 40 });
        // In one of five schedules, one of eight writes fails.
        let mut failing = Random::new(seed ^ 0x6661_696c);
        let disks = writing.map(|writing| {
            let bits: [u64; 3] = std::array::from_fn(|_| failing.between(0, u64::MAX - 1));
            let failing = if seed.is_multiple_of(5) { bits[0] & bits[1] & bits[2] } else { 0 };
            Disk { writing, failing, num_writes: Arc::default() }
        });
        Self {
            seed,
            num_servers,
            max_latency: random.millis(5, 30),
            every: random.millis(5, 200),
            disks,
            keep_alive: random.millis(60, 250),
            num_pushes: random.step(4, 10),
            rounds: random.one_in(2).then_some(rounds),
            events,
        }
    }
}

/// A server and a key.
type Place = (usize, usize);

/// The pushes that were added together, in their order.
type Effects = Vec<Vec<usize>>;

/// A push, from when it begins.
#[derive(Debug)]
struct Push {
    process: usize,
    is_acknowledged: bool,
    is_late: bool,
}

/// What the processes and the servers did.
#[derive(Debug, Default)]
struct Recorded {
    has_rounds: bool,
    /// The name of each process.
    processes: Vec<usize>,
    pushes: Vec<Push>,
    /// The effects in the present run, with those of its recovery point.
    effects: BTreeMap<Place, Effects>,
    /// The pushes in the points from which the servers have continued, by the rewind.
    restored: BTreeMap<u64, BTreeMap<Place, BTreeSet<usize>>>,
    /// The acknowledged pushes that servers have lost.
    lost: BTreeSet<usize>,
    num_crashes: usize,
    num_runs: u64,
    violation: Option<String>,
}

impl Recorded {
    fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    fn begin_process(&mut self, slot: usize) -> usize {
        self.processes.push(slot);
        self.processes.len()
    }

    /// Returns the element of a new push.
    fn begin_push(&mut self, process: usize) -> usize {
        self.pushes.push(Push { process, is_acknowledged: false, is_late: false });
        assert!(self.pushes.len() < PART, "more pushes than elements");
        self.pushes.len()
    }

    fn name(&self, element: usize) -> &'static str {
        NAMES[self.processes[self.pushes[element - 1].process - 1]]
    }

    /// Returns how many of the effects a value has, if it has the first ones.
    fn prefix(&self, effects: &[Vec<usize>], value: &[f32]) -> Option<usize> {
        prefix(effects, value, |element| self.name(element))
    }

    /// Begins a run of a server after a rewind, with this value of a part.
    fn restore(&mut self, by: u64, place: Place, value: &[f32]) {
        let before = self.effects.remove(&place).unwrap_or_default();
        let Some(kept) = self.prefix(&before, value) else {
            self.violate(format!("{place:?} continues with another value"));
            return;
        };
        let kept = before[..kept].to_vec();
        let pushes: BTreeSet<usize> = kept.iter().flatten().copied().collect();
        self.effects.insert(place, kept);
        let acknowledged = (1..).zip(&self.pushes).filter(|(_, push)| push.is_acknowledged);
        let acknowledged: Vec<usize> = acknowledged.map(|(element, _)| element).collect();
        if !self.restored.contains_key(&by) {
            self.lost.extend(acknowledged.iter().filter(|element| !pushes.contains(element)));
        }
        for element in &pushes {
            let process = self.pushes[element - 1].process;
            let is_earlier =
                |other: &&usize| **other < *element && self.pushes[**other - 1].process == process;
            let missing = acknowledged
                .iter()
                .filter(is_earlier)
                .find(|other| !pushes.contains(other) && !self.lost.contains(other));
            if let Some(missing) = missing.copied() {
                self.violate(format!("{place:?} has {element}, but not {missing} before it"));
                break;
            }
        }
        let others = self.restored.entry(by).or_default();
        others.insert(place, pushes.clone());
        let others = others.clone();
        for (other, found) in &others {
            self.compare((place, &pushes), (*other, found));
        }
    }

    /// Checks that two parts have the same pushes.
    fn compare(
        &mut self,
        (place, pushes): (Place, &BTreeSet<usize>),
        (other, others): (Place, &BTreeSet<usize>),
    ) {
        for element in pushes.symmetric_difference(others) {
            let process = self.pushes[element - 1].process;
            let slot = self.processes[process - 1];
            // The last push of a process that has crashed may be incomplete.
            let has_crashed = self.processes.iter().skip(process).any(|later| *later == slot);
            if self.has_rounds || !has_crashed {
                self.violate(format!("push {element} is in only one of {place:?} and {other:?}"));
            }
        }
    }

    /// Records that a push was acknowledged when its worker knew this history.
    fn acknowledge(&mut self, element: usize, history: u64) {
        self.pushes[element - 1].is_acknowledged = true;
        let later = self.restored.range(history + 1..).flat_map(|(_, restored)| restored.values());
        if later.into_iter().any(|pushes| !pushes.contains(&element)) {
            self.lost.insert(element);
        }
    }

    fn take_effect(&mut self, place: Place, together: Vec<usize>) {
        let effects = self.effects.entry(place).or_default();
        if let Some(element) =
            together.iter().find(|element| effects.iter().flatten().any(|other| other == *element))
        {
            let text = format!("push {element} took effect twice at {place:?}");
            self.violation.get_or_insert(text);
        }
        effects.push(together);
    }

    /// Returns whether every part that has been changed has gone back as often as the others.
    fn is_settled(&self) -> bool {
        let newest = self.restored.last_key_value();
        newest.is_none_or(|(_, newest)| self.effects.keys().all(|place| newest.contains_key(place)))
    }

    fn check_final(&mut self) {
        if !self.is_settled() {
            self.violate("only some of the servers have gone back".to_owned());
        }
        let set =
            |effects: &Effects| effects.iter().flatten().copied().collect::<BTreeSet<usize>>();
        let sets = self.effects.iter().map(|(place, effects)| (*place, set(effects)));
        let sets: Vec<_> = sets.collect();
        let Some((first, pushes)) = sets.first().cloned() else { return };
        for (other, found) in &sets {
            self.compare((first, &pushes), (*other, found));
        }
        let is_missing = |(element, push): &(usize, &Push)| {
            push.is_acknowledged && !self.lost.contains(element) && !pushes.contains(element)
        };
        if let Some((element, _)) = (1..).zip(&self.pushes).find(is_missing) {
            self.violate(format!("push {element} was acknowledged, but is missing at the end"));
        }
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "processes: {:?}", self.processes)?;
        for (element, push) in (1..).zip(&self.pushes) {
            writeln!(f, "push {element}: {push:?}")?;
        }
        for (by, restored) in &self.restored {
            writeln!(f, "restored by {by}: {restored:?}")?;
        }
        for (place, effects) in &self.effects {
            writeln!(f, "pushes at {place:?}: {effects:?}")?;
        }
        writeln!(f, "lost: {:?}", self.lost)
    }
}

impl Checked for Recorded {
    fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    fn count(&self, outcomes: &mut BTreeMap<String, usize>) {
        let mut add = |what: &str, num| *outcomes.entry(what.to_owned()).or_default() += num;
        add("process", self.processes.len());
        add("killed server", self.num_crashes);
        add("killed worker", self.processes.len() - NUM_WORKERS);
        add("rewind", self.restored.len());
        add("push acknowledged", self.pushes.iter().filter(|push| push.is_acknowledged).count());
        add("push late", self.pushes.iter().filter(|push| push.is_late).count());
        add("push lost", self.lost.len());
    }
}

/// The recovery points of a server.
type Points = Arc<Mutex<BTreeMap<u64, Point>>>;

struct Simulation {
    schedule: Schedule,
    recorded: Mutex<Recorded>,
    points: Vec<Points>,
}

impl Simulation {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a point with keys that all servers have.
    fn has_common_point(&self) -> bool {
        let numbers = self.points.iter().map(|points| {
            let points = points.lock().unwrap();
            let with_keys = points.iter().filter(|(_, point)| !point.contents.is_empty());
            with_keys.map(|(number, _)| *number).collect::<BTreeSet<u64>>()
        });
        numbers.reduce(|left, right| &left & &right).is_some_and(|common| !common.is_empty())
    }
}

fn index(key: &str) -> usize {
    KEYS.iter().position(|known| *known == key).unwrap()
}

/// Serves until the host crashes. The first server leads the others.
async fn serve(simulation: Arc<Simulation>, server: usize) -> turmoil::Result {
    let incoming = network::listen().await?;
    let store = Arc::new(LocalStore::new("local", backends().clone()).unwrap());
    let number = {
        let mut recorded = simulation.recorded();
        recorded.num_runs += 1;
        recorded.num_runs * 1_000_000
    };
    let others = if server == 0 { 1..simulation.schedule.num_servers } else { 0..0 };
    let keep_alive = simulation.schedule.keep_alive;
    let followers = others.map(|server| network::follower(server, keep_alive)).collect();
    let shared = Arc::downgrade(&simulation);
    let add = move |key: &Key, pushed: &Tensor, value: &mut Tensor| {
        let (pushed, mut sum) = (pushed.to_vec::<f32>()?, value.to_vec::<f32>()?);
        for (sum, pushed) in sum.iter_mut().zip(&pushed) {
            *sum += pushed;
        }
        let elements = (1..PART).filter(|element| pushed[*element] != 0.0);
        if let Some(simulation) = shared.upgrade() {
            let place = (server, index(key.as_str()));
            simulation.recorded().take_effect(place, elements.collect());
        }
        *value = Tensor::from_slice(backends(), Device::cpu(0), [PART], &sum)?;
        Ok(())
    };
    store.set_updater(Some(Arc::new(add)))?;
    let points = Arc::clone(&simulation.points[server]);
    let points = PointStore::Memory(points, simulation.schedule.disks[server].clone());
    let points = Some((points, simulation.schedule.every));
    let shared = Arc::downgrade(&simulation);
    let begin = move |service: &Service| {
        let by = service.recovery.as_ref().map_or(0, |recovery| recovery.rewound_by());
        if let Some(simulation) = shared.upgrade().filter(|_| by != 0) {
            let store = service.holder.contents().store();
            for key in store.keys().unwrap() {
                let place = (server, index(key.as_str()));
                let value = store.pull(&[key], 0).unwrap()[0].to_vec::<f32>().unwrap();
                simulation.recorded().restore(by, place, &value);
            }
        }
    };
    let group = Group::new(LEASE, number);
    let runs = runs(store, (group, number), (points, followers), Box::new(begin));
    drop(simulation);
    serve_runs(runs, incoming).await;
    Ok(())
}

/// Makes calls in a thread, until it ends.
async fn work(simulation: Arc<Simulation>, slot: usize) -> turmoil::Result {
    run_thread(move |driver| {
        // Without a result, the host has crashed.
        let _ = push_often(&simulation, slot, &driver);
    })
    .await;
    Ok(())
}

/// Joins, pushes and leaves. Returns `None` if the host crashes.
fn push_often(simulation: &Simulation, slot: usize, driver: &Driver) -> Option<()> {
    let schedule = &simulation.schedule;
    let process = simulation.recorded().begin_process(slot);
    let mut random = Random::new(schedule.seed ^ (process as u64) << 32);
    sleep(driver, random.millis(0, 200))?;
    let addresses: Vec<String> = (0..schedule.num_servers).map(network::address).collect();
    let options = NetStoreOptions::of_servers(addresses.clone())
        .timeout(TIMEOUT)
        .divide_above(PART * size_of::<f32>());
    let options = match schedule.rounds {
        None => options,
        Some((grace, late)) => options.quorum(1).grace(grace).late(late),
    };
    let member = (NAMES[slot], process as u64);
    let store = loop {
        match join_all(driver, member, (&addresses, &options), schedule.keep_alive) {
            Ok(store) => break store,
            // The name belongs to the process before, until its lease ends.
            Err(_) => sleep(driver, LEASE / 4)?,
        }
    };
    let keys = KEYS.map(|key| Key::new(key).unwrap());
    while store.init_with(&keys, &values(schedule, &[]), OnExisting::Keep).is_err() {
        sleep(driver, Duration::from_millis(30))?;
    }
    for _ in 0..schedule.num_pushes {
        push(simulation, (&store, &keys), driver, process)?;
        sleep(driver, random.millis(0, 100))?;
    }
    drop(store);
    Some(())
}

/// Returns values with these numbers at these positions of every part.
fn values(schedule: &Schedule, numbers: &[(usize, f32)]) -> Vec<Value> {
    let value = |key| {
        let num_parts = if key == 0 { schedule.num_servers } else { 1 };
        value_of_parts(num_parts, PART, numbers)
    };
    (0..KEYS.len()).map(value).collect()
}

fn push(
    simulation: &Simulation,
    (store, keys): (&NetStore, &[Key]),
    driver: &Driver,
    process: usize,
) -> Option<()> {
    let element = simulation.recorded().begin_push(process);
    let values = values(&simulation.schedule, &[(0, mark(element)), (element, 1.0)]);
    let pushed = store.push(keys, &values, 0);
    // A host that has crashed has no time.
    now(driver)?;
    let mut recorded = simulation.recorded();
    match pushed {
        Ok(()) => recorded.acknowledge(element, store.history()),
        Err(error) if error.code() == ErrorCode::LatePush && recorded.has_rounds => {
            recorded.pushes[element - 1].is_late = true;
        }
        Err(error) => recorded.violate(format!("push {element}: {error}")),
    }
    Some(())
}

fn happen(event: Event, simulation: &Simulation, sim: &mut Sim<'_>) {
    let server_host = network::server_host;
    match event {
        // Before, the contents of a server would be lost.
        Event::CrashServer(_) if !simulation.has_common_point() => {}
        Event::CrashServer(server) => {
            simulation.recorded().num_crashes += 1;
            sim.crash(server_host(server));
        }
        Event::StartServer(server) if sim.is_host_running(server_host(server)) => {}
        Event::StartServer(server) => sim.bounce(server_host(server)),
        Event::Crash(worker) => sim.crash(host(worker)),
        Event::Start(worker) => sim.bounce(host(worker)),
        Event::Partition(server, other) => sim.partition(other.host(), server_host(server)),
        Event::Repair(server, other) => sim.repair(other.host(), server_host(server)),
        Event::Hold(server, other) => sim.hold(other.host(), server_host(server)),
        Event::Release(server, other) => sim.release(other.host(), server_host(server)),
    }
}

/// Runs the schedule of a seed, until a promise is broken.
fn simulate(seed: u64) -> Recorded {
    let _alone = alone();
    align_tasks();
    let schedule = Schedule::new(seed);
    let mut sim = hosts(seed, schedule.max_latency);
    let recorded = Recorded { has_rounds: schedule.rounds.is_some(), ..Recorded::default() };
    let points = (0..schedule.num_servers).map(|_| Points::default()).collect();
    let simulation = Arc::new(Simulation { schedule, recorded: Mutex::new(recorded), points });
    for server in 0..simulation.schedule.num_servers {
        let shared = Arc::clone(&simulation);
        sim.host(network::server_host(server), move || serve(Arc::clone(&shared), server));
    }
    for worker in 0..NUM_WORKERS {
        let shared = Arc::clone(&simulation);
        sim.host(host(worker), move || work(Arc::clone(&shared), worker));
    }
    let has_finished = run(
        &mut sim,
        (&simulation.schedule.events[..], LAST),
        |event, sim| happen(event, &simulation, sim),
        |text| {
            if let Some(text) = text {
                simulation.recorded().violate(text);
            }
            simulation.recorded().violation.is_some()
        },
    );
    if has_finished {
        // Servers may still be going back when the last worker ends.
        for _ in 0..LAST - QUIET {
            if simulation.recorded().is_settled() {
                break;
            }
            sim.step().expect("no worker runs");
        }
        simulation.recorded().check_final();
    }
    drop(sim);
    let simulation = Arc::into_inner(simulation).expect("no process runs");
    simulation.recorded.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn servers_go_back_to_the_same_moment_in_every_schedule() {
    let kept = [558, 1700, 2437, 3617, 4581, 4877, 7109, 9453].map(|found| Kept(found, &[]));
    check_kills(check((&kept, NUM_SCHEDULES), Schedule::new, simulate), 200);
}

#[test]
fn a_seed_repeats_a_simulation_with_cuts() {
    let _quiet = needs_quiet();
    for seed in 0..20 {
        check_repetition(seed, simulate);
    }
}

#[test]
fn planted_faults_of_cuts_are_found() {
    find(&Fault::OF_CUTS, 10 * NUM_SCHEDULES, |seed| simulate(seed).violation().cloned());
}

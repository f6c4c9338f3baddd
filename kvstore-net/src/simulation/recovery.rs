//! Simulation of a server that continues from recovery points: it crashes and restarts, again and
//! again, while workers push, crash and lose their connections.
//!
//! As in the other simulations, each push adds 1 to an element of its own. The first element has a
//! sum that depends on the order of the pushes. What is checked:
//! - A restarted server has the first pushes of its earlier run, with their bits.
//! - No push takes effect twice, apart from those that the server has lost.
//! - Every push succeeds: no crash of the server makes a worker fail, only a late push to a round.
//! - A pull returns the first pushes, among them all that had taken effect when it began.
//! - All workers finish, and the last value is the sum of the pushes in their order, bit by bit.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::{Device, Error, Key, KvStore, LocalStore, Tensor, Value};

use super::checked::Checked;
use super::effects::prefix;
use super::history::{NUM_ELEMENTS, mark};
use super::schedule::{LEASE, NUM_WORKERS, QUIET, Random};
use super::server::{runs, serve_runs};
use super::{Event, align_tasks, alone, backends, happen_to, host, hosts, key, network, run};
use crate::certificates::Security;
use crate::client::connection::{Answer, Call, Connection};
use crate::client::membership::Target;
use crate::faults::Fault;
use crate::proto;
use crate::proto::request::Verb;
use crate::quiet::needs_quiet;
use crate::server::group::Group;
use crate::server::recovery::{Disk, Point, PointStore};
use crate::server::service::Service;
use crate::simulation::tests::{check, check_kills, check_repetition, find};
use crate::wire::{Elements, value_of};

/// The number of schedules of an ordinary test run.
const NUM_SCHEDULES: u64 = 150;

/// The last step of a simulation in which a worker does not finish.
const LAST: usize = QUIET + 5000;

/// Longer than a simulation: calls wait for the server.
const TIMEOUT: Duration = Duration::from_secs(100);

const NAMES: [&str; NUM_WORKERS] = ["a", "b", "c"];

/// What happens in a simulation.
#[derive(Clone, Debug)]
struct Schedule {
    seed: u64,
    max_latency: Duration,
    /// How often the server makes a point.
    every: Duration,
    /// The number of pushes of each process.
    num_pushes: usize,
    rounds: Option<proto::RoundPush>,
    events: Vec<(usize, Event)>,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut events = Vec::new();
        let mut step = random.step(10, 80);
        while step < QUIET - 60 {
            events.push((step, Event::CrashServer));
            step += random.step(2, 50);
            events.push((step, Event::StartServer));
            step += random.step(10, 120);
        }
        for worker in 0..NUM_WORKERS {
            if random.one_in(2) {
                let crash = random.step(10, 200);
                events.push((crash, Event::Crash(worker)));
                events.push((crash + random.step(2, 100), Event::Start(worker)));
            }
            if random.one_in(2) {
                let begin = random.step(5, 250);
                let (event, end) = if random.one_in(2) {
                    (Event::Partition(worker), Event::Repair(worker))
                } else {
                    (Event::Hold(worker), Event::Release(worker))
                };
                events.push((begin, event));
                events.push((begin + random.step(2, 80), end));
            }
        }
        events.sort_by_key(|(step, _)| *step);
        let rounds = random.one_in(2).then(|| proto::RoundPush {
            min: 1,
            grace_ms: random.between(0, 3) * 40,
            late: i32::from(random.one_in(2)),
            weight: None,
        });
        Self {
            seed,
            max_latency: random.millis(5, 40),
            every: random.millis(5, 200),
            num_pushes: random.step(6, 14),
            rounds,
            events,
        }
    }
}

/// The pushes that were added together.
type Effects = Vec<Vec<usize>>;

/// What the processes and the server did.
#[derive(Debug, Default)]
struct Recorded {
    /// The name of each process.
    processes: Vec<&'static str>,
    /// The process of each push, from 1.
    pushers: Vec<usize>,
    /// The number of runs of the server.
    num_runs: usize,
    /// The effects in the present run, with those of its recovery point.
    effects: Effects,
    /// Those of the runs before, when they ended.
    earlier: Vec<Effects>,
    /// The number of pushes that the server has lost.
    num_lost: usize,
    num_acknowledged: usize,
    num_late: usize,
    violation: Option<String>,
}

impl Recorded {
    fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    fn begin_process(&mut self, name: &'static str) -> usize {
        self.processes.push(name);
        self.processes.len()
    }

    fn begin_push(&mut self, process: usize) -> usize {
        self.pushers.push(process);
        assert!(self.pushers.len() < NUM_ELEMENTS, "more pushes than elements");
        self.pushers.len()
    }

    fn name(&self, element: usize) -> &'static str {
        self.processes[self.pushers[element - 1] - 1]
    }

    /// Returns how many of the effects a value has, if it has the first ones.
    fn prefix(&self, effects: &[Vec<usize>], value: &[f32]) -> Option<usize> {
        prefix(effects, value, |element| self.name(element))
    }

    /// Begins a run of the server with this value.
    fn begin_run(&mut self, value: &[f32]) {
        self.num_runs += 1;
        let before = std::mem::take(&mut self.effects);
        match self.prefix(&before, value) {
            Some(kept) => {
                self.effects = before[..kept].to_vec();
                self.num_lost += before[kept..].iter().flatten().count();
            }
            None => self.violate(format!("run {} begins with another value", self.num_runs)),
        }
        self.earlier.push(before);
    }

    fn take_effect(&mut self, together: Vec<usize>) {
        for element in &together {
            if self.effects.iter().flatten().any(|other| other == element) {
                self.violate(format!("push {element} took effect twice"));
            }
        }
        self.effects.push(together);
    }

    /// Checks a pulled value. `begun` is the run and the number of effects when the pull began.
    fn check_pulled(&mut self, (run, num_effects): (usize, usize), value: &[f32]) {
        let runs = self.earlier.iter().skip(run).chain([&self.effects]);
        let found: Vec<_> = runs.map(|effects| self.prefix(effects, value)).collect();
        let first = found.first().copied().flatten();
        let is_valid = first.is_some_and(|num| num >= num_effects)
            || found.iter().skip(1).any(Option::is_some);
        if !is_valid {
            self.violate(format!("a pull after {num_effects} effects of run {run} has {first:?}"));
        }
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "processes: {:?}, pushes: {:?}", self.processes, self.pushers)?;
        for (run, effects) in self.earlier.iter().skip(1).chain([&self.effects]).enumerate() {
            writeln!(f, "pushes of run {}: {effects:?}", run + 1)?;
        }
        Ok(())
    }
}

impl Checked for Recorded {
    fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    fn count(&self, outcomes: &mut BTreeMap<String, usize>) {
        let mut add = |what: &str, num| *outcomes.entry(what.to_owned()).or_default() += num;
        add("process", self.processes.len());
        add("killed server", self.num_runs - 1);
        add("killed worker", self.processes.len() - NUM_WORKERS);
        add("push acknowledged", self.num_acknowledged);
        add("push late", self.num_late);
        add("push lost", self.num_lost);
        add("round with several members", self.effects.iter().filter(|one| one.len() > 1).count());
    }
}

struct Simulation {
    schedule: Schedule,
    recorded: Mutex<Recorded>,
    points: Arc<Mutex<BTreeMap<u64, Point>>>,
    store: Mutex<Option<Arc<LocalStore>>>,
}

impl Simulation {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn vector(elements: &[f32; NUM_ELEMENTS]) -> Tensor {
    Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], elements).unwrap()
}

fn stored(store: &LocalStore) -> Vec<f32> {
    store.pull(&[key()], 0).unwrap()[0].to_vec().unwrap()
}

/// Serves the store until the host crashes.
async fn serve(simulation: Arc<Simulation>) -> turmoil::Result {
    let incoming = network::listen().await?;
    let store = Arc::new(LocalStore::new("local", backends().clone()).unwrap());
    let points = PointStore::Memory(Arc::clone(&simulation.points), Disk::default());
    let is_first = simulation.points.lock().unwrap().is_empty();
    let number = (simulation.recorded().num_runs as u64 + 1) * 1_000_000;
    let shared = Arc::downgrade(&simulation);
    let add = move |_: &Key, pushed: &Tensor, value: &mut Tensor| {
        let (pushed, mut sum) = (pushed.to_vec::<f32>()?, value.to_vec::<f32>()?);
        for (sum, pushed) in sum.iter_mut().zip(&pushed) {
            *sum += pushed;
        }
        let elements = (1..NUM_ELEMENTS).filter(|element| pushed[*element] != 0.0);
        if let Some(simulation) = shared.upgrade() {
            simulation.recorded().take_effect(elements.collect());
        }
        *value = Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], &sum)?;
        Ok(())
    };
    store.set_updater(Some(Arc::new(add)))?;
    if is_first {
        store.init(&[key()], &[vector(&[0.0; NUM_ELEMENTS]).into()])?;
    }
    *simulation.store.lock().unwrap() = Some(Arc::clone(&store));
    let (shared, held) = (Arc::clone(&simulation), Arc::clone(&store));
    let points = Some((points, simulation.schedule.every));
    let begin = move |_: &Service| shared.recorded().begin_run(&stored(&held));
    let group = Group::new(LEASE, number);
    let runs = runs(store, (group, number), (points, Vec::new()), Box::new(begin));
    if let Some(recovery) = runs.service().recovery {
        recovery.save().await;
    }
    serve_runs(runs, incoming).await;
    Ok(())
}

/// Joins and pushes, and checks what it pulls.
async fn work(simulation: Arc<Simulation>, worker: usize) -> turmoil::Result {
    let mut random = Random::new(simulation.schedule.seed ^ (worker as u64 + 1) << 40);
    let name = NAMES[worker];
    let process = simulation.recorded().begin_process(name);
    tokio::time::sleep(random.millis(0, 200)).await;
    let connection = loop {
        let target = Target {
            server: network::address(0),
            place: (0, 1),
            name: name.to_owned(),
            process: process as u64,
            is_reader: false,
            route: None,
            timeout: TIMEOUT,
            connections: NonZeroUsize::MIN,
            security: Security { is_insecure: true, ..Security::default() },
            operations: Arc::default(),
        };
        let channel = network::channel(&target, LEASE / 2);
        match Connection::join(target, vec![channel]).await {
            Ok(connection) => break connection,
            // The name belongs to the process before, until its lease ends.
            Err(Error::InvalidArgument(_)) => tokio::time::sleep(LEASE / 4).await,
            Err(error) => {
                simulation.recorded().violate(format!("`{name}` cannot join: {error}"));
                return Ok(());
            }
        }
    };
    for _ in 0..simulation.schedule.num_pushes {
        push(&simulation, &connection, process).await;
        pull(&simulation, &connection).await;
        tokio::time::sleep(random.millis(0, 80)).await;
    }
    connection.left().await;
    Ok(())
}

async fn push(simulation: &Simulation, connection: &Arc<Connection>, process: usize) {
    let element = simulation.recorded().begin_push(process);
    let mut pushed = [0.0; NUM_ELEMENTS];
    (pushed[0], pushed[element]) = (mark(element), 1.0);
    let mut elements = Elements::default();
    let value = value_of(&key(), &Value::Dense(vector(&pushed)), &mut elements).unwrap();
    let round = simulation.schedule.rounds;
    let verb = Verb::Push(proto::Push { values: vec![value], round, ..Default::default() });
    let pushed = call(connection, verb, elements, true).await;
    let mut recorded = simulation.recorded();
    match pushed {
        Ok(_) => {
            recorded.num_acknowledged += 1;
            let runs = recorded.earlier.iter().chain([&recorded.effects]);
            let had_effect = runs.flatten().flatten().any(|other| *other == element);
            if !had_effect {
                recorded.violate(format!("push {element} was acknowledged without an effect"));
            }
        }
        Err(Error::LatePush { .. }) if round.is_some() => recorded.num_late += 1,
        Err(error) => recorded.violate(format!("push {element}: {error}")),
    }
}

async fn pull(simulation: &Simulation, connection: &Arc<Connection>) {
    let begun = {
        let recorded = simulation.recorded();
        (recorded.num_runs, recorded.effects.len())
    };
    let keys = vec![key().as_str().to_owned()];
    let verb = Verb::Pull(proto::Pull { keys, ..proto::Pull::default() });
    let pulled = call(connection, verb, Elements::default(), false).await;
    let mut recorded = simulation.recorded();
    match pulled {
        Ok(answer) => {
            let value = answer.values[0].to_dense().unwrap().to_vec::<f32>().unwrap();
            recorded.check_pulled(begun, &value);
        }
        Err(error) => recorded.violate(format!("pull: {error}")),
    }
}

async fn call(
    connection: &Arc<Connection>,
    verb: Verb,
    elements: Elements,
    changes: bool,
) -> Result<Answer, Error> {
    let call = Call { trace: None, joint: None, verb, elements, changes, what: "call".to_owned() };
    Arc::clone(connection).call(backends().clone(), call).await
}

/// Runs the schedule of a seed, until a promise is broken.
fn simulate(seed: u64) -> Recorded {
    let _alone = alone();
    align_tasks();
    let schedule = Schedule::new(seed);
    let mut sim = hosts(seed, schedule.max_latency);
    let simulation = Arc::new(Simulation {
        schedule,
        recorded: Mutex::default(),
        points: Arc::default(),
        store: Mutex::default(),
    });
    let shared = Arc::clone(&simulation);
    sim.host(network::server_host(0), move || serve(Arc::clone(&shared)));
    for worker in 0..NUM_WORKERS {
        let shared = Arc::clone(&simulation);
        sim.host(host(worker), move || work(Arc::clone(&shared), worker));
    }
    let has_finished = run(&mut sim, (&simulation.schedule.events, LAST), happen_to, |text| {
        if let Some(text) = text {
            simulation.recorded().violate(text);
        }
        simulation.recorded().violation.is_some()
    });
    if has_finished && let Some(store) = simulation.store.lock().unwrap().take() {
        let value = stored(&store);
        let mut recorded = simulation.recorded();
        if recorded.prefix(&recorded.effects, &value) != Some(recorded.effects.len()) {
            recorded.violate("the last value is not that of the pushes in their order".to_owned());
        }
    }
    drop(sim);
    let simulation = Arc::into_inner(simulation).expect("no process runs");
    simulation.recorded.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn servers_that_continue_keep_their_promises_in_every_schedule() {
    check_kills(check((&[], NUM_SCHEDULES), Schedule::new, simulate), 500);
}

#[test]
fn a_seed_repeats_a_simulation_with_recovery() {
    let _quiet = needs_quiet();
    for seed in 0..30 {
        check_repetition(seed, simulate);
    }
}

#[test]
fn planted_faults_of_recovery_are_found() {
    find(&Fault::OF_RECOVERY, 10 * NUM_SCHEDULES, |seed| simulate(seed).violation().cloned());
}

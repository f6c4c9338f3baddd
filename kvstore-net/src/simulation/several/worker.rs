//! The processes of the workers: random calls of [`NetStore`].

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Device, Error, Key, KvStore, OnExisting, Result, Tensor, Value};

use super::Simulation;
use super::history::{self, Kind, LARGE, PART, Reply};
use crate::certificates::Security;
use crate::client::connection::Connection;
use crate::client::driver::Driver;
use crate::client::membership::Target;
use crate::client::servers::Servers;
use crate::client::{NetStore, NetStoreOptions};
use crate::simulation::process::{now, run_thread, sleep};
use crate::simulation::schedule::{QUIET, Random, STEP};
use crate::simulation::{backends, network};

/// Makes calls in a thread, until it ends.
pub(super) async fn run(simulation: Arc<Simulation>, slot: usize) -> turmoil::Result {
    run_thread(move |driver| {
        // Without a result, the host has crashed.
        let _ = work(simulation, slot, driver);
    })
    .await;
    Ok(())
}

/// A store of a process.
struct Worker {
    simulation: Arc<Simulation>,
    driver: Driver,
    store: NetStore,
    process: u64,
}

/// Joins, makes calls and leaves. Returns `None` if the host crashes.
fn work(simulation: Arc<Simulation>, slot: usize, driver: Driver) -> Option<()> {
    let process = simulation.history().begin_process();
    let mut random = Random::new(simulation.schedule.seed ^ (process << 32));
    sleep(&driver, random.millis(0, 200))?;
    let worker = join(simulation, slot, driver, process)?;
    for _ in 0..worker.simulation.schedule.num_calls {
        worker.step(&mut random)?;
        sleep(&worker.driver, random.millis(0, 60))?;
    }
    let quiet = STEP * u32::try_from(QUIET).unwrap() + Duration::from_secs(1);
    sleep(&worker.driver, quiet.saturating_sub(now(&worker.driver)?))?;
    // Everything is connected now.
    worker.simulation.history().begin_end(process);
    let keys = [history::own_key(slot)];
    worker.init(&keys, OnExisting::Replace)?;
    worker.push(&keys)?;
    worker.pull(&keys)?;
    if worker.simulation.schedule.has_snapshots() {
        worker.snapshot(&keys, Duration::from_millis(300))?;
    }
    worker.init(&[LARGE, history::SMALL], OnExisting::Keep)
}

/// Joins the groups of all servers, and tries again after a failure.
fn join(simulation: Arc<Simulation>, slot: usize, driver: Driver, process: u64) -> Option<Worker> {
    let schedule = &simulation.schedule;
    let addresses: Vec<String> = (0..schedule.num_servers).map(network::address).collect();
    let options = NetStoreOptions::of_servers(addresses.clone())
        .timeout(schedule.timeout)
        .divide_above(PART * size_of::<f32>());
    loop {
        let targets = addresses.iter().zip(0..).map(|(server, index)| Target {
            server: server.clone(),
            route: None,
            place: (index, u32::try_from(addresses.len()).unwrap()),
            name: format!("worker-{slot}"),
            process,
            is_reader: false,
            timeout: schedule.timeout,
            connections: NonZeroUsize::MIN,
            security: Security { is_insecure: true, ..Security::default() },
            operations: Arc::default(),
        });
        let keep_alive = schedule.keep_alive;
        let open = move |target: Target| async move {
            let channel = network::channel(&target, keep_alive);
            Connection::join(target, vec![channel]).await
        };
        match Servers::join(backends(), driver.clone(), targets.collect(), open) {
            Ok(servers) => {
                let store = NetStore::on(servers, &options);
                return Some(Worker { simulation, driver, store, process });
            }
            // Without time, the host has crashed.
            Err(_) => sleep(&driver, Duration::from_millis(50))?,
        }
    }
}

impl Worker {
    fn step(&self, random: &mut Random) -> Option<()> {
        let keys: &[usize] = match random.between(0, 3) {
            0 => &[history::SMALL],
            1 => &[LARGE, history::SMALL],
            _ => &[LARGE],
        };
        match random.between(0, 11) {
            0 | 1 => self.init(keys, OnExisting::Keep),
            2 => self.init(keys, OnExisting::Reject),
            3 => self.init(keys, OnExisting::Replace),
            4 => self.remove(keys),
            5..=7 => self.pull(keys),
            8 if self.simulation.schedule.has_snapshots() => {
                self.snapshot(keys, random.millis(0, 300))
            }
            _ => self.push(keys),
        }
    }

    fn init(&self, keys: &[usize], existing: OnExisting) -> Option<()> {
        let generation = self.simulation.history().begin_generation();
        self.call(Kind::Init { generation, existing }, keys, |keys, values| {
            self.store.init_with(keys, &values(0, generation), existing)?;
            Ok(Reply::Nothing)
        })
    }

    fn push(&self, keys: &[usize]) -> Option<()> {
        let element = self.simulation.history().begin_push();
        self.call(Kind::Push { element }, keys, |keys, values| {
            self.store.push(keys, &values(element, 1), 0)?;
            Ok(Reply::Nothing)
        })
    }

    fn pull(&self, keys: &[usize]) -> Option<()> {
        self.call(Kind::Pull, keys, |keys, _| {
            let pulled = self.store.pull(keys, 0)?;
            pulled.iter().map(Tensor::to_vec).collect::<Result<_>>().map(Reply::Values)
        })
    }

    /// Takes a snapshot and reads keys twice.
    fn snapshot(&self, keys: &[usize], pause: Duration) -> Option<()> {
        self.call(Kind::Snapshot, keys, |keys, _| {
            let snapshot = self.store.snapshot()?;
            let read = || {
                let read = |key: &Key| {
                    let value = snapshot.get(key)?;
                    let missing = || Error::KeyNotFound { key: key.clone() };
                    value.ok_or_else(missing)?.to_dense()?.to_vec::<f32>()
                };
                keys.iter().map(read).collect::<Result<Vec<_>>>()
            };
            let first = read()?;
            self.driver.wait(async move { tokio::time::sleep(pause).await })?;
            let second = read()?;
            if first != second {
                let mut history = self.simulation.history();
                history.violate(format!("a snapshot of {keys:?} has changed"));
            }
            Ok(Reply::Values(first))
        })
    }

    fn remove(&self, keys: &[usize]) -> Option<()> {
        self.call(Kind::Remove, keys, |keys, _| {
            self.store.remove(keys)?;
            Ok(Reply::Nothing)
        })
    }

    /// Makes a call and records it. `call` gets a function that makes values with a number at a
    /// position in every part.
    fn call(
        &self,
        kind: Kind,
        indices: &[usize],
        call: impl FnOnce(&[Key], &dyn Fn(usize, usize) -> Vec<Value>) -> Result<Reply>,
    ) -> Option<()> {
        let keys: Vec<Key> = indices.iter().map(|key| history::key(*key)).collect();
        let num_servers = self.simulation.schedule.num_servers;
        let values = |position: usize, number: usize| {
            let value = |key: &usize| {
                let num_parts = if history::is_divided(*key) { num_servers } else { 1 };
                let mut elements = vec![0.0_f32; num_parts * PART];
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                elements.chunks_mut(PART).for_each(|part| part[position] = number as f32);
                let shape = [elements.len()];
                let value = Tensor::from_slice(backends(), Device::cpu(0), shape, &elements);
                Value::Dense(value.unwrap())
            };
            indices.iter().map(value).collect()
        };
        let start = now(&self.driver)?;
        let number = self.simulation.history().begin(self.process, kind, indices, start);
        let result = call(&keys, &values);
        // A host that has crashed has no time, and its calls never end.
        let end = now(&self.driver)?;
        self.simulation.history().end(number, end, &result);
        Some(())
    }
}

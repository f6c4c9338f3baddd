//! The processes of the workers: random pushes and pulls of a [`NetStore`] with rounds.

use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{ErrorCode, Key, KvStore, OnExisting, Value};

use super::Simulation;
use super::history::{self, KEYS, PART};
use crate::client::driver::Driver;
use crate::client::{NetStore, NetStoreOptions};
use crate::simulation::effects::value_of_parts;
use crate::simulation::history::mark;
use crate::simulation::network;
use crate::simulation::process::{join_all, now, run_thread, sleep};
use crate::simulation::schedule::{QUIET, Random, STEP};

/// How often a worker tries to push at the end.
const NUM_LAST: usize = 12;

/// Makes calls in a thread, until it ends.
pub(super) async fn run(simulation: Arc<Simulation>, slot: usize) -> turmoil::Result {
    run_thread(move |driver| {
        // Without a result, the host has crashed.
        let _ = work(&simulation, slot, &driver);
    })
    .await;
    Ok(())
}

/// A store of a process.
struct Worker<'a> {
    simulation: &'a Simulation,
    driver: &'a Driver,
    store: NetStore,
    process: u64,
}

/// Joins, makes calls and leaves. Returns `None` if the host crashes.
fn work(simulation: &Simulation, slot: usize, driver: &Driver) -> Option<()> {
    let process = simulation.history().begin_process(slot);
    let mut random = Random::new(simulation.schedule.seed ^ (process << 32));
    sleep(driver, random.millis(0, 200))?;
    let worker = join(simulation, slot, driver, process)?;
    worker.init(OnExisting::Keep)?;
    for _ in 0..simulation.schedule.num_calls {
        if random.one_in(3) {
            worker.pull()?;
        } else {
            worker.push()?;
        }
        sleep(driver, random.millis(0, 60))?;
    }
    let quiet = STEP * u32::try_from(QUIET).unwrap() + Duration::from_secs(1);
    sleep(driver, quiet.saturating_sub(now(driver)?))?;
    // Everything is connected now.
    for _ in 0..NUM_LAST {
        worker.pull()?;
        if worker.push()? {
            return Some(());
        }
        sleep(driver, random.millis(0, 60))?;
    }
    if simulation.schedule.min == 1 {
        simulation.history().violate(format!("process {process} cannot push at the end"));
    }
    Some(())
}

/// Joins the groups of all servers, and tries again after a failure.
fn join<'a>(
    simulation: &'a Simulation,
    slot: usize,
    driver: &'a Driver,
    process: u64,
) -> Option<Worker<'a>> {
    let schedule = &simulation.schedule;
    let addresses: Vec<String> = (0..schedule.num_servers).map(network::address).collect();
    let options = NetStoreOptions::of_servers(addresses.clone())
        .timeout(schedule.timeout)
        .divide_above(PART * size_of::<f32>())
        .quorum(schedule.min)
        .grace(schedule.grace)
        .late(schedule.late);
    loop {
        let name = &history::name(slot);
        match join_all(driver, (name, process), (&addresses, &options), schedule.keep_alive) {
            Ok(store) => return Some(Worker { simulation, driver, store, process }),
            // Without time, the host has crashed.
            Err(_) => sleep(driver, Duration::from_millis(50))?,
        }
    }
}

impl Worker<'_> {
    fn keys() -> Vec<Key> {
        (0..KEYS).map(history::key).collect()
    }

    /// Returns values with these numbers at these positions of every part.
    fn values(&self, numbers: &[(usize, f32)]) -> Vec<Value> {
        let value = |key| {
            let num_parts =
                if history::is_divided(key) { self.simulation.schedule.num_servers } else { 1 };
            value_of_parts(num_parts, PART, numbers)
        };
        (0..KEYS).map(value).collect()
    }

    fn init(&self, existing: OnExisting) -> Option<()> {
        let values = self.values(&[]);
        // Until the values are on all servers.
        while self.store.init_with(&Self::keys(), &values, existing).is_err() {
            now(self.driver)?;
            sleep(self.driver, Duration::from_millis(30))?;
        }
        now(self.driver).map(drop)
    }

    /// Returns whether the push is acknowledged.
    fn push(&self) -> Option<bool> {
        let element = self.simulation.history().begin_push(self.process, now(self.driver)?);
        let values = self.values(&[(0, mark(element)), (element, 1.0)]);
        let pushed = self.store.push(&Self::keys(), &values, 0);
        // A host that has crashed has no time, and its calls never end.
        let end = now(self.driver)?;
        self.simulation.history().end_push(element, end, &pushed);
        self.restore(pushed.as_ref().err().map(kvstore_core::Error::code))?;
        Some(pushed.is_ok())
    }

    fn pull(&self) -> Option<()> {
        let pulled = self.store.pull(&Self::keys(), 0);
        now(self.driver)?;
        match &pulled {
            Ok(values) => {
                let values = values.iter().map(|value| value.to_vec::<f32>().unwrap());
                self.simulation.history().pulled(self.process, values);
            }
            // Some of the servers may have replied.
            Err(_) => self.simulation.history().pulled_in_part(self.process),
        }
        self.restore(pulled.err().map(|error| error.code()))
    }

    /// Adds the values again if a server has lost them.
    fn restore(&self, failure: Option<ErrorCode>) -> Option<()> {
        if self.simulation.history().has_lost_server()
            && matches!(failure, Some(ErrorCode::KeyNotFound | ErrorCode::Timeout))
        {
            self.init(OnExisting::Replace)?;
        }
        Some(())
    }
}

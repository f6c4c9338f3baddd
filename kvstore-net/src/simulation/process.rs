//! Processes that make calls of [`NetStore`](crate::NetStore).
//!
//! The calls block a thread. Whatever the store waits for is a task, which the process of the
//! simulation runs in simulated time. Meanwhile the thread waits for the task, and otherwise the
//! process waits for the thread. So only one of them runs at any time, and a seed determines what
//! they do.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kvstore_core::Result;

use super::{backends, network};
use crate::certificates::Security;
use crate::client::connection::Connection;
use crate::client::driver::{Driver, Task};
use crate::client::membership::Target;
use crate::client::servers::Servers;
use crate::client::{NetStore, NetStoreOptions};
use crate::faults::Fault;

/// The thread of a process, and the tasks that it waits for.
struct Process {
    /// Dropped first, so that the thread stops waiting.
    tasks: Option<mpsc::Receiver<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.tasks.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || !matches!(ended, Some(Err(_))), "a worker has panicked");
    }
}

/// Runs the tasks of a thread that makes calls, until it ends.
pub(super) async fn run_thread(work: impl FnOnce(Driver) + Send + 'static) {
    let (sender, tasks) = mpsc::channel();
    let planted = Fault::planted();
    let thread = thread::spawn(move || {
        let work = || work(Driver::Simulation(sender));
        match planted {
            Some(fault) => fault.plant(work),
            None => work(),
        }
    });
    let process = Process { tasks: Some(tasks), thread: Some(thread) };
    while let Some(Ok(task)) = process.tasks.as_ref().map(mpsc::Receiver::recv) {
        task.await;
    }
}

/// Joins the groups of all servers. Tests the connections this often.
pub(super) fn join_all(
    driver: &Driver,
    (name, process): (&str, u64),
    (addresses, options): (&[String], &NetStoreOptions),
    keep_alive: Duration,
) -> Result<NetStore> {
    let num_servers = u32::try_from(addresses.len()).unwrap();
    let targets = addresses.iter().zip(0..).map(|(server, index)| Target {
        server: server.clone(),
        place: (index, num_servers),
        name: name.to_owned(),
        process,
        is_reader: false,
        route: None,
        timeout: options.timeout,
        connections: NonZeroUsize::MIN,
        security: Security { is_insecure: true, ..Security::default() },
        operations: Arc::default(),
    });
    let open = move |target: Target| async move {
        let channel = network::channel(&target, keep_alive);
        Connection::join(target, vec![channel]).await
    };
    let servers = Servers::join(backends(), driver.clone(), targets.collect(), open)?;
    Ok(NetStore::on(servers, options))
}

/// Waits. Returns `None` if the host crashes.
pub(super) fn sleep(driver: &Driver, time: Duration) -> Option<()> {
    driver.wait(async move { tokio::time::sleep(time).await }).ok()
}

/// Returns the simulated time, or `None` if the host has crashed.
pub(super) fn now(driver: &Driver) -> Option<Duration> {
    driver.wait(async { turmoil::sim_elapsed() }).ok()?
}

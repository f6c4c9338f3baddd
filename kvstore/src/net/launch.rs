//! Jobs that MXNet's launchers start: environment variables name the role of each process.
//!
//! The scheduler of a job is a server whose store has a key for each server of the job. Workers
//! read the servers from it, and it counts the workers that have joined.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvstore_core::{DType, Device, Error, Key, NDArray, OnExisting, Result};
use kvstore_net::{NetStoreOptions, Server};

use super::connect;
use super::options::of_server;
use crate::arrays::ones;
use crate::environment::{timeout, variable};
use crate::runtime::backends;
use crate::store::Store;

/// The start of the keys that name the servers.
const SERVER: &str = "server ";

/// The key whose pushes count the workers that have joined.
const WORKERS: &str = "workers";

/// How often a process looks whether the others have joined or left.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a worker waits for the other processes by default.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The role of a process in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates a store and trains.
    Worker,
    /// Holds values.
    Server,
    /// Tells workers where the servers are.
    Scheduler,
}

impl Role {
    /// Returns the value of `DMLC_ROLE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Server => "server",
            Self::Scheduler => "scheduler",
        }
    }
}

/// A job of processes that one of MXNet's launchers has started, for example `tools/launch.py`. Its
/// environment variables are those of MXNet:
///
/// | variable | value |
/// |---|---|
/// | `DMLC_ROLE` | `worker` (the default), `server` or `scheduler` |
/// | `DMLC_PS_ROOT_URI`, `DMLC_PS_ROOT_PORT` | the address of the scheduler |
/// | `DMLC_NUM_SERVER`, `DMLC_NUM_WORKER` | the number of servers and of workers |
/// | `DMLC_NODE_HOST` | the address of this machine, found by itself if absent |
///
/// In a worker, [`create`](crate::create) with `dist_async` joins the job. It returns when all
/// servers and workers have joined, as in MXNet. As each worker initialises the keys there, `init`
/// and `broadcast` keep the values of existing keys. The other processes call
/// [`LaunchedJob::serve`].
#[derive(Clone, Debug)]
pub struct LaunchedJob {
    role: Role,
    scheduler: String,
    num_servers: usize,
    num_workers: usize,
    host: Option<String>,
}

impl LaunchedJob {
    /// Returns the job of this process, or `None` if no launcher has started it.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a variable is missing or has no valid value.
    pub fn of_environment() -> Result<Option<Self>> {
        Self::of_variables(variable)
    }

    /// Returns the job that these environment variables describe.
    ///
    /// ```
    /// use kvstore::{LaunchedJob, Role};
    ///
    /// let job = LaunchedJob::of_variables(|name| {
    ///     let value = match name {
    ///         "DMLC_ROLE" => "server",
    ///         "DMLC_PS_ROOT_URI" => "127.0.0.1",
    ///         "DMLC_PS_ROOT_PORT" => "9091",
    ///         "DMLC_NUM_SERVER" | "DMLC_NUM_WORKER" => "2",
    ///         _ => return None,
    ///     };
    ///     Some(value.to_owned())
    /// })?;
    /// assert_eq!(job.map(|job| job.role()), Some(Role::Server));
    /// # Ok::<(), kvstore::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a variable is missing or has no valid value.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let (role, uri) = (variable("DMLC_ROLE"), variable("DMLC_PS_ROOT_URI"));
        if role.is_none() && uri.is_none() {
            return Ok(None);
        }
        let role = match role.as_deref() {
            None | Some("worker") => Role::Worker,
            Some("server") => Role::Server,
            Some("scheduler") => Role::Scheduler,
            Some(other) => {
                return Err(Error::invalid(format!(
                    "DMLC_ROLE: expected `worker`, `server` or `scheduler`, found `{other}`"
                )));
            }
        };
        let required = |name: &str| {
            variable(name).ok_or_else(|| {
                Error::invalid(format!(
                    "{name}: a job of MXNet's launchers needs it, but it is not set"
                ))
            })
        };
        let count = |name: &str| {
            let found = required(name)?;
            let count = found.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| {
                Error::invalid(format!("{name}: expected a whole number above 0, found `{found}`"))
            })
        };
        let scheduler =
            format!("{}:{}", required("DMLC_PS_ROOT_URI")?, required("DMLC_PS_ROOT_PORT")?);
        let (num_servers, num_workers) = (count("DMLC_NUM_SERVER")?, count("DMLC_NUM_WORKER")?);
        let host = variable("DMLC_NODE_HOST");
        Ok(Some(Self { role, scheduler, num_servers, num_workers, host }))
    }

    /// Returns the role of this process.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Runs the server or the scheduler of the job, until all workers have joined and left again.
    /// `prepare` gets the server before workers find it, for example to set an updater; it is not
    /// called for the scheduler. `options` are those of [`serve`](crate::serve), except `address`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this process is a worker.
    /// - The errors of [`serve`](crate::serve) and `prepare`.
    /// - [`Error::Timeout`] if the scheduler does not answer.
    pub fn serve(
        &self,
        options: &[(&str, &str)],
        prepare: impl FnOnce(&Server) -> Result<()>,
    ) -> Result<()> {
        let server = self.start(options)?;
        if self.role == Role::Server {
            prepare(&server)?;
        }
        self.wait(&server)
    }

    /// Starts the server or the scheduler of the job, as [`LaunchedJob::serve`] does. Workers do
    /// not find a server before [`LaunchedJob::wait`].
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this process is a worker.
    /// - The errors of [`serve`](crate::serve).
    pub fn start(&self, options: &[(&str, &str)]) -> Result<Server> {
        let address = match self.role {
            Role::Worker => {
                return Err(Error::invalid("cannot start a server on a worker (DMLC_ROLE)"));
            }
            Role::Scheduler => self.scheduler.clone(),
            Role::Server => SocketAddr::new(self.own_host()?, 0).to_string(),
        };
        let mut options = Vec::from(options);
        options.push(("address", &address));
        Server::start(backends(), &of_server(&options)?)
    }

    /// Lets workers find the server of [`LaunchedJob::start`], and shuts it down when all workers
    /// have joined and left again.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the scheduler does not answer.
    pub fn wait(&self, server: &Server) -> Result<()> {
        match self.role {
            Role::Scheduler => self.schedule(server),
            Role::Server | Role::Worker => self.serve_until_end(server),
        }
    }

    fn schedule(&self, server: &Server) -> Result<()> {
        let store = Store::from(server);
        store.init_with(WORKERS, &one()?, OnExisting::Keep)?;
        while num_joined(&store)? < self.num_workers as u64 || !server.members().is_empty() {
            pause();
        }
        server.shut_down();
        Ok(())
    }

    fn serve_until_end(&self, server: &Server) -> Result<()> {
        let address = server.address();
        let scheduler = self.scheduler()?;
        scheduler.init_with(&format!("{SERVER}{address}"), &one()?, OnExisting::Keep)?;
        while num_joined(&scheduler)? < self.num_workers as u64 || !server.members().is_empty() {
            pause();
        }
        scheduler.leave()?;
        server.shut_down();
        Ok(())
    }

    /// Joins the job as a worker: finds the servers, gets a store from `connect`, and waits until
    /// all workers have one.
    pub(super) fn join(&self, connect: impl FnOnce(Vec<String>) -> Result<Store>) -> Result<Store> {
        /// Whether this process counts as joined. It may create several stores.
        static HAS_JOINED: AtomicBool = AtomicBool::new(false);
        if self.role != Role::Worker {
            return Err(Error::invalid("a store of a job needs a worker (DMLC_ROLE)"));
        }
        let scheduler = self.scheduler()?;
        let start = Instant::now();
        let servers = loop {
            let servers = servers_in(&scheduler)?;
            if servers.len() >= self.num_servers {
                break servers;
            }
            self.wait_since(start, || (servers.len(), self.num_servers, "servers"))?;
        };
        let store = connect(servers)?;
        if !HAS_JOINED.swap(true, Ordering::Relaxed) {
            scheduler.init_with(WORKERS, &one()?, OnExisting::Keep)?;
            scheduler.push(WORKERS, &one()?)?;
        }
        loop {
            let joined = usize::try_from(num_joined(&scheduler)?).unwrap_or(usize::MAX);
            if joined >= self.num_workers {
                break;
            }
            self.wait_since(start, || (joined, self.num_workers, "workers"))?;
        }
        scheduler.leave()?;
        Ok(store)
    }

    /// Waits a moment for other processes.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the wait takes too long.
    fn wait_since(
        &self,
        start: Instant,
        state: impl FnOnce() -> (usize, usize, &'static str),
    ) -> Result<()> {
        if start.elapsed() > timeout()?.unwrap_or(TIMEOUT) {
            let (found, expected, what) = state();
            return Err(Error::Timeout(format!(
                "the job of scheduler `{}`: expected {expected} {what}, found {found}",
                self.scheduler
            )));
        }
        pause();
        Ok(())
    }

    /// Returns the store of the scheduler.
    fn scheduler(&self) -> Result<Store> {
        let options = NetStoreOptions::new(&self.scheduler);
        let store = connect(&timeout()?.into_iter().fold(options, NetStoreOptions::timeout))?;
        store.set_barrier_before_exit(false)?;
        Ok(store)
    }

    /// Returns the address of this machine in the network of the scheduler.
    fn own_host(&self) -> Result<IpAddr> {
        let failed = |error: std::io::Error| Error::Transport {
            operation: format!("cannot find the address of this machine for `{}`", self.scheduler),
            source: error.into(),
        };
        if let Some(host) = &self.host {
            let mut found = (&**host, 0).to_socket_addrs().map_err(failed)?;
            let found = found.next().map(|address| address.ip());
            let text = || format!("DMLC_NODE_HOST: expected an address, found `{host}`");
            return found.ok_or_else(|| Error::invalid(text()));
        }
        let mut found = self.scheduler.to_socket_addrs().map_err(failed)?;
        let missing = || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        let scheduler = found.next().ok_or_else(missing).map_err(failed)?;
        let any = match scheduler {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        // Sends nothing: the system only selects the address from which it would send.
        let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
        socket.connect(scheduler).map_err(failed)?;
        Ok(socket.local_addr().map_err(failed)?.ip())
    }
}

/// Returns the addresses of the servers, in the order in which they have joined.
fn servers_in(scheduler: &Store) -> Result<Vec<String>> {
    let keys = scheduler.keys()?;
    let servers = keys.iter().filter_map(|key| key.as_str().strip_prefix(SERVER));
    Ok(servers.map(str::to_owned).collect())
}

/// Returns how many workers have joined.
fn num_joined(scheduler: &Store) -> Result<u64> {
    match scheduler.version(&Key::new(WORKERS)?) {
        Err(Error::KeyNotFound { .. }) => Ok(0),
        found => found,
    }
}

fn one() -> Result<NDArray> {
    ones([1], DType::F32, Device::cpu(0))
}

#[allow(clippy::disallowed_methods, reason = "looks at another process until it changes")]
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn job(role: &str, port: u16) -> Result<LaunchedJob> {
        let job = LaunchedJob::of_variables(|name| {
            let value = match name {
                "DMLC_ROLE" => role.to_owned(),
                "DMLC_PS_ROOT_URI" => "127.0.0.1".to_owned(),
                "DMLC_PS_ROOT_PORT" => port.to_string(),
                "DMLC_NUM_SERVER" => "2".to_owned(),
                "DMLC_NUM_WORKER" => "1".to_owned(),
                _ => return None,
            };
            Some(value)
        });
        job.map(|job| job.unwrap())
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn a_job_ends_when_its_workers_have_left() {
        let port = free_port();
        let processes: Vec<_> = ["server", "scheduler", "server"]
            .map(|role| thread::spawn(move || job(role, port).unwrap().serve(&[], |_| Ok(()))))
            .into();
        let connect = |servers: Vec<String>| {
            assert_eq!(servers.len(), 2);
            super::connect(&NetStoreOptions::of_servers(servers))
        };
        let store = job("worker", port).unwrap().join(connect).unwrap();
        store.init("w", &one().unwrap()).unwrap();
        assert_eq!(store.num_workers().unwrap(), 1);
        assert!(processes.iter().all(|process| !process.is_finished()));
        drop(store);
        for process in processes {
            process.join().unwrap().unwrap();
        }
    }

    #[test]
    fn variables_that_are_missing_or_wrong_are_named() {
        assert!(LaunchedJob::of_variables(|_| None).unwrap().is_none());
        let text = |wrong: &str, value: Option<&str>| {
            let job = LaunchedJob::of_variables(|name| {
                if name == wrong { value.map(str::to_owned) } else { Some("1".to_owned()) }
                    .filter(|_| name != "DMLC_ROLE" || name == wrong)
            });
            job.unwrap_err().to_string()
        };
        for name in ["DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER"]
        {
            // Without the address of the scheduler and a role, there is no job.
            if name != "DMLC_PS_ROOT_URI" {
                assert!(text(name, None).starts_with(name));
            }
        }
        assert!(text("DMLC_NUM_SERVER", Some("0")).contains("found `0`"));
        assert!(text("DMLC_ROLE", Some("boss")).contains("found `boss`"));
    }

    #[test]
    fn a_worker_cannot_serve() {
        let error = job("worker", 9).unwrap().serve(&[], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("on a worker"), "{error}");
    }
}

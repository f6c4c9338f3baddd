//! Jobs that MXNet's launchers start: environment variables name the role of each process.
//!
//! The scheduler of a job is a server. The servers of the job are its members, with their addresses
//! as names, and its store has a key for each worker that has joined, and one that says that the
//! first server leads the others.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use kvstore_core::{DType, Device, Error, NDArray, OnExisting, Result};
use kvstore_net::{NetStoreOptions, Server};

use super::connect;
use super::options::{find, of_server, protected};
use crate::arrays::ones;
use crate::environment::{timeout, variable};
use crate::runtime::backends;
use crate::store::Store;

/// The start of the name of a server, before its address.
const SERVER: &str = "server ";

/// The start of the key of a worker.
const WORKER: &str = "worker ";

/// The start of the key of the server that leads the others, before its address.
const LEADER: &str = "leader ";

/// The interval between checks for other processes.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a process waits for the others by default.
pub(super) const TIMEOUT: Duration = Duration::from_secs(300);

/// The role of a process in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Creates a store and trains.
    Worker,
    /// Holds values.
    Server,
    /// Reports the addresses of the servers to workers.
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

/// A job that one of MXNet's launchers has started, such as `tools/launch.py`. Its environment
/// variables are those of MXNet:
///
/// | variable | value |
/// |---|---|
/// | `DMLC_ROLE` | `worker` (the default), `server` or `scheduler` |
/// | `DMLC_PS_ROOT_URI`, `DMLC_PS_ROOT_PORT` | the address of the scheduler |
/// | `DMLC_NUM_SERVER`, `DMLC_NUM_WORKER` | the number of servers and of workers |
/// | `DMLC_NODE_HOST` | the address of this machine; by default, that which reaches the scheduler |
/// | `DMLC_TASK_ID` | identifies a worker, also after a restart |
/// | `KVSTORE_CERTIFICATES` | the folder of the [`Certificates`](crate::Certificates), or: |
/// | `KVSTORE_INSECURE` | `1` permits connections without |
///
/// - In a worker, [`create`](crate::create) with `dist_async` returns when all servers and workers
///   have joined.
/// - `init` and `broadcast` keep the values of existing keys, because every worker calls them.
/// - The servers stop when the last worker leaves, so a worker keeps one store open until its
///   training ends.
/// - Servers and schedulers call [`LaunchedJob::serve`].
#[derive(Clone, Debug)]
pub struct LaunchedJob {
    role: Role,
    scheduler: String,
    num_servers: usize,
    num_workers: usize,
    host: Option<String>,
    task: Option<String>,
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
                    "{name} is not set, but a job of MXNet's launchers needs it"
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
        let (uri, port) = (required("DMLC_PS_ROOT_URI")?, required("DMLC_PS_ROOT_PORT")?);
        let is_ipv6 = uri.contains(':') && !uri.starts_with('[');
        let scheduler = if is_ipv6 { format!("[{uri}]:{port}") } else { format!("{uri}:{port}") };
        let (num_servers, num_workers) = (count("DMLC_NUM_SERVER")?, count("DMLC_NUM_WORKER")?);
        let (host, task) = (variable("DMLC_NODE_HOST"), variable("DMLC_TASK_ID"));
        Ok(Some(Self { role, scheduler, num_servers, num_workers, host, task }))
    }

    /// Returns the role of this process.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Checks that an MPI launcher has started the processes of a `dist_sync` store, which cannot
    /// use the servers of the job. `found` is the number of its processes.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this process is alone, but the job has more workers.
    #[cfg(feature = "dist")]
    pub(crate) fn check_processes(&self, name: &str, found: usize) -> Result<()> {
        let expected = self.num_workers;
        if found > 1 || expected == 1 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "store type `{name}`: DMLC_NUM_WORKER is {expected}, but this process is alone: stores \
             of this type need an MPI launcher (mpirun); for servers, use `dist_async`"
        )))
    }

    /// Runs the server or the scheduler of the job, until all workers have joined and left. A
    /// worker whose connection is lost may come back within a lease. `prepare` gets the server
    /// before workers find it, for example to set an updater; it is not called for the scheduler.
    /// `options` are those of [`serve`](crate::serve), except `address`.
    ///
    /// # Errors
    /// - The errors of [`LaunchedJob::start`], [`LaunchedJob::wait`] and `prepare`.
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
    /// - [`Error::InvalidArgument`] if this process is a worker, or the options have an address.
    /// - The errors of [`serve`](crate::serve).
    pub fn start(&self, options: &[(&str, &str)]) -> Result<Server> {
        let address = match self.role {
            Role::Worker => {
                return Err(Error::invalid(
                    "this process is a worker (DMLC_ROLE): only servers and schedulers serve a \
                     job; create a `dist_async` store instead",
                ));
            }
            Role::Scheduler => self.scheduler.clone(),
            Role::Server => SocketAddr::new(self.own_host()?, 0).to_string(),
        };
        if let Some(address) = find(options, "address") {
            return Err(Error::invalid(format!(
                "option `address`: a server of a job chooses its address, found `{address}`"
            )));
        }
        let mut options = Vec::from(options);
        options.push(("address", &address));
        Server::start(backends(), &of_server(&options)?)
    }

    /// Lets workers find the server of [`LaunchedJob::start`], and shuts it down when all workers
    /// have joined and left.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the scheduler does not answer, or not all workers join in time.
    pub fn wait(&self, server: &Server) -> Result<()> {
        let timeout = timeout()?.unwrap_or(TIMEOUT);
        let scheduler = match self.role {
            Role::Scheduler => None,
            Role::Server | Role::Worker => {
                let name = format!("{SERVER}{}", server.address());
                let scheduler = server.options_for(&self.scheduler).name(name);
                Some(connect(&scheduler.timeout(timeout))?)
            }
        };
        if let Some(scheduler) = &scheduler {
            self.lead_others(server, scheduler, timeout)?;
        }
        let own = Store::from(server);
        self.wait_for_workers(scheduler.as_ref().unwrap_or(&own), timeout)?;
        // From now on, the job does not need the scheduler.
        while server.has_members() {
            pause();
        }
        drop(scheduler);
        server.shut_down();
        Ok(())
    }

    /// Joins the job as a worker: finds the servers, gets a store from `connect`, and waits until
    /// all workers have one. `options` are those of the store.
    pub(super) fn join(
        &self,
        timeout: Duration,
        options: &[(&str, &str)],
        connect: impl FnOnce(Vec<String>) -> Result<Store>,
    ) -> Result<Store> {
        if self.role != Role::Worker {
            let role = self.role.name();
            return Err(Error::invalid(format!(
                "DMLC_ROLE is `{role}`: only workers create stores of the job"
            )));
        }
        let scheduler = NetStoreOptions::new(&self.scheduler).timeout(timeout);
        let scheduler = super::connect(&protected(scheduler, options)?)?;
        let servers = self.wait_for_servers(&scheduler, timeout)?;
        if self.num_servers > 1 {
            let start = Instant::now();
            let leader = format!("{LEADER}{}", servers[0]);
            while !scheduler.keys()?.iter().any(|key| key.as_str() == leader) {
                if start.elapsed() > timeout {
                    let text = format!("server `{}` does not lead the others yet", servers[0]);
                    return Err(Error::Timeout(text));
                }
                pause();
            }
        }
        let store = connect(servers)?;
        scheduler.init_with(&self.worker_key(), &one()?, OnExisting::Keep)?;
        self.wait_for_workers(&scheduler, timeout)?;
        Ok(store)
    }

    /// Returns the key of this worker in the store of the scheduler.
    fn worker_key(&self) -> String {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        let process = || PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
        match &self.task {
            Some(task) => format!("{WORKER}{task}"),
            None => format!("{WORKER}{:016x}", process()),
        }
    }

    /// Makes a server lead the others if it was the first to join.
    fn lead_others(&self, server: &Server, scheduler: &Store, timeout: Duration) -> Result<()> {
        if self.num_servers < 2 {
            return Ok(());
        }
        let servers = self.wait_for_servers(scheduler, timeout)?;
        if let Some((first, others)) = servers.split_first()
            && *first == server.address().to_string()
        {
            server.lead(others)?;
            scheduler.init_with(&format!("{LEADER}{first}"), &one()?, OnExisting::Keep)?;
        }
        Ok(())
    }

    /// Waits until all servers have joined. Returns their addresses, in the order in which they
    /// have joined.
    fn wait_for_servers(&self, scheduler: &Store, timeout: Duration) -> Result<Vec<String>> {
        let start = Instant::now();
        loop {
            let servers = servers_in(scheduler)?;
            if servers.len() >= self.num_servers {
                return Ok(servers);
            }
            self.wait_since(start, timeout, (servers.len(), self.num_servers, "servers"))?;
        }
    }

    /// Waits until all workers have joined.
    fn wait_for_workers(&self, scheduler: &Store, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let keys = scheduler.keys()?;
            let joined = keys.iter().filter(|key| key.as_str().starts_with(WORKER)).count();
            if joined >= self.num_workers {
                return Ok(());
            }
            self.wait_since(start, timeout, (joined, self.num_workers, "workers"))?;
        }
    }

    /// Waits a moment for other processes.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the wait takes too long.
    fn wait_since(
        &self,
        start: Instant,
        timeout: Duration,
        (found, expected, what): (usize, usize, &str),
    ) -> Result<()> {
        if start.elapsed() > timeout {
            return Err(Error::Timeout(format!(
                "{found} of {expected} {what} have joined the job of scheduler `{}`",
                self.scheduler
            )));
        }
        pause();
        Ok(())
    }

    /// Returns the address of this machine in the network of the scheduler.
    fn own_host(&self) -> Result<IpAddr> {
        let failed = |error: std::io::Error| Error::Transport {
            operation: format!("cannot find the address of this machine for `{}`", self.scheduler),
            source: error.into(),
        };
        let mut found = self.scheduler.to_socket_addrs().map_err(failed)?;
        let missing = || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        let scheduler = found.next().ok_or_else(missing).map_err(failed)?;
        if let Some(host) = &self.host {
            let mut found = (&**host, 0).to_socket_addrs().map_err(failed)?;
            let found = found.next().map(|address| address.ip());
            let text = || format!("DMLC_NODE_HOST: expected an address, found `{host}`");
            let host = found.ok_or_else(|| Error::invalid(text()))?;
            // Many machines resolve their own name to a loopback address.
            if !host.is_loopback() || scheduler.ip().is_loopback() {
                return Ok(host);
            }
        }
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

/// Returns the addresses of the live servers, in the order in which they have joined.
fn servers_in(scheduler: &Store) -> Result<Vec<String>> {
    let members = scheduler.members()?;
    let servers = members.iter().filter_map(|member| member.name.strip_prefix(SERVER));
    Ok(servers.map(str::to_owned).collect())
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

    fn job(role: &str, port: u16) -> LaunchedJob {
        let (role, task) = role.split_once(' ').unwrap_or((role, ""));
        let job = LaunchedJob::of_variables(|name| {
            let value = match name {
                "DMLC_ROLE" => role.to_owned(),
                "DMLC_PS_ROOT_URI" => "127.0.0.1".to_owned(),
                "DMLC_PS_ROOT_PORT" => port.to_string(),
                "DMLC_NUM_SERVER" | "DMLC_NUM_WORKER" => "2".to_owned(),
                "DMLC_TASK_ID" => task.to_owned(),
                _ => return None,
            };
            Some(value)
        });
        job.unwrap().unwrap()
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    fn join(job: &LaunchedJob) -> Result<Store> {
        job.join(Duration::from_secs(30), &[], |servers| {
            assert_eq!(servers.len(), 2);
            connect(&NetStoreOptions::of_servers(servers).quorum(2))
        })
    }

    #[test]
    fn a_job_ends_when_its_workers_have_left() {
        let port = free_port();
        let processes: Vec<_> = ["server", "scheduler", "server"]
            .map(|role| thread::spawn(move || job(role, port).serve(&[], |_| Ok(()))))
            .into();
        let first = thread::spawn(move || join(&job("worker 0", port)).unwrap());
        let store = join(&job("worker 1", port)).unwrap();
        let other = first.join().unwrap();
        // The keys are on both servers. One of them leads the rounds.
        for key in ["a", "b", "c", "d"] {
            store.init(key, &one().unwrap()).unwrap();
            thread::scope(|scope| {
                let pushing = scope.spawn(|| other.push(key, &one().unwrap()).unwrap());
                store.push(key, &one().unwrap()).unwrap();
                pushing.join().unwrap();
            });
            let sum = one().unwrap();
            store.pull(key, &sum).unwrap();
            assert_eq!(sum.to_vec::<f32>().unwrap(), [2.0]);
        }
        drop(other);
        // A worker that starts again does not count twice.
        drop(join(&job("worker 0", port)).unwrap());
        for _ in 0..4 {
            pause();
        }
        assert!(processes.iter().all(|process| !process.is_finished()));
        store.init("w", &one().unwrap()).unwrap();
        assert_eq!(store.num_workers().unwrap(), 1);
        drop(store);
        for process in processes {
            process.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_worker_waits_for_the_others_until_its_timeout() {
        let port = free_port();
        let scheduler = job("scheduler", port);
        let server = scheduler.start(&[]).unwrap();
        let joined =
            job("worker 0", port).join(Duration::from_millis(300), &[], |_| unreachable!());
        let text = joined.unwrap_err().to_string();
        assert!(text.contains("0 of 2 servers have joined"), "{text}");
        drop(server);
    }

    #[cfg(feature = "dist")]
    #[test]
    fn a_job_of_servers_is_not_one_of_mpi() {
        let job = job("worker", 9);
        assert!(job.check_processes("dist_sync", 2).is_ok());
        let text = job.check_processes("dist_sync", 1).unwrap_err().to_string();
        assert!(text.contains("use `dist_async`"), "{text}");
    }

    #[test]
    fn addresses_may_be_of_version_6() {
        let job = LaunchedJob::of_variables(|name| {
            let value = match name {
                "DMLC_PS_ROOT_URI" => "::1",
                "DMLC_PS_ROOT_PORT" | "DMLC_NUM_SERVER" | "DMLC_NUM_WORKER" => "1",
                _ => return None,
            };
            Some(value.to_owned())
        });
        assert_eq!(job.unwrap().unwrap().scheduler, "[::1]:1");
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
        let error = job("worker", 9).serve(&[], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("only servers and schedulers serve"), "{error}");
        let error = job("server", 9).start(&[("address", "127.0.0.1:0")]).unwrap_err();
        assert!(error.to_string().contains("chooses its address"), "{error}");
    }
}

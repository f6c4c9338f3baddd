//! [`Server`]: a store that the members of a group reach over the network.

pub(crate) mod access;
mod calls;
pub(crate) mod checkpoints;
mod commands;
mod connections;
pub(crate) mod contents;
mod coordinated;
mod cuts;
mod deadline;
mod effects;
mod gate;
pub(crate) mod group;
pub(crate) mod holder;
mod http;
mod local_stores;
mod member_stream;
pub(crate) mod methods;
pub(crate) mod metrics;
mod options;
mod pausing;
pub(crate) mod peers;
mod recorded;
mod records;
pub(crate) mod recovery;
mod replies;
mod report;
pub(crate) mod rounds;
pub(crate) mod runs;
pub(crate) mod service;
pub(crate) mod serving;
mod snapshots;
mod standard;
mod transfer;
pub(crate) mod verbs;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvstore_core::process::Origin;
use kvstore_core::{Backends, Error, GroupMember, LocalStore, Result, fallible};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::access::Access;
use self::commands::Commands;
use self::connections::{Connections, listen};
use self::contents::Contents;
use self::coordinated::{Coordinated, KeptPlace, end_at_loss};
use self::group::Group;
use self::http::HttpEndpoint;
use self::methods::Methods;
use self::peers::lead::Led;
use self::recovery::{PointFolder, PointStore};
use self::report::Reports;
use self::runs::{Parts, Runs};
use self::service::Service;
use self::serving::{Acceptor, CLOSE, serve};
use crate::accounts::Accounts;
use crate::certificates::{Certificates, Security};
use crate::endpoint::{CONNECT, channel};
use crate::journal::Journal;
use crate::runtime;
use crate::wire::members_of;

#[cfg(test)]
pub(crate) use self::calls::UNKNOWN_VERB;
pub(crate) use self::checkpoints::file_name;
pub use self::commands::CommandHandler;
pub(crate) use self::local_stores::store_in_this_process;
pub use self::options::ServerOptions;
pub(crate) use self::service::VERSION;
#[cfg(test)]
pub(crate) use self::verbs::kind;

/// How long a server that ends waits for the calls that run.
const DRAIN: Duration = Duration::from_secs(60);

/// The tasks of a server: that for members, and that of the HTTP endpoint.
#[derive(Debug)]
struct Serving {
    members: JoinHandle<()>,
    endpoint: Option<JoinHandle<()>>,
}

/// A server. It runs in background threads until it is dropped or [`Server::shut_down`] is called.
///
/// ```
/// use kvstore_core::{Backends, CpuBackend, KvStore};
/// use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
///
/// let backends = Backends::new(vec![CpuBackend::new()]);
/// let server = Server::start(&backends, &ServerOptions::new("127.0.0.1:0"))?;
/// let options = NetStoreOptions::new(server.address().to_string());
/// let store = NetStore::connect(&backends, &options)?;
/// assert!(store.keys()?.is_empty());
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    security: Security,
    store: Arc<LocalStore>,
    contents: Arc<Contents>,
    runs: Arc<Runs>,
    commands: Commands,
    end: watch::Sender<bool>,
    serving: Mutex<Option<Serving>>,
    /// The place of this server, if its group has a coordinator.
    place: Option<KeptPlace>,
    /// The process that has the threads of the server.
    process: Origin,
}

impl Server {
    /// Starts a server with an empty store, or with that of the newest
    /// [recovery point](ServerOptions::recovery).
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the store's name is unknown, or if other machines can reach
    ///   the address, but there are neither certificates nor [`ServerOptions::insecure`].
    /// - [`Error::Transport`] if the address cannot be used, for example because another program
    ///   listens on it.
    /// - [`Error::Corrupt`] if the recovery point is damaged.
    pub fn start(backends: &Backends, options: &ServerOptions) -> Result<Self> {
        options.check()?;
        let store = LocalStore::new(&options.store, backends.clone()).ok_or_else(|| {
            let known = LocalStore::NAMES.join(", ");
            Error::invalid(format!(
                "store type `{}` on a server: expected one of {known}",
                options.store
            ))
        })?;
        let store = Arc::new(store);
        let certificates = options.security.of("address", &options.address)?;
        let acceptor = certificates.map(Certificates::of_server).transpose()?;
        let acceptor = acceptor.map(Acceptor::new);
        let failed = |source: std::io::Error| Error::Transport {
            operation: format!("cannot listen on {}", options.address),
            source: source.into(),
        };
        let runtime = runtime::parallel()?;
        let listen_on = options.address.clone();
        let has_unix_socket = certificates.is_none();
        let bound = runtime::wait(&runtime, async move {
            let listener = listen(listen_on).await?;
            Ok(if has_unix_socket { listener.with_unix_socket() } else { listener })
        })?;
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let endpoint = HttpEndpoint::start(&runtime, options)?;
        let metrics_address = endpoint.as_ref().map(HttpEndpoint::address);
        // The number of the run is also the floor of incarnations, which a restart must not use
        // again.
        let run = run_number();
        let coordinated = Coordinated::take(&runtime, options, address, run)?;
        let (place, leader, followers) = match coordinated {
            None => (None, None, followers(&runtime, &options.followers, &options.security)?),
            Some(Coordinated { place, leader, followers }) => (Some(place), leader, followers),
        };
        let registration = place.as_ref().map(|place| Arc::clone(&place.registration));
        // With a coordinator, the folder belongs to an earlier server until this one has its place.
        let points = points(options)?;
        let run = started_run(registration.as_deref(), points.as_ref(), run)?;
        let journal = journal(options, run)?;
        let group = Group::new(options.lease, run);
        let group = match leader {
            None => group,
            Some((leader, saved)) => group.with_leader(leader, saved),
        };
        let contents = Contents::new(Arc::clone(&store), backends.clone(), options.limits.keys)
            .with_journal(journal);
        let contents = Arc::new(contents);
        let named = Arc::downgrade(&store);
        let parts = Parts {
            contents: Arc::clone(&contents),
            checkpoints: options.checkpoints.clone(),
            lease: options.lease,
            points,
            end: CancellationToken::new(),
            followers: Mutex::new(followers),
            next_run: |run| run_number().max(run + 1),
            on_begin: Box::new(move |service| {
                if let Some(store) = named.upgrade() {
                    local_stores::add(service.run, &store);
                }
            }),
        };
        let (end, ending) = watch::channel(false);
        let commands = Commands::default();
        let access = Access::unknown(certificates.is_some());
        let runs = Runs::new(parts, (group, run), |group, holder, ending| {
            let service = Service::new(group, holder, (run, options.lease), ending, access);
            let service = service.with_registration(registration.clone());
            service.with_commands(commands.clone())
        })?;
        if let Some(registration) = registration {
            runtime.spawn(end_at_loss(registration, Arc::clone(&runs), end.clone()));
        }
        let methods = Methods::new(Arc::clone(&runs))?;
        let accounts = Accounts::new(&options.limits, backends);
        let endpoint = endpoint.map(|endpoint| {
            let reports = Reports {
                runs: Arc::clone(&runs),
                accounts: Arc::clone(&accounts),
                metrics: runs.service().metrics,
                end: ending.clone(),
            };
            runtime.spawn(endpoint.serve(reports, ending.clone()))
        });
        let incoming = Connections::new(listener, accounts);
        let members = runtime.spawn(serve(acceptor, methods, incoming, ending));
        tracing::info!(%address, "serving");
        let serving = Mutex::new(Some(Serving { members, endpoint }));
        let security = options.security.clone();
        Ok(Self {
            address,
            metrics_address,
            security,
            store,
            contents,
            runs,
            commands,
            end,
            serving,
            place,
            process: Origin::current(),
        })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes this server lead others as [`ServerOptions::followers`] does, when their addresses
    /// were not known at its start. No member may have joined.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an address is not one, or needs certificates.
    /// - [`Error::InvalidArgument`] if the server leads others than these already.
    pub fn lead(&self, followers: &[String]) -> Result<()> {
        let runtime = runtime::parallel()?;
        let followers = self::followers(&runtime, followers, &self.security)?;
        let runs = Arc::clone(&self.runs);
        runtime::wait(&runtime, async move { runs.lead(followers) })?
    }

    /// Returns why the server has ended by itself, if it has: another server has taken its place
    /// while the coordinator could not be reached.
    pub fn loss(&self) -> Option<String> {
        self.place.as_ref().and_then(|place| place.registration.loss())
    }

    /// Waits until the server is shut down or ends by itself, and returns [`Server::loss`]. A
    /// server without a coordinator never ends by itself: then this returns at once.
    pub fn wait_for_loss(&self) -> Option<String> {
        let registration = Arc::clone(&self.place.as_ref()?.registration);
        let waited = runtime::parallel()
            .and_then(|runtime| runtime::wait(&runtime, async move { registration.ended().await }));
        if let Err(error) = waited {
            tracing::error!(error = error.chain(), "cannot wait for the server");
        }
        self.loss()
    }

    /// Returns the address of the HTTP endpoint, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Returns the certificates of this server.
    pub(crate) fn security(&self) -> &Security {
        &self.security
    }

    /// Returns the store of this server. The program of the server may use it directly, for example
    /// to set an updater.
    pub fn store(&self) -> &Arc<LocalStore> {
        &self.store
    }

    /// Returns the contents, for a client in this process.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns the live members, workers first, in the order of their ranks.
    pub fn members(&self) -> Vec<GroupMember> {
        members_of(&self.runs.service().group.members().0.members)
    }

    /// Returns whether the server has members: live ones, or such that died less than a lease ago
    /// and may come back.
    pub fn has_members(&self) -> bool {
        !self.runs.service().group.remembered().is_empty()
    }

    /// Returns the number of calls that change the store or wait at a barrier at the moment.
    pub fn num_running_calls(&self) -> usize {
        self.runs.service().group.num_running()
    }

    /// Sets the function that runs for each command of `send_command_to_servers`.
    pub fn on_command(&self, handler: Arc<CommandHandler>) {
        self.commands.set(handler);
    }

    /// Stops the server: refuses further calls, completes those that run, and closes all
    /// connections. Waits up to a minute for the calls. A second call does nothing. Must not be
    /// called from a handler of commands or an updater of this server, because it would wait for
    /// itself.
    pub fn shut_down(&self) {
        self.shut_down_within(DRAIN);
    }

    /// Stops the server like [`Self::shut_down`], but waits at most this long for the calls.
    pub(crate) fn shut_down_within(&self, limit: Duration) {
        if self.process.is_inherited() {
            return;
        }
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(serving) = serving else { return };
        let Service { group, health, recovery, .. } = self.runs.service();
        let end = self.end.clone();
        let registration = self.place.as_ref().map(|place| Arc::clone(&place.registration));
        let drained = async move {
            health.end().await;
            group.drain(tokio::time::Instant::now() + limit).await;
            if let Some(recovery) = recovery {
                recovery.end().await;
            }
            if let Some(registration) = registration {
                registration.release().await;
            }
            let _ = end.send(true);
            let _ = serving.members.await;
            if let Some(endpoint) = serving.endpoint {
                let _ = tokio::time::timeout(CLOSE, endpoint).await;
            }
        };
        let ended = runtime::parallel().and_then(|runtime| runtime::wait(&runtime, drained));
        if let Err(error) = ended {
            tracing::error!(error = error.chain(), "the server could not end in order");
        }
        if self.num_running_calls() == 0 {
            self.contents.end_journal();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Returns the servers with these addresses, which a server with these certificates leads.
fn followers(runtime: &Handle, servers: &[String], security: &Security) -> Result<Vec<Led>> {
    // Connections belong to the runtime.
    let _entered = runtime.enter();
    let followers = servers.iter().map(|server| {
        let channel = channel(server, security, CONNECT)?;
        Ok(Led::new(server.clone(), channel))
    });
    fallible::try_collect(followers)
}

/// Opens the journal of a run of a server, if it has one.
fn journal(options: &ServerOptions, run: u64) -> Result<Option<Journal>> {
    let journal = options.journal_options();
    journal.map(|journal| Journal::open(&journal, run, &options.store)).transpose()
}

/// Returns where recovery points are kept, and how often they are made, if the server makes them.
fn points(options: &ServerOptions) -> Result<Option<(PointStore, Duration)>> {
    let points = options.recovery.as_deref().map(|folder| {
        let folder = Arc::new(PointFolder::open(folder)?);
        Ok((PointStore::Folder(folder), options.save_every))
    });
    points.transpose()
}

/// Returns the number of a run that continues from these points: that of its place at a
/// coordinator, or else at least `run`, and more than that of the run before.
fn started_run(
    registration: Option<&crate::coordinator::Registration>,
    points: Option<&(PointStore, Duration)>,
    run: u64,
) -> Result<u64> {
    if let Some(registration) = registration {
        return Ok(registration.run());
    }
    // The clock of this machine may be behind that of the machine before.
    let earlier = points.map_or(Ok(0), |(points, _)| points.newest_run())?;
    Ok(run.max(earlier + 1))
}

/// Returns a number that is larger than that of any earlier run on this machine: the time in
/// microseconds.
fn run_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

//! [`Server`]: a store that the members of a group reach over the network.

pub(crate) mod access;
mod calls;
pub(crate) mod checkpoints;
mod commands;
mod connections;
pub(crate) mod contents;
mod gate;
pub(crate) mod group;
pub(crate) mod holder;
mod http;
mod local_stores;
mod member_stream;
pub(crate) mod metrics;
mod options;
mod records;
mod replies;
mod report;
pub(crate) mod service;
mod snapshots;
mod standard;
mod verbs;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvstore_core::process::Origin;
use kvstore_core::{Backends, Error, GroupMember, LocalStore, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tonic_health::server::HealthReporter;

use self::access::Access;
use self::checkpoints::Checkpoints;
use self::commands::Commands;
use self::connections::{Connections, listen};
use self::contents::Contents;
use self::group::Group;
use self::holder::Holder;
use self::http::HttpEndpoint;
use self::service::{Methods, Service};
use crate::accounts::Accounts;
use crate::certificates::{Certificates, Security};
use crate::runtime;
use crate::wire::members_of;

pub(crate) use self::checkpoints::file_name;
pub use self::commands::CommandHandler;
pub(crate) use self::local_stores::store_in_this_process;
pub use self::options::ServerOptions;
pub(crate) use self::service::VERSION;
#[cfg(test)]
pub(crate) use self::verbs::kind;

/// The windows of flow control. The default of 64 KiB would limit the rate to one window per round
/// trip.
pub(crate) const WINDOW: u32 = 16 << 20;

/// The most bytes of an HTTP/2 frame: a message with the most data, and 64 KiB for a request. Each
/// frame is a call of the system on both sides, and the default of 16 KiB makes these calls the
/// largest part of a long transfer.
pub(crate) const FRAME: u32 = (512 + 64) << 10;

/// How often server and client test a connection, and how long a test may take. Otherwise they
/// would not notice that the other machine is gone.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The most calls of a connection at the same time. Calls may wait for each other, so there must be
/// room for one of each thread of a member. The default is 200.
const MOST_STREAMS: u32 = 1 << 16;

/// How long a server that ends waits for the calls that run, and then for its connections.
const DRAIN: Duration = Duration::from_secs(60);
const CLOSE: Duration = Duration::from_secs(5);

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
    holder: Arc<Holder>,
    group: Arc<Group>,
    commands: Commands,
    health: HealthReporter,
    end: watch::Sender<bool>,
    serving: Mutex<Option<Serving>>,
    /// The process that has the threads of the server.
    process: Origin,
}

impl Server {
    /// Starts a server with an empty store.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the store's name is unknown, or if other machines can reach
    ///   the address, but there are neither certificates nor [`ServerOptions::insecure`].
    /// - [`Error::Transport`] if the address cannot be used, for example because another program
    ///   listens on it.
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
        let builder = builder(certificates)?;
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
        local_stores::add(run, &store);
        let group = Arc::new(Group::new(options.lease, run));
        let contents = Contents::new(Arc::clone(&store), backends.clone(), options.limits.keys);
        let checkpoints = Checkpoints::new(options.checkpoints.clone());
        let holder = Arc::new(Holder::new(contents, checkpoints, Arc::clone(&group), run));
        let (end, ending) = watch::channel(false);
        let commands = Commands::default();
        let access = Access::unknown(certificates.is_some());
        let service = Service::new(&group, &holder, (run, options.lease), &ending, access);
        let health = service.health.clone();
        let methods = Methods::new(service.with_commands(commands.clone()))?;
        let accounts = Accounts::new(&options.limits, backends);
        let endpoint = endpoint.map(|endpoint| {
            let reports = methods.service().reports(Arc::clone(&accounts));
            runtime.spawn(endpoint.serve(reports, ending.clone()))
        });
        let incoming = Connections::new(listener, accounts);
        let members = runtime.spawn(serve(builder, methods, incoming, ending));
        tracing::info!(%address, "serving");
        let serving = Mutex::new(Some(Serving { members, endpoint }));
        let process = Origin::current();
        let security = options.security.clone();
        Ok(Self {
            address,
            metrics_address,
            security,
            store,
            holder,
            group,
            commands,
            health,
            end,
            serving,
            process,
        })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        self.holder.contents()
    }

    /// Returns the live members, workers first, in the order of their ranks.
    pub fn members(&self) -> Vec<GroupMember> {
        members_of(&self.group.members().0.members)
    }

    /// Returns whether the server has members: live ones, or such that died less than a lease ago
    /// and may come back.
    pub fn has_members(&self) -> bool {
        !self.group.remembered().is_empty()
    }

    /// Returns the number of calls that change the store or wait at a barrier at the moment.
    pub fn num_running_calls(&self) -> usize {
        self.group.num_running()
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
        if self.process.is_inherited() {
            return;
        }
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut serving) = serving else { return };
        let (group, end) = (Arc::clone(&self.group), self.end.clone());
        let health = self.health.clone();
        let drained = async move {
            standard::report(&health, false).await;
            group.drain(tokio::time::Instant::now() + DRAIN).await;
            let _ = end.send(true);
            // A stopped member does not close its connection.
            if tokio::time::timeout(CLOSE, &mut serving.members).await.is_err() {
                serving.members.abort();
            }
            if let Some(endpoint) = serving.endpoint {
                let _ = tokio::time::timeout(CLOSE, endpoint).await;
            }
        };
        let ended = runtime::parallel().and_then(|runtime| runtime::wait(&runtime, drained));
        if let Err(error) = ended {
            tracing::error!(error = error.chain(), "the server could not end in order");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Returns the settings of connections.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the certificates are not valid.
pub(crate) fn builder(certificates: Option<&Certificates>) -> Result<tonic::transport::Server> {
    let builder = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .max_concurrent_streams(Some(MOST_STREAMS));
    let Some(certificates) = certificates else { return Ok(builder) };
    let builder = builder.tls_config(certificates.of_server());
    builder.map_err(|error| certificates.not_valid(&error))
}

/// Serves connections until `ending` is true.
pub(crate) async fn serve<I, C>(
    builder: tonic::transport::Server,
    methods: Methods,
    incoming: I,
    mut ending: watch::Receiver<bool>,
) where
    I: Stream<Item = std::io::Result<C>>,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let service = methods.service();
    let holder = Arc::clone(&service.holder);
    let leases = tokio::spawn(end_leases(Arc::clone(&service.group), Arc::downgrade(&holder)));
    standard::report(&service.health, true).await;
    let served = builder
        .serve_with_incoming_shutdown(methods, incoming, async move {
            let _ = ending.wait_for(|end| *end).await;
        })
        .await;
    leases.abort();
    let forgotten = holder.forget_all_snapshots();
    drop(tokio::task::spawn_blocking(move || drop(forgotten)));
    if let Err(error) = served {
        tracing::error!(%error, "the server failed");
    }
}

/// Ends the leases that are over, and forgets what belongs to them.
async fn end_leases(group: Arc<Group>, holder: Weak<Holder>) {
    loop {
        let wait = group.end_leases();
        let Some(forgotten) = holder.upgrade().map(|holder| holder.forget_snapshots()) else {
            return;
        };
        if !forgotten.is_empty() {
            tracing::info!(count = forgotten.len(), "forgetting the snapshots of a member");
            // Elsewhere, because dropping them may take long or run code of an updater.
            drop(tokio::task::spawn_blocking(move || drop(forgotten)));
        }
        tokio::time::sleep(wait).await;
    }
}

/// Returns a number that is larger than that of any earlier run on this machine: the time in
/// microseconds.
fn run_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

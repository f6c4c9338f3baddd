//! [`Server`]: a store that the members of a group reach over the network.

pub(crate) mod checkpoints;
pub(crate) mod contents;
mod gate;
pub(crate) mod group;
pub(crate) mod holder;
mod local_stores;
mod paced;
mod records;
mod replies;
pub(crate) mod service;
mod snapshots;
mod verbs;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvstore_core::process::Origin;
use kvstore_core::{Backends, Error, GroupMember, LocalStore, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::{Connected, TcpIncoming};

use self::checkpoints::Checkpoints;
use self::contents::Contents;
use self::group::Group;
use self::holder::Holder;
use self::paced::Paced;
use self::service::{Methods, Service};
use crate::runtime;
use crate::wire::members_of;

pub(crate) use self::checkpoints::file_name;
pub(crate) use self::local_stores::store_in_this_process;
pub(crate) use self::service::VERSION;

/// The windows of flow control. The default of 64 KiB would limit the rate to one window per round
/// trip.
pub(crate) const WINDOW: u32 = 16 << 20;

/// The most bytes of an HTTP/2 frame: a message with the most data, and 64 KiB for a request. Each
/// frame is a call of the system on both sides, and the default of 16 KiB makes these calls the
/// largest part of a long transfer.
pub(crate) const FRAME: u32 = (512 + 64) << 10;

/// How long a lease lasts by default.
const LEASE: Duration = Duration::from_secs(10);

/// The shortest and the longest lease.
const SHORTEST_LEASE: Duration = Duration::from_millis(1);
const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// How often server and client test a connection, and how long a test may take. Otherwise they
/// would not notice that the other machine is gone.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The most calls of a connection at the same time. Calls may wait for each other, so there must be
/// room for one of each thread of a member. The default is 200.
const MOST_STREAMS: u32 = 1 << 16;

/// How long a server that ends waits for the calls that run, and then for its connections.
const DRAIN: Duration = Duration::from_secs(60);
const CLOSE: Duration = Duration::from_secs(5);

/// The most calls that change something and block threads at the same time, and the most that read.
/// The runtime has more threads than both together, so it always has some for its other tasks.
const MOST_BLOCKING: usize = 128;

/// The settings of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerOptions {
    address: String,
    store: String,
    lease: Duration,
    checkpoints: Option<PathBuf>,
}

impl ServerOptions {
    /// Returns the settings of a server that listens on `address`, such as `127.0.0.1:9191`. Port 0
    /// selects a free port.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), store: "local".to_owned(), lease: LEASE, checkpoints: None }
    }

    /// Sets the name of the store that holds the values, `local` or `device`.
    #[must_use]
    pub fn store(mut self, name: impl Into<String>) -> Self {
        self.store = name.into();
        self
    }

    /// Sets the folder for
    /// [`checkpoint_on_servers`](kvstore_core::WorkerGroup::checkpoint_on_servers). Without one,
    /// the server writes no files.
    #[must_use]
    pub fn checkpoints(mut self, folder: impl Into<PathBuf>) -> Self {
        self.checkpoints = Some(folder.into());
        self
    }

    /// Sets how long a member stays live without a sign of life, 10 seconds by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

/// A function for the commands of `send_command_to_servers`.
pub type CommandHandler = dyn Fn(i32, &str) -> Result<()> + Send + Sync;

/// The handler of commands, which the program may set at any time.
#[derive(Clone, Default)]
pub(crate) struct Commands(Arc<Mutex<Option<Arc<CommandHandler>>>>);

impl Commands {
    fn set(&self, handler: Arc<CommandHandler>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    /// Runs the handler. Without one, a command has no effect, as in MXNet.
    pub(crate) fn run(&self, head: i32, body: &str) -> Result<()> {
        let handler = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        handler.map_or(Ok(()), |handler| handler(head, body))
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commands")
    }
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
    store: Arc<LocalStore>,
    holder: Arc<Holder>,
    group: Arc<Group>,
    commands: Commands,
    end: watch::Sender<bool>,
    serving: Mutex<Option<JoinHandle<()>>>,
    /// The process that has the threads of the server.
    process: Origin,
}

impl Server {
    /// Starts a server with an empty store.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the store's name is unknown.
    /// - [`Error::Transport`] if the address cannot be used, for example because another program
    ///   listens on it.
    pub fn start(backends: &Backends, options: &ServerOptions) -> Result<Self> {
        let store = LocalStore::new(&options.store, backends.clone()).ok_or_else(|| {
            let known = LocalStore::NAMES.join(", ");
            Error::invalid(format!(
                "store type `{}` on a server: expected one of {known}",
                options.store
            ))
        })?;
        let store = Arc::new(store);
        if options.lease < SHORTEST_LEASE || options.lease > LONGEST_LEASE {
            return Err(Error::invalid(format!(
                "lease: expected from {} s to {} s, found {} s",
                SHORTEST_LEASE.as_secs_f64(),
                LONGEST_LEASE.as_secs(),
                options.lease.as_secs_f64()
            )));
        }
        let failed = |source: std::io::Error| Error::Transport {
            operation: format!("cannot listen on {}", options.address),
            source: source.into(),
        };
        let runtime = runtime::parallel()?;
        let listen_on = options.address.clone();
        let bound = runtime::wait(&runtime, async move { TcpListener::bind(listen_on).await })?;
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        // The number of the run is also the floor of incarnations, which a restart must not use
        // again.
        let run = run_number();
        local_stores::add(run, &store);
        let group = Arc::new(Group::new(options.lease, run));
        let contents = Contents::new(Arc::clone(&store), backends.clone());
        let checkpoints = Checkpoints::new(options.checkpoints.clone());
        let holder = Arc::new(Holder::new(contents, checkpoints, Arc::clone(&group), run));
        let (end, ending) = watch::channel(false);
        let commands = Commands::default();
        let service = Service {
            group: Arc::clone(&group),
            holder: Arc::clone(&holder),
            place: Arc::default(),
            commands: commands.clone(),
            run,
            lease: options.lease,
            end: ending.clone(),
            permits: Arc::new(Semaphore::new(MOST_BLOCKING)),
            reads: Arc::new(Semaphore::new(MOST_BLOCKING)),
            statuses: Arc::new(Semaphore::new(1)),
            short: Arc::new(Semaphore::new(1)),
        };
        // A small message must not wait for the acknowledgement of the one before.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let incoming = incoming.map(|stream| stream.map(Paced::new));
        let serving = runtime.spawn(serve(service, incoming, ending));
        tracing::info!(%address, "serving");
        let serving = Mutex::new(Some(serving));
        let process = Origin::current();
        Ok(Self { address, store, holder, group, commands, end, serving, process })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
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
        let drained = async move {
            group.drain(tokio::time::Instant::now() + DRAIN).await;
            let _ = end.send(true);
            // A stopped member does not close its connection.
            if tokio::time::timeout(CLOSE, &mut serving).await.is_err() {
                serving.abort();
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

/// Serves connections until `ending` is true.
pub(crate) async fn serve<I, C>(service: Service, incoming: I, mut ending: watch::Receiver<bool>)
where
    I: Stream<Item = std::io::Result<C>>,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let holder = Arc::clone(&service.holder);
    let leases = tokio::spawn(end_leases(Arc::clone(&service.group), Arc::downgrade(&holder)));
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .max_concurrent_streams(Some(MOST_STREAMS))
        .serve_with_incoming_shutdown(Methods::new(service), incoming, async move {
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

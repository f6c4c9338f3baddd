//! Stores on servers that other machines reach.

mod coordinator;
mod launch;
mod options;

use std::sync::Arc;

use kvstore_core::{Error, Result};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerStatus};

use self::coordinator::servers_in;
use crate::environment::timeout;
use crate::runtime::backends;
use crate::store::Store;

pub use self::launch::{LaunchedJob, Role};
pub use self::options::{DEFAULT_ADDRESS, SERVER_OPTIONS};

/// The environment variable with the addresses of the servers, separated by commas.
const SERVERS: &str = "KVSTORE_SERVERS";

/// The names of these stores. The servers decide on which device they sum.
pub(crate) const NAMES: [&str; 4] =
    ["dist_async", "dist_device_async", "dist_async_device", NetStore::QUORUM_NAME];

/// Returns a store on servers, or `None` for other names. The servers are in the options, in the
/// environment, or those of a job that one of MXNet's launchers has started.
pub(crate) fn create(name: &str, options: &[(&str, &str)]) -> Option<Result<Store>> {
    NAMES.contains(&name).then(|| {
        // Reports wrong options before anything waits.
        complete(name, options, NetStoreOptions::of_servers([""; 0]))?;
        if let Some(servers) = servers_in(options)? {
            return connect(&complete(name, options, servers)?);
        }
        match LaunchedJob::of_environment()? {
            Some(job) => job.connect(name, options),
            None => Err(Error::invalid(format!(
                "store type `{name}`: expected the servers as HOST:PORT, separated by commas, in \
                 the option `servers` or in the environment variable {SERVERS}, or a coordinator"
            ))),
        }
    })
}

/// Returns the options of a store on these servers.
fn complete(
    name: &str,
    options: &[(&str, &str)],
    servers: NetStoreOptions,
) -> Result<NetStoreOptions> {
    let store = servers.kind(name);
    options::set_all(timeout()?.into_iter().fold(store, NetStoreOptions::timeout), options)
}

impl LaunchedJob {
    /// Joins the job as a worker, as [`create_with`](crate::create_with) does in a process that a
    /// launcher has started. `name` is one of the names for stores on servers.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this process is not a worker, no store on servers has the
    ///   name, or an option is not valid.
    /// - [`Error::Timeout`] if not all servers and workers join in time.
    pub fn connect(&self, name: &str, options: &[(&str, &str)]) -> Result<Store> {
        let lower = name.to_lowercase();
        if !NAMES.contains(&&*lower) {
            let known = NAMES.join(", ");
            return Err(Error::invalid(format!(
                "store type `{name}` in a job of servers: expected one of {known}"
            )));
        }
        let limit = options::timeout(options)?.or(timeout()?).unwrap_or(launch::TIMEOUT);
        let joined = self.join(limit, options, |servers| {
            connect(&complete(&lower, options, NetStoreOptions::of_servers(servers))?)
        });
        // Each worker of a job initialises the keys, as in MXNet.
        joined.map(Store::keeping_existing)
    }
}

/// Joins the group of one or several servers, and returns a store on them. The command
/// `kvstore serve` starts a server, or [`Server`](crate::Server) in this process.
///
/// ```
/// use kvstore::{DType, Device, NetStoreOptions, Server, ServerOptions, backends, connect, ones};
///
/// let server = Server::start(backends(), &ServerOptions::new("127.0.0.1:0"))?;
/// let store = connect(&NetStoreOptions::new(server.address().to_string()))?;
/// store.init("w", &ones([2], DType::F32, Device::cpu(0))?)?;
/// assert_eq!(store.num_workers()?, 1);
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// - The errors of [`NetStore::connect`].
pub fn connect(options: &NetStoreOptions) -> Result<Store> {
    Ok(Store::new(Arc::new(NetStore::connect(backends(), options)?)))
}

/// Starts a server with options by name, as the bindings of other languages do.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `config` | none | a TOML file with other options, for those that are not in the list |
/// | `address` | `127.0.0.1:9191` | where it listens; port 0 selects a free one |
/// | `store` | `local` | the store that holds the values, `local` or `device` |
/// | `checkpoints` | none | the folder for [`Store::checkpoint_on_servers`] |
/// | `journal` | none | the file for the calls that change values |
/// | `journal_mode` | `full` | `full` can be replayed, `order` has only members and keys |
/// | `journal_required` | `false` | fails calls if the journal cannot be written |
/// | `lease` | 10 | how many seconds a silent member stays live |
/// | `peer_connections` | 256 | the most connections from one machine |
/// | `peer_bytes` | half of the memory limit, at least 64 MiB | for calls from one machine |
/// | `keys` | 4 million | the most keys |
/// | `metrics` | none | the address for `/metrics` and `/healthz` over HTTP |
/// | `status_page` | `false` | adds a page with members, keys and throughput |
/// | `followers` | none | the other servers, which the one with the index 0 leads |
/// | `coordinator` | none | `etcd://HOST:PORT,../GROUP`, where the state of the group is |
/// | `coordinator_certificates` | none | a folder with the certificates for the coordinator |
/// | `server_index`, `num_servers` | 0, 1 | the place of this server in the group |
/// | `advertise` | the address | where members connect, which they get from the coordinator |
/// | `certificates` | `KVSTORE_CERTIFICATES` | a folder for [`Certificates`](crate::Certificates) |
/// | `insecure` | `KVSTORE_INSECURE` | permits other machines to connect without |
///
/// ```
/// let server = kvstore::serve(&[("address", "127.0.0.1:0")])?;
/// let address = server.address().to_string();
/// let store = kvstore::create_with("dist_async", &[("servers", &address)])?;
/// assert!(store.keys()?.is_empty());
/// # Ok::<(), kvstore::Error>(())
/// ```
///
/// # Errors
/// - [`Error::InvalidArgument`] if a name is not an option, or a value is not valid.
/// - The errors of [`Server::start`].
pub fn serve(options: &[(&str, &str)]) -> Result<Server> {
    Server::start(backends(), &options::of_server(options)?)
}

/// Asks the server at this address for its state, without joining its group. The options are
/// `certificates`, `insecure` and `timeout` of [`create_with`](crate::create_with).
///
/// # Errors
/// - [`Error::InvalidArgument`] if an option is not valid.
/// - The errors of [`ServerStatus::of`].
pub fn status_of(server: &str, options: &[(&str, &str)]) -> Result<ServerStatus> {
    ServerStatus::of(&options::set_all(NetStoreOptions::new(server), options)?)
}

impl From<&Server> for Store {
    /// Returns the store that holds the values of a server, for example to set an updater.
    fn from(server: &Server) -> Self {
        Self::new(Arc::clone(server.store()) as Arc<dyn kvstore_core::KvStore>)
    }
}

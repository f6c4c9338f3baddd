//! Stores on servers that other machines reach.

use std::sync::Arc;

use kvstore_core::{Error, Result};
use kvstore_net::{NetStore, NetStoreOptions};

use crate::environment::timeout;
use crate::runtime::backends;
use crate::store::Store;

/// The environment variable with the addresses of the servers, separated by commas.
const SERVERS: &str = "KVSTORE_SERVERS";

/// The names of these stores. The servers decide on which device they sum.
pub(crate) const NAMES: [&str; 3] = ["dist_async", "dist_device_async", "dist_async_device"];

/// Returns a store on the servers that the environment names, or `None` for other names.
pub(crate) fn create(name: &str) -> Option<Result<Store>> {
    NAMES.contains(&name).then(|| connect(&options(name)?))
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

fn options(name: &str) -> Result<NetStoreOptions> {
    let servers = std::env::var(SERVERS).unwrap_or_default();
    let servers: Vec<&str> =
        servers.split(',').map(str::trim).filter(|server| !server.is_empty()).collect();
    if servers.is_empty() {
        return Err(Error::invalid(format!(
            "store type `{name}`: {SERVERS} has no addresses of servers: expected HOST:PORT, \
             separated by commas"
        )));
    }
    let options = NetStoreOptions::of_servers(servers).kind(name);
    Ok(timeout()?.into_iter().fold(options, NetStoreOptions::timeout))
}

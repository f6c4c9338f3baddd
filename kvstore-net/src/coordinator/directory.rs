//! [`find_servers`]: the addresses of the servers of a group, for its members.

use std::collections::BTreeMap;
use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::names::{Config, Names, Registered, parse};
use crate::etcd::{Etcd, EtcdOptions, KeyValue};
use crate::rules::Backoff;

/// How long a call of etcd may take.
const CALL: Duration = Duration::from_secs(5);

/// The interval between checks whether all servers are there.
const PAUSE: Duration = Duration::from_millis(200);

/// The address of a server, which changes when its successor is elsewhere.
pub(crate) type Route = watch::Receiver<String>;

/// Returns the addresses of all servers of a group, in the order of their indices. They follow the
/// changes in etcd until they are dropped. Without etcd, they keep the last addresses.
///
/// # Errors
/// - [`Error::Timeout`] if not all servers are there in time, or etcd does not answer.
/// - [`Error::InvalidArgument`] if the options are not valid.
pub(crate) async fn find_servers(options: &EtcdOptions, timeout: Duration) -> Result<Vec<Route>> {
    let etcd = Etcd::new(options)?;
    let names = Names::new(&options.address.group);
    let (start, group) = (Instant::now(), &options.address.group);
    let limit = timeout.min(CALL);
    loop {
        let found = read(&etcd, &names, limit).await;
        let missing = match found {
            Ok((Some(num_servers), servers)) => {
                let missing: Vec<String> = (0..num_servers)
                    .filter(|index| !servers.contains_key(index))
                    .map(|index| index.to_string())
                    .collect();
                if missing.is_empty() {
                    let servers = servers.into_values().map(watch::Sender::new);
                    let senders: Vec<_> = servers.take(num_servers as usize).collect();
                    let routes = senders.iter().map(watch::Sender::subscribe).collect();
                    tokio::spawn(follow(etcd, names, senders));
                    return Ok(routes);
                }
                let missing = missing.join(", ");
                format!("group `{group}`: no live server {missing} of {num_servers}")
            }
            Ok((None, _)) => format!("group `{group}`: no server has started yet"),
            Err(status) => etcd.failure(&status).chain(),
        };
        if start.elapsed() + PAUSE > timeout {
            let (name, waited) = (etcd.name(), timeout.as_secs_f64());
            let text = format!("coordinator: etcd `{name}`: after {waited} s: {missing}");
            return Err(Error::Timeout(text));
        }
        sleep(PAUSE).await;
    }
}

/// Returns the addresses of the servers of a group as [`find_servers`] does, without waiting for
/// them. The address of a server that has not started yet is empty.
///
/// Must be called in a runtime.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the options are not valid.
pub(crate) fn follow_servers(options: &EtcdOptions, num_servers: u32) -> Result<Vec<Route>> {
    let etcd = Etcd::new(options)?;
    let senders: Vec<_> = (0..num_servers).map(|_| watch::Sender::new(String::new())).collect();
    let routes = senders.iter().map(watch::Sender::subscribe).collect();
    tokio::spawn(follow(etcd, Names::new(&options.address.group), senders));
    Ok(routes)
}

/// Returns the number of servers, if the group exists, and the addresses of the live ones.
async fn read(
    etcd: &Etcd,
    names: &Names,
    limit: Duration,
) -> Result<(Option<u32>, BTreeMap<u32, String>), Status> {
    let Some(config) = etcd.get(&names.config(), limit).await? else {
        return Ok((None, BTreeMap::new()));
    };
    let Config { num_servers } = parse(&config)?;
    let (found, _) = etcd.range(&names.servers(), limit).await?;
    let mut servers = BTreeMap::new();
    for found in &found {
        let (index, address) = server_in(names, found)?;
        servers.extend(index.map(|index| (index, address)));
    }
    Ok((Some(num_servers), servers))
}

/// Returns the index of a server, if it is one, and its address.
fn server_in(names: &Names, found: &KeyValue) -> Result<(Option<u32>, String), Status> {
    let key = String::from_utf8_lossy(&found.key);
    let index = key.strip_prefix(&names.servers()).and_then(|index| index.parse().ok());
    Ok((index, parse::<Registered>(found)?.address))
}

/// Follows the changes of the addresses until no member needs them.
async fn follow(etcd: Etcd, names: Names, servers: Vec<watch::Sender<String>>) {
    let unused = async {
        for server in &servers {
            server.closed().await;
        }
    };
    let following = async {
        let start = Instant::now();
        let mut backoff = Backoff::new(Duration::MAX);
        loop {
            let mut has_answered = false;
            let Err(status) = changes(&etcd, &names, &servers, &mut has_answered).await;
            if has_answered {
                backoff = Backoff::new(Duration::MAX);
            }
            tracing::debug!(etcd = etcd.name(), %status, "the watch of servers is lost");
            sleep(backoff.wait(start.elapsed(), 0.5).unwrap_or(PAUSE)).await;
        }
    };
    tokio::select! {
        () = unused => {}
        () = following => {}
    }
}

/// Sends the changes of the addresses, until a call fails.
async fn changes(
    etcd: &Etcd,
    names: &Names,
    servers: &[watch::Sender<String>],
    has_answered: &mut bool,
) -> Result<std::convert::Infallible, Status> {
    let prefix = names.servers();
    let (found, revision) = etcd.range(&prefix, CALL).await?;
    note(names, servers, &found)?;
    let mut watch = etcd.watch(&prefix, revision + 1, CALL).await?;
    *has_answered = true;
    loop {
        note(names, servers, &watch.next().await?)?;
    }
}

fn note(
    names: &Names,
    servers: &[watch::Sender<String>],
    found: &[KeyValue],
) -> Result<(), Status> {
    for found in found {
        let (index, address) = server_in(names, found)?;
        let index = index.and_then(|index| usize::try_from(index).ok());
        if let Some(server) = index.and_then(|index| servers.get(index)) {
            server.send_if_modified(|known| {
                let is_other = *known != address;
                if is_other {
                    tracing::info!(index, %address, "a server is at another address");
                    *known = address;
                }
                is_other
            });
        }
    }
    Ok(())
}

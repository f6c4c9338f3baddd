//! [`ServerStatus`]: the state of a server, also for processes that are not members.

use std::time::Duration;

use kvstore_core::{Error, GroupMember, Result};
use tonic::{Code, Status};

use super::NetStoreOptions;
use super::membership::reason_of;
use super::streams;
use crate::certificates::refusal;
use crate::endpoint::channel;
use crate::proto;
use crate::proto::request::Verb;
use crate::runtime;
use crate::wire::members_of;

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// The live members, in the order of their ranks.
    pub members: Vec<GroupMember>,
    /// The number of members whose connection is lost or whose lease has ended.
    pub num_dead: u64,
    /// The name of the server's store.
    pub store: String,
    /// The number of keys.
    pub num_keys: u64,
    /// The bytes of values and optimizer states.
    pub num_bytes: u64,
    /// The number of pushes that have changed a key, over all keys.
    pub num_pushes: u64,
    /// The time since the server started.
    pub uptime: Duration,
    /// The journal of the server, if it has one.
    pub journal: Option<JournalStatus>,
    /// The recovery points of the server, if it makes them.
    pub recovery: Option<RecoveryStatus>,
}

/// The recovery points of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryStatus {
    /// The number of points of this run of the server.
    pub num_points: u64,
    /// The bytes of the last one.
    pub num_bytes: u64,
    /// The age of the last one of this run.
    pub age: Option<Duration>,
    /// Why the last attempt to make a point has failed.
    pub error: Option<String>,
    /// Whether the server accepts no calls until all servers of its group go back to the same
    /// point.
    pub awaits_others: bool,
}

/// The state of the journal of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalStatus {
    /// `order` or `full`.
    pub mode: String,
    /// The number of records of this run of the server.
    pub num_records: u64,
    /// The bytes of the file.
    pub num_bytes: u64,
    /// Why the journal has stopped, or why calls fail if it is required.
    pub error: Option<String>,
}

impl ServerStatus {
    /// Asks the first server of these options. The caller need not be a member. Of the other
    /// options, only the timeout and the certificates take effect.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the options have no server, or its address is not a loopback
    ///   address and they have neither certificates nor
    ///   [`insecure`](NetStoreOptions::insecure).
    /// - [`Error::Unsupported`] if the certificate is rejected, or its role does not permit it.
    /// - [`Error::Transport`] if the server cannot be reached or does not answer in time.
    pub fn of(options: &NetStoreOptions) -> Result<Self> {
        let none = || Error::invalid("servers: expected at least one HOST:PORT, found none");
        let server = options.servers.first().ok_or_else(none)?;
        let timeout = options.timeout;
        let (address, security) = (server.clone(), options.security.clone());
        let asking = async move {
            let channel = channel(&address, &security, timeout)?;
            let request = proto::Request {
                verb: Some(Verb::Status(proto::Empty {})),
                ..proto::Request::default()
            };
            let frame = proto::RequestFrame { request: Some(request), data: bytes::Bytes::new() };
            let frames = tokio_stream::iter([frame]);
            let replies = streams::open(channel, frames).await;
            let mut replies = replies.map_err(|status| refused_or_lost(&address, &status))?;
            let first = replies.message().await;
            let first = first.map_err(|status| refused_or_lost(&address, &status))?;
            let status = first.and_then(|frame| frame.reply).and_then(|reply| reply.status);
            status.ok_or_else(|| lost(&address, "a reply without a status"))
        };
        let asked = runtime::wait(&runtime::single()?, tokio_timeout(timeout, asking))?;
        let status = asked.ok_or_else(|| lost(server, format!("no answer in {timeout:?}")))??;
        Ok(Self {
            members: members_of(&status.members),
            num_dead: status.num_dead,
            store: status.store,
            num_keys: status.num_keys,
            num_bytes: status.num_bytes,
            num_pushes: status.num_pushes,
            uptime: Duration::from_millis(status.uptime_ms),
            journal: status.journal.map(|journal| JournalStatus {
                mode: journal.mode,
                num_records: journal.num_records,
                num_bytes: journal.num_bytes,
                error: journal.error,
            }),
            recovery: status.recovery.map(|recovery| RecoveryStatus {
                num_points: recovery.num_points,
                num_bytes: recovery.num_bytes,
                age: recovery.age_ms.map(Duration::from_millis),
                error: recovery.error,
                awaits_others: recovery.awaits_others,
            }),
        })
    }
}

async fn tokio_timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

fn refused_or_lost(server: &str, status: &Status) -> Error {
    let text = match status.code() {
        Code::PermissionDenied | Code::Unimplemented => Some(status.message().to_owned()),
        _ => refusal(status),
    };
    match text {
        Some(text) => Error::Unsupported(format!("server `{server}`: {text}")),
        None => lost(server, reason_of(status)),
    }
}

fn lost(server: &str, source: impl Into<kvstore_core::BoxError>) -> Error {
    Error::Transport { operation: format!("server `{server}`"), source: source.into() }
}

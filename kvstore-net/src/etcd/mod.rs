//! [`Etcd`]: a client of etcd 3.4 and later.
//!
//! It has what servers and members need: ranges, transactions, leases and watches. The messages are
//! generated from the files in `proto`, so no build needs `protoc`.

mod address;
mod exchange;
mod proto;
mod transaction;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kvstore_core::{Error, Result, fallible};
use prost::Message;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use self::exchange::{Exchange, decode};
use self::proto::etcdserverpb::response_op::Response;
use self::proto::etcdserverpb::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, ResponseHeader,
    TxnResponse,
};
use crate::certificates::{Certificates, check_on_this_machine};
use crate::http2::KEEP_ALIVE;

pub(crate) use self::address::Address;
pub(crate) use self::proto::mvccpb::KeyValue;
pub(crate) use self::transaction::Transaction;

/// How long an attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(2);

/// Where the state of a group is, and how connections to it are protected.
#[derive(Clone, Debug)]
pub(crate) struct EtcdOptions {
    pub(crate) address: Address,
    pub(crate) certificates: Option<Arc<Certificates>>,
    /// Permits connections to other machines without certificates.
    pub(crate) is_insecure: bool,
}

impl EtcdOptions {
    /// # Errors
    /// - [`Error::InvalidArgument`] if another machine can read the connections.
    pub(crate) fn check(&self) -> Result<()> {
        if self.certificates.is_some() || self.is_insecure {
            return Ok(());
        }
        for endpoint in &self.address.endpoints {
            check_on_this_machine("coordinator", endpoint).map_err(|_| {
                Error::invalid(format!(
                    "coordinator: `{endpoint}` is not an address of this machine alone: set \
                     `coordinator_certificates` (KVSTORE_COORDINATOR_CERTIFICATES), or, in a \
                     private network, `insecure` (KVSTORE_INSECURE)"
                ))
            })?;
        }
        Ok(())
    }
}

/// A client of etcd. It uses one of the members of etcd until a call fails there, and then the next
/// one.
#[derive(Debug)]
pub(crate) struct Etcd {
    name: String,
    channels: Vec<Channel>,
    current: AtomicUsize,
}

/// The outcome of a transaction.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether all conditions were true, so that the changes were made.
    pub(crate) is_made: bool,
    /// The keys that were read because a condition was false.
    pub(crate) found: Vec<KeyValue>,
    /// The revision of the store.
    pub(crate) revision: i64,
}

impl Outcome {
    /// Returns a key that was read.
    pub(crate) fn find(&self, key: &str) -> Option<&KeyValue> {
        self.found.iter().find(|found| found.key == key.as_bytes())
    }
}

impl Etcd {
    /// Returns a client, which connects when it is used. Must be called in a runtime.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if an address or the certificates are not valid.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Self> {
        options.check()?;
        let certificates = options.certificates.as_deref();
        let channels =
            options.address.endpoints.iter().map(|endpoint| channel(endpoint, certificates));
        let channels = fallible::try_collect(channels)?;
        Ok(Self {
            name: options.address.endpoints.join(","),
            channels,
            current: AtomicUsize::new(0),
        })
    }

    /// Returns the addresses, for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the error for a failed call.
    pub(crate) fn failure(&self, status: &Status) -> Error {
        Error::Transport {
            operation: format!("etcd `{}`", self.name),
            source: reason_of(status).into(),
        }
    }

    /// Sends a request within this time, to another member of etcd if one does not answer. Returns
    /// the first reply, and the exchange for further ones.
    async fn exchange(
        &self,
        path: &'static str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<(Bytes, Exchange), Status> {
        self.exchange_bytes(path, request.encode_to_vec().into(), limit).await
    }

    async fn exchange_bytes(
        &self,
        path: &'static str,
        request: Bytes,
        limit: Duration,
    ) -> Result<(Bytes, Exchange), Status> {
        let count = self.channels.len();
        let share = limit / u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let mut failure = Status::unavailable("no address");
        for _ in 0..count {
            let current = self.current.load(Ordering::Relaxed);
            let Some(channel) = self.channels.get(current % count) else { break };
            let exchange = Exchange::begin(channel.clone(), path, request.clone());
            failure = match timeout(share, exchange).await {
                Ok(Ok(begun)) => return Ok(begun),
                Ok(Err(status)) if is_final(&status) => return Err(status),
                Ok(Err(status)) => status,
                Err(_) => {
                    let seconds = share.as_secs_f64();
                    Status::deadline_exceeded(format!("no answer in {seconds:.1} s"))
                }
            };
            let (next, order) = (current.wrapping_add(1), Ordering::Relaxed);
            let _ = self.current.compare_exchange(current, next, order, order);
        }
        Err(failure)
    }

    /// Makes a call within this time, on another member of etcd if one does not answer.
    async fn call<T: Message + Default>(
        &self,
        path: &'static str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<T, Status> {
        decode(self.exchange(path, request, limit).await?.0)
    }

    /// Returns the keys that begin with `prefix`, in their order, and the revision of the store.
    pub(crate) async fn range(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<(Vec<KeyValue>, i64), Status> {
        let request = RangeRequest { key: prefix.as_bytes().to_owned(), range_end: end_of(prefix) };
        self.read(&request, limit).await
    }

    /// Returns a key, or `None` if it does not exist.
    pub(crate) async fn get(&self, key: &str, limit: Duration) -> Result<Option<KeyValue>, Status> {
        let request = RangeRequest { key: key.as_bytes().to_owned(), range_end: Vec::new() };
        Ok(self.read(&request, limit).await?.0.into_iter().next())
    }

    async fn read(
        &self,
        request: &RangeRequest,
        limit: Duration,
    ) -> Result<(Vec<KeyValue>, i64), Status> {
        let found: RangeResponse = self.call("/etcdserverpb.KV/Range", request, limit).await?;
        Ok((found.kvs, revision(found.header)))
    }

    /// Makes a transaction. If its reply is lost, it is not known whether it was made, and it may
    /// be made twice, so its conditions must be false after it was made, or a repetition must
    /// change nothing.
    pub(crate) async fn transact(
        &self,
        transaction: Transaction,
        limit: Duration,
    ) -> Result<Outcome, Status> {
        let request = transaction.into_request();
        let made: TxnResponse = self.call("/etcdserverpb.KV/Txn", &request, limit).await?;
        let ranges = made.responses.into_iter().filter_map(|each| match each.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        Ok(Outcome {
            is_made: made.succeeded,
            found: ranges.flatten().collect(),
            revision: revision(made.header),
        })
    }

    /// Returns the number of a new lease, and how long it lasts, which may be longer.
    pub(crate) async fn grant(
        &self,
        lease: Duration,
        limit: Duration,
    ) -> Result<(i64, Duration), Status> {
        // Whole seconds.
        let seconds = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX), id: 0 };
        let granted: LeaseGrantResponse =
            self.call("/etcdserverpb.Lease/LeaseGrant", &request, limit).await?;
        match duration(granted.ttl) {
            Some(lease) if granted.error.is_empty() => Ok((granted.id, lease)),
            _ => Err(Status::unavailable(format!("no lease: {}", granted.error))),
        }
    }

    /// Renews a lease. Returns how long it lasts, or `None` if it has ended.
    pub(crate) async fn keep_alive(
        &self,
        lease: i64,
        limit: Duration,
    ) -> Result<Option<Duration>, Status> {
        let request = LeaseKeepAliveRequest { id: lease };
        let renewed: LeaseKeepAliveResponse =
            self.call("/etcdserverpb.Lease/LeaseKeepAlive", &request, limit).await?;
        Ok(duration(renewed.ttl))
    }

    /// Ends a lease, and deletes its keys.
    pub(crate) async fn revoke(&self, lease: i64, limit: Duration) -> Result<(), Status> {
        let request = LeaseRevokeRequest { id: lease };
        let LeaseRevokeResponse { .. } =
            self.call("/etcdserverpb.Lease/LeaseRevoke", &request, limit).await?;
        Ok(())
    }
}

/// Returns a connection, which begins when it is used.
fn channel(endpoint: &str, certificates: Option<&Certificates>) -> Result<Channel> {
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let channel = Endpoint::from_shared(format!("{scheme}://{endpoint}"))
        .map_err(|_| {
            Error::invalid(format!("coordinator: expected HOST:PORT, found `{endpoint}`"))
        })?
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    let Some(certificates) = certificates else { return Ok(channel.connect_lazy()) };
    let channel = channel.tls_config(certificates.of_member());
    Ok(channel.map_err(|error| certificates.not_valid(&error))?.connect_lazy())
}

/// Returns whether etcd has decided, so that another of its members would answer the same.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated
    )
}

/// Returns the end of the range of all keys that begin with `prefix`, which ends with `/`.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_owned();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn revision(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// Returns a number of seconds above 0.
fn duration(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Returns the message of a status with the deepest cause, which is usually the system's.
fn reason_of(status: &Status) -> String {
    let mut source = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

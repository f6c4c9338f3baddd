//! [`Limits`] and [`Accounts`]: what one peer may hold of the server.
//!
//! A peer is a machine: an address of version 4, or the first 64 bits of one of version 6, which a
//! network gives to one machine. Requests, values and replies count while a call holds them, so a
//! peer that sends or claims too much, or does not read its replies, reaches only its own limit.
//! Snapshots, clocks and names are limited in number and do not count.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::Backends;
use tonic::Status;

/// The most connections of a peer by default.
const CONNECTIONS: usize = 256;

/// The most members of a peer. Each has a list of all members.
const MOST_MEMBERS: usize = 512;

/// The least number of bytes of calls of a peer by default, so that streams and short calls have
/// room also if the memory limit is low.
const LEAST_BYTES: usize = 64 << 20;

/// The open files that connections leave to the rest of the process.
const RESERVED_FILES: usize = 128;

/// The most keys of a server by default. Each has about a kilobyte that the memory limit does not
/// include.
const KEYS: usize = 4_000_000;

/// The bytes that an open stream counts, for its tasks and buffers.
pub(crate) const STREAM: usize = 16 << 10;

/// What one peer may hold of a server, and how many keys the server may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// The bytes of requests and replies on their way. `None` is half of the memory limit, but at
    /// least [`LEAST_BYTES`].
    pub(crate) bytes: Option<usize>,
    pub(crate) keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: CONNECTIONS, bytes: None, keys: KEYS }
    }
}

/// The peers with connections.
#[derive(Debug)]
pub(crate) struct Accounts {
    most_connections: usize,
    /// The most connections of all peers.
    most_in_total: usize,
    most_bytes: usize,
    by_peer: Mutex<HashMap<IpAddr, Arc<Account>>>,
}

impl Accounts {
    pub(crate) fn new(limits: &Limits, backends: &Backends) -> Arc<Self> {
        let half = || {
            let limits = backends.initialised().filter_map(|backend| backend.memory_limit());
            limits.min().map_or(usize::MAX, |limit| (limit / 2).max(LEAST_BYTES))
        };
        Arc::new(Self {
            most_connections: limits.connections,
            most_in_total: most_in_total(),
            most_bytes: limits.bytes.unwrap_or_else(half),
            by_peer: Mutex::default(),
        })
    }

    fn by_peer(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Account>>> {
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections, and the number of peers that have some.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let by_peer = self.by_peer();
        let connections =
            by_peer.values().map(|account| account.num_connections.load(Ordering::Relaxed));
        (connections.sum(), by_peer.len())
    }

    /// Counts a new connection from an address. Returns `None` if its peer has too many.
    pub(crate) fn connect(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionCount> {
        let peer = peer_of(address);
        let mut by_peer = self.by_peer();
        let in_total: usize = by_peer.values().map(|account| account.num_connections()).sum();
        if in_total >= self.most_in_total {
            return None;
        }
        let account = by_peer.entry(peer).or_insert_with(|| {
            Arc::new(Account {
                peer,
                num_connections: AtomicUsize::new(0),
                num_members: AtomicUsize::new(0),
                num_waiting: AtomicUsize::new(0),
                num_bytes: AtomicUsize::new(0),
                most_bytes: self.most_bytes,
            })
        });
        if account.num_connections() >= self.most_connections {
            return None;
        }
        account.num_connections.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionCount { accounts: Arc::clone(self), account: Arc::clone(account) })
    }
}

/// Returns the most connections of all peers, so that the process has open files for other uses.
fn most_in_total() -> usize {
    #[cfg(unix)]
    if let Ok((soft, _)) = rlimit::Resource::NOFILE.get() {
        let soft = usize::try_from(soft).unwrap_or(usize::MAX);
        return soft.saturating_sub(RESERVED_FILES).max(soft / 2);
    }
    usize::MAX
}

/// Returns the address by which a peer is known.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    accounts: Arc<Accounts>,
    account: Arc<Account>,
}

impl ConnectionCount {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        let mut by_peer = self.accounts.by_peer();
        if self.account.num_connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Calls may continue after their connections.
            by_peer.retain(|_, account| account.is_used());
        }
    }
}

/// What the calls of a peer hold.
#[derive(Debug)]
pub(crate) struct Account {
    peer: IpAddr,
    num_connections: AtomicUsize,
    num_members: AtomicUsize,
    /// The requests whose tasks have not run yet.
    num_waiting: AtomicUsize,
    num_bytes: AtomicUsize,
    most_bytes: usize,
}

impl Account {
    fn num_connections(&self) -> usize {
        self.num_connections.load(Ordering::Relaxed)
    }

    fn is_used(&self) -> bool {
        self.num_connections() > 0
            || self.num_waiting() > 0
            || self.num_members.load(Ordering::Relaxed) > 0
            || self.num_bytes.load(Ordering::Relaxed) > 0
    }

    /// Returns the bytes that count at the moment.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn num_bytes(&self) -> usize {
        self.num_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of members of the peer.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn num_members(&self) -> usize {
        self.num_members.load(Ordering::Relaxed)
    }

    /// Counts a request that waits for its task until the returned value is dropped.
    pub(crate) fn count_waiting(self: &Arc<Self>) -> WaitingCount {
        self.num_waiting.fetch_add(1, Ordering::Relaxed);
        WaitingCount(Arc::clone(self))
    }

    pub(crate) fn num_waiting(&self) -> usize {
        self.num_waiting.load(Ordering::Relaxed)
    }

    /// Counts a member until the returned value is dropped.
    ///
    /// # Errors
    /// - [`Code::ResourceExhausted`](tonic::Code::ResourceExhausted) if the peer has too many.
    pub(crate) fn count_member(self: &Arc<Self>) -> Result<MemberCount, Status> {
        let add = |count: usize| (count < MOST_MEMBERS).then_some(count + 1);
        let added = self.num_members.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map_err(|count| {
            let peer = self.peer;
            Status::resource_exhausted(format!("peer {peer} has {count} members, the most"))
        })?;
        Ok(MemberCount(Arc::clone(self)))
    }

    /// Counts the bytes of a reply as [`Account::charge`] does, but at most half of the limit. A
    /// larger value can then be pulled, because its reply shares the memory of the store.
    ///
    /// # Errors
    /// - [`Code::Aborted`](tonic::Code::Aborted) if other calls hold too many at the moment.
    pub(crate) fn charge_reply(self: &Arc<Self>, num_bytes: usize) -> Result<Charge, Status> {
        self.charge(num_bytes.min(self.most_bytes / 2))
    }

    /// Counts bytes until the returned value is dropped.
    ///
    /// # Errors
    /// - [`Code::OutOfRange`](tonic::Code::OutOfRange) if the peer may never hold as many.
    /// - [`Code::Aborted`](tonic::Code::Aborted) if its other calls hold too many at the moment.
    pub(crate) fn charge(self: &Arc<Self>, num_bytes: usize) -> Result<Charge, Status> {
        let (peer, most) = (self.peer, self.most_bytes);
        if num_bytes > most {
            return Err(Status::out_of_range(format!(
                "a call with {num_bytes} bytes: the calls of a peer may hold at most {most} bytes \
                 (peer_bytes)"
            )));
        }
        let add = |held: usize| held.checked_add(num_bytes).filter(|sum| *sum <= most);
        let added = self.num_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map_err(|held| {
            Status::aborted(format!(
                "the calls of peer {peer} hold {held} of at most {most} bytes, so there is no room \
                 for {num_bytes} bytes"
            ))
        })?;
        Ok(Charge { account: Arc::clone(self), num_bytes })
    }
}

/// A request that counts as waiting until this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingCount(Arc<Account>);

impl Drop for WaitingCount {
    fn drop(&mut self) {
        self.0.num_waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A member that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct MemberCount(Arc<Account>);

impl Drop for MemberCount {
    fn drop(&mut self) {
        self.0.num_members.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    num_bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.num_bytes.fetch_sub(self.num_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tonic::Code;

    use super::*;

    fn accounts() -> Arc<Accounts> {
        let limits = Limits { connections: 2, bytes: Some(100), ..Limits::default() };
        Accounts::new(&limits, &Backends::new(Vec::new()))
    }

    #[test]
    fn connections_count_for_the_machine() {
        let accounts = accounts();
        let connect = |address: &str| accounts.connect(address.parse().unwrap());
        let first = connect("10.0.0.1").unwrap();
        // The same machine, as a socket of version 6 sees it.
        let _second = connect("::ffff:10.0.0.1").unwrap();
        assert!(connect("10.0.0.1").is_none());
        let _other = connect("10.0.0.2").unwrap();
        drop(first);
        drop(connect("10.0.0.1").unwrap());
        let _of_network = [connect("2001:db8::1").unwrap(), connect("2001:db8::2").unwrap()];
        assert!(connect("2001:db8::3").is_none());
        assert!(connect("2001:db8:0:1::3").is_some());
    }

    #[test]
    fn a_peer_has_a_limited_number_of_members() {
        let accounts = accounts();
        let connections =
            [1, 2].map(|host| accounts.connect(IpAddr::from([10, 0, 0, host])).unwrap());
        let [full, other] = connections.each_ref().map(ConnectionCount::account);
        let mut members: Vec<_> = (0..512).map(|_| full.count_member().unwrap()).collect();
        let status = full.count_member().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "peer 10.0.0.1 has 512 members, the most");
        assert_eq!(full.num_members(), 512);
        drop(other.count_member().unwrap());
        drop(members.pop());
        members.push(full.count_member().unwrap());
        full.count_member().unwrap_err();
    }

    #[test]
    fn peers_without_connections_are_forgotten() {
        let accounts = accounts();
        for number in 0..100 {
            drop(accounts.connect(IpAddr::from([10, 0, 0, number])).unwrap());
        }
        assert!(accounts.by_peer().is_empty());
    }

    #[test]
    fn charges_end_when_they_are_dropped() {
        let accounts = accounts();
        let connection = accounts.connect(IpAddr::from([10, 0, 0, 1])).unwrap();
        let account = connection.account();
        let _first = account.charge(60).unwrap();
        assert_eq!(account.charge(101).unwrap_err().code(), Code::OutOfRange);
        assert_eq!(account.charge(usize::MAX).unwrap_err().code(), Code::OutOfRange);
        let status = account.charge(41).unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().contains("10.0.0.1 hold 60 of at most 100"), "{status}");
        drop(account.charge(40).unwrap());
        drop(account.charge(40).unwrap());
    }
}

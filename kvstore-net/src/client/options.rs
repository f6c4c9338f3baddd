//! [`NetStoreOptions`]: how a process joins a group.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Result};

use super::driver::Driver;
use super::round_options::{LatePush, RoundOptions, Rounds, check_weight};
use super::store::NetStore;
use crate::certificates::{Certificates, Security};
use crate::coordinator::{Coordinator, Route, find_servers};
use crate::rules::Role;
use crate::server::Server;

/// How long a call waits by default.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Larger values are divided by default: MXNet divides arrays of a million elements.
const DIVIDE_ABOVE: usize = 4 << 20;

/// How a process joins a group.
#[derive(Clone, Debug)]
pub struct NetStoreOptions {
    pub(super) servers: Vec<String>,
    /// Where the addresses of the servers are, if not in the list.
    pub(super) coordinator: Option<Coordinator>,
    pub(super) kind: String,
    pub(super) name: Option<String>,
    pub(super) role: Role,
    pub(crate) timeout: Duration,
    pub(super) staleness: Option<u64>,
    pub(super) rounds: Option<RoundOptions>,
    pub(super) divide_above: usize,
    pub(super) connections: NonZeroUsize,
    pub(super) security: Security,
}

impl NetStoreOptions {
    /// Returns the options for the server at this address, such as `10.0.0.1:9191`.
    pub fn new(server: impl Into<String>) -> Self {
        Self::of_servers([server])
    }

    /// Returns the options for the servers at these addresses. All members of a group need the same
    /// list in the same order. A key is on one of the servers, and its name decides which. The rows
    /// of large values are divided among all servers.
    pub fn of_servers(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            coordinator: None,
            kind: NetStore::NAME.to_owned(),
            name: None,
            role: Role::Worker,
            timeout: TIMEOUT,
            staleness: None,
            rounds: None,
            divide_above: DIVIDE_ABOVE,
            connections: NonZeroUsize::MIN,
            security: Security::default(),
        }
    }

    /// Returns the options for the servers of a group whose state is at a coordinator. A store
    /// waits until all of them are there, and follows a server that is started again elsewhere.
    pub fn of_coordinator(coordinator: Coordinator) -> Self {
        Self { coordinator: Some(coordinator), ..Self::of_servers([""; 0]) }
    }

    /// Sets the name of the kind of store, which [`KvStore::name`](kvstore_core::KvStore::name)
    /// returns. The default is [`NetStore::NAME`]. MXNet has several names for this kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets the name of this member. Two live members cannot have the same name. A process that
    /// takes the name of a dead one gets its rank. By default, the name is new each time.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Declares that this member never pushes, so that bounded pulls of others do not wait for it.
    #[must_use]
    pub fn reader(mut self) -> Self {
        self.role = Role::Reader;
        self
    }

    /// Sets how long a call waits for the server and the other members, 300 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the number of bytes above which the rows of a value are divided among the servers,
    /// 4 MiB by default. A layer-wise optimizer must be set before `init`, because it needs
    /// complete values. An updater gets the rows of its server.
    #[must_use]
    pub fn divide_above(mut self, num_bytes: usize) -> Self {
        self.divide_above = num_bytes;
        self
    }

    /// Sets the number of connections to each server, 1 by default. Calls of several threads at the
    /// same time take turns with them, which helps on networks that are faster than one connection,
    /// of about 1 GB/s.
    #[must_use]
    pub fn connections(mut self, number: NonZeroUsize) -> Self {
        self.connections = number;
        self
    }

    /// Sets the certificate of this member, and makes connections encrypted. Servers on other
    /// machines need one, and its role must permit what this member does.
    #[must_use]
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.security.certificates = Some(Arc::new(certificates));
        self
    }

    /// Permits connections to other machines without certificates. Machines between this one and
    /// the servers can then read and change everything.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.security.is_insecure = true;
        self
    }

    /// Bounds the staleness of pulls: a pull of a key waits until no live worker is more than
    /// `staleness` pushes of this key behind this member. By default, pulls do not wait.
    #[must_use]
    pub fn staleness(mut self, staleness: u64) -> Self {
        self.staleness = Some(staleness);
        self
    }
}

impl NetStoreOptions {
    fn rounds(&mut self) -> &mut RoundOptions {
        self.rounds.get_or_insert(RoundOptions::NEW)
    }

    /// Makes pushes take part in rounds, with at least `min` members. A round sums the pushes of
    /// several workers to the same keys, in the order of the workers' names, and then makes one
    /// push with the sum. It closes when all live workers have pushed, or when at least `min` have
    /// and the grace period is over. A push waits until its round is committed.
    ///
    /// All workers push the same keys together. The values of a key that occurs several times in a
    /// push are summed first.
    #[must_use]
    pub fn quorum(mut self, min: usize) -> Self {
        self.rounds().min = Some(min);
        self
    }

    /// Sets how long a round waits for further workers when the quorum has pushed, 1 second by
    /// default. Counts whole milliseconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.rounds().grace = grace;
        self
    }

    /// Sets what happens to late pushes, [`LatePush::Reject`] by default.
    #[must_use]
    pub fn late(mut self, late: LatePush) -> Self {
        self.rounds().late = late;
        self
    }

    /// Makes rounds compute the weighted mean of the pushes instead of their sum, and sets the
    /// weight of this worker. [`WorkerGroup::set_weight`](kvstore_core::WorkerGroup::set_weight)
    /// changes it. All workers need a weight.
    ///
    /// The worker multiplies its values by its weight. The server sums the products and the
    /// weights in the same order, and divides once. In half precision, the products must not
    /// overflow, so weights should be at most 1.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.rounds().weight = Some(weight);
        self
    }

    /// Checks the options of rounds. [`NetStore::connect`] does this, too.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if one is not valid, or the quorum is missing.
    pub fn check(&self) -> Result<()> {
        let Some(RoundOptions { min, weight, .. }) = self.rounds else {
            if self.kind == NetStore::QUORUM_NAME {
                let kind = &self.kind;
                let text = "expected the option `quorum`, the least number of members of a round";
                return Err(Error::invalid(format!("store type `{kind}`: {text}")));
            }
            return Ok(());
        };
        match min {
            None => Err(Error::invalid(
                "quorum: expected the least number of members of a round, because `grace`, `late` \
                 or `weight` is set",
            )),
            Some(0) => Err(Error::invalid("quorum: expected at least 1, found 0")),
            Some(_) => weight.map_or(Ok(()), check_weight),
        }
    }

    /// Returns the rounds of the store, if it has any.
    pub(super) fn to_rounds(&self) -> Option<Rounds> {
        self.rounds.map(Rounds::new)
    }
}

impl NetStoreOptions {
    /// Returns these options with the addresses of the servers, and the changes of the addresses if
    /// they are at a coordinator.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if a server is missing there, or it does not answer.
    pub(super) fn found(&self) -> Result<(Self, Vec<Route>)> {
        let mut options = self.clone();
        let Some(coordinator) = &self.coordinator else { return Ok((options, Vec::new())) };
        let etcd = coordinator.options(self.security.is_insecure);
        let (driver, timeout) = (Driver::for_connections(self.connections.get())?, self.timeout);
        let routes = driver.wait(async move { find_servers(&etcd, timeout).await })??;
        options.servers = routes.iter().map(|route| route.borrow().clone()).collect();
        Ok((options, routes))
    }
}

impl Server {
    /// Returns options for another server, with the certificates of this one.
    pub fn options_for(&self, server: impl Into<String>) -> NetStoreOptions {
        NetStoreOptions { security: self.security().clone(), ..NetStoreOptions::new(server) }
    }
}

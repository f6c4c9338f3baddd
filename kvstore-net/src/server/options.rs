//! [`ServerOptions`]: the settings of a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Result};

use super::coordinated::Membership;
use crate::accounts::Limits;
use crate::certificates::{Certificates, Security};
use crate::coordinator::Coordinator;
use crate::journal::{JournalMode, JournalOptions};

/// How long a lease lasts by default.
const LEASE: Duration = Duration::from_secs(10);

/// How often a server makes a recovery point by default, and at most and at least.
const SAVE_EVERY: Duration = Duration::from_secs(30);
const MOST_OFTEN: Duration = Duration::from_millis(1);
const LEAST_OFTEN: Duration = Duration::from_secs(86_400);

/// The shortest and the longest lease.
const SHORTEST_LEASE: Duration = Duration::from_millis(1);
const LONGEST_LEASE: Duration = Duration::from_secs(86_400);

/// The settings of a [`Server`](super::Server).
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(super) address: String,
    pub(super) store: String,
    pub(super) lease: Duration,
    pub(super) checkpoints: Option<PathBuf>,
    pub(super) recovery: Option<PathBuf>,
    pub(super) save_every: Duration,
    pub(super) journal: Option<JournalOptions>,
    is_journal_required: bool,
    pub(super) security: Security,
    pub(super) limits: Limits,
    pub(super) membership: Option<Membership>,
    pub(super) advertise: Option<String>,
    pub(super) metrics: Option<String>,
    pub(super) has_status_page: bool,
    pub(super) followers: Vec<String>,
}

impl ServerOptions {
    /// Returns the settings of a server that listens on `address`, such as `127.0.0.1:9191`. Port 0
    /// selects a free port.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            store: "local".to_owned(),
            lease: LEASE,
            checkpoints: None,
            recovery: None,
            save_every: SAVE_EVERY,
            journal: None,
            is_journal_required: false,
            security: Security::default(),
            limits: Limits::default(),
            membership: None,
            advertise: None,
            metrics: None,
            has_status_page: false,
            followers: Vec::new(),
        }
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

    /// Sets the folder for recovery points, from which the server continues when it is started
    /// again with the same folder, also after it was killed, and also on another machine. Without
    /// one, a server starts with an empty store.
    ///
    /// A point has all values and settings, the members, and the calls that have taken effect.
    /// Pushes after the point are lost. Members that are connected repeat the calls without a
    /// reply, and none takes effect twice. See
    /// [`WorkerGroup::on_rewind`](kvstore_core::WorkerGroup::on_rewind).
    ///
    /// No other server may use the folder.
    #[must_use]
    pub fn recovery(mut self, folder: impl Into<PathBuf>) -> Self {
        self.recovery = Some(folder.into());
        self
    }

    /// Sets how often the server makes a recovery point if values change, every 30 seconds by
    /// default. It also makes one soon after a change of the keys or settings, and when it ends.
    #[must_use]
    pub fn save_every(mut self, period: Duration) -> Self {
        self.save_every = period;
        self
    }

    /// Sets the file in which the server keeps all calls that change its values, in the order in
    /// which they take effect. If the file exists, the records are appended. [`replay`] reads it.
    ///
    /// If the file cannot be written, for example because the disk is full, the journal stops and
    /// the server continues: see [`ServerOptions::journal_required`].
    ///
    /// [`replay`]: crate::replay
    #[must_use]
    pub fn journal(mut self, file: impl Into<PathBuf>, mode: JournalMode) -> Self {
        self.journal = Some(JournalOptions { path: file.into(), mode, is_required: false });
        self
    }

    /// Makes each call that changes values fail if the journal cannot be written. Such a call
    /// changes nothing. Needs a file for the journal.
    #[must_use]
    pub fn journal_required(mut self) -> Self {
        self.is_journal_required = true;
        self
    }

    /// Returns the settings of the journal.
    pub(super) fn journal_options(&self) -> Option<JournalOptions> {
        let is_required = self.is_journal_required;
        self.journal.clone().map(|journal| JournalOptions { is_required, ..journal })
    }

    /// Sets the certificate of this server, which makes connections encrypted and gives members
    /// the roles of their certificates. An address that other machines can reach needs one.
    #[must_use]
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.security.certificates = Some(Arc::new(certificates));
        self
    }

    /// Permits connections without certificates on an address that other machines can reach. Who
    /// reaches the address can then read and change everything.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.security.is_insecure = true;
        self
    }

    /// Sets the address of an HTTP endpoint, such as `127.0.0.1:9192`: `/metrics` for Prometheus,
    /// and `/healthz`, which has the status 200 while the server accepts calls. Connections from
    /// other machines need certificates, as those of members do.
    #[must_use]
    pub fn metrics(mut self, address: impl Into<String>) -> Self {
        self.metrics = Some(address.into());
        self
    }

    /// Adds a page with members, keys and throughput to the HTTP endpoint, which needs an address.
    #[must_use]
    pub fn status_page(mut self) -> Self {
        self.has_status_page = true;
        self
    }

    /// Makes this server lead the others: their rounds are the same, and their snapshots,
    /// checkpoints and recovery points are of the same moment. It must be the first in the members'
    /// list of servers, and these are the addresses of the others, in the order of the list. With
    /// certificates, that of this server needs the role `server` or `admin`, and must be valid for
    /// clients.
    ///
    /// With a coordinator, the first server leads the others without this list.
    #[must_use]
    pub fn followers(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.followers = servers.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the most connections from one machine, 256 by default. Further ones are closed at once.
    #[must_use]
    pub fn peer_connections(mut self, most: usize) -> Self {
        self.limits.connections = most;
        self
    }

    /// Sets the most bytes of requests and replies that the calls from one machine may hold at the
    /// same time, by default half of the memory limit, but at least 64 MiB. A call that needs more
    /// fails. A call for which there is no room at the moment is repeated by the member until its
    /// timeout.
    #[must_use]
    pub fn peer_bytes(mut self, most: usize) -> Self {
        self.limits.bytes = Some(most);
        self
    }

    /// Sets the most keys that the server may have, 4 million by default.
    #[must_use]
    pub fn keys(mut self, most: usize) -> Self {
        self.limits.keys = most;
        self
    }

    /// Sets how long a member stays live without a sign of life, 10 seconds by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Keeps the state of the group at a coordinator: which servers there are, and what the first
    /// one keeps. This server has an index from 0 among `num_servers`. It starts when no other
    /// server has this index: it waits for up to two leases until the lease of a dead one ends.
    ///
    /// While the coordinator has not answered for a lease, calls that change the store wait. If
    /// another server has taken the index meanwhile, this one ends: see [`Server::loss`].
    ///
    /// [`Server::loss`]: super::Server::loss
    #[must_use]
    pub fn coordinator(mut self, coordinator: Coordinator, index: u32, num_servers: u32) -> Self {
        self.membership = Some(Membership { coordinator, index, num_servers });
        self
    }

    /// Sets the address where members connect, `HOST:PORT`, if it is not that where the server
    /// listens. Needs a coordinator, from which members get it.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// # Errors
    /// - [`Error::InvalidArgument`] if a value is not valid.
    pub(super) fn check(&self) -> Result<()> {
        if self.lease < SHORTEST_LEASE || self.lease > LONGEST_LEASE {
            return Err(Error::invalid(format!(
                "lease: expected from {} s to {} s, found {} s",
                SHORTEST_LEASE.as_secs_f64(),
                LONGEST_LEASE.as_secs(),
                self.lease.as_secs_f64()
            )));
        }
        if self.save_every < MOST_OFTEN || self.save_every > LEAST_OFTEN {
            return Err(Error::invalid(format!(
                "save_every: expected from {} s to {} s, found {} s",
                MOST_OFTEN.as_secs_f64(),
                LEAST_OFTEN.as_secs(),
                self.save_every.as_secs_f64()
            )));
        }
        if let Some(Membership { index, num_servers, .. }) = &self.membership
            && index >= num_servers
        {
            return Err(Error::invalid(format!(
                "server_index: expected less than num_servers, which is {num_servers}, found \
                 {index}"
            )));
        }
        if let Some(address) = &self.advertise {
            if self.membership.is_none() {
                let text = "advertise: expected also `coordinator`, from which members get it";
                return Err(Error::invalid(text));
            }
            let has_port = |(host, port): (&str, &str)| {
                !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0)
            };
            if !address.rsplit_once(':').is_some_and(has_port) {
                let text = format!("advertise: expected HOST:PORT, found `{address}`");
                return Err(Error::invalid(text));
            }
        }
        if self.is_journal_required && self.journal.is_none() {
            let text = "journal_required: expected also `journal`, the file of the journal";
            return Err(Error::invalid(text));
        }
        if self.has_status_page && self.metrics.is_none() {
            let text = "status_page: expected also `metrics`, the address of the page";
            return Err(Error::invalid(text));
        }
        if self.membership.is_some() && !self.followers.is_empty() {
            let text = "followers: expected none with `coordinator`, which has their addresses";
            return Err(Error::invalid(text));
        }
        for (index, server) in self.followers.iter().enumerate() {
            let parts = server.rsplit_once(':');
            if parts.is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
                let text = format!("followers: expected HOST:PORT, found `{server}`");
                return Err(Error::InvalidArgument(text));
            }
            if self.followers.iter().take(index).any(|other| other == server) {
                let text = format!("followers: `{server}` is in the list twice");
                return Err(Error::InvalidArgument(text));
            }
        }
        Ok(())
    }
}

//! [`NetSnapshot`]: a snapshot whose values stay on the servers.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use kvstore_core::key::describe_call;
use kvstore_core::{Key, KeyStats, Result, Snapshot, SnapshotSource, fallible};

use super::connection::{Answer, Call};
use super::residuals::Residuals;
use super::servers::Servers;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::home;
use crate::wire::keys_of;

/// A snapshot that the servers keep for this process until this is dropped.
#[derive(Debug)]
pub(super) struct SnapshotLease {
    servers: Arc<Servers>,
    /// The number of the snapshot on each server.
    number: u64,
}

impl SnapshotLease {
    /// Takes a snapshot on each server, for a checkpoint or, if that is empty, for the user. The
    /// answers have its settings and statistics.
    pub(super) fn take(servers: &Arc<Servers>, checkpoint: &str) -> Result<(Self, Vec<Answer>)> {
        let number = servers.new_snapshot();
        let lease = Self { servers: Arc::clone(servers), number };
        let (needed, checkpoint) =
            (Some(servers.needed_snapshots().clone()), checkpoint.to_owned());
        let request = proto::TakeSnapshot { snapshot: number, needed, checkpoint };
        let call = Call::read(Verb::TakeSnapshot(request), "snapshot".to_owned());
        // The first server takes it on all of them, if it leads them.
        let mut answers = Vec::from([servers.call(call.clone())?]);
        let others = servers.call_each((1..servers.len()).map(|server| (server, call.clone())))?;
        for answer in others {
            answers.push(answer?);
        }
        Ok((lease, answers))
    }

    /// Returns the number of the snapshot on each server.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn reading(&self, keys: Vec<String>, what: &str) -> Call {
        let read = proto::ReadSnapshot { snapshot: self.number, keys };
        Call::read(Verb::ReadSnapshot(read), what.to_owned())
    }
}

impl Drop for SnapshotLease {
    fn drop(&mut self) {
        self.servers.release_snapshot(self.number);
    }
}

/// The values of a snapshot that the servers keep.
#[derive(Debug)]
pub(super) struct NetSnapshot {
    lease: SnapshotLease,
    /// The keys whose rows are divided among all servers. The others are at their homes.
    divided: HashSet<Key>,
    /// The residuals of this member when the snapshot was taken.
    residuals: Residuals,
}

impl NetSnapshot {
    /// Returns the snapshot that the servers keep. `outline` has its settings, and `stats` the
    /// statistics of its keys without the residuals of this member.
    pub(super) fn snapshot(
        lease: SnapshotLease,
        outline: &Snapshot,
        mut stats: Vec<KeyStats>,
        divided: HashSet<Key>,
        residuals: &Residuals,
    ) -> Result<Snapshot> {
        for stats in &mut stats {
            stats.state_bytes += residuals.num_bytes(&stats.key);
        }
        let residuals = residuals.copied(stats.iter().map(|stats| &stats.key))?;
        let source = Self { lease, divided, residuals };
        Snapshot::remote(outline, stats, Arc::new(source))
    }

    /// Returns the source of a snapshot that these servers keep, or `None` for another snapshot.
    pub(super) fn on<'a>(snapshot: &'a Snapshot, servers: &Arc<Servers>) -> Option<&'a Self> {
        let source: &dyn Any = snapshot.source()?;
        let here = source.downcast_ref::<Self>()?;
        Arc::ptr_eq(&here.lease.servers, servers).then_some(here)
    }

    /// Returns the number of the snapshot on each server.
    pub(super) fn number(&self) -> u64 {
        self.lease.number
    }

    /// Returns the residuals of this member when the snapshot was taken.
    pub(super) fn residuals(&self) -> &Residuals {
        &self.residuals
    }

    /// Returns whether the rows of a key are divided among the servers.
    pub(super) fn is_divided(&self, key: &Key) -> bool {
        self.divided.contains(key)
    }

    /// # Errors
    /// - [`Error::Transport`](kvstore_core::Error::Transport) if a server does not keep the
    ///   snapshot any more.
    pub(super) fn check(&self) -> Result<()> {
        let read = self.lease.reading(Vec::new(), "rollback");
        self.lease.servers.call_all(&read).map(drop)
    }

    /// Reads keys from the servers of their values, and joins the parts.
    fn read_parts(&self, keys: &[Key]) -> Result<Snapshot> {
        let servers = &self.lease.servers;
        let home = |key: &Key| home(key.as_str(), servers.len());
        let is_at = |key: &Key, server: usize| self.divided.contains(key) || home(key) == server;
        // Also without keys, because the settings are those of a server.
        let is_asked = |server: &usize| *server == 0 || keys.iter().any(|key| is_at(key, *server));
        let asked: Vec<usize> = (0..servers.len()).filter(is_asked).collect();
        let what = describe_call("read of a snapshot", keys);
        let calls = asked.iter().map(|server| {
            let here = keys.iter().filter(|key| is_at(key, *server));
            let names = fallible::gather(here.map(|key| key.as_str().to_owned()))?;
            Ok((*server, self.lease.reading(names, &what)))
        });
        let answers = servers.call_each(calls.collect::<Result<Vec<_>>>()?)?;
        let read = answers
            .into_iter()
            .map(|answer| Snapshot::from_bytes(servers.backends(), &answer?.bytes));
        let read = read.collect::<Result<Vec<_>>>()?;
        // The positions of the parts in `read`.
        let places = |key: &Key| {
            let places = asked.iter().enumerate().filter(|(_, server)| is_at(key, **server));
            places.map(|(place, _)| place).collect()
        };
        let parts = fallible::collect(keys.iter().map(|key| (key.clone(), places(key))))?;
        Snapshot::concatenate(&read, &parts)
    }
}

impl SnapshotSource for NetSnapshot {
    fn read(&self, keys: &[Key]) -> Result<Snapshot> {
        let servers = &self.lease.servers;
        let read = if servers.len() > 1 {
            self.read_parts(keys)?
        } else {
            let what = describe_call("read of a snapshot", keys);
            let answer = servers.call(self.lease.reading(keys_of(keys), &what))?;
            Snapshot::from_bytes(servers.backends(), &answer.bytes)?
        };
        self.residuals.add_to(&read)
    }
}

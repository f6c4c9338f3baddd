//! [`Reports`]: the state of a server for operators.

use std::sync::Arc;

use kvstore_core::{Error, KeyStats, KvStore, Result};
use serde::Serialize;
use tokio::sync::watch;

use super::holder::Holder;
use super::metrics::{Metrics, Sample};
use super::runs::Runs;
use super::service::Service;
use crate::accounts::Accounts;
use crate::journal::{Journal, JournalState};
use crate::proto;

/// The most keys in the status, which a person reads. Those with the most bytes come first.
const MOST_KEYS: usize = 200;

/// What operators ask a server for.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) runs: Arc<Runs>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) metrics: Metrics,
    /// Becomes true when the server ends.
    pub(crate) end: watch::Receiver<bool>,
}

/// The state of a server on its status page.
#[derive(Debug, Serialize)]
struct Status<'a> {
    store: &'a str,
    version: &'static str,
    is_serving: bool,
    uptime_seconds: f64,
    workers: u64,
    readers: u64,
    dead: u64,
    barriers: u64,
    rounds: u64,
    late_pushes: u64,
    num_keys: u64,
    value_bytes: u64,
    state_bytes: u64,
    pushes: u64,
    received_bytes: u64,
    sent_bytes: u64,
    live_bytes: u64,
    limit_bytes: Option<u64>,
    connections: u64,
    peers: u64,
    snapshots: u64,
    /// Absent if the server has no journal.
    journal: Option<JournalStatus>,
    /// Absent if the server has no folder for recovery points.
    recovery: Option<RecoveryStatus>,
    members: Vec<MemberStatus>,
    keys: Vec<KeyStatus>,
}

#[derive(Debug, Serialize)]
struct RecoveryStatus {
    points: u64,
    bytes: u64,
    /// The age of the last point of this run.
    seconds: Option<f64>,
    error: Option<String>,
    awaits_others: bool,
}

#[derive(Debug, Serialize)]
struct JournalStatus {
    mode: &'static str,
    records: u64,
    bytes: u64,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct MemberStatus {
    name: String,
    rank: u64,
    role: &'static str,
}

#[derive(Debug, Serialize)]
struct KeyStatus {
    key: String,
    dtype: &'static str,
    shape: Vec<usize>,
    value_bytes: u64,
    state_bytes: u64,
    pushes: u64,
}

fn journal(holder: &Holder) -> Option<JournalState> {
    holder.contents().journal().map(Journal::state)
}

impl Reports {
    /// Returns whether the server accepts calls.
    pub(super) fn is_serving(&self) -> bool {
        let run = self.runs.service();
        !*self.end.borrow() && !run.group.is_draining() && run.check_together().is_ok()
    }

    fn sample(
        &self,
        Service { group, holder, recovery, .. }: &Service,
        (members, dead): (&[proto::Member], usize),
        keys: &[KeyStats],
    ) -> Sample {
        let readers = members.iter().filter(|member| member.is_reader).count() as u64;
        let backends = holder.contents().backends();
        let memory = || backends.initialised();
        let (connections, peers) = self.accounts.counts();
        Sample {
            workers: members.len() as u64 - readers,
            readers,
            dead: dead as u64,
            barriers: group.num_barriers(),
            rounds: group.round_counts(),
            keys: keys.len() as u64,
            value_bytes: keys.iter().map(|key| key.value_bytes as u64).sum(),
            state_bytes: keys.iter().map(|key| key.state_bytes as u64).sum(),
            pushes: keys.iter().map(|key| key.num_pushes).sum(),
            live_bytes: memory().map(|backend| backend.live_bytes() as u64).sum(),
            pooled_bytes: memory().map(|backend| backend.pooled_bytes() as u64).sum(),
            limit_bytes: memory()
                .filter_map(|backend| backend.memory_limit())
                .min()
                .map(|limit| limit as u64),
            connections: connections as u64,
            peers: peers as u64,
            snapshots: holder.num_snapshots() as u64,
            journal: journal(holder).unwrap_or_default(),
            recovery: recovery.as_ref().map(|recovery| recovery.state()).unwrap_or_default(),
            uptime: group.now(),
        }
    }

    /// Returns the metrics in the text format of Prometheus.
    pub(super) fn metrics(&self) -> Result<String> {
        let run = self.runs.service();
        let (members, dead) = run.group.members();
        let keys = run.holder.contents().store().stats()?;
        self.metrics.text(&self.sample(&run, (&members.members, dead), &keys))
    }

    /// Returns the status as JSON.
    pub(super) fn status(&self) -> Result<String> {
        let run = self.runs.service();
        let (members, dead) = run.group.members();
        let store = run.holder.contents().store();
        let mut keys = store.stats()?;
        let sample = self.sample(&run, (&members.members, dead), &keys);
        let (received_bytes, sent_bytes) = self.metrics.transferred();
        let size = |key: &KeyStats| key.value_bytes + key.state_bytes;
        keys.sort_unstable_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.key.cmp(&b.key)));
        let key = |key: &KeyStats| KeyStatus {
            key: key.key.as_str().to_owned(),
            dtype: key.spec.dtype().name(),
            shape: key.spec.shape().dims().into(),
            value_bytes: key.value_bytes as u64,
            state_bytes: key.state_bytes as u64,
            pushes: key.num_pushes,
        };
        let member = |member: proto::Member| MemberStatus {
            name: member.name,
            rank: member.rank,
            role: if member.is_reader { "reader" } else { "worker" },
        };
        let status = Status {
            store: store.name(),
            version: env!("CARGO_PKG_VERSION"),
            is_serving: self.is_serving(),
            uptime_seconds: sample.uptime.as_secs_f64(),
            workers: sample.workers,
            readers: sample.readers,
            dead: sample.dead,
            barriers: sample.barriers,
            rounds: sample.rounds.committed,
            late_pushes: sample.rounds.late,
            num_keys: sample.keys,
            value_bytes: sample.value_bytes,
            state_bytes: sample.state_bytes,
            pushes: sample.pushes,
            received_bytes,
            sent_bytes,
            live_bytes: sample.live_bytes,
            limit_bytes: sample.limit_bytes,
            connections: sample.connections,
            peers: sample.peers,
            snapshots: sample.snapshots,
            journal: journal(&run.holder).map(|state| JournalStatus {
                mode: state.mode,
                records: state.num_records,
                bytes: state.num_bytes,
                error: state.error,
            }),
            recovery: run.recovery.as_ref().map(|recovery| recovery.state()).map(|state| {
                RecoveryStatus {
                    points: state.num_points,
                    bytes: state.num_bytes,
                    seconds: state.age().map(|age| age.as_secs_f64()),
                    error: state.error,
                    awaits_others: state.awaits_others,
                }
            }),
            members: members.members.into_iter().map(member).collect(),
            keys: keys.iter().take(MOST_KEYS).map(key).collect(),
        };
        serde_json::to_string(&status).map_err(|error| Error::Internal(format!("status: {error}")))
    }
}

//! [`Metrics`]: what a server counts and measures, in the text format of Prometheus.
//!
//! Each server has its own registry, because a process may have several servers. The library is
//! the official one of the Prometheus project. The crate `metrics` has one recorder for the
//! process, and its exporter keeps all measured times until they are read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, UNIX_EPOCH};

use kvstore_core::{Error, Result};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::group::RoundCounts;
use super::recovery::RecoveryState;
use crate::journal::JournalState;

/// The verb of a call, and how it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// A whole number that may be larger than `i64`.
type Count = Gauge<u64, AtomicU64>;

/// What a server counts and measures.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Contents>);

struct Contents {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<VerbLabels, Histogram>,
    received: Counter,
    sent: Counter,
    running: Gauge,
    waiting: Gauge,
    members: Family<RoleLabels, Count>,
    dead: Count,
    barriers: Count,
    rounds: Count,
    open_rounds: Count,
    late_pushes: Count,
    keys: Count,
    key_bytes: Family<KindLabels, Count>,
    pushes: Count,
    memory: Family<KindLabels, Count>,
    connections: Count,
    peers: Count,
    snapshots: Count,
    journal: JournalMetrics,
    recovery: RecoveryMetrics,
    uptime: Gauge<f64, AtomicU64>,
}

/// The state of the journal; zeros without one.
#[derive(Default)]
struct JournalMetrics {
    records: Count,
    size: Count,
    failed: Count,
}

impl JournalMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let this = Self::default();
        let help = "Records that this run of the server has written to its journal";
        registry.register("journal_records", help, this.records.clone());
        let help = "Size of the journal";
        registry.register_with_unit("journal", help, Unit::Bytes, this.size.clone());
        let help = "1 if the journal has stopped after an error, or if calls fail because of it";
        registry.register("journal_failed", help, this.failed.clone());
        this
    }

    fn set(&self, state: &JournalState) {
        self.records.set(state.num_records);
        self.size.set(state.num_bytes);
        self.failed.set(u64::from(state.error.is_some()));
    }
}

/// The recovery points; zeros without a folder for them.
#[derive(Default)]
struct RecoveryMetrics {
    points: Count,
    size: Count,
    time: Gauge<f64, AtomicU64>,
    failed: Count,
    waits: Count,
}

impl RecoveryMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let this = Self::default();
        let help = "Recovery points that this run of the server has made";
        registry.register("recovery_points", help, this.points.clone());
        let help = "Size of the last recovery point";
        registry.register_with_unit("recovery_point", help, Unit::Bytes, this.size.clone());
        let help = "When the last recovery point was made, as Unix time; 0 if there is none";
        let time = this.time.clone();
        registry.register_with_unit("recovery_point_timestamp", help, Unit::Seconds, time);
        let help = "1 if the last attempt to make or to find a recovery point has failed";
        registry.register("recovery_failed", help, this.failed.clone());
        let help = "1 while the server waits until all servers go back to the same recovery point";
        registry.register("recovery_waits", help, this.waits.clone());
        this
    }

    fn set(&self, state: &RecoveryState) {
        self.points.set(state.num_points);
        self.size.set(state.num_bytes);
        let since = state.made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        self.time.set(since.unwrap_or_default().as_secs_f64());
        self.failed.set(u64::from(state.error.is_some()));
        self.waits.set(u64::from(state.awaits_others));
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// The state of a server when its metrics are read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) workers: u64,
    pub(crate) readers: u64,
    pub(crate) dead: u64,
    pub(crate) barriers: u64,
    pub(crate) rounds: RoundCounts,
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
    pub(crate) state_bytes: u64,
    pub(crate) pushes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) pooled_bytes: u64,
    pub(crate) limit_bytes: Option<u64>,
    pub(crate) connections: u64,
    pub(crate) peers: u64,
    pub(crate) snapshots: u64,
    pub(crate) journal: JournalState,
    pub(crate) recovery: RecoveryState,
    pub(crate) uptime: Duration,
}

/// From 50 microseconds to 105 seconds.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 22))
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("kvstore");
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
            ($name:literal, $help:literal, $unit:expr, $metric:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, $unit, metric.clone());
                metric
            }};
        }
        let calls = register!("calls", "Calls of members that have ended", Family::default());
        let durations = register!(
            "call_duration",
            "Time from the first frame of a request to the start of its reply",
            Unit::Seconds,
            Family::new_with_constructor(duration_histogram as fn() -> Histogram)
        );
        let received = register!(
            "received",
            "Elements of values and other data that calls have sent to the server",
            Unit::Bytes,
            Counter::default()
        );
        let sent = register!(
            "sent",
            "Elements of values and other data in replies",
            Unit::Bytes,
            Counter::default()
        );
        let running = register!("calls_running", "Calls that run at the moment", Gauge::default());
        let waiting =
            register!("calls_waiting", "Running calls that wait for a thread", Gauge::default());
        let members = register!("members", "Live members", Family::default());
        let dead = register!(
            "dead_workers",
            "Workers whose connection is lost or whose lease has ended",
            Count::default()
        );
        let barriers = register!("barriers", "Barriers passed by the group", Count::default());
        let rounds = register!("rounds", "Rounds that were committed", Count::default());
        let open_rounds =
            register!("open_rounds", "Rounds that wait for members or values", Count::default());
        let late_pushes =
            register!("late_pushes", "Pushes that came too late for their round", Count::default());
        let keys = register!("keys", "Keys", Count::default());
        let key_bytes = register!(
            "contents",
            "Memory of the values and the optimizer states of all keys",
            Unit::Bytes,
            Family::default()
        );
        let pushes = register!("pushes", "Pushes of the present keys", Count::default());
        let memory = register!(
            "memory",
            "Memory of arrays in use, memory kept for reuse, and the limit for their sum",
            Unit::Bytes,
            Family::default()
        );
        let connections = register!("connections", "Open connections", Count::default());
        let peers = register!("peers", "Machines with open connections", Count::default());
        let snapshots = register!("snapshots", "Snapshots that members hold", Count::default());
        let uptime = register!(
            "uptime",
            "Time since the server has started",
            Unit::Seconds,
            Gauge::<f64, AtomicU64>::default()
        );
        let journal = JournalMetrics::registered(&mut registry);
        let recovery = RecoveryMetrics::registered(&mut registry);
        Self(Arc::new(Contents {
            registry,
            calls,
            durations,
            received,
            sent,
            running,
            waiting,
            members,
            dead,
            barriers,
            rounds,
            open_rounds,
            late_pushes,
            keys,
            key_bytes,
            pushes,
            memory,
            connections,
            peers,
            snapshots,
            journal,
            recovery,
            uptime,
        }))
    }

    /// Counts a call as running until the returned value is dropped.
    pub(crate) fn begin(&self, verb: &'static str) -> MeasuredCall {
        self.0.running.inc();
        MeasuredCall { metrics: self.clone(), verb, outcome: "cancelled", start: Instant::now() }
    }

    /// Counts a call as waiting until the returned value is dropped.
    pub(crate) fn wait(&self) -> Waiting {
        self.0.waiting.inc();
        Waiting(self.clone())
    }

    /// Counts the data of a request.
    pub(crate) fn receive(&self, num_bytes: usize) {
        self.0.received.inc_by(num_bytes as u64);
    }

    /// Counts the data of a reply.
    pub(crate) fn send(&self, num_bytes: usize) {
        self.0.sent.inc_by(num_bytes as u64);
    }

    /// Returns the bytes of data that have been received and sent.
    pub(crate) fn transferred(&self) -> (u64, u64) {
        (self.0.received.get(), self.0.sent.get())
    }

    /// Returns the metrics in the text format of Prometheus.
    pub(crate) fn text(&self, sample: &Sample) -> Result<String> {
        let contents = &*self.0;
        let role = |role| contents.members.get_or_create_owned(&RoleLabels { role });
        role("worker").set(sample.workers);
        role("reader").set(sample.readers);
        contents.dead.set(sample.dead);
        contents.barriers.set(sample.barriers);
        contents.rounds.set(sample.rounds.committed);
        contents.open_rounds.set(sample.rounds.open);
        contents.late_pushes.set(sample.rounds.late);
        contents.keys.set(sample.keys);
        let bytes = |kind| contents.key_bytes.get_or_create_owned(&KindLabels { kind });
        bytes("values").set(sample.value_bytes);
        bytes("states").set(sample.state_bytes);
        contents.pushes.set(sample.pushes);
        let memory = |kind| contents.memory.get_or_create_owned(&KindLabels { kind });
        memory("live").set(sample.live_bytes);
        memory("pooled").set(sample.pooled_bytes);
        if let Some(limit) = sample.limit_bytes {
            memory("limit").set(limit);
        }
        contents.connections.set(sample.connections);
        contents.peers.set(sample.peers);
        contents.snapshots.set(sample.snapshots);
        contents.journal.set(&sample.journal);
        contents.recovery.set(&sample.recovery);
        contents.uptime.set(sample.uptime.as_secs_f64());
        let mut text = String::new();
        encode(&mut text, &contents.registry)
            .map_err(|error| Error::Internal(format!("metrics: {error}")))?;
        Ok(text)
    }
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct MeasuredCall {
    metrics: Metrics,
    verb: &'static str,
    outcome: &'static str,
    start: Instant,
}

impl MeasuredCall {
    /// Sets how the call has ended. Without, it was cancelled.
    pub(crate) fn ended(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for MeasuredCall {
    fn drop(&mut self) {
        let contents = &*self.metrics.0;
        contents.running.dec();
        let (verb, outcome) = (self.verb, self.outcome);
        contents.calls.get_or_create(&CallLabels { verb, outcome }).inc();
        let elapsed = self.start.elapsed().as_secs_f64();
        contents.durations.get_or_create(&VerbLabels { verb }).observe(elapsed);
    }
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiting(Metrics);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.dec();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn calls_and_samples_are_in_the_text() {
        let metrics = Metrics::new();
        let mut first = metrics.begin("push");
        drop(metrics.begin("pull"));
        let running = metrics.text(&Sample { keys: u64::MAX, ..Sample::default() }).unwrap();
        assert!(running.contains("kvstore_calls_running 1\n"), "{running}");
        assert!(running.contains("kvstore_keys 18446744073709551615\n"), "{running}");
        first.ended("ok");
        drop(first);
        metrics.receive(10);
        let journal =
            JournalState { num_records: 5, num_bytes: 6, error: Some("full".to_owned()), mode: "" };
        let recovery = RecoveryState {
            num_points: 8,
            num_bytes: 9,
            made: Some(UNIX_EPOCH + Duration::from_millis(1500)),
            error: None,
            awaits_others: true,
        };
        let sample =
            Sample { workers: 3, limit_bytes: Some(7), journal, recovery, ..Sample::default() };
        let text = metrics.text(&sample).unwrap();
        for line in [
            "kvstore_calls_running 0",
            "kvstore_calls_total{verb=\"push\",outcome=\"ok\"} 1",
            "kvstore_calls_total{verb=\"pull\",outcome=\"cancelled\"} 1",
            "kvstore_call_duration_seconds_count{verb=\"push\"} 1",
            "kvstore_received_bytes_total 10",
            "kvstore_members{role=\"worker\"} 3",
            "kvstore_memory_bytes{kind=\"limit\"} 7",
            "kvstore_journal_records 5",
            "kvstore_journal_bytes 6",
            "kvstore_journal_failed 1",
            "kvstore_recovery_points 8",
            "kvstore_recovery_point_bytes 9",
            "kvstore_recovery_point_timestamp_seconds 1.5",
            "kvstore_recovery_failed 0",
            "kvstore_recovery_waits 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
    }
}

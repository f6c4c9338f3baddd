//! [`Call`]: a collective operation. [`select`] chooses the next calls of a queue.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kvstore_core::fallible;
use kvstore_core::key::describe_call;
use kvstore_core::{Error, Key, KeyStats, OnExisting, Result, Snapshot, TensorSpec, Value};

use super::local_stores::Stores;
use super::push::MAX_BATCH;
use super::ticket::Ticket;

/// A collective operation: every rank makes the same call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) stores: Arc<Stores>,
    pub(crate) operation: Operation,
    pub(crate) priority: i32,
    /// The fingerprint of the call. Equal calls have equal fingerprints on all ranks.
    pub(crate) fingerprint: u64,
    pub(crate) ticket: Arc<Ticket>,
}

impl Drop for Call {
    /// Ends the ticket, so that no thread waits for a call that panicked. Has no effect on a ticket
    /// that has already ended.
    fn drop(&mut self) {
        self.ticket.end(Err(Error::Internal("a call of all ranks has panicked".to_owned())));
    }
}

/// The operation of a call.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Initialises keys on every rank with the values of rank 0.
    Init {
        keys: Vec<Key>,
        values: Vec<Value>,
        existing: OnExisting,
    },
    /// Pushes the sum over all ranks to each key. Every key appears once.
    Push {
        keys: Vec<Key>,
        sums: Vec<Value>,
    },
    Remove {
        keys: Vec<Key>,
    },
    /// Waits for all earlier calls. Then every rank adopts the configuration of rank 0.
    Barrier,
    /// Takes a snapshot of the contents of all ranks. Every rank receives it. The string is the
    /// name of the store.
    Snapshot(String, Arc<SnapshotSlot>),
    /// Gives a snapshot to every rank. A rank without its own receives the snapshot of the first
    /// rank that has one.
    Share(Arc<SharedSnapshot>),
    /// Restores every rank from its part of the same snapshot.
    Rollback(Box<Snapshot>),
}

impl Operation {
    /// Returns the size in bytes of the elements that the operation keeps in memory while it is
    /// queued.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Push { sums, .. } => sums.iter().map(Value::num_bytes).sum(),
            _ => 0,
        }
    }
}

/// The place where a call stores the resulting snapshot.
pub(crate) type SnapshotSlot = std::sync::Mutex<Option<Snapshot>>;

/// The snapshot of a restore, exchanged between ranks.
#[derive(Debug)]
pub(crate) struct SharedSnapshot {
    pub(crate) taken: SnapshotSlot,
    /// The reason why this rank has no snapshot.
    pub(crate) why_not: Option<String>,
    /// The reasons of all ranks, if no rank has a snapshot.
    pub(crate) reasons: std::sync::Mutex<Vec<String>>,
}

impl Call {
    pub(crate) fn new(
        stores: Arc<Stores>,
        operation: Operation,
        priority: i32,
        ticket: Arc<Ticket>,
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        (stores.number, priority).hash(&mut hasher);
        operation.hash(&mut hasher);
        Self { stores, operation, priority, fingerprint: hasher.finish(), ticket }
    }

    /// Returns whether the call requires the same configuration on all ranks.
    pub(crate) fn needs_agreement(&self) -> bool {
        match &self.operation {
            Operation::Push { .. } | Operation::Snapshot(..) => true,
            Operation::Rollback(snapshot) => snapshot.has_updater(),
            Operation::Init { .. }
            | Operation::Remove { .. }
            | Operation::Barrier
            | Operation::Share(_) => false,
        }
    }

    /// Describes the call for messages: its verb and first key.
    pub(crate) fn subject(&self) -> String {
        subject_of(std::slice::from_ref(self))
    }

    /// Returns the verb with its options, one part per key, and the rest of what ranks must agree
    /// on. Calls with different fingerprints differ in a part.
    pub(crate) fn parts(&self) -> Result<Vec<String>> {
        let (verb, keys) = self.name();
        let values = match &self.operation {
            Operation::Init { values, .. } | Operation::Push { sums: values, .. } => {
                values.as_slice()
            }
            _ => &[],
        };
        let part = |(index, key): (usize, &Key)| match values.get(index) {
            Some(Value::Dense(value)) => format!("`{key}` {}", value.spec()),
            Some(Value::Rows(rows)) => format!("`{key}` {} as rows", rows.spec()),
            None => format!("`{key}`"),
        };
        let own = keys.iter().enumerate().map(part);
        let mut parts = fallible::gather([self.head(verb)].into_iter().chain(own))?;
        if let Operation::Rollback(snapshot) = &self.operation {
            parts_of(snapshot, &mut parts)?;
        }
        Ok(parts)
    }

    fn head(&self, verb: &str) -> String {
        let existing = match &self.operation {
            Operation::Init { existing: OnExisting::Keep, .. } => " that keeps keys",
            Operation::Init { existing: OnExisting::Replace, .. } => " that replaces keys",
            _ => "",
        };
        // Only pushes have a priority that the user chooses.
        let priority = match (&self.operation, self.priority) {
            (Operation::Push { .. }, priority) if priority != 0 => {
                format!(" with priority {priority}")
            }
            _ => String::new(),
        };
        let store = match self.stores.number {
            0 => String::new(),
            number => format!(" on store {}", number + 1),
        };
        format!("{verb}{existing}{priority}{store}")
    }

    /// Returns the verb and the keys.
    fn name(&self) -> (&'static str, &[Key]) {
        match &self.operation {
            Operation::Init { keys, .. } => ("init", keys.as_slice()),
            Operation::Push { keys, .. } => ("push", keys.as_slice()),
            Operation::Remove { keys } => ("remove", keys.as_slice()),
            Operation::Barrier => ("barrier", &[][..]),
            Operation::Snapshot(..) => ("snapshot", &[][..]),
            Operation::Share(_) => ("restore", &[][..]),
            Operation::Rollback(_) => ("rollback", &[][..]),
        }
    }

    /// Returns the number of bytes that the call sends if it may be combined with other pushes, or
    /// `None` if not. Only dense pushes that cannot be rejected may be combined.
    fn joins(&self) -> Option<usize> {
        let Operation::Push { keys, sums } = &self.operation else { return None };
        // Clipping computes one norm for each call.
        let is_clipped = self.stores.config().clip_global_norm.is_some();
        if is_clipped || !self.stores.takes(keys, sums) {
            return None;
        }
        // Ranks push different rows, so they would compute different sizes.
        let bytes = |sum: &Value| sum.rows().is_none().then_some(sum.num_bytes());
        sums.iter().map(bytes).sum()
    }
}

/// Appends the properties in which the snapshots of two ranks can differ.
fn parts_of(snapshot: &Snapshot, parts: &mut Vec<String>) -> Result<()> {
    let part = |stats: KeyStats| {
        let KeyStats { key, spec, num_pushes, state_bytes, .. } = stats;
        format!("`{key}` {spec} after {num_pushes} pushes with {state_bytes} bytes of state")
    };
    // These are the values that the fingerprint hashes, so every difference is shown.
    let file = match snapshot.checksum() {
        Some(checksum) => format!("a file with checksum {checksum:08x}"),
        None => "no file".to_owned(),
    };
    let updater = if snapshot.has_updater() { "an updater" } else { "no updater" }.to_owned();
    let compression = match snapshot.compression() {
        Some(compression) => {
            format!("compression {} with threshold {}", compression.name(), compression.threshold())
        }
        None => "no compression".to_owned(),
    };
    let optimizer = match snapshot.optimizer() {
        Some(optimizer) => format!("optimizer {}", optimizer.to_json().unwrap_or_default()),
        None => "no optimizer".to_owned(),
    };
    let clip = match snapshot.clip_global_norm() {
        Some(bound) => format!("clip_global_norm {bound}"),
        None => "no clip_global_norm".to_owned(),
    };
    let rest = [file, updater, compression, clip, optimizer];
    fallible::reserve(parts, snapshot.len() + rest.len())?;
    parts.extend(snapshot.stats().map(part).chain(rest));
    Ok(())
}

/// Describes calls that are combined into one, for messages.
pub(crate) fn subject_of(calls: &[Call]) -> String {
    let verb = calls.first().map_or("", |call| call.name().0);
    describe_call(verb, calls.iter().flat_map(|call| call.name().1))
}

/// The preceding calls of one store.
struct PrecedingCalls<'a> {
    /// The keys that these calls push.
    pushed: HashSet<&'a Key>,
    is_empty: bool,
    is_only_pushes: bool,
}

impl<'a> PrecedingCalls<'a> {
    /// Adds a call. Returns whether it may run before all preceding calls. The cost is proportional
    /// to the number of its keys.
    fn lets_pass(&mut self, operation: &'a Operation) -> Result<bool> {
        let is_first = std::mem::replace(&mut self.is_empty, false);
        let Operation::Push { keys, .. } = operation else {
            self.is_only_pushes = false;
            return Ok(is_first);
        };
        fallible::reserve_items(&mut self.pushed, keys.len())?;
        let mut is_free = self.is_only_pushes;
        for key in keys {
            is_free &= self.pushed.insert(key);
        }
        Ok(is_free)
    }
}

impl Default for PrecedingCalls<'_> {
    fn default() -> Self {
        Self { pushed: HashSet::new(), is_empty: true, is_only_pushes: true }
    }
}

/// Returns the indices of the calls that may run before all earlier ones, by descending priority.
/// Calls of equal priority keep their order.
fn in_order(calls: &[&Call]) -> Result<Vec<usize>> {
    if calls.len() == 1 {
        return Ok(Vec::from([0]));
    }
    let mut earlier: HashMap<u64, PrecedingCalls<'_>> = HashMap::new();
    let mut order = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        if earlier.entry(call.stores.number).or_default().lets_pass(&call.operation)? {
            order.push(index);
        }
    }
    // The index in the sort key keeps the order of equal priorities. A stable sort would allocate.
    order.sort_unstable_by_key(|index| {
        (calls.get(*index).map(|call| Reverse(call.priority)), *index)
    });
    Ok(order)
}

/// Returns the indices of the calls to make next: one call, or several pushes to one store that are
/// combined. `agree` returns whether all ranks have the same configuration for the call at an
/// index.
pub(crate) fn select(calls: &[&Call], agree: impl Fn(usize) -> bool) -> Result<Vec<usize>> {
    let mut order = in_order(calls)?;
    let store = order.first().and_then(|index| calls.get(*index)).map(|call| call.stores.number);
    let mut num_bytes = 0;
    let mut joins = |index: &usize| {
        let call = calls.get(*index).filter(|call| Some(call.stores.number) == store);
        let len = call.filter(|_| agree(*index)).and_then(|call| call.joins());
        num_bytes += len.unwrap_or(MAX_BATCH);
        len.is_some() && num_bytes <= MAX_BATCH
    };
    let num_joined = order.iter().take_while(|index| joins(index)).count();
    order.truncate(num_joined.max(1));
    Ok(order)
}

impl Hash for Operation {
    /// Hashes what must be the same on all ranks. Elements are not hashed. A snapshot contributes
    /// its checksum and statistics instead.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut write = |verb: u8, keys: &[Key], values: &[Value]| {
            hash_keys(verb, keys.iter(), hasher);
            for value in values {
                hash_spec(value.spec(), hasher);
                value.rows().is_some().hash(hasher);
            }
        };
        match self {
            Self::Init { keys, values, existing } => write(10 + *existing as u8, keys, values),
            Self::Push { keys, sums } => write(1, keys, sums),
            Self::Remove { keys } => write(2, keys, &[]),
            Self::Barrier => write(3, &[], &[]),
            Self::Snapshot(..) => write(4, &[], &[]),
            Self::Share(_) => write(6, &[], &[]),
            Self::Rollback(snapshot) => {
                hash_keys(5, snapshot.keys(), hasher);
                for stats in snapshot.stats() {
                    hash_spec(&stats.spec, hasher);
                    (stats.num_pushes, stats.state_bytes).hash(hasher);
                }
                // Files of two runs may differ only in their checksums.
                snapshot.checksum().hash(hasher);
                snapshot.has_updater().hash(hasher);
                let compression = snapshot.compression();
                compression
                    .map(|compression| (compression.name(), compression.threshold().to_bits()))
                    .hash(hasher);
                snapshot.clip_global_norm().map(f64::to_bits).hash(hasher);
                snapshot
                    .optimizer()
                    .map(|optimizer| optimizer.to_json().unwrap_or_default())
                    .hash(hasher);
            }
        }
    }
}

fn hash_keys<'a>(verb: u8, keys: impl ExactSizeIterator<Item = &'a Key>, hasher: &mut impl Hasher) {
    (verb, keys.len()).hash(hasher);
    for key in keys {
        key.as_str().hash(hasher);
    }
}

fn hash_spec(spec: &TensorSpec, hasher: &mut impl Hasher) {
    spec.shape().dims().hash(hasher);
    spec.dtype().name().hash(hasher);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use kvstore_core::{
        Backends, BoxError, CpuBackend, DType, Device, KvStore, LocalStore, Tensor, TensorSpec,
        Updater,
    };

    use super::*;
    use crate::local::LocalCollective;

    /// Returns a call to the store with this number.
    fn call(store: u64, operation: Operation, priority: i32) -> Call {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let sums = LocalStore::new("local", backends.clone()).unwrap();
        let collective = Arc::new(LocalCollective::group(1).pop().unwrap());
        let stores =
            Arc::new(Stores::new(store, Arc::default(), &backends, collective, sums).unwrap());
        Call::new(stores, operation, priority, Arc::default())
    }

    fn push(keys: &[&str], priority: i32) -> Call {
        let keys = keys.iter().map(|key| Key::new(key).unwrap()).collect();
        call(0, Operation::Push { keys, sums: Vec::new() }, priority)
    }

    fn barrier() -> Call {
        call(0, Operation::Barrier, 0)
    }

    fn order(calls: &[Call]) -> Vec<usize> {
        in_order(&calls.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn higher_priorities_run_first_but_pushes_of_one_key_keep_their_order() {
        assert_eq!(order(&[]), [] as [usize; 0]);
        assert_eq!(order(&[push(&["a"], 0)]), [0]);
        assert_eq!(order(&[push(&["a"], 0), push(&["b"], 1), push(&["c"], 1)]), [1, 2, 0]);
        assert_eq!(order(&[push(&["a"], 0), push(&["b", "a"], 9), push(&["b"], 5)]), [0]);
        assert_eq!(order(&[push(&["a"], -3), barrier(), push(&["b"], 9)]), [0]);
        assert_eq!(order(&[barrier(), push(&["b"], 9)]), [0]);
        assert_eq!(order(&[push(&["a"], -5), push(&["b"], -4)]), [1, 0]);
        // Equal keys of different stores are independent.
        let other =
            call(1, Operation::Push { keys: vec![Key::new("a").unwrap()], sums: Vec::new() }, 9);
        assert_eq!(order(&[push(&["a"], 0), other]), [1, 0]);
    }

    /// Returns pushes of distinct keys to one store.
    fn pushes(num_calls: usize, num_keys: usize) -> Vec<Call> {
        let stores = barrier().stores.clone();
        let push = |call: usize| {
            let key = |number| Key::new(&format!("{call} {number}")).unwrap();
            let keys = (0..num_keys).map(key).collect();
            let operation = Operation::Push { keys, sums: Vec::new() };
            Call::new(Arc::clone(&stores), operation, 0, Arc::default())
        };
        (0..num_calls).map(push).collect()
    }

    /// Linear time is less than a second, quadratic time is minutes.
    #[test]
    fn ordering_takes_linear_time() {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for (num_calls, num_keys) in [(100_000, 1), (2, 200_000)] {
                let all: Vec<usize> = (0..num_calls).collect();
                assert_eq!(order(&pushes(num_calls, num_keys)), all);
            }
            sender.send(()).unwrap();
        });
        let done = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(done, Ok(()), "ordering 400,000 keys failed or took a minute");
    }

    #[test]
    fn pushes_that_cannot_be_rejected_are_combined() {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let stores = Arc::clone(&barrier().stores);
        let value = |len: usize| {
            let spec = TensorSpec::new([len], DType::F32);
            Value::from(Tensor::allocate(&backends, Device::cpu(0), spec).unwrap())
        };
        let few = MAX_BATCH / 4 / 3;
        for (key, len) in [("a", 3), ("b", few), ("c", few), ("d", few), ("e", 3)] {
            stores.complete.init(&[Key::new(key).unwrap()], &[value(len)]).unwrap();
        }
        let push = |stores: &Arc<Stores>, key, len, priority| {
            let (keys, sums) = (vec![Key::new(key).unwrap()], vec![value(len)]);
            Call::new(Arc::clone(stores), Operation::Push { keys, sums }, priority, Arc::default())
        };
        let made = |calls: &[Call]| {
            let calls: Vec<&Call> = calls.iter().collect();
            let (all, none) =
                (select(&calls, |_| true).unwrap(), select(&calls, |_| false).unwrap());
            assert_eq!(none, all[..1]);
            all
        };
        let all = |priorities: [i32; 5]| {
            let lens = [("a", 3), ("b", few), ("c", few), ("d", few), ("e", 3)];
            let calls = lens.into_iter().zip(priorities);
            calls
                .map(|((key, len), priority)| push(&stores, key, len, priority))
                .collect::<Vec<_>>()
        };
        // As many pushes as fit are combined, in order.
        assert_eq!(made(&all([0; 5])), [0, 1, 2]);
        assert_eq!(made(&all([1, 2, 3, 4, 5])), [4, 3, 2]);
        // Not combined: a wrong shape, an unknown key, the same key twice, another store, and calls
        // that are not pushes.
        assert_eq!(made(&[push(&stores, "a", 3, 0), push(&stores, "e", 4, 0)]), [0]);
        assert_eq!(made(&[push(&stores, "e", 4, 0), push(&stores, "a", 3, 0)]), [0]);
        assert_eq!(made(&[push(&stores, "a", 3, 0), push(&stores, "x", 3, 0)]), [0]);
        assert_eq!(made(&[push(&stores, "a", 3, 0), push(&stores, "a", 3, 0)]), [0]);
        let stranger = Stores::new(
            1,
            Arc::default(),
            &backends,
            Arc::clone(&stores.collective),
            LocalStore::new("local", backends.clone()).unwrap(),
        );
        let stranger = Arc::new(stranger.unwrap());
        stranger.complete.init(&[Key::new("e").unwrap()], &[value(3)]).unwrap();
        assert_eq!(made(&[push(&stores, "a", 3, 0), push(&stranger, "e", 3, 0)]), [0]);
        let barrier = Call::new(Arc::clone(&stores), Operation::Barrier, 0, Arc::default());
        assert_eq!(made(&[push(&stores, "a", 3, 0), barrier, push(&stores, "e", 3, 0)]), [0]);
        // An updater may reject a push.
        stores.set_updater(Some(Arc::new(Never))).unwrap();
        assert_eq!(made(&all([0; 5])), [0]);
    }

    #[derive(Debug)]
    struct Never;

    impl Updater for Never {
        fn update(&self, _: &Key, _: &Tensor, _: &mut Tensor) -> Result<(), BoxError> {
            Ok(())
        }
    }

    #[test]
    fn different_calls_have_different_fingerprints() {
        let calls = [push(&["a"], 0), push(&["b"], 0), push(&["a"], 1), push(&["a", "b"], 0)];
        let fingerprints: Vec<u64> = calls.iter().map(|call| call.fingerprint).collect();
        for (index, fingerprint) in fingerprints.iter().enumerate() {
            assert_eq!(fingerprints.iter().position(|other| other == fingerprint), Some(index));
        }
        assert_eq!(push(&["a", "b"], 0).fingerprint, fingerprints[3]);
    }
}

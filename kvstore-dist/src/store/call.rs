//! [`Call`]: a collective operation, and which of several calls come next.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kvstore_core::fallible;
use kvstore_core::{Error, Key, KeyStats, OnExisting, Result, Snapshot, TensorSpec, Value};

use super::stores::{MAX_BATCH, Stores};
use super::ticket::Ticket;

/// A call that every rank makes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) stores: Arc<Stores>,
    pub(crate) operation: Operation,
    pub(crate) priority: i32,
    /// A number that calls of several ranks have in common which are the same.
    pub(crate) fingerprint: u64,
    pub(crate) ticket: Arc<Ticket>,
}

impl Drop for Call {
    /// Nobody waits for a call that has come to no end.
    fn drop(&mut self) {
        self.ticket.end(Err(Error::Internal("a call of all ranks has panicked".to_owned())));
    }
}

/// What is done.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Rank 0's values become those of every rank.
    Init {
        keys: Vec<Key>,
        values: Vec<Value>,
        existing: OnExisting,
    },
    /// Each key gets the sum over all ranks. A key stands once.
    Push {
        keys: Vec<Key>,
        sums: Vec<Value>,
    },
    Remove {
        keys: Vec<Key>,
    },
    /// Nothing, when all before it is done; rank 0's configuration becomes that of every rank.
    Barrier,
    /// Every rank gets what all of them hold, as a snapshot of a store of this name.
    Snapshot(String, Arc<SnapshotSlot>),
    /// Every rank gets a snapshot: its own, which it has put there, or that of the first which has one.
    Share(Arc<SharedSnapshot>),
    /// Every rank goes back to its part of the same snapshot.
    Rollback(Box<Snapshot>),
}

impl Operation {
    /// Returns how many bytes of elements wait with it.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Push { sums, .. } => sums.iter().map(Value::num_bytes).sum(),
            _ => 0,
        }
    }
}

/// Where a snapshot is put.
pub(crate) type SnapshotSlot = std::sync::Mutex<Option<Snapshot>>;

/// The snapshot of a restore, exchanged between ranks.
#[derive(Debug)]
pub(crate) struct SharedSnapshot {
    pub(crate) taken: SnapshotSlot,
    /// Why this rank has no snapshot.
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

    /// Returns whether it can only be made where all ranks have the same configuration.
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

    /// Returns its name for texts, with its first key.
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
        // All other calls have the same one.
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

    /// Returns its verb, and its keys.
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

    /// Returns how many bytes it sends, if it is a push that can be made with others as one: nobody can say no to it.
    fn joins(&self) -> Option<usize> {
        let Operation::Push { keys, sums } = &self.operation else { return None };
        // Each call has a norm of its own.
        let is_clipped = self.stores.config().clip_global_norm.is_some();
        if is_clipped || !self.stores.takes(keys, sums) {
            return None;
        }
        // Of rows each rank has others.
        let bytes = |sum: &Value| sum.rows().is_none().then_some(sum.num_bytes());
        sums.iter().map(bytes).sum()
    }
}

/// Appends the parts in which snapshots can differ.
fn parts_of(snapshot: &Snapshot, parts: &mut Vec<String>) -> Result<()> {
    let part = |of_key: KeyStats| {
        let KeyStats { key, spec, num_pushes, state_bytes, .. } = of_key;
        format!("`{key}` {spec} after {num_pushes} pushes with {state_bytes} bytes of state")
    };
    let file = match snapshot.checksum() {
        Some(checksum) => format!("a file with checksum {checksum:08x}"),
        None => "no file".to_owned(),
    };
    let updater = if snapshot.has_updater() { "an updater" } else { "no updater" }.to_owned();
    let compression = match snapshot.compression() {
        Some(it) => format!("compression {} with threshold {}", it.name(), it.threshold()),
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

/// Returns the name of calls that are made as one.
pub(crate) fn subject_of(calls: &[Call]) -> String {
    let verb = calls.first().map_or("", |call| call.name().0);
    let mut keys = calls.iter().flat_map(|call| call.name().1);
    match (keys.next(), keys.count()) {
        (None, _) => verb.to_owned(),
        (Some(key), 0) => format!("{verb} of `{key}`"),
        (Some(key), more) => format!("{verb} of `{key}` and {more} more"),
    }
}

/// The preceding calls of one store.
struct PrecedingCalls<'a> {
    /// The keys that they push.
    pushed: HashSet<&'a Key>,
    is_empty: bool,
    is_only_pushes: bool,
}

impl<'a> PrecedingCalls<'a> {
    /// Adds a call. Returns whether it may run before all preceding ones. The cost is proportional
    /// to its keys.
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

/// Returns the calls that need not wait for an earlier one, those of a higher priority first, of several the first.
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
    // Calls of one priority stay in their order. A stable sort would allocate.
    order.sort_unstable_by_key(|index| {
        (calls.get(*index).map(|call| Reverse(call.priority)), *index)
    });
    Ok(order)
}

/// Returns which of the calls are made next: one, or several pushes to a store that travel as one. `agree` says whether
/// all ranks have the same configuration for a call.
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
    /// Hashes what is the same on all ranks: no elements but those that came from elsewhere, by what is known of them.
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
                for of_key in snapshot.stats() {
                    hash_spec(&of_key.spec, hasher);
                    (of_key.num_pushes, of_key.state_bytes).hash(hasher);
                }
                // What two runs have written may differ in nothing else.
                snapshot.checksum().hash(hasher);
                snapshot.has_updater().hash(hasher);
                let compression = snapshot.compression();
                compression.map(|it| (it.name(), it.threshold().to_bits())).hash(hasher);
                snapshot.clip_global_norm().map(f64::to_bits).hash(hasher);
                snapshot.optimizer().map(|it| it.to_json().unwrap_or_default()).hash(hasher);
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

    /// Returns a call of a store with this number.
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
    fn calls_of_higher_priority_go_first_but_no_key_is_overtaken() {
        assert_eq!(order(&[]), [] as [usize; 0]);
        assert_eq!(order(&[push(&["a"], 0)]), [0]);
        assert_eq!(order(&[push(&["a"], 0), push(&["b"], 1), push(&["c"], 1)]), [1, 2, 0]);
        assert_eq!(order(&[push(&["a"], 0), push(&["b", "a"], 9), push(&["b"], 5)]), [0]);
        assert_eq!(order(&[push(&["a"], -3), barrier(), push(&["b"], 9)]), [0]);
        assert_eq!(order(&[barrier(), push(&["b"], 9)]), [0]);
        assert_eq!(order(&[push(&["a"], -5), push(&["b"], -4)]), [1, 0]);
        // Another store's keys are others.
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
    fn pushes_that_nothing_can_stop_are_made_as_one() {
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
        // As many as fit, in their order.
        assert_eq!(made(&all([0; 5])), [0, 1, 2]);
        assert_eq!(made(&all([1, 2, 3, 4, 5])), [4, 3, 2]);
        // No other shape, no other key, no other store, no key twice, nothing else.
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
        // An updater may refuse one of them.
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
    fn what_is_not_the_same_has_another_fingerprint() {
        let calls = [push(&["a"], 0), push(&["b"], 0), push(&["a"], 1), push(&["a", "b"], 0)];
        let fingerprints: Vec<u64> = calls.iter().map(|call| call.fingerprint).collect();
        for (index, fingerprint) in fingerprints.iter().enumerate() {
            assert_eq!(fingerprints.iter().position(|other| other == fingerprint), Some(index));
        }
        assert_eq!(push(&["a", "b"], 0).fingerprint, fingerprints[3]);
    }
}

//! [`Call`]: what ranks do together, and which of several calls comes next.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kvstore_core::{Error, Existing, Key, Snapshot, TensorSpec, Value};

use super::stores::Stores;
use super::ticket::Ticket;

/// A call that every rank makes.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) stores: Arc<Stores>,
    pub(crate) act: Act,
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
pub(crate) enum Act {
    /// Rank 0's values become those of every rank.
    Init {
        keys: Vec<Key>,
        values: Vec<Value>,
        existing: Existing,
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
    Snapshot(String, Arc<Taken>),
    /// Every rank gets a snapshot: its own, which it has put there, or that of the first which has one.
    Share(Arc<Taken>),
    /// Every rank goes back to its part of the same snapshot.
    Rollback(Box<Snapshot>),
}

impl Act {
    /// Returns how many bytes of elements wait with it.
    pub(crate) fn num_bytes(&self) -> usize {
        match self {
            Self::Push { sums, .. } => sums.iter().map(Value::num_bytes).sum(),
            _ => 0,
        }
    }
}

/// Where a snapshot is put.
pub(crate) type Taken = std::sync::Mutex<Option<Snapshot>>;

impl Call {
    pub(crate) fn new(stores: Arc<Stores>, act: Act, priority: i32, ticket: Arc<Ticket>) -> Self {
        let mut hasher = DefaultHasher::new();
        (stores.number, priority).hash(&mut hasher);
        act.hash(&mut hasher);
        Self { stores, act, priority, fingerprint: hasher.finish(), ticket }
    }

    /// Returns whether it can only be made where all ranks have the same configuration.
    pub(crate) fn needs_agreement(&self) -> bool {
        match &self.act {
            Act::Push { .. } | Act::Snapshot(..) => true,
            Act::Rollback(snapshot) => snapshot.has_updater(),
            Act::Init { .. } | Act::Remove { .. } | Act::Barrier | Act::Share(_) => false,
        }
    }

    /// Returns its name for texts, with its first key.
    pub(crate) fn subject(&self) -> String {
        let (verb, keys) = match &self.act {
            Act::Init { keys, .. } => ("init", keys.as_slice()),
            Act::Push { keys, .. } => ("push", keys.as_slice()),
            Act::Remove { keys } => ("remove", keys.as_slice()),
            Act::Barrier => ("barrier", &[][..]),
            Act::Snapshot(..) => ("snapshot", &[][..]),
            Act::Share(_) => ("restore", &[][..]),
            Act::Rollback(_) => ("rollback", &[][..]),
        };
        match keys {
            [] => verb.to_owned(),
            [key] => format!("{verb} of `{key}`"),
            [key, rest @ ..] => format!("{verb} of `{key}` and {} more", rest.len()),
        }
    }

    /// Returns whether the two may not change places.
    fn is_bound_to(&self, other: &Self) -> bool {
        if self.stores.number != other.stores.number {
            return false;
        }
        match (&self.act, &other.act) {
            (Act::Push { keys: one, .. }, Act::Push { keys: other, .. }) => {
                one.iter().any(|key| other.contains(key))
            }
            _ => true,
        }
    }
}

/// Returns which of the calls comes first: the one of the highest priority, of several the first, among those that need
/// not wait for an earlier one.
pub(crate) fn next<'a>(calls: impl Iterator<Item = &'a Call>) -> usize {
    let mut earlier: Vec<&Call> = Vec::new();
    let mut best = (i32::MIN, 0);
    for (index, call) in calls.enumerate() {
        let is_free = earlier.iter().all(|other| !call.is_bound_to(other));
        if is_free && (index == 0 || call.priority > best.0) {
            best = (call.priority, index);
        }
        earlier.push(call);
    }
    best.1
}

impl Hash for Act {
    /// Hashes what is the same on all ranks: no elements but those that came from elsewhere, by what is known of them.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut write = |verb: u8, keys: &[Key], values: &[Value]| {
            (verb, keys.len()).hash(hasher);
            for key in keys {
                key.as_str().hash(hasher);
            }
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
                write(5, &snapshot.keys(), &[]);
                for of_key in snapshot.stats() {
                    hash_spec(&of_key.spec, hasher);
                    (of_key.num_pushes, of_key.state_bytes).hash(hasher);
                }
                // What two runs have written may differ in nothing else.
                snapshot.checksum().hash(hasher);
                snapshot.has_updater().hash(hasher);
                let compression = snapshot.compression();
                compression.map(|it| (it.name(), it.threshold().to_bits())).hash(hasher);
                snapshot.optimizer().map(|it| it.to_json().unwrap_or_default()).hash(hasher);
            }
        }
    }
}

fn hash_spec(spec: &TensorSpec, hasher: &mut impl Hasher) {
    spec.shape().dims().hash(hasher);
    spec.dtype().name().hash(hasher);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use kvstore_core::{Backends, CpuBackend, LocalStore};

    use super::*;
    use crate::local::LocalCollective;

    /// Returns a call of a store with this number.
    fn call(store: u64, act: Act, priority: i32) -> Call {
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let sums = LocalStore::new("local", backends.clone()).unwrap();
        let collective = Arc::new(LocalCollective::group(1).pop().unwrap());
        let stores =
            Arc::new(Stores::new(store, Arc::default(), &backends, collective, sums).unwrap());
        Call::new(stores, act, priority, Arc::default())
    }

    fn push(keys: &[&str], priority: i32) -> Call {
        let keys = keys.iter().map(|key| Key::new(key).unwrap()).collect();
        call(0, Act::Push { keys, sums: Vec::new() }, priority)
    }

    fn barrier() -> Call {
        call(0, Act::Barrier, 0)
    }

    #[test]
    fn calls_of_higher_priority_go_first_but_no_key_is_overtaken() {
        assert_eq!(next([push(&["a"], 0)].iter()), 0);
        assert_eq!(next([push(&["a"], 0), push(&["b"], 1), push(&["c"], 1)].iter()), 1);
        assert_eq!(next([push(&["a"], 0), push(&["b", "a"], 9), push(&["b"], 5)].iter()), 0);
        assert_eq!(next([push(&["a"], -3), barrier(), push(&["b"], 9)].iter()), 0);
        assert_eq!(next([barrier(), push(&["b"], 9)].iter()), 0);
        assert_eq!(next([push(&["a"], -5), push(&["b"], -4)].iter()), 1);
        // Another store's keys are others.
        let other = call(1, Act::Push { keys: vec![Key::new("a").unwrap()], sums: Vec::new() }, 9);
        assert_eq!(next([push(&["a"], 0), other].iter()), 1);
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

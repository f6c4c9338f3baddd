//! [`Snapshots`]: the snapshots that a server keeps for its members.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kvstore_core::{Error, Key, Result, Snapshot, fallible};

use super::verbs::{Answer, stats_of};
use crate::proto;
use crate::wire::{Elements, parse_keys};

/// The most snapshots of a member.
const MOST_SNAPSHOTS: usize = 1024;

/// The snapshots that members need, by the incarnation of the member.
#[derive(Debug, Default)]
pub(super) struct Snapshots(Mutex<HashMap<u64, Needed>>);

/// The snapshots that a member needs.
#[derive(Debug, Default)]
struct Needed {
    /// The number of the newest list of the member.
    change: u64,
    /// The snapshots of that list by their numbers, or `None` for those that have not been taken.
    snapshots: BTreeMap<u64, Option<Arc<KeptSnapshot>>>,
}

/// A snapshot that a server keeps. Its values share the memory of the store.
#[derive(Debug)]
pub(super) struct KeptSnapshot {
    pub(super) snapshot: Snapshot,
    /// The placements of the keys that existed for all members, if there are several servers.
    pub(super) placements: HashMap<Key, proto::Placement>,
}

/// Snapshots that are not needed any more. They must be dropped without a lock, because that may
/// take long, and may drop an updater.
pub(super) type Released = Vec<Arc<KeptSnapshot>>;

impl Needed {
    /// Takes over the list of a member, if it is newer. Returns the snapshots that are not in it.
    fn update(&mut self, list: &proto::SnapshotList) -> Result<Released> {
        let mut released = Vec::new();
        if list.change <= self.change {
            return Ok(released);
        }
        if list.snapshots.len() > MOST_SNAPSHOTS {
            return Err(Error::InvalidArgument(format!(
                "snapshot: expected at most {MOST_SNAPSHOTS} of a process at a time, found {}: \
                 drop some first",
                list.snapshots.len()
            )));
        }
        self.change = list.change;
        let mut before = std::mem::take(&mut self.snapshots);
        let listed = list.snapshots.iter();
        self.snapshots = listed.map(|number| (*number, before.remove(number).flatten())).collect();
        released.extend(before.into_values().flatten());
        Ok(released)
    }
}

impl Snapshots {
    /// Returns the number of snapshots of all members.
    pub(super) fn len(&self) -> usize {
        self.needed().values().map(|own| own.snapshots.len()).sum()
    }

    fn needed(&self) -> MutexGuard<'_, HashMap<u64, Needed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps only the snapshots of this list of a member, unless the member has sent a newer one.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the list is too long.
    pub(super) fn keep(&self, incarnation: u64, list: &proto::SnapshotList) -> Result<Released> {
        let mut needed = self.needed();
        fallible::reserve_entries(&mut needed, 1)?;
        needed.entry(incarnation).or_default().update(list)
    }

    /// Returns the snapshot of this number. If there is none, takes and keeps it.
    ///
    /// # Errors
    /// - [`Error::Transport`] if the member does not need it any more.
    pub(super) fn take(
        &self,
        incarnation: u64,
        number: u64,
        take: impl FnOnce() -> Result<KeptSnapshot>,
    ) -> Result<Arc<KeptSnapshot>> {
        match self.needed().get(&incarnation).and_then(|own| own.snapshots.get(&number)) {
            None => return Err(not_kept()),
            Some(Some(kept)) => return Ok(Arc::clone(kept)),
            Some(None) => {}
        }
        let taken = Arc::new(take()?);
        let mut needed = self.needed();
        let own = needed.get_mut(&incarnation);
        // Another attempt of the call may have taken it meanwhile, or the member may have left.
        let kept = own.and_then(|own| own.snapshots.get_mut(&number));
        let kept = kept.map(|kept| Arc::clone(kept.get_or_insert_with(|| Arc::clone(&taken))));
        drop(needed);
        kept.ok_or_else(not_kept)
    }

    /// Removes what was taken for a snapshot.
    pub(super) fn remove(&self, incarnation: u64, number: u64) -> Option<Arc<KeptSnapshot>> {
        let mut needed = self.needed();
        needed.get_mut(&incarnation)?.snapshots.get_mut(&number)?.take()
    }

    /// # Errors
    /// - [`Error::Transport`] if the server does not keep this snapshot.
    pub(super) fn get(&self, incarnation: u64, number: u64) -> Result<Arc<KeptSnapshot>> {
        let needed = self.needed();
        let own = needed.get(&incarnation);
        own.and_then(|own| own.snapshots.get(&number)?.clone()).ok_or_else(not_kept)
    }

    /// Forgets the snapshots of all members but these.
    pub(super) fn forget(&self, remembered: impl FnOnce() -> HashSet<u64>) -> Released {
        let mut needed = self.needed();
        // Called with the lock, so that no member joins and takes a snapshot in between.
        let remembered = remembered();
        let is_forgotten = |number: &&u64| !remembered.contains(number);
        let forgotten: Vec<u64> = needed.keys().filter(is_forgotten).copied().collect();
        let forgotten = forgotten.iter().filter_map(|number| needed.remove(number));
        forgotten.flat_map(|own| own.snapshots.into_values().flatten()).collect()
    }
}

fn not_kept() -> Error {
    Error::Transport {
        operation: "snapshot".to_owned(),
        source: "the server does not keep it any more: the server was restarted, or this process \
                 was not connected for longer than a lease"
            .into(),
    }
}

impl KeptSnapshot {
    /// Returns the statistics and the settings.
    pub(super) fn outline(&self) -> Result<Answer> {
        let mut answer = self.read(&[])?;
        answer.reply.stats = fallible::collect(self.snapshot.stats().map(|stats| {
            let placement = self.placements.get(&stats.key).cloned();
            proto::KeyStats { placement, ..stats_of(&stats) }
        }))?;
        Ok(answer)
    }

    /// Returns each key with its placement.
    pub(super) fn messages(&self) -> Result<Vec<proto::Value>> {
        let message = |(key, placement): (&Key, &proto::Placement)| proto::Value {
            key: key.as_str().to_owned(),
            placement: Some(placement.clone()),
            ..proto::Value::default()
        };
        fallible::gather(self.placements.iter().map(message))
    }

    /// Returns a file with these keys.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if the snapshot does not have a key.
    pub(super) fn read(&self, keys: &[String]) -> Result<Answer> {
        file_of(&self.snapshot.only(&parse_keys(keys)?)?)
    }
}

/// Returns the file of a snapshot, which shares the memory of its values.
fn file_of(snapshot: &Snapshot) -> Result<Answer> {
    let pieces = snapshot.to_pieces()?;
    let mut elements = Elements::default();
    elements.push_bytes(Bytes::from(pieces.header));
    for tensor in &pieces.tensors {
        elements.push(tensor)?;
    }
    elements.push_bytes(Bytes::copy_from_slice(&pieces.checksum));
    let blob = Some(proto::Blob { num_bytes: elements.num_bytes() as u64 });
    Ok(Answer { reply: proto::Reply { blob, ..Default::default() }, elements, ..Answer::default() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use kvstore_core::{Backends, CpuBackend, KvStore, LocalStore};

    use super::*;

    const MEMBER: u64 = 7;

    fn list(change: u64, snapshots: &[u64]) -> proto::SnapshotList {
        proto::SnapshotList { change, snapshots: snapshots.into() }
    }

    fn some() -> Result<KeptSnapshot> {
        let backends = Backends::new(Vec::from([CpuBackend::with_threads(1)]));
        let snapshot = LocalStore::new("local", backends).unwrap().snapshot()?;
        Ok(KeptSnapshot { snapshot, placements: HashMap::new() })
    }

    #[test]
    fn a_snapshot_that_is_not_needed_is_not_kept() {
        let kept = Snapshots::default();
        assert!(kept.keep(MEMBER, &list(1, &[1])).unwrap().is_empty());
        // The member needs it no more while it is taken, or before a repeated call arrives.
        let while_taken = || {
            assert!(kept.keep(MEMBER, &list(2, &[])).unwrap().is_empty());
            some()
        };
        kept.take(MEMBER, 1, while_taken).unwrap_err();
        assert!(kept.keep(MEMBER, &list(1, &[1])).unwrap().is_empty());
        kept.take(MEMBER, 1, some).unwrap_err();
        kept.get(MEMBER, 1).unwrap_err();
    }

    #[test]
    fn all_attempts_of_a_call_give_the_same_snapshot() {
        let kept = Snapshots::default();
        assert!(kept.keep(MEMBER, &list(2, &[1, 2])).unwrap().is_empty());
        let mut other = None;
        let while_other = || {
            other = Some(kept.take(MEMBER, 1, some).unwrap());
            some()
        };
        let first = kept.take(MEMBER, 1, while_other).unwrap();
        let again = kept.take(MEMBER, 1, || panic!("it has been taken")).unwrap();
        for snapshot in [&first, &other.unwrap(), &kept.get(MEMBER, 1).unwrap()] {
            assert!(Arc::ptr_eq(snapshot, &again));
        }
        // An older list changes nothing. A newer one keeps what it has.
        assert!(kept.keep(MEMBER, &list(1, &[])).unwrap().is_empty());
        let second = kept.take(MEMBER, 2, some).unwrap();
        let released = kept.keep(MEMBER, &list(3, &[2, 3])).unwrap();
        assert!(released.len() == 1 && Arc::ptr_eq(&released[0], &first));
        assert!(Arc::ptr_eq(&kept.get(MEMBER, 2).unwrap(), &second));
        let forgotten = kept.forget(|| HashSet::from([MEMBER + 1]));
        assert!(forgotten.len() == 1 && Arc::ptr_eq(&forgotten[0], &second));
        kept.get(MEMBER, 2).unwrap_err();
    }
}

//! [`Records`]: where the values of the keys of a server are, if its group has several servers.

use std::collections::HashMap;
use std::sync::Arc;

use kvstore_core::{Key, Result, Snapshot, fallible};

#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::rules::placement::NO_LAYOUT;

/// The records of a recovery point.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SavedRecords {
    #[prost(message, repeated, tag = "1")]
    pub(crate) records: Vec<SavedRecord>,
    /// As in [`Records`].
    #[prost(uint64, tag = "2")]
    pub(crate) rollback: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) abandoned: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) newest: u64,
}

/// The record of a key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SavedRecord {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) placement: Option<proto::Placement>,
    #[prost(uint64, tag = "3")]
    pub(crate) stored_by: u64,
}

/// Where the value of a key is.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) placement: proto::Placement,
    /// Whether members see the key. A new key is hidden until all servers have their parts. Calls
    /// of a replaced key wait for them.
    pub(super) is_visible: bool,
    /// The incarnation of the member that has stored the value, which may remove it again.
    pub(super) stored_by: u64,
}

impl Record {
    pub(super) fn without_layout(&self) -> Self {
        let placement = proto::Placement { layout: NO_LAYOUT, ..self.placement.clone() };
        Self { placement, ..*self }
    }
}

/// A key that is being replaced, as it was before.
#[derive(Debug)]
pub(super) struct Suspended {
    pub(super) key: Key,
    pub(super) record: Record,
    pub(super) unfinished_by: Option<u64>,
}

/// A key that was replaced, as it was before, until its `init` is finished or fails.
#[derive(Debug)]
pub(super) struct Replaced {
    record: Record,
    contents: Snapshot,
    /// The positions of all keys at that time in the order of initialisation.
    positions: Arc<HashMap<Key, usize>>,
    /// The incarnation of the member that has replaced the key.
    by: u64,
}

impl Replaced {
    pub(super) fn contents(&self) -> &Snapshot {
        &self.contents
    }

    /// Returns whether the key was before another one in the order of initialisation.
    pub(super) fn was_before(&self, key: &Key, other: &Key) -> bool {
        let position = |key| self.positions.get(key);
        position(other).is_some_and(|other| position(key).is_some_and(|own| own < other))
    }
}

/// Where the values of the keys of this server are.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) by_key: HashMap<Key, Record>,
    /// The keys whose other servers have yet to get their parts, with the incarnation of the member
    /// that stores them.
    pub(super) unfinished: HashMap<Key, u64>,
    /// The keys whose replacing `init` may still fail. If it fails, they are restored.
    pub(super) replaced: HashMap<Key, Replaced>,
    /// The first layout of the last rollback.
    pub(super) rollback: u64,
    /// The largest layout of a key whose `init` was given up before it was finished. Its member may
    /// still store a part with this layout on another server, so later keys need larger ones.
    pub(super) abandoned: u64,
    /// The largest layout of an `init`. A rollback needs a larger one, so that no part replaces its
    /// values.
    pub(super) newest: u64,
}

impl Records {
    /// Returns whether all keys are here in these layouts. A key may have no layout.
    pub(super) fn has_all<'a>(
        &self,
        mut pairs: impl Iterator<Item = Option<(&'a str, u64)>>,
    ) -> bool {
        #[cfg(test)]
        if Fault::IgnoreLayout.is_planted() {
            return pairs.all(|pair| pair.is_some_and(|(key, _)| self.by_key.contains_key(key)));
        }
        pairs.all(|pair| {
            let is_here = |(key, layout)| layout != NO_LAYOUT && self.layout(key) == Some(layout);
            pair.is_some_and(is_here)
        })
    }

    pub(super) fn layout(&self, key: &str) -> Option<u64> {
        self.by_key.get(key).map(|record| record.placement.layout)
    }

    /// Returns the placement of a key that exists for a member. A key that another member is
    /// replacing has no layout yet, so calls wait.
    pub(super) fn visible(&self, key: &str, incarnation: u64) -> Option<proto::Placement> {
        let record = self.by_key.get(key)?;
        let placement = || record.placement.clone();
        #[cfg(test)]
        if Fault::UseEarly.is_planted() && record.is_visible {
            return Some(placement());
        }
        match self.unfinished.get(key) {
            None => record.is_visible.then(placement),
            Some(by) if *by == incarnation => Some(placement()),
            Some(_) => {
                record.is_visible.then(|| proto::Placement { layout: NO_LAYOUT, ..placement() })
            }
        }
    }

    pub(super) fn has(&self, keys: &[String], layouts: &[u64]) -> bool {
        let pairs = keys.iter().map(String::as_str).zip(layouts.iter().copied());
        keys.len() == layouts.len() && self.has_all(pairs.map(Some))
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, key: &Key) {
        self.give_up(key);
        self.replaced.remove(key);
        self.by_key.remove(key);
    }

    /// Keeps a key that a member has replaced. A value whose own `init` was not finished is not
    /// kept, but the one before it.
    pub(super) fn keep(
        &mut self,
        suspended: Suspended,
        (contents, positions): &(Snapshot, Arc<HashMap<Key, usize>>),
        by: u64,
    ) {
        let Suspended { key, record, unfinished_by } = suspended;
        match self.replaced.get_mut(&key) {
            Some(earlier) if unfinished_by.is_some() => earlier.by = by,
            _ if unfinished_by.is_some() => {}
            _ => {
                let (contents, positions) = (contents.clone(), Arc::clone(positions));
                let replaced = Replaced { record, contents, positions, by };
                self.replaced.insert(key, replaced);
            }
        }
    }

    /// Returns those of the keys that were replaced, as they were before.
    pub(super) fn take_replaced(&mut self, keys: &[Key]) -> HashMap<Key, Replaced> {
        keys.iter().filter_map(|key| self.replaced.remove_entry(key)).collect()
    }

    /// Records that a replaced key has its earlier contents again.
    pub(super) fn restore(&mut self, key: &Key, replaced: Replaced) {
        self.give_up(key);
        self.by_key.insert(key.clone(), replaced.record);
    }

    /// Forgets the contents of the keys that these members do not replace.
    pub(super) fn forget_replaced(&mut self, is_member: impl Fn(u64) -> bool) -> Vec<Replaced> {
        let forgotten = self.replaced.extract_if(|_, replaced| !is_member(replaced.by));
        forgotten.map(|(_, replaced)| replaced).collect()
    }

    /// Records that an unfinished `init` of a key was given up. Returns its incarnation.
    fn give_up(&mut self, key: &Key) -> Option<u64> {
        let by = self.unfinished.remove(key)?;
        #[cfg(test)]
        if Fault::ReuseLayouts.is_planted() {
            return Some(by);
        }
        self.abandoned = self.abandoned.max(self.layout(key.as_str()).unwrap_or_default());
        Some(by)
    }

    /// Returns a key whose value is divided among the servers.
    pub(super) fn divided(&self) -> Option<&Key> {
        let is_divided = |record: &Record| record.placement.complete.is_some();
        self.by_key.iter().find(|(_, record)| is_divided(record)).map(|(key, _)| key)
    }

    /// Makes the calls of a key wait, if it is here, until it has a layout again.
    pub(super) fn suspend(&mut self, key: &Key) -> Option<Suspended> {
        let unfinished_by = self.give_up(key);
        let here = self.by_key.get_mut(key)?;
        let without_layout = here.without_layout();
        let record = std::mem::replace(here, without_layout);
        Some(Suspended { key: key.clone(), record, unfinished_by })
    }

    /// Restores a key that has not been replaced.
    pub(super) fn resume(&mut self, suspended: Suspended) {
        let Suspended { key, record, unfinished_by } = suspended;
        if let Some(by) = unfinished_by {
            self.unfinished.insert(key.clone(), by);
        }
        self.by_key.insert(key, record);
    }

    /// Returns whether no key is being added or replaced.
    pub(super) fn is_settled(&self) -> bool {
        self.unfinished.is_empty() && self.replaced.is_empty()
    }

    /// Returns the records of a recovery point, if no key is being added or replaced.
    pub(super) fn saved(&self) -> Result<SavedRecords> {
        let message = |(key, record): (&Key, &Record)| SavedRecord {
            key: key.as_str().to_owned(),
            placement: Some(record.placement.clone()),
            stored_by: record.stored_by,
        };
        let records = fallible::gather(self.by_key.iter().map(message))?;
        let Self { rollback, abandoned, newest, .. } = *self;
        Ok(SavedRecords { records, rollback, abandoned, newest })
    }

    /// Returns the records of an earlier run of the server.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`](kvstore_core::Error::InvalidArgument) if a key is not valid.
    pub(super) fn restored(saved: SavedRecords) -> Result<Self> {
        let mut by_key = fallible::hash_map(saved.records.len())?;
        for SavedRecord { key, placement, stored_by } in saved.records {
            let placement = placement.unwrap_or_default();
            by_key.insert(Key::new(&key)?, Record { placement, is_visible: true, stored_by });
        }
        let SavedRecords { rollback, abandoned, newest, .. } = saved;
        Ok(Self { by_key, rollback, abandoned, newest, ..Self::default() })
    }

    /// Returns each key that exists with its placement.
    pub(super) fn messages(&self) -> Result<Vec<proto::Value>> {
        let message = |(key, record): (&Key, &Record)| proto::Value {
            key: key.as_str().to_owned(),
            placement: Some(record.placement.clone()),
            ..proto::Value::default()
        };
        let visible = self.by_key.iter().filter(|(_, record)| record.is_visible);
        fallible::gather(visible.map(message))
    }
}

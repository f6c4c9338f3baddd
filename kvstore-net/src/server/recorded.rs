//! The changes of [`Contents`] that a journal records.

use std::collections::HashMap;

use kvstore_core::{Key, KvStore, Result, Snapshot, SnapshotPieces, Tensor, Value, fallible};

use super::contents::Contents;
use super::group::Caller;
use super::verbs::{self, Answer, Payload};
use crate::journal::heads::Reason;
use crate::journal::{ChangeRecord, Journal, PushRecord, with_caller};
use crate::proto;
use crate::proto::request::Verb;
use crate::wire::keys_of;

/// Bytes of a tensor that a journal writes.
enum Bytes<'a> {
    OfHost(&'a [u8]),
    /// A copy of elements on a device.
    Copied(Vec<u8>),
}

impl<'a> Bytes<'a> {
    fn of(tensor: &'a Tensor) -> Result<Self> {
        match tensor.host_bytes() {
            Ok(bytes) => Ok(Self::OfHost(bytes)),
            Err(_) => tensor.to_bytes().map(Self::Copied),
        }
    }

    fn get(&self) -> &[u8] {
        match self {
            Self::OfHost(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// Returns the data of a request, as the protocol has them.
fn data_of(values: &[Value]) -> Result<Vec<Bytes<'_>>> {
    let mut pieces = fallible::with_capacity(values.len())?;
    for value in values {
        match value {
            Value::Dense(tensor) => fallible::push(&mut pieces, Bytes::of(tensor)?)?,
            Value::Rows(rows) => {
                let indices = bytemuck::cast_slice(rows.indices());
                fallible::push(&mut pieces, Bytes::OfHost(indices))?;
                fallible::push(&mut pieces, Bytes::of(rows.rows())?)?;
            }
        }
    }
    Ok(pieces)
}

fn with_pieces<R>(pieces: &[Bytes<'_>], write: impl FnOnce(&[&[u8]]) -> Result<R>) -> Result<R> {
    write(&fallible::collect(pieces.iter().map(Bytes::get))?)
}

/// Records the data of a push.
pub(super) fn record_data(
    record: &mut PushRecord<'_>,
    push: &proto::Push,
    values: &[Value],
) -> Result<()> {
    with_pieces(&data_of(values)?, |pieces| record.write_data(push, pieces))
}

impl Contents {
    /// Makes a call, and records this member as its caller.
    pub(super) fn called_by<R>(&self, caller: &Caller, make: impl FnOnce() -> R) -> R {
        match &self.journal {
            Some(_) => with_caller(&caller.name, (caller.incarnation, caller.sequence), make),
            None => make(),
        }
    }

    /// Makes a change of the store, and records it before it takes effect.
    pub(super) fn recorded<R>(
        &self,
        what: &str,
        verb: impl FnOnce() -> Verb,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.recorded_with(|record| record.start(what, verb(), &[]), make)
    }

    fn recorded_with<R>(
        &self,
        start: impl FnOnce(&mut ChangeRecord<'_>) -> Result<()>,
        make: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(journal) = &self.journal else { return make() };
        // Dropped after the record: an updater that is replaced may call the store when it is
        // dropped, and would wait for the record.
        let _updater = self.store.updater();
        let mut record = journal.change();
        if let Some(record) = &mut record {
            start(record)?;
        }
        let answer = make()?;
        if let Some(record) = record {
            record.finish();
        }
        Ok(answer)
    }

    /// Makes a call that changes the store, and is no push.
    pub(super) fn make_recorded(&self, verb: Verb, payload: Payload) -> Result<Answer> {
        let journal = self.journal.as_ref();
        let copy = journal.map(|_| (verb.clone(), payload.clone()));
        let start = |record: &mut ChangeRecord<'_>| {
            let Some((verb, payload)) = copy else { return Ok(()) };
            if let Verb::Init(init) = &verb
                && !self.may_change(init)?
            {
                return Ok(());
            }
            let what = verbs::kind(&verb).name;
            let values = match payload {
                Payload::Values(values) => values,
                Payload::Tensor(tensor) => Vec::from([Value::Dense(tensor)]),
            };
            with_pieces(&data_of(&values)?, |pieces| record.start(what, verb, pieces))
        };
        self.recorded_with(start, || verbs::make(&*self.store, &self.backends, verb, payload))
    }

    /// Returns whether an `init` may add or replace keys. If not, its values need not be recorded.
    fn may_change(&self, init: &proto::Init) -> Result<bool> {
        let mut num_known = 0;
        for value in &init.values {
            num_known += usize::from(self.store.contains(&Key::new(&value.key)?)?);
        }
        Ok(match init.on_existing() {
            proto::OnExisting::Replace => true,
            // Fails if a key is known.
            proto::OnExisting::Reject => num_known == 0,
            proto::OnExisting::Keep => num_known < init.values.len(),
        })
    }

    /// Removes keys.
    pub(crate) fn remove(&self, keys: &[Key]) -> Result<()> {
        let removed =
            || Verb::Remove(proto::Keys { keys: keys_of(keys), ..proto::Keys::default() });
        self.recorded("the removal of keys", removed, || self.store.remove(keys))
    }

    /// Replaces the contents, and records those of `snapshot`.
    pub(super) fn recorded_rollback(
        &self,
        snapshot: impl FnOnce() -> Result<Snapshot>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let start = |record: &mut ChangeRecord<'_>| {
            let (mut header, mut tensors, mut checksum) = (Vec::new(), Vec::new(), [0; 4]);
            if record.has_values() {
                let snapshot = snapshot()?;
                // The residuals belong to the member.
                let name = snapshot.store_name();
                let plain =
                    snapshot.with_residuals(name, snapshot.compression(), &HashMap::new())?;
                SnapshotPieces { header, tensors, checksum } = plain.to_pieces()?;
            }
            let mut pieces = fallible::with_capacity(tensors.len() + 2)?;
            pieces.push(Bytes::OfHost(&header));
            for tensor in &tensors {
                pieces.push(Bytes::of(tensor)?);
            }
            pieces.push(Bytes::OfHost(&checksum));
            with_pieces(&pieces, |pieces| {
                let num_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
                let rollback = proto::Rollback { num_bytes, ..proto::Rollback::default() };
                record.start("a rollback", Verb::Rollback(rollback), pieces)
            })
        };
        self.recorded_with(start, make)
    }

    /// Returns a snapshot whose place in the order of calls the journal records.
    pub(crate) fn marked(&self, reason: Reason, checkpoint: &str) -> Result<Snapshot> {
        let take = || self.unmarked_snapshot();
        match &self.journal {
            Some(journal) => journal.mark((reason, checkpoint), take),
            None => take(),
        }
    }

    /// Records that the server makes a recovery point. Returns the number of the record for
    /// [`Contents::mark_recovered`], or 0 without a journal.
    pub(crate) fn mark_point(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::point)
    }

    /// Records that the server has continued from a recovery point.
    pub(crate) fn mark_recovered(&self, point: u64) {
        if let Some(journal) = self.journal.as_ref().filter(|_| point != 0) {
            journal.recovered(point);
        }
    }

    /// Records the end of the server.
    pub(crate) fn end_journal(&self) {
        if let Some(journal) = &self.journal {
            journal.end(|| self.unmarked_snapshot());
        }
    }
}

//! [`Contents`]: the store of a server, and the compression of its members.
//!
//! Members compress values themselves and keep the residuals, so that only codes travel. The store
//! gets the decoded values and has no compression of its own.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvstore_core::{
    Backends, Compression, Error, Key, KvStore, LocalStore, Result, Snapshot, Value, check_clip,
};

use super::recorded::record_data;
use super::verbs::{self, Answer, Payload};
#[cfg(test)]
use crate::faults::Fault;
use crate::journal::heads::Reason;
use crate::journal::{AttemptRecord, Journal, PushRecord};
use crate::proto;
use crate::proto::change_settings::Change;
use crate::proto::request::Verb;
use crate::wire::{parse_spec, settings_of, to_compression};

/// The most bytes of a key, and the most axes of a value. Neither counts towards the memory limit.
const MOST_KEY_BYTES: usize = 4096;
const MOST_AXES: usize = 64;

/// The store of a server, and the compression of its members.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(super) store: Arc<LocalStore>,
    pub(super) backends: Backends,
    most_keys: usize,
    compression: Mutex<Option<Compression>>,
    pub(super) journal: Option<Journal>,
    /// The last answers to pulls, for [`Fault::OldValue`].
    #[cfg(test)]
    pulled: Mutex<HashMap<proto::Pull, Answer>>,
}

impl Contents {
    pub(crate) fn new(store: Arc<LocalStore>, backends: Backends, most_keys: usize) -> Self {
        Self {
            store,
            backends,
            most_keys,
            compression: Mutex::default(),
            journal: None,
            #[cfg(test)]
            pulled: Mutex::default(),
        }
    }

    /// Returns contents whose changes are recorded in a journal.
    pub(crate) fn with_journal(self, journal: Option<Journal>) -> Self {
        Self { journal, ..self }
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    pub(crate) fn store(&self) -> &LocalStore {
        &self.store
    }

    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Checks that there is room for the keys of an `init`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the store would have too many keys.
    pub(crate) fn check_room(&self, values: &[proto::Value]) -> Result<()> {
        if let Some(value) = values.iter().find(|value| value.key.len() > MOST_KEY_BYTES) {
            return Err(Error::invalid(format!(
                "init: a key of {} bytes: expected at most {MOST_KEY_BYTES} on a server",
                value.key.len()
            )));
        }
        let rank = |value: &proto::Value| value.spec.as_ref().map_or(0, |spec| spec.shape.len());
        if let Some(rank) = values.iter().map(rank).find(|rank| *rank > MOST_AXES) {
            return Err(Error::invalid(format!(
                "init: a value with {rank} axes: expected at most {MOST_AXES} on a server"
            )));
        }
        let (held, most) = (self.store.num_keys(), self.most_keys);
        if held.saturating_add(values.len()) <= most {
            return Ok(());
        }
        let known: HashSet<Key> = self.store.keys()?.into_iter().collect();
        let is_new = |value: &&proto::Value| !known.contains(value.key.as_str());
        let num_new = values.iter().filter(is_new).count();
        if num_new == 0 || known.len().saturating_add(num_new) <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "init: {num_new} new keys, but the server has {held} of at most {most} keys"
        )))
    }

    /// Returns how the members compress values.
    pub(crate) fn compression(&self) -> MutexGuard<'_, Option<Compression>> {
        self.compression.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call. The answer has a failure with `out_of_date` if a push has another compression
    /// than the store.
    pub(crate) fn make(&self, verb: Verb, payload: Payload) -> Result<Answer> {
        match (verb, payload) {
            (Verb::Push(push), Payload::Values(values)) => self.push(push, values),
            (Verb::Settings(_), _) => {
                let settings = settings_of(&*self.store, *self.compression())?;
                Ok(Answer::of(proto::Reply { settings: Some(settings), ..Default::default() }))
            }
            (Verb::ChangeSettings(proto::ChangeSettings { change: Some(change) }), _) => {
                let verb =
                    || Verb::ChangeSettings(proto::ChangeSettings { change: Some(change.clone()) });
                self.recorded("a change of settings", verb, || self.change(change.clone()))
            }
            (
                verb @ (Verb::Init(_)
                | Verb::Remove(_)
                | Verb::SetHyperParameters(_)
                | Verb::SetStates(_)),
                payload,
            ) => self.make_recorded(verb, payload),
            #[cfg(test)]
            (Verb::Pull(pull), payload) if Fault::OldValue.is_planted() => {
                let answer =
                    verbs::make(&*self.store, &self.backends, Verb::Pull(pull.clone()), payload)?;
                let mut pulled = self.pulled.lock().unwrap_or_else(PoisonError::into_inner);
                let kept = Answer {
                    reply: answer.reply.clone(),
                    elements: answer.elements.clone(),
                    charge: None,
                };
                Ok(pulled.insert(pull, kept).unwrap_or(answer))
            }
            (verb, payload) => verbs::make(&*self.store, &self.backends, verb, payload),
        }
    }

    fn push(&self, push: proto::Push, values: Vec<Value>) -> Result<Answer> {
        // Before the compression is read, because its change would have an earlier record.
        let mut record = self.journal.as_ref().and_then(Journal::push);
        let found = push.compression.as_ref().map_or(Ok(None), to_compression)?;
        if found != *self.compression() {
            return Ok(Answer::out_of_date());
        }
        if let Some(record) = &mut record {
            record_data(record, &push, &values)?;
        }
        let values = self.decoded(found, &push, values)?;
        self.push_recorded(record, push, values)
    }

    /// Pushes the sums of a round, which are not compressed. The journal has the pushes of its
    /// members.
    pub(super) fn push_sums(
        &self,
        push: proto::Push,
        sums: Vec<Value>,
        attempt: Option<AttemptRecord<'_>>,
    ) -> Result<()> {
        let mut record = self.journal.as_ref().and_then(Journal::push);
        if let Some(record) = &mut record {
            record.set_attempt(attempt.as_ref());
        }
        self.push_recorded(record, push, sums)?;
        if let Some(attempt) = attempt {
            attempt.finish();
        }
        Ok(())
    }

    fn push_recorded(
        &self,
        record: Option<PushRecord<'_>>,
        push: proto::Push,
        values: Vec<Value>,
    ) -> Result<Answer> {
        let Some(mut record) = record else {
            let (verb, payload) = (Verb::Push(push), Payload::Values(values));
            return verbs::make(&*self.store, &self.backends, verb, payload);
        };
        let keys = verbs::keys_in(&push.values)?;
        self.store.push_observed(&keys, &values, &mut |started| record.start(started))?;
        record.finish();
        Ok(Answer::default())
    }

    /// Returns the values of a push whose codes have this compression.
    pub(crate) fn decoded(
        &self,
        compression: Option<Compression>,
        push: &proto::Push,
        mut values: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let Some(compression) = compression else { return Ok(values) };
        for (message, value) in push.values.iter().zip(&mut values) {
            let codes = value.to_dense()?;
            let spec = parse_spec(message.spec.as_ref())?;
            *value = compression.decode(&self.backends, &codes, spec)?.into();
        }
        Ok(values)
    }

    fn change(&self, change: Change) -> Result<Answer> {
        match &change {
            Change::Compression(found) => {
                let new = to_compression(found)?;
                let mut compression = self.compression();
                self.store.reject_inside_updater("set_compression")?;
                check_clip(new.as_ref(), self.store.clip_global_norm()?)?;
                *compression = new;
                return Ok(Answer::default());
            }
            Change::ClipGlobalNorm(clip) => check_clip(self.compression().as_ref(), clip.bound)?,
            Change::Optimizer(_) => {}
        }
        let verb = Verb::ChangeSettings(proto::ChangeSettings { change: Some(change) });
        verbs::make(&*self.store, &self.backends, verb, Payload::Values(Vec::new()))
    }

    /// Returns the snapshot of the store with the compression of the members. A journal records its
    /// place in the order of calls.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        self.marked(Reason::Snapshot, "")
    }

    pub(super) fn unmarked_snapshot(&self) -> Result<Snapshot> {
        let compression = *self.compression();
        let snapshot = self.store.snapshot()?;
        snapshot.with_residuals(snapshot.store_name(), compression, &HashMap::new())
    }

    /// Replaces the contents. The residuals of a snapshot belong to the member that has taken it.
    pub(crate) fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        let plain = snapshot.with_residuals(snapshot.store_name(), None, &HashMap::new())?;
        self.recorded_rollback(
            || Ok(snapshot.clone()),
            || {
                self.store.rollback(&plain)?;
                *self.compression() = snapshot.compression();
                Ok(())
            },
        )
    }

    /// Replaces the contents without the compression.
    pub(crate) fn roll_back_values(&self, snapshot: &Snapshot) -> Result<()> {
        let with_compression = || {
            let compression = *self.compression();
            snapshot.with_residuals(snapshot.store_name(), compression, &HashMap::new())
        };
        self.recorded_rollback(with_compression, || self.store.rollback(snapshot))
    }
}

//! Pushes and pulls of values on several servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvstore_core::key::{check_lengths, describe_call};
use kvstore_core::{
    Compression, Error, Key, Optimizer, PulledValue, Result, RowSparse, TensorSpec, Value,
    check_compressed, check_ids, fallible,
};
use tokio::time::Instant;

use super::Sharded;
use super::placements::KeyPlacement;
use crate::client::connection::{Answer, Call};
use crate::client::operations::Operation;
use crate::client::residuals::{Encoder, accept, positions};
use crate::client::servers::{first_error, made_in_part, missing};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::NO_LAYOUT;
use crate::wire::{Elements, compression_of, keys_of, spec_of, value_of};

/// The values of a call that one server gets.
#[derive(Debug, Default)]
pub(super) struct ServerValues {
    pub(super) values: Vec<proto::Value>,
    pub(super) elements: Elements,
}

impl ServerValues {
    /// Adds the part of a value that belongs to a server.
    pub(super) fn add(
        &mut self,
        key: &Key,
        value: &Value,
        placed: &KeyPlacement,
        (server, placement): (usize, proto::Placement),
    ) -> Result<()> {
        let part = placed.part_of(value, server)?;
        let mut message = value_of(key, &part, &mut self.elements)?;
        message.placement = Some(placement);
        fallible::push(&mut self.values, message)
    }
}

/// A part of a pushed value for one server.
#[derive(Debug)]
pub(super) struct PushedPart {
    /// The position of the value in the call.
    pub(super) value: usize,
    pub(super) server: usize,
    /// The elements or their codes.
    elements: Value,
    /// The type of the part without compression.
    spec: TensorSpec,
}

/// Returns the error of a push of whose servers these have accepted their parts. An updater's error
/// stays as it is: a push that fails in an updater has changed earlier keys in every store.
fn partial_error(
    what: &str,
    (accepted_by, servers): (&BTreeSet<usize>, &BTreeSet<usize>),
    error: Error,
) -> Error {
    match error {
        Error::Updater { .. } => error,
        error if accepted_by.is_empty() => error,
        error => made_in_part(what, (accepted_by.len(), servers.len()), &error),
    }
}

/// Returns a call for each server with its parts.
pub(super) fn calls_of(
    keys: &[Key],
    placed: &[Arc<KeyPlacement>],
    parts: &[PushedPart],
    call: impl Fn(Vec<proto::Value>) -> Call,
) -> Result<Vec<(usize, Call)>> {
    let mut outgoing: BTreeMap<usize, ServerValues> = BTreeMap::new();
    for part in parts {
        let (Some(key), Some(placed)) = (keys.get(part.value), placed.get(part.value)) else {
            continue;
        };
        let to = outgoing.entry(part.server).or_default();
        let mut message = value_of(key, &part.elements, &mut to.elements)?;
        message.spec = Some(spec_of(&part.spec));
        message.placement = Some(placed.known());
        fallible::push(&mut to.values, message)?;
    }
    let calls = outgoing.into_iter().map(|(server, ServerValues { values, elements })| {
        (server, Call { elements, ..call(values) })
    });
    Ok(calls.collect())
}

/// The keys that a call reads from one server, with their positions in the call.
#[derive(Debug, Default)]
struct ReadRequest {
    positions: Vec<usize>,
    keys: Vec<String>,
    layouts: Vec<u64>,
    /// The row indices of each key, if only these rows are read.
    num_rows: Vec<u64>,
    indices: Elements,
}

impl Sharded {
    pub(in crate::client) fn push(
        &self,
        keys: &[Key],
        values: &[Value],
        priority: i32,
    ) -> Result<()> {
        let (mut is_repeated, mut since) = (false, None);
        self.servers.push((keys, values), |keys, values, encoder| {
            if std::mem::replace(&mut is_repeated, true) {
                self.placements.forget(keys);
                self.wait_again(&mut since, &describe_call("push", keys))?;
            }
            self.push_with(keys, values, priority, encoder)
        })
    }

    /// Pushes values, or their codes. Returns which of the values have been pushed. The placements
    /// of the others are out of date.
    fn push_with(
        &self,
        keys: &[Key],
        values: &[Value],
        priority: i32,
        mut encoder: Option<&mut Encoder>,
    ) -> Result<Vec<bool>> {
        let what = describe_call("push", keys);
        let placed = self.placed(keys)?;
        // The home of a key decides whether its value has been pushed.
        let mut are_pushed = fallible::filled(false, keys.len())?;
        let mut are_begun = fallible::filled(false, keys.len())?;
        if !self.check(keys, values, &placed)? {
            return Ok(are_pushed);
        }
        let compression = encoder.as_ref().map(|encoder| encoder.compression());
        let mut parts = self.parts(keys, values, &placed, encoder.as_deref_mut())?;
        let servers: BTreeSet<usize> = parts.iter().map(|part| part.server).collect();
        let operation = self.servers.begin_operation(servers.iter().copied());
        let (mut accepted_by, mut since, mut history) = (BTreeSet::new(), None, None);
        while !parts.is_empty() {
            let calls = calls_of(keys, &placed, &parts, |values| {
                let compression = compression.map(|found| compression_of(Some(found)));
                let push = proto::Push { values, priority, compression, ..Default::default() };
                let joint = operation.as_ref().map(Operation::joint);
                Call { joint, ..Call::write(Verb::Push(push), what.clone()) }
            });
            let partial = |accepted_by: &BTreeSet<usize>, error| {
                partial_error(&what, (accepted_by, &servers), error)
            };
            let answers = calls.and_then(|calls| self.call_each(calls));
            let answers = answers.map_err(|error| partial(&accepted_by, error))?;
            if let Some(encoder) = &mut encoder {
                self.accept(encoder, keys, &parts, &answers);
            }
            let has_accepted =
                |answer: &Result<Answer>| answer.as_ref().is_ok_and(|made| !made.is_out_of_date());
            let now = answers.iter().filter(|(_, answer)| has_accepted(answer));
            let now: BTreeSet<usize> = now.map(|(server, _)| *server).collect();
            let newest = answers.values().flatten().map(|answer| answer.history).max();
            if !accepted_by.is_empty() && history.is_some() && newest != history {
                let error = Error::Transport {
                    operation: what.clone(),
                    source: "the servers went back to a recovery point meanwhile".into(),
                };
                return Err(partial(&accepted_by, error));
            }
            history = newest.or(history);
            accepted_by.extend(&now);
            first_error(answers.into_values().collect())
                .map_err(|error| partial(&accepted_by, error))?;
            for part in parts.iter().filter(|part| now.contains(&part.server)) {
                let is_home = placed.get(part.value).is_some_and(|at| at.home == part.server);
                if let Some(is_begun) = are_begun.get_mut(part.value) {
                    *is_begun = true;
                }
                if let Some(is_pushed) = are_pushed.get_mut(part.value).filter(|_| is_home) {
                    *is_pushed = true;
                }
            }
            parts.retain(|part| !now.contains(&part.server));
            #[cfg(test)]
            if Fault::DropPart.is_planted() {
                return Ok(are_begun);
            }
            #[cfg(test)]
            if Fault::RepeatPart.is_planted() {
                for part in &parts {
                    are_pushed[part.value] = false;
                }
                break;
            }
            // A server rejects a call if one of its keys has another layout there. If it has
            // accepted a part of a value, the other parts follow, unless the key has been removed
            // or replaced. That was after the push if the home has accepted its part. Otherwise,
            // the accepted parts belong to a value that does not exist any more.
            parts.retain(|part| are_begun.get(part.value) == Some(&true));
            let waited = self.wait_for_parts(keys, &placed, &mut parts, compression, &mut since);
            waited.map_err(|error| partial(&accepted_by, error))?;
        }
        if let Some(encoder) = encoder {
            for (key, _) in keys.iter().zip(&are_pushed).filter(|(_, is_pushed)| !**is_pushed) {
                encoder.withdraw(key);
            }
        }
        Ok(are_pushed)
    }

    /// Makes calls, and returns the answers by server.
    pub(super) fn call_each(
        &self,
        calls: Vec<(usize, Call)>,
    ) -> Result<BTreeMap<usize, Result<Answer>>> {
        let servers: Vec<usize> = calls.iter().map(|(server, _)| *server).collect();
        Ok(servers.into_iter().zip(self.servers.call_each(calls)?).collect())
    }

    /// Notes which of the parts the servers have accepted.
    pub(super) fn accept(
        &self,
        encoder: &mut Encoder,
        keys: &[Key],
        parts: &[PushedPart],
        answers: &BTreeMap<usize, Result<Answer>>,
    ) {
        for (server, answer) in answers {
            let here = parts.iter().filter(|part| part.server == *server);
            let here: Vec<Key> = here.filter_map(|part| keys.get(part.value).cloned()).collect();
            accept(encoder, (&here, *server), answer, |keys| {
                let keys = proto::Keys { keys: keys_of(keys), ..proto::Keys::default() };
                let call = Call::read(Verb::Describe(keys), "describe".to_owned());
                let answers = self.servers.call_each([(*server, call)])?;
                answers.into_iter().next().ok_or_else(|| missing("answer"))??.descriptions()
            });
        }
    }

    /// Drops the parts of values that have been removed or replaced, and waits before the others
    /// are pushed again.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if another worker has changed the compression.
    fn wait_for_parts(
        &self,
        keys: &[Key],
        placed: &[Arc<KeyPlacement>],
        parts: &mut Vec<PushedPart>,
        compression: Option<Compression>,
        since: &mut Option<Instant>,
    ) -> Result<()> {
        let still_placed = self.still_placed(keys, placed, parts)?;
        parts.retain(|part| still_placed.contains(&part.value));
        if parts.is_empty() {
            return Ok(());
        }
        self.wait_again(since, &describe_call("push", keys))?;
        self.servers.forget_compression();
        if self.servers.compression()? != compression {
            return Err(Error::invalid("another worker has changed the compression meanwhile"));
        }
        Ok(())
    }

    /// Returns the parts of values for all servers.
    pub(super) fn parts(
        &self,
        keys: &[Key],
        values: &[Value],
        placed: &[Arc<KeyPlacement>],
        mut encoder: Option<&mut Encoder>,
    ) -> Result<Vec<PushedPart>> {
        let mut parts = Vec::new();
        let numbered = keys.iter().zip(values).zip(placed).zip(positions(keys)).enumerate();
        for (value_index, (((key, value), placed), position)) in numbered {
            for server in placed.servers() {
                let part = placed.part_of(value, server)?;
                let spec = part.spec().clone();
                let elements = match &mut encoder {
                    None => part,
                    Some(encoder) => {
                        let backends = self.servers.backends();
                        encoder.encode(backends, (key, &part), position, server)?.into()
                    }
                };
                fallible::push(
                    &mut parts,
                    PushedPart { value: value_index, server, elements, spec },
                )?;
            }
        }
        Ok(parts)
    }

    /// Returns the values of these parts that still have their placements.
    fn still_placed(
        &self,
        keys: &[Key],
        placed: &[Arc<KeyPlacement>],
        parts: &[PushedPart],
    ) -> Result<BTreeSet<usize>> {
        let (mut here, mut since) = (BTreeSet::new(), None);
        for value in parts.iter().map(|part| part.value).collect::<BTreeSet<_>>() {
            let (Some(key), Some(placed)) = (keys.get(value), placed.get(value)) else { continue };
            let key = std::slice::from_ref(key);
            loop {
                match self.fetch_placements(key) {
                    Ok(newest) if newest.iter().any(|newest| newest.layout == NO_LAYOUT) => {
                        // Another call is replacing the value. If that fails, it keeps its layout.
                        self.wait_again(&mut since, &describe_call("push", keys))?;
                        continue;
                    }
                    Ok(newest) if newest.iter().all(|newest| newest.layout == placed.layout) => {
                        here.insert(value);
                    }
                    Ok(_) | Err(Error::KeyNotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
                break;
            }
        }
        Ok(here)
    }

    /// Checks values that some servers would reject after others have accepted theirs. Returns
    /// whether the placements are up to date, as far as the types of the values tell.
    ///
    /// # Errors
    /// - The errors of [`KvStore::push`](kvstore_core::KvStore::push).
    pub(super) fn check(
        &self,
        keys: &[Key],
        values: &[Value],
        placed: &[Arc<KeyPlacement>],
    ) -> Result<bool> {
        for ((key, value), placed) in keys.iter().zip(values).zip(placed) {
            if *value.spec() != placed.spec {
                // The placement may be out of date.
                let newest = self.fetch_placements(std::slice::from_ref(key))?;
                let expected = newest.first().map_or(&placed.spec, |newest| &newest.spec);
                if expected != value.spec() {
                    return Err(Error::spec_mismatch(key, expected, value.spec()));
                }
                return Ok(false);
            }
        }
        let may_be_rejected =
            |value: &Value| value.rows().is_some() || !value.spec().dtype().is_float();
        let servers: BTreeSet<usize> = placed.iter().flat_map(|placed| placed.servers()).collect();
        if servers.len() < 2 || !values.iter().any(may_be_rejected) {
            return Ok(true);
        }
        let settings = self.servers.settings()?;
        let compression = self.servers.compression()?;
        for (key, value) in keys.iter().zip(values) {
            if settings.optimizer.is_some() {
                Optimizer::check_dtype(key, value.spec().dtype())?;
            }
            if let Some(compression) = &compression {
                check_compressed(key, value, compression)?;
            }
        }
        Ok(true)
    }

    pub(in crate::client) fn pull_into(
        &self,
        keys: &[Key],
        pulled: &mut Vec<PulledValue>,
    ) -> Result<()> {
        let what = describe_call("pull", keys);
        let done = self.with_placements(keys, &what, |placed| {
            let asked = asked(keys, placed, |_, _| Ok(None))?;
            let parts = self.gather(&asked, keys.len(), &what, |asked| {
                let (keys, layouts) = (asked.keys.clone(), asked.layouts.clone());
                Verb::Pull(proto::Pull { keys, staleness: self.staleness, layouts })
            })?;
            let Some(parts) = parts else { return Ok(None) };
            let values = parts.iter().zip(placed).map(|(parts, placed)| {
                let value = Value::concatenate(parts)?.to_dense()?;
                Ok(PulledValue { order: placed.order, value })
            });
            fallible::try_collect(values).map(Some)
        })?;
        fallible::reserve(pulled, done.len())?;
        pulled.extend(done);
        Ok(())
    }

    pub(in crate::client) fn pull_rows(
        &self,
        keys: &[Key],
        ids: &[&[i64]],
    ) -> Result<Vec<RowSparse>> {
        let what = describe_call("pull of rows", keys);
        self.with_placements(keys, &what, |placed| {
            for ((key, placed), ids) in keys.iter().zip(placed).zip(ids) {
                let check = |shape| check_ids(&format!("key `{key}`"), shape, ids);
                if check(placed.spec.shape()).is_err() {
                    // The placement may be out of date.
                    let newest = self.fetch_placements(std::slice::from_ref(key))?;
                    newest.iter().try_for_each(|newest| check(newest.spec.shape()))?;
                    return Ok(None);
                }
            }
            let asked = asked(keys, placed, |position, server| {
                let ids = ids.get(position).copied().unwrap_or_default();
                let rows = placed.get(position).and_then(|placed| placed.rows(server));
                rows.map_or_else(|| fallible::copied(ids), |rows| within(ids, &rows)).map(Some)
            })?;
            let parts = self.gather(&asked, keys.len(), &what, |asked| {
                let (keys, num_rows) = (asked.keys.clone(), asked.num_rows.clone());
                let (staleness, layouts) = (self.staleness, asked.layouts.clone());
                Verb::PullRows(proto::PullRows { keys, num_rows, staleness, layouts })
            })?;
            let Some(parts) = parts else { return Ok(None) };
            let rows = parts.iter().map(|parts| match Value::concatenate(parts)? {
                Value::Rows(rows) => Ok(rows),
                Value::Dense(_) => Err(Error::Internal("rows without indices".to_owned())),
            });
            fallible::try_collect(rows).map(Some)
        })
    }

    /// Reads from several servers. Returns the parts of each value in order, or `None` if the
    /// placements are out of date.
    fn gather(
        &self,
        asked: &BTreeMap<usize, ReadRequest>,
        num_values: usize,
        what: &str,
        verb: impl Fn(&ReadRequest) -> Verb,
    ) -> Result<Option<Vec<Vec<Value>>>> {
        let calls = asked.iter().map(|(server, asked)| {
            let call = Call::read(verb(asked), what.to_owned());
            (*server, Call { elements: asked.indices.clone(), ..call })
        });
        let answers = self.servers.call_each(calls)?;
        let answers = answers.into_iter().collect::<Result<Vec<Answer>>>()?;
        if answers.iter().any(Answer::is_out_of_date) {
            return Ok(None);
        }
        let mut parts = fallible::filled(Vec::new(), num_values)?;
        for (asked, answer) in asked.values().zip(answers) {
            let keys: Vec<Key> =
                asked.keys.iter().map(|key| Key::new(key)).collect::<Result<_>>()?;
            check_lengths("pulled values for keys", &keys, &answer.values)?;
            for (position, value) in asked.positions.iter().zip(answer.values) {
                if let Some(parts) = parts.get_mut(*position) {
                    parts.push(value);
                }
            }
        }
        Ok(Some(parts))
    }
}

/// Returns what a call reads from each server. `rows` returns the row indices for a position in the
/// call and a server.
fn asked(
    keys: &[Key],
    placed: &[Arc<KeyPlacement>],
    rows: impl Fn(usize, usize) -> Result<Option<Vec<i64>>>,
) -> Result<BTreeMap<usize, ReadRequest>> {
    let mut all: BTreeMap<usize, ReadRequest> = BTreeMap::new();
    for ((position, key), placed) in keys.iter().enumerate().zip(placed) {
        for server in placed.servers() {
            let asked = all.entry(server).or_default();
            asked.positions.push(position);
            asked.keys.push(key.as_str().to_owned());
            asked.layouts.push(placed.layout);
            if let Some(indices) = rows(position, server)? {
                asked.num_rows.push(indices.len() as u64);
                asked.indices.push_indices(indices);
            }
        }
    }
    Ok(all)
}

/// Returns the row indices that are in the range, counted from its start.
fn within(ids: &[i64], rows: &std::ops::Range<usize>) -> Result<Vec<i64>> {
    let number = |row: usize| i64::try_from(row).unwrap_or(i64::MAX);
    let (start, end) = (number(rows.start), number(rows.end));
    fallible::gather(ids.iter().filter(|id| (start..end).contains(*id)).map(|id| id - start))
}

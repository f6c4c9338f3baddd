//! [`Player`]: makes the calls of a journal again.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::mem;
use std::sync::Arc;

use kvstore_core::{
    Backends, Error, Key, LocalStore, Result, Snapshot, StartedPush, Value, fallible,
};

use super::attempt::Refold;
use super::index::{FoundMark, Index};
use super::report::{Difference, ReplayReport, ReplayedKey, ReplayedStep, StepMember};
use crate::journal::format::Kind;
use crate::journal::heads::{
    Call, Data, Digests, Failed, KeyStep, Mark, Part, Participant, Reason, Start,
};
use crate::journal::{ContentDigests, RawRecord, Reader, value_digest};
use crate::proto;
use crate::proto::request::Verb;
use crate::server::contents::Contents;
use crate::server::verbs::{self, Payload};
use crate::wire::{IncomingValues, Receiver, to_compression};

/// The store of a run whose journal has values.
struct Stage(Contents);

/// The checksums of the replay at a mark, until those of the journal follow.
struct ReachedMark {
    offset: u64,
    own: ContentDigests,
    recorded: ContentDigests,
}

/// Makes the calls of a journal again.
pub(super) struct Player<'a> {
    backends: &'a Backends,
    index: &'a Index,
    /// The store, or `None` while the journal has no values.
    stage: Option<Stage>,
    /// The data of calls that have no record yet.
    data: HashMap<u64, Vec<Vec<u8>>>,
    /// The attempts that may take effect, by the number of their record. An error does not matter
    /// until one takes effect.
    attempts: HashMap<u64, Result<Refold>>,
    /// The number of the mark after which calls are made. Only the attempts before it are needed.
    begin: u64,
    marks: HashMap<u64, ReachedMark>,
    /// The checksums of the replay at recovery points from which the server continues later.
    points: HashMap<u64, ContentDigests>,
    /// The mark of the end of the server.
    end: Option<u64>,
    /// The versions of keys, while the journal has no values.
    versions: HashMap<String, u64>,
    on_step: &'a mut dyn FnMut(&ReplayedStep),
    pub(super) report: ReplayReport,
}

/// Why a replay of a record ends.
enum Stop {
    /// The journal cannot be replayed.
    Error(Error),
    /// The store differs.
    Difference(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl<'a> Player<'a> {
    pub(super) fn new(
        backends: &'a Backends,
        index: &'a Index,
        on_step: &'a mut dyn FnMut(&ReplayedStep),
    ) -> Self {
        Self {
            backends,
            index,
            stage: None,
            data: HashMap::new(),
            attempts: HashMap::new(),
            begin: 0,
            marks: HashMap::new(),
            points: HashMap::new(),
            end: None,
            versions: HashMap::new(),
            on_step,
            report: ReplayReport::default(),
        }
    }

    /// Begins with the contents of a checkpoint, at its mark.
    pub(super) fn begin_at(&mut self, mark: &FoundMark, snapshot: &Snapshot) -> Result<()> {
        self.start(&mark.start)?;
        self.begin = mark.number;
        if let Some(Stage(contents)) = &self.stage {
            contents.rollback(snapshot)?;
        }
        Ok(())
    }

    /// Makes the calls until the mark with this number, or until the end of the journal. Ends at
    /// the first difference.
    pub(super) fn play<R: Read + Seek>(
        &mut self,
        reader: &mut Reader<R>,
        last: Option<u64>,
    ) -> Result<()> {
        let has_reached =
            |reader: &Reader<R>| last.is_some_and(|last| reader.position().next > last);
        while !has_reached(reader) {
            let Some(mut record) = reader.next()? else { break };
            let (number, offset) = (record.number, record.offset);
            match self.play_record(reader, &mut record) {
                Ok(()) => {}
                Err(Stop::Difference(text)) => {
                    self.report.difference = Some(Difference { record: number, offset, text });
                    break;
                }
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn play_record<R: Read + Seek>(
        &mut self,
        reader: &Reader<R>,
        record: &mut RawRecord,
    ) -> Result<(), Stop> {
        let kind = reader.kind(record)?;
        if record.number <= self.begin && !matches!(kind, Kind::Attempt | Kind::Part) {
            if kind == Kind::Call {
                let Call { attempt, .. } = reader.head(record)?;
                self.attempts.remove(&attempt);
            }
            return Ok(());
        }
        // The other kinds may follow the mark of the end, and change nothing.
        if matches!(kind, Kind::Start | Kind::Call | Kind::Mark) {
            self.report.is_ended = false;
        }
        match kind {
            Kind::Start => self.start(&reader.head(record)?)?,
            Kind::Attempt => {
                if self.stage.is_some() && !self.index.failed.contains(&record.number) {
                    let attempt = reader.head(record)?;
                    let refold = Refold::new(self.backends, attempt, reader.remaining());
                    fallible::reserve_entries(&mut self.attempts, 1)?;
                    self.attempts.insert(record.number, refold);
                }
            }
            Kind::Part => {
                let Part { attempt, member } = reader.head(record)?;
                if let Some(found) = self.attempts.get_mut(&attempt)
                    && let Ok(refold) = found
                    && let Err(error) = refold.take(self.backends, member, &record.data)
                {
                    *found = Err(error);
                }
            }
            Kind::Data => {
                let Data { call } = reader.head(record)?;
                fallible::reserve_entries(&mut self.data, 1)?;
                let pieces = self.data.entry(call).or_default();
                fallible::push(pieces, mem::take(&mut record.data))?;
            }
            Kind::Failed => {
                let Failed { data, .. } = reader.head(record)?;
                self.data.remove(&data);
            }
            Kind::Call => {
                let call: Call = reader.head(record)?;
                return self.call(record, call);
            }
            Kind::Mark => {
                let mark: Mark = reader.head(record)?;
                self.end = Some(record.number).filter(|_| mark.reason() == Reason::End);
                self.report.is_ended = self.end.is_some();
                return self.mark(record, &mark);
            }
            Kind::Digests => {
                let digests: Digests = reader.head(record)?;
                self.report.is_ended = self.end == Some(digests.mark);
                return self.digests(digests);
            }
        }
        Ok(())
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        self.report.num_runs += 1;
        (self.stage, self.data, self.attempts) = (None, HashMap::new(), HashMap::new());
        self.versions.clear();
        self.marks.clear();
        self.report.keys.values_mut().for_each(|key| key.version = 0);
        if start.has_values {
            let store = LocalStore::new(&start.store, self.backends.clone());
            let store = store.ok_or_else(|| Error::Corrupt {
                subject: "the journal".to_owned(),
                reason: format!("its server has the unknown store `{}`", start.store),
            })?;
            let contents = Contents::new(Arc::new(store), self.backends.clone(), usize::MAX);
            self.stage = Some(Stage(contents));
            self.report.num_runs_with_values += 1;
        }
        Ok(())
    }

    fn call(&mut self, record: &mut RawRecord, mut call: Call) -> Result<(), Stop> {
        let pieces = match call.data {
            0 => Vec::from([mem::take(&mut record.data)]),
            number => self.data.remove(&number).unwrap_or_default(),
        };
        let refold = self.attempts.remove(&call.attempt);
        if self.index.failed.contains(&record.number) {
            self.report.num_failed += 1;
            return Ok(());
        }
        let verb = call.request.take().and_then(|request| request.verb);
        let place = Place { number: record.number, offset: record.offset };
        let verb = verb.ok_or_else(|| {
            Error::Unsupported(format!("{place}: the verb is unknown: a later version wrote it"))
        })?;
        if let Verb::Push(push) = verb {
            return self.push(&place, &call, (push, &pieces), refold);
        }
        self.report.num_changes += 1;
        let Some(Stage(contents)) = &self.stage else {
            // The versions after it are not known.
            self.versions.clear();
            return Ok(());
        };
        let payload = payload(self.backends, &place, &verb, &pieces)?;
        match (verb, payload) {
            (Verb::Rollback(_), Payload::Tensor(bytes)) => {
                let snapshot = Snapshot::from_bytes(self.backends, bytes.host_bytes()?)?;
                contents.rollback(&snapshot).map_err(|error| differs("the rollback", &error))
            }
            (
                verb @ (Verb::Init(_)
                | Verb::Remove(_)
                | Verb::ChangeSettings(_)
                | Verb::SetHyperParameters(_)
                | Verb::SetStates(_)),
                payload,
            ) => {
                let name = verbs::kind(&verb).name;
                let made = contents.make(verb, payload);
                made.map(drop).map_err(|error| differs(&format!("the call `{name}`"), &error))
            }
            (verb, _) => {
                let name = verbs::kind(&verb).name;
                Err(place.corrupt(format!("the call `{name}` changes no values")).into())
            }
        }
    }

    fn push(
        &mut self,
        place: &Place,
        call: &Call,
        (push, pieces): (proto::Push, &[Vec<u8>]),
        refold: Option<Result<Refold>>,
    ) -> Result<(), Stop> {
        if let Some(Stage(contents)) = &self.stage {
            if call.has_updater {
                return Err(Error::Unsupported(format!(
                    "{place}: an updater has made this push, and a journal has no code: only \
                     servers with an optimizer, or without updater, can be replayed"
                ))
                .into());
            }
            let (keys, values) = match refold {
                Some(refold) => {
                    let summed = refold.and_then(|refold| refold.finish(&call.participants));
                    summed.map_err(|error| differs("the sum of a round", &error))?
                }
                None if call.attempt != 0 => {
                    let text = format!("record {} does not begin its round", call.attempt);
                    return Err(place.corrupt(text).into());
                }
                None => pushed(self.backends, (place, contents), push, pieces)?,
            };
            let mut difference = None;
            let mut num_compared = 0;
            let pushed = contents.store().push_observed(&keys, &values, &mut |started| {
                difference = differing(&call.steps, started, &mut num_compared)?;
                match &difference {
                    Some(text) => Err(Error::Internal(text.clone())),
                    None => Ok(()),
                }
            });
            self.report.num_compared_values += num_compared;
            if let Some(text) = difference {
                return Err(Stop::Difference(text));
            }
            pushed.map_err(|error| differs("the push", &error))?;
        } else {
            self.check_versions(call)?;
        }
        self.report.num_steps += 1;
        for KeyStep { key, version, .. } in &call.steps {
            let counted = self.report.keys.entry(key.clone()).or_default();
            *counted = ReplayedKey { num_steps: counted.num_steps + 1, version: *version };
        }
        for participant in &call.participants {
            *self.report.members.entry(participant.name.clone()).or_default() += 1;
        }
        let keys = call.steps.iter().map(|step| (step.key.clone(), step.version)).collect();
        let member = |one: &Participant| StepMember {
            name: one.name.clone(),
            incarnation: one.incarnation,
            weight: one.weight,
        };
        let members = call.participants.iter().map(member).collect();
        (self.on_step)(&ReplayedStep { record: place.number, keys, members });
        Ok(())
    }

    /// Checks the versions of a push without values.
    fn check_versions(&mut self, call: &Call) -> Result<(), Stop> {
        // An updater locks one key after the other, so its versions may not be in order.
        for KeyStep { key, version, .. } in call.steps.iter().filter(|_| !call.has_updater) {
            let before = self.versions.insert(key.clone(), *version);
            if let Some(expected) = before.map(|before| before + 1).filter(|next| next != version) {
                return Err(Stop::Difference(format!(
                    "key `{key}`: expected version {expected}, found version {version}"
                )));
            }
        }
        Ok(())
    }

    fn mark(&mut self, record: &RawRecord, mark: &Mark) -> Result<(), Stop> {
        let Some(Stage(contents)) = &self.stage else { return Ok(()) };
        if mark.reason() == Reason::Point && self.index.recovered.contains(&mark.point) {
            self.points.insert(mark.point, ContentDigests::of(&contents.snapshot()?)?);
        }
        if mark.reason() == Reason::Recovered
            && let Some(expected) = self.points.get(&mark.point)
        {
            self.report.num_compared_marks += 1;
            let found = ContentDigests::of(&contents.snapshot()?)?;
            if let Some(what) = first_difference(&found, expected) {
                let text = format!("{what} after the server has continued from a recovery point");
                return Err(Stop::Difference(text));
            }
        }
        if self.index.digested.contains(&record.number) {
            let own = ContentDigests::of(&contents.snapshot()?)?;
            let (offset, recorded) = (record.offset, ContentDigests::default());
            self.marks.insert(record.number, ReachedMark { offset, own, recorded });
        }
        Ok(())
    }

    fn digests(&mut self, digests: Digests) -> Result<(), Stop> {
        let number = digests.mark;
        let Some(reached) = self.marks.get_mut(&number) else { return Ok(()) };
        if !reached.recorded.add(digests) {
            return Ok(());
        }
        let Some(ReachedMark { offset, own, recorded }) = self.marks.remove(&number) else {
            return Ok(());
        };
        self.report.num_compared_marks += 1;
        match first_difference(&own, &recorded) {
            None => Ok(()),
            Some(what) => {
                let text = format!("{what} at record {number} (byte {offset})");
                Err(Stop::Difference(text))
            }
        }
    }

    /// Compares the contents with those of a checkpoint.
    pub(super) fn compare(&mut self, mark: &FoundMark, expected: &Snapshot) -> Result<()> {
        let Some(Stage(contents)) =
            self.stage.as_ref().filter(|_| self.report.difference.is_none())
        else {
            return Ok(());
        };
        let plain = |snapshot: &Snapshot| {
            let compression = snapshot.compression();
            snapshot.with_residuals("local", compression, &HashMap::new())
        };
        let (own, expected) = (plain(&contents.snapshot()?)?, plain(expected)?);
        self.report.num_compared_marks += 1;
        if own.is_identical(&expected)? {
            return Ok(());
        }
        let text = match expected.changed_keys(&own)?.first() {
            Some(key) => format!("key `{key}` differs from the checkpoint"),
            None => "the settings or the order of the keys differ from the checkpoint".to_owned(),
        };
        let (record, offset) = (mark.number, mark.position.offset);
        self.report.difference = Some(Difference { record, offset, text });
        Ok(())
    }

    /// Returns the contents after the replay.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if they are needed, but the journal has no values.
    pub(super) fn finish(&mut self, is_needed: bool) -> Result<Option<Snapshot>> {
        match &self.stage {
            Some(Stage(contents)) if is_needed => contents.snapshot().map(Some),
            None if is_needed => Err(Error::Unsupported(
                "the journal has no values to write: the server needs journal_mode full".to_owned(),
            )),
            _ => Ok(None),
        }
    }
}

/// The place of a record in messages.
struct Place {
    number: u64,
    offset: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} at byte {} of the journal", self.number, self.offset)
    }
}

impl Place {
    fn corrupt(&self, reason: String) -> Error {
        Error::Corrupt { subject: self.to_string(), reason }
    }
}

fn differs(what: &str, error: &Error) -> Stop {
    Stop::Difference(format!("{what} fails, but took effect on the server: {}", error.chain()))
}

/// Returns the keys and values of a push outside of rounds.
fn pushed(
    backends: &Backends,
    (place, contents): (&Place, &Contents),
    push: proto::Push,
    pieces: &[Vec<u8>],
) -> Result<(Vec<Key>, Vec<Value>)> {
    let compression = push.compression.as_ref().map_or(Ok(None), to_compression)?;
    let verb = Verb::Push(push);
    let payload = payload(backends, place, &verb, pieces)?;
    let (Verb::Push(push), Payload::Values(values)) = (verb, payload) else {
        return Err(verbs::wrong_payload());
    };
    let values = contents.decoded(compression, &push, values)?;
    Ok((verbs::keys_in(&push.values)?, values))
}

/// Returns the data of a call.
fn payload(backends: &Backends, place: &Place, verb: &Verb, pieces: &[Vec<u8>]) -> Result<Payload> {
    let found: usize = pieces.iter().map(Vec::len).sum();
    let tensor = verbs::tensor_in(verb);
    let compression = verbs::compression_in(verb)?;
    let values = IncomingValues::new(verbs::values_in(verb), compression.as_ref())?;
    let expected = match &tensor {
        Some(spec) => spec.num_bytes()?,
        None => values.num_bytes()?,
    };
    // Before the memory is allocated.
    if expected != found {
        let text = format!("expected {expected} bytes of data, found {found}");
        return Err(place.corrupt(text));
    }
    let is_tensor = tensor.is_some();
    let mut receiver = match tensor {
        Some(spec) => Receiver::of_tensor(backends, spec)?,
        None => Receiver::new(backends, values)?,
    };
    pieces.iter().try_for_each(|piece| receiver.take(piece))?;
    Ok(if is_tensor {
        Payload::Tensor(receiver.finish_tensor()?)
    } else {
        Payload::Values(receiver.finish()?)
    })
}

/// Returns how the keys of a push differ from its record.
fn differing(
    steps: &[KeyStep],
    push: &StartedPush<'_>,
    num_compared: &mut u64,
) -> Result<Option<String>> {
    if push.keys().len() != steps.len() {
        let (expected, found) = (steps.len(), push.keys().len());
        return Ok(Some(format!("expected a push of {expected} keys, found {found}")));
    }
    for ((step, (key, count)), value) in steps.iter().zip(push.keys()).zip(push.values()) {
        let found = count.wrapping_add(1);
        if step.key != key.as_str() {
            return Ok(Some(format!("expected key `{}`, found key `{key}`", step.key)));
        }
        if step.version != found {
            let expected = step.version;
            return Ok(Some(format!(
                "key `{key}`: expected version {expected}, found version {found}"
            )));
        }
        if let Some(expected) = step.before {
            *num_compared += 1;
            if value_digest(&value?).is_some_and(|found| found != expected) {
                return Ok(Some(format!(
                    "the value of key `{key}` before version {found} differs"
                )));
            }
        }
    }
    Ok(None)
}

/// Returns which contents differ.
fn first_difference(own: &ContentDigests, recorded: &ContentDigests) -> Option<String> {
    if own == recorded {
        return None;
    }
    let digests = |contents: &ContentDigests| -> HashMap<String, u32> {
        contents.keys.iter().cloned().collect()
    };
    let (found, expected) = (digests(own), digests(recorded));
    let names = || recorded.keys.iter().chain(&own.keys).map(|(key, _)| key);
    let differing = names().find(|key| found.get(*key) != expected.get(*key));
    Some(match differing {
        Some(key) if !found.contains_key(key) => format!("key `{key}` is missing"),
        Some(key) if !expected.contains_key(key) => format!("key `{key}` should not exist"),
        Some(key) => format!("the value, the state or the version of key `{key}` differs"),
        None if own.settings != recorded.settings => "the settings differ".to_owned(),
        None => "the order of the keys differs".to_owned(),
    })
}

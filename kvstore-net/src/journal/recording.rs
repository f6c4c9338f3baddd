//! [`PushRecord`] and [`ChangeRecord`]: a call that is being recorded.

use std::sync::atomic::Ordering;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};
use std::{io, mem};

use kvstore_core::{Result, StartedPush, fallible};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};

use super::Journal;
use super::attempts::AttemptRecord;
use super::caller::{Callers, callers};
use super::digests::value_digest;
use super::format::{MOST_DATA, MOST_INLINE};
use super::heads::{self, Call, Data, Failed, Head, KeyStep};
use crate::files::Crc;
use crate::proto;
use crate::proto::request::Verb;

/// A push has the checksums of its values if this many times their bytes have been pushed since the
/// last one: so checksums cost little time, and a replay is compared often.
const PUSHES_PER_DIGEST: u64 = 16;

/// The number of the field `request` of a [`Call`], and that of `push` of a request.
const REQUEST: u32 = 1;
const PUSH: u32 = 11;

/// The most pieces of data that are written at once.
const MOST_PIECES: usize = 512;

/// The data of a call, as far as they are not in the record of the call.
#[derive(Debug, Default)]
struct CallData {
    /// The number of the call in records of data, or 0 if there are none.
    call: u64,
    inline: Vec<u8>,
    num_bytes: usize,
}

impl CallData {
    /// Writes long data, and keeps short ones for the record of the call. The pieces follow each
    /// other.
    fn write(&mut self, journal: &Journal, pieces: &[&[u8]]) -> Result<io::Result<()>> {
        let num_bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if num_bytes <= MOST_INLINE {
            fallible::reserve(&mut self.inline, num_bytes)?;
            for piece in pieces {
                fallible::extend(&mut self.inline, piece)?;
            }
            self.num_bytes = num_bytes;
            return Ok(Ok(()));
        }
        self.call = journal.next_call.fetch_add(1, Ordering::Relaxed);
        self.num_bytes = num_bytes;
        let head = Data { call: self.call }.encode_to_vec();
        Ok(write_pieces::<Data>(journal, &head, pieces))
    }
}

/// Writes data in records with the same head.
pub(super) fn write_pieces<H: Head>(
    journal: &Journal,
    head: &[u8],
    pieces: &[&[u8]],
) -> io::Result<()> {
    let write = |group: &[&[u8]]| {
        let mut contents = Crc::new();
        contents.add(head);
        for piece in group {
            contents.add(piece);
        }
        journal.write_with_data::<H>(head, group, contents.get())
    };
    let (mut group, mut num_bytes) = (Vec::new(), 0);
    for piece in pieces.iter().flat_map(|piece| piece.chunks(MOST_DATA)) {
        if num_bytes + piece.len() > MOST_DATA || group.len() == MOST_PIECES {
            write(&group)?;
            group.clear();
            num_bytes = 0;
        }
        group.push(piece);
        num_bytes += piece.len();
    }
    if group.is_empty() { Ok(()) } else { write(&group).map(drop) }
}

/// A call whose data are written. The call has a record when it takes effect.
#[derive(Debug)]
struct Recording<'a> {
    journal: &'a Journal,
    callers: Callers,
    data: CallData,
    /// The number of the record of the call, or 0.
    record: u64,
    is_finished: bool,
}

impl<'a> Recording<'a> {
    fn new(journal: &'a Journal) -> Self {
        let (callers, data) = (callers(), CallData::default());
        Self { journal, callers, data, record: 0, is_finished: false }
    }

    /// Writes the data of the call, if the journal has values.
    fn write_data(&mut self, what: &str, pieces: &[&[u8]]) -> Result<()> {
        if !self.journal.has_values() {
            return Ok(());
        }
        let written = self.data.write(self.journal, pieces)?;
        written.or_else(|error| self.report(what, error))
    }

    /// Reports that a record cannot be written. If the call must fail, its data are not needed.
    fn report(&mut self, what: &str, error: io::Error) -> Result<()> {
        let reported = self.journal.report(what, error);
        self.is_finished = true;
        if reported.is_err() && self.data.call != 0 {
            self.journal.record_failed(Failed { record: 0, data: self.data.call });
        }
        reported
    }

    /// Writes the record of the call. `verb` is the encoded request, which is appended to the
    /// other fields.
    fn write_call(&mut self, what: &str, call: Call, request: &[u8]) -> Result<()> {
        if self.is_finished || !self.journal.is_recording() {
            return Ok(());
        }
        let Callers { participants, round } = mem::take(&mut self.callers);
        let call = Call { participants, round, data: self.data.call, ..call };
        let mut head = fallible::with_capacity(request.len() + call.encoded_len())?;
        fallible::extend(&mut head, request)?;
        call.encode_raw(&mut head);
        let mut contents = Crc::new();
        contents.add(&head);
        contents.add(&self.data.inline);
        let data = [&*self.data.inline];
        match self.journal.write_with_data::<Call>(&head, &data, contents.get()) {
            Ok(record) => {
                self.record = record;
                Ok(())
            }
            Err(error) => self.report(what, error),
        }
    }
}

impl Drop for Recording<'_> {
    /// Records that the call has failed, unless it has succeeded.
    fn drop(&mut self) {
        let failed = Failed { record: self.record, data: self.data.call };
        let is_failed = !self.is_finished && self.journal.is_recording();
        if is_failed && (failed.record != 0 || failed.data != 0) {
            self.journal.record_failed(failed);
        }
    }
}

/// Returns the field `request` of a [`Call`] in the encoding of Protocol Buffers.
fn request_of(verb: Verb) -> Vec<u8> {
    let request = Some(proto::Request { verb: Some(verb), ..proto::Request::default() });
    Call { request, ..Call::default() }.encode_to_vec()
}

/// Returns the same field for a push, without a copy of its messages.
fn request_of_push(push: &proto::Push) -> Result<Vec<u8>> {
    let len = push.encoded_len();
    let len = len + key_len(PUSH) + encoded_len_varint(len as u64);
    let mut field =
        fallible::with_capacity(len + key_len(REQUEST) + encoded_len_varint(len as u64))?;
    encode_key(REQUEST, WireType::LengthDelimited, &mut field);
    encode_varint(len as u64, &mut field);
    message::encode(PUSH, push, &mut field);
    Ok(field)
}

/// A push that is being recorded. No other change of the store takes effect until the push has its
/// record, except other pushes.
#[derive(Debug)]
pub(crate) struct PushRecord<'a> {
    recording: Recording<'a>,
    order: Option<RwLockReadGuard<'a, ()>>,
    request: Vec<u8>,
    /// The number of the record of an attempt whose sum this push is, or 0.
    attempt: u64,
}

impl<'a> PushRecord<'a> {
    pub(super) fn new(journal: &'a Journal, order: RwLockReadGuard<'a, ()>) -> Self {
        let (recording, order) = (Recording::new(journal), Some(order));
        Self { recording, order, request: Vec::new(), attempt: 0 }
    }

    /// Makes this the push of the sum of an attempt. A journal without values has no attempts.
    pub(crate) fn set_attempt(&mut self, attempt: Option<&AttemptRecord<'_>>) {
        self.request = request_of(Verb::Push(proto::Push::default()));
        if let Some(attempt) = attempt {
            (self.attempt, self.recording.data.num_bytes) = (attempt.number, attempt.num_bytes);
        }
    }

    /// Writes the data of the push.
    ///
    /// # Errors
    /// - [`Error::Io`](kvstore_core::Error::Io) if the journal is required and cannot be written.
    pub(crate) fn write_data(&mut self, push: &proto::Push, pieces: &[&[u8]]) -> Result<()> {
        self.request = if self.recording.journal.has_values() {
            request_of_push(push)?
        } else {
            request_of(Verb::Push(proto::Push::default()))
        };
        self.recording.write_data("a push", pieces)
    }

    /// Writes the record of the push. Is called with the locks of its keys.
    ///
    /// # Errors
    /// - [`Error::Io`](kvstore_core::Error::Io) if the journal is required and cannot be written.
    ///   The error names the first key.
    pub(crate) fn start(&mut self, push: &StartedPush<'_>) -> Result<()> {
        let has_updater = push.has_updater();
        let mut steps = fallible::with_capacity(push.keys().len())?;
        for (key, count) in push.keys() {
            let (key, version) = (key.as_str().to_owned(), count.wrapping_add(1));
            steps.push(KeyStep { key, version, before: None });
        }
        if !has_updater {
            self.add_digests(push, &mut steps)?;
        }
        let what = match steps.first() {
            Some(step) => format!("the push of key `{}`", step.key),
            None => "a push".to_owned(),
        };
        let call = Call { steps, has_updater, attempt: self.attempt, ..Call::default() };
        let request = mem::take(&mut self.request);
        self.recording.write_call(&what, call, &request)?;
        // An updater may make other calls.
        self.order = None;
        Ok(())
    }

    /// Adds the checksums of the values before the push, from time to time.
    fn add_digests(&self, push: &StartedPush<'_>, steps: &mut [KeyStep]) -> Result<()> {
        let journal = self.recording.journal;
        if !journal.has_values() || !journal.is_recording() {
            return Ok(());
        }
        let num_pushed = self.recording.data.num_bytes as u64;
        let pushed = journal.pushed_since_digest.fetch_add(num_pushed, Ordering::Relaxed);
        let mut num_bytes = 0;
        for value in push.values() {
            num_bytes += value?.num_bytes() as u64;
        }
        if pushed + num_pushed < num_bytes.saturating_mul(PUSHES_PER_DIGEST) {
            return Ok(());
        }
        journal.pushed_since_digest.store(0, Ordering::Relaxed);
        for (step, value) in steps.iter_mut().zip(push.values()) {
            step.before = value_digest(&value?);
        }
        Ok(())
    }

    /// Ends the record of a push that has succeeded. Without this call, the push has failed.
    pub(crate) fn finish(mut self) {
        self.recording.is_finished = true;
    }
}

/// A change that is being recorded. No other change of the store takes effect meanwhile.
#[derive(Debug)]
pub(crate) struct ChangeRecord<'a> {
    recording: Recording<'a>,
    _order: RwLockWriteGuard<'a, ()>,
}

impl<'a> ChangeRecord<'a> {
    pub(super) fn new(journal: &'a Journal, order: RwLockWriteGuard<'a, ()>) -> Self {
        Self { recording: Recording::new(journal), _order: order }
    }

    /// Returns whether the journal has the values of calls.
    pub(crate) fn has_values(&self) -> bool {
        self.recording.journal.has_values()
    }

    /// Writes the change, before it takes effect.
    ///
    /// # Errors
    /// - [`Error::Io`](kvstore_core::Error::Io) if the journal is required and cannot be written.
    pub(crate) fn start(&mut self, what: &str, verb: Verb, pieces: &[&[u8]]) -> Result<()> {
        self.recording.write_data(what, pieces)?;
        self.recording.write_call(what, heads::Call::default(), &request_of(verb))
    }

    /// Ends the record of a change that has succeeded. Without this call, the change has failed.
    pub(crate) fn finish(mut self) {
        self.recording.is_finished = true;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_encoded_without_a_copy() {
        let value = |key: &str| proto::Value { key: key.to_owned(), ..proto::Value::default() };
        for push in [
            proto::Push::default(),
            proto::Push { values: (0..100).map(|_| value("weights")).collect(), ..<_>::default() },
        ] {
            assert_eq!(request_of_push(&push).unwrap(), request_of(Verb::Push(push)));
        }
    }
}

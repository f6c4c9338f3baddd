//! [`AttemptRecord`]: the pushes of a round, while a server adds them up.

use kvstore_core::{Result, fallible};
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};

use super::Journal;
use super::heads::{Attempt, Failed, Part, Participant};
use super::recording::write_pieces;
use crate::proto;

/// The numbers of the field `members` of an [`Attempt`] and of the fields of a member.
const MEMBERS: u32 = 1;
const PARTICIPANT: u32 = 1;
const PUSH: u32 = 2;

/// An attempt to add up the pushes of a round. Its record says that it was given up, unless
/// [`AttemptRecord::finish`] is called.
///
/// It holds no lock, because the data arrive slowly. So other records, also those of marks, may be
/// between its records.
#[derive(Debug)]
pub(crate) struct AttemptRecord<'a> {
    journal: &'a Journal,
    /// The number of its record.
    pub(super) number: u64,
    /// The bytes of its data.
    pub(super) num_bytes: usize,
    is_finished: bool,
}

impl Journal {
    /// Begins to record the pushes of a round, in the order of their members, or returns `None` if
    /// the journal has no values.
    ///
    /// # Errors
    /// - [`Error::Io`](kvstore_core::Error::Io) if the journal is required and cannot be written.
    pub(crate) fn attempt(
        &self,
        participants: &[Participant],
        pushes: &[&proto::Push],
    ) -> Result<Option<AttemptRecord<'_>>> {
        if !self.has_values() || !self.is_recording() {
            return Ok(None);
        }
        let head = head_of(participants, pushes)?;
        match self.write::<Attempt>(&head) {
            Ok(number) => {
                Ok(Some(AttemptRecord { journal: self, number, num_bytes: 0, is_finished: false }))
            }
            Err(error) => self.report("the push of a round", error).map(|()| None),
        }
    }
}

/// Returns the head of the record of an attempt, without a copy of its pushes.
fn head_of(participants: &[Participant], pushes: &[&proto::Push]) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    for (participant, push) in participants.iter().zip(pushes) {
        let len =
            message::encoded_len(PARTICIPANT, participant) + message::encoded_len(PUSH, *push);
        fallible::reserve(&mut head, key_len(MEMBERS) + encoded_len_varint(len as u64) + len)?;
        encode_key(MEMBERS, WireType::LengthDelimited, &mut head);
        encode_varint(len as u64, &mut head);
        message::encode(PARTICIPANT, participant, &mut head);
        message::encode(PUSH, *push, &mut head);
    }
    Ok(head)
}

impl AttemptRecord<'_> {
    /// Writes the next data of the push of a member. The pieces follow each other.
    ///
    /// # Errors
    /// - [`Error::Io`](kvstore_core::Error::Io) if the journal is required and cannot be written.
    pub(crate) fn write_part(&mut self, member: usize, pieces: &[&[u8]]) -> Result<()> {
        if !self.journal.is_recording() {
            return Ok(());
        }
        self.num_bytes += pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let member = u32::try_from(member).unwrap_or(u32::MAX);
        let head = Part { attempt: self.number, member }.encode_to_vec();
        let written = write_pieces::<Part>(self.journal, &head, pieces);
        written.or_else(|error| self.journal.report("the push of a round", error))
    }

    /// Ends the record of an attempt whose sum was pushed.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for AttemptRecord<'_> {
    fn drop(&mut self) {
        if !self.is_finished && self.journal.is_recording() {
            self.journal.record_failed(Failed { record: self.number, data: 0 });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::journal::heads::AttemptMember;

    #[test]
    fn an_attempt_is_encoded_without_a_copy() {
        for num_members in 0..4_u64 {
            let member = |call| {
                let name = format!("member {call}");
                let participant = Participant { name, call, ..Participant::default() };
                let value = |key| proto::Value { key: format!("key {key}"), ..<_>::default() };
                let values = (0..50 * call).map(value).collect();
                (participant, proto::Push { values, ..proto::Push::default() })
            };
            let (participants, pushes): (Vec<_>, Vec<_>) = (0..num_members).map(member).unzip();
            let head = head_of(&participants, &pushes.iter().collect::<Vec<_>>()).unwrap();
            let member = |(participant, push)| AttemptMember {
                participant: Some(participant),
                push: Some(push),
            };
            let members = participants.into_iter().zip(pushes).map(member).collect();
            assert_eq!(head, Attempt { members }.encode_to_vec());
        }
    }
}

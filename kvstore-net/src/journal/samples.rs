//! Journals in memory, for the fuzz target `journal` and for tests.

use super::format::{CHECKSUM, FRAME, Frame, HEADER, header};
use super::heads::{Attempt, AttemptMember, Call, Failed, Head, KeyStep, Part, Participant, Start};
use crate::files::crc;
use crate::proto;
use crate::proto::request::Verb;

/// A journal that grows.
struct Sample {
    bytes: Vec<u8>,
    checksum: u64,
    next: u64,
}

impl Sample {
    fn new() -> Self {
        let (bytes, checksum) = header();
        Self { bytes: Vec::from(bytes), checksum, next: 1 }
    }

    fn add(&mut self, kind: u32, head: &[u8], data: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let frame = Frame { head: len(head), data: len(data), number: self.next, kind };
        self.checksum = frame.checksum(self.checksum, crc(&[head, data]));
        self.next += 1;
        let checksum = self.checksum.to_le_bytes();
        self.bytes.extend([&frame.to_bytes()[..], head, data, &checksum].into_iter().flatten());
    }

    fn with<H: Head>(mut self, head: &H, data: &[u8]) -> Self {
        self.add(H::KIND as u32, &head.encode_to_vec(), data);
        self
    }

    fn with_call(self, verb: Verb, steps: &[(&str, u64)], data: &[u8]) -> Self {
        let participants = Vec::from([Participant { name: "a".to_owned(), ..<_>::default() }]);
        let step = |(key, version): &(&str, u64)| KeyStep {
            key: (*key).to_owned(),
            version: *version,
            before: None,
        };
        let request = Some(proto::Request { verb: Some(verb), ..proto::Request::default() });
        let steps = steps.iter().map(step).collect();
        self.with(&Call { request, participants, steps, ..Call::default() }, data)
    }
}

/// Returns valid journals: without calls, without values, with values, and with a round.
pub(crate) fn samples() -> [Vec<u8>; 4] {
    let start = |has_values| {
        let store = "local".to_owned();
        Sample::new().with(&Start { store, has_values, ..Start::default() }, &[])
    };
    let value = || {
        let spec = Some(proto::Spec { dtype: "float32".to_owned(), shape: Vec::from([2]) });
        Vec::from([proto::Value { key: "w".to_owned(), spec, ..proto::Value::default() }])
    };
    let init = proto::Init { values: value(), ..proto::Init::default() };
    let push = || Verb::Push(proto::Push { values: value(), ..proto::Push::default() });
    let with_values = start(true)
        .with_call(Verb::Init(init), &[], &[1; 8])
        .with_call(push(), &[("w", 1)], &[2; 8])
        .with_call(push(), &[("w", 2)], &[3; 8]);
    let without = Verb::Push(proto::Push::default());
    let without_values = start(false).with_call(without, &[("w", 1)], &[]);
    let init = proto::Init { values: value(), ..proto::Init::default() };
    let participants: Vec<_> = ["a", "b"]
        .map(|name| Participant { name: name.to_owned(), weight: Some(0.5), ..<_>::default() })
        .into();
    let round = Some(proto::RoundPush { weight: Some(0.5), ..proto::RoundPush::default() });
    let push = proto::Push { values: value(), round, ..proto::Push::default() };
    let member = |participant: &Participant| AttemptMember {
        participant: Some(participant.clone()),
        push: Some(push.clone()),
    };
    let attempt = Attempt { members: participants.iter().map(member).collect() };
    let step = KeyStep { key: "w".to_owned(), version: 1, before: None };
    let empty = Some(Verb::Push(proto::Push::default()));
    let call = Call {
        request: Some(proto::Request { verb: empty, ..proto::Request::default() }),
        participants,
        steps: Vec::from([step]),
        // The numbers of the records of the attempts below are 3 and 5.
        attempt: 5,
        ..Call::default()
    };
    let with_round = start(true)
        .with_call(Verb::Init(init), &[], &[1; 8])
        .with(&attempt, &[])
        .with(&Part { attempt: 3, member: 0 }, &[2; 8])
        .with(&attempt, &[])
        .with(&Part { attempt: 5, member: 0 }, &[2; 8])
        .with(&Failed { record: 3, data: 0 }, &[])
        .with(&Part { attempt: 5, member: 1 }, &[3; 4])
        .with(&Part { attempt: 5, member: 1 }, &[3; 4])
        .with(&call, &[]);
    [start(true), without_values, with_values, with_round].map(|sample| sample.bytes)
}

/// Returns these bytes as records with the right numbers and checksums, so that changed bytes reach
/// the code behind these checks.
pub(crate) fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut sample = Sample::new();
    let mut rest = bytes.get(HEADER..).unwrap_or_default();
    while let Some((frame, contents)) = rest.split_first_chunk::<FRAME>() {
        let number = |at: usize| {
            let field = frame.get(at..at + 4).and_then(|field| field.try_into().ok());
            u32::from_le_bytes(field.unwrap_or_default())
        };
        let len = |at: usize| usize::try_from(number(at)).unwrap_or(usize::MAX);
        let (head, contents) = contents.split_at(len(0).min(contents.len()));
        let (data, contents) = contents.split_at(len(4).min(contents.len()));
        sample.add(number(16), head, data);
        rest = contents.get(CHECKSUM..).unwrap_or_default();
    }
    sample.bytes
}

//! The heads of records, as messages of Protocol Buffers. Fields are only added, and numbers are
//! never used again. `docs/reference/formats.md` describes them.

use prost::Message;

use super::format::Kind;
use crate::proto;

/// The head of a record of one kind.
pub(crate) trait Head: Message + Default {
    const KIND: Kind;
}

/// A run of the server begins, with an empty store.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Start {
    #[prost(uint64, tag = "1")]
    pub(crate) server_run: u64,
    /// The name of the store, for example `local`.
    #[prost(string, tag = "2")]
    pub(crate) store: String,
    /// Whether the journal has the values of the calls.
    #[prost(bool, tag = "3")]
    pub(crate) has_values: bool,
    /// The version of the library.
    #[prost(string, tag = "4")]
    pub(crate) software: String,
    /// The bytes of an incomplete record that were cut off before this one.
    #[prost(uint64, tag = "5")]
    pub(crate) cut_bytes: u64,
}

/// The data of the record are the next elements of the call with this number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Data {
    #[prost(uint64, tag = "1")]
    pub(crate) call: u64,
}

/// A member that has taken part in a call: its caller, or each member of a round.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Participant {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) incarnation: u64,
    /// The number of the call among those of the incarnation; 0 for calls without a number.
    #[prost(uint64, tag = "3")]
    pub(crate) call: u64,
    /// The weight of the member in a round. Absent outside of rounds.
    #[prost(double, optional, tag = "4")]
    pub(crate) weight: Option<f64>,
}

/// The step of a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyStep {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    /// The number of pushes that have changed the key, with this one.
    #[prost(uint64, tag = "2")]
    pub(crate) version: u64,
    /// The CRC-64 of the value before the step. Only some steps have one.
    #[prost(fixed64, optional, tag = "3")]
    pub(crate) before: Option<u64>,
}

/// A call takes effect. The data of the record, or those of earlier records, are the data of the
/// request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Call {
    /// The request, without its member. The push of a journal without values, and that of a round,
    /// have no fields.
    #[prost(message, optional, tag = "1")]
    pub(crate) request: Option<proto::Request>,
    /// In the order in which their values were summed.
    #[prost(message, repeated, tag = "2")]
    pub(crate) participants: Vec<Participant>,
    /// The keys of a push, in the order of initialisation.
    #[prost(message, repeated, tag = "3")]
    pub(crate) steps: Vec<KeyStep>,
    /// The number of the call in records of [`Data`], or 0 if the data are in this record.
    #[prost(uint64, tag = "4")]
    pub(crate) data: u64,
    /// Whether an updater has made the push, which is code. Such a push cannot be replayed.
    #[prost(bool, tag = "5")]
    pub(crate) has_updater: bool,
    /// The number of the round whose sum this push is. Absent outside of rounds.
    #[prost(uint64, optional, tag = "6")]
    pub(crate) round: Option<u64>,
    /// The number of the record of the [`Attempt`] whose sum this push is, or 0. Its data are those
    /// of the attempt.
    #[prost(uint64, tag = "7")]
    pub(crate) attempt: u64,
}

/// A server begins to add up the pushes of a round. If a member fails, there is another attempt
/// without it. Only the attempt that a [`Call`] names takes effect.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attempt {
    /// In the order in which their pushes are summed.
    #[prost(message, repeated, tag = "1")]
    pub(crate) members: Vec<AttemptMember>,
}

/// A member of an attempt.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AttemptMember {
    #[prost(message, optional, tag = "1")]
    pub(crate) participant: Option<Participant>,
    /// Its push, without data.
    #[prost(message, optional, tag = "2")]
    pub(crate) push: Option<proto::Push>,
}

/// The data of the record are the next ones of the push of a member.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Part {
    /// The number of the record of the [`Attempt`].
    #[prost(uint64, tag = "1")]
    pub(crate) attempt: u64,
    /// The index of the member in the attempt.
    #[prost(uint32, tag = "2")]
    pub(crate) member: u32,
}

/// A call has failed after its record or its data were written, or an attempt was given up.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Failed {
    /// The number of the record of the call or of the attempt, or 0.
    #[prost(uint64, tag = "1")]
    pub(crate) record: u64,
    /// The number of the call in records of [`Data`], or 0.
    #[prost(uint64, tag = "2")]
    pub(crate) data: u64,
}

/// Why the contents of the store are kept in mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Reason {
    Unknown = 0,
    /// A member takes a snapshot.
    Snapshot = 1,
    /// The server writes its part of a checkpoint.
    Checkpoint = 2,
    /// The server ends in order.
    End = 3,
    /// The server makes a recovery point.
    Point = 4,
    /// The server has continued from a recovery point.
    Recovered = 5,
}

/// At this record, the contents of the store are as in a checkpoint. Calls before it have taken
/// effect, those after it have not.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mark {
    #[prost(enumeration = "Reason", tag = "1")]
    pub(crate) reason: i32,
    /// The name of a checkpoint of servers.
    #[prost(string, tag = "2")]
    pub(crate) checkpoint: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) caller: Option<Participant>,
    /// The random number of the recovery point, or 0.
    #[prost(fixed64, tag = "4")]
    pub(crate) point: u64,
}

/// The checksum of the contents of a key: the CRC-32 of a checkpoint with this key alone.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyDigest {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(fixed32, tag = "2")]
    pub(crate) digest: u32,
}

/// The checksums of the contents at a mark. Many keys need several records.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Digests {
    /// The number of the record of the mark.
    #[prost(uint64, tag = "1")]
    pub(crate) mark: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) keys: Vec<KeyDigest>,
    /// The checksum of the settings: the CRC-32 of a checkpoint without keys. Only in the last
    /// record of the mark.
    #[prost(fixed32, optional, tag = "3")]
    pub(crate) settings: Option<u32>,
}

macro_rules! heads {
    ($($Head:ident),+) => { $(impl Head for $Head { const KIND: Kind = Kind::$Head; })+ };
}
heads!(Start, Data, Call, Failed, Mark, Digests, Attempt, Part);

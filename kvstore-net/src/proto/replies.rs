// Generated from proto/kvstore/v1 by `make protocol`. Do not edit.
// CRC-32 of the source: 7dfc16e0
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Reply {
    /// Absent if the call succeeded.
    #[prost(message, optional, tag = "1")]
    pub failure: ::core::option::Option<Failure>,
    /// Values or descriptions of values.
    #[prost(message, repeated, tag = "2")]
    pub values: ::prost::alloc::vec::Vec<Value>,
    #[prost(message, repeated, tag = "3")]
    pub stats: ::prost::alloc::vec::Vec<KeyStats>,
    /// For Remove: the removed keys.
    #[prost(string, repeated, tag = "4")]
    pub keys: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "5")]
    pub settings: ::core::option::Option<Settings>,
    #[prost(message, optional, tag = "6")]
    pub blob: ::core::option::Option<Blob>,
    #[prost(message, optional, tag = "7")]
    pub status: ::core::option::Option<Status>,
    /// Whether the data contain the elements of `values`.
    #[prost(bool, tag = "8")]
    pub has_elements: bool,
    /// The first of the reserved layouts, or, for Stats, the first layout of the last rollback.
    #[prost(uint64, tag = "9")]
    pub first_layout: u64,
    /// If present, this is not the reply, which follows later: the member sends this range of the data
    /// of its request, in frames without a request.
    #[prost(message, optional, tag = "10")]
    pub wanted: ::core::option::Option<Wanted>,
}
/// A range of the data of a request. The server may ask for a range again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Wanted {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub num_bytes: u64,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct KeyStats {
    #[prost(string, tag = "1")]
    pub key: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "2")]
    pub spec: ::core::option::Option<Spec>,
    #[prost(string, tag = "3")]
    pub device: ::prost::alloc::string::String,
    #[prost(uint64, tag = "4")]
    pub value_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub num_pushes: u64,
    #[prost(uint64, tag = "6")]
    pub state_bytes: u64,
    #[prost(message, optional, tag = "7")]
    pub placement: ::core::option::Option<Placement>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Settings {
    /// Absent if the store has no optimizer.
    #[prost(string, optional, tag = "1")]
    pub optimizer: ::core::option::Option<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "2")]
    pub compression: ::core::option::Option<Compression>,
    #[prost(message, optional, tag = "3")]
    pub clip_global_norm: ::core::option::Option<Clip>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Status {
    #[prost(message, repeated, tag = "1")]
    pub members: ::prost::alloc::vec::Vec<Member>,
    /// Workers whose lease has ended or whose connection is lost, without those that left.
    #[prost(uint64, tag = "2")]
    pub num_dead: u64,
    #[prost(uint64, tag = "3")]
    pub num_keys: u64,
    #[prost(uint64, tag = "4")]
    pub num_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub num_pushes: u64,
    #[prost(uint64, tag = "6")]
    pub uptime_ms: u64,
    #[prost(uint64, tag = "7")]
    pub server_run: u64,
    #[prost(string, tag = "8")]
    pub store: ::prost::alloc::string::String,
    /// Absent if the server has no journal.
    #[prost(message, optional, tag = "9")]
    pub journal: ::core::option::Option<JournalStatus>,
    /// Absent if the server makes no recovery points.
    #[prost(message, optional, tag = "10")]
    pub recovery: ::core::option::Option<RecoveryStatus>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RecoveryStatus {
    /// The recovery points of this run of the server, and the bytes and the age of the last one.
    #[prost(uint64, tag = "1")]
    pub num_points: u64,
    #[prost(uint64, tag = "2")]
    pub num_bytes: u64,
    #[prost(uint64, optional, tag = "3")]
    pub age_ms: ::core::option::Option<u64>,
    /// Why the last attempt to make one has failed.
    #[prost(string, optional, tag = "4")]
    pub error: ::core::option::Option<::prost::alloc::string::String>,
    /// Whether the server accepts no calls until all servers of its group go back to the same point.
    #[prost(bool, tag = "5")]
    pub awaits_others: bool,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct JournalStatus {
    /// "order" or "full".
    #[prost(string, tag = "1")]
    pub mode: ::prost::alloc::string::String,
    /// The records of this run of the server, and the bytes of the file.
    #[prost(uint64, tag = "2")]
    pub num_records: u64,
    #[prost(uint64, tag = "3")]
    pub num_bytes: u64,
    /// Why the journal has stopped, or why calls fail if it is required.
    #[prost(string, optional, tag = "4")]
    pub error: ::core::option::Option<::prost::alloc::string::String>,
}
/// An error of the store. Errors of the connection are gRPC statuses.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct Failure {
    /// The number of the error code, as in the manual.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub message: ::prost::alloc::string::String,
    #[prost(string, optional, tag = "3")]
    pub key: ::core::option::Option<::prost::alloc::string::String>,
    /// The lists or specs that differ, for length and spec mismatches.
    #[prost(string, tag = "4")]
    pub subject: ::prost::alloc::string::String,
    #[prost(uint64, tag = "5")]
    pub expected_len: u64,
    #[prost(uint64, tag = "6")]
    pub found_len: u64,
    #[prost(message, optional, tag = "7")]
    pub expected: ::core::option::Option<Spec>,
    #[prost(message, optional, tag = "8")]
    pub found: ::core::option::Option<Spec>,
    /// For memory errors.
    #[prost(uint64, tag = "9")]
    pub requested: u64,
    #[prost(uint64, tag = "10")]
    pub in_use: u64,
    #[prost(uint64, optional, tag = "11")]
    pub limit: ::core::option::Option<u64>,
    /// Whether the call uses another layout of a key, another compression, or another type of a pulled
    /// value, than the server. Such a call has changed nothing. The member asks the server for the
    /// layouts, compression and types, and repeats the call with a new number. For Init and Rollback:
    /// the member reserves larger layouts.
    #[prost(bool, tag = "12")]
    pub out_of_date: bool,
    /// For an error of an updater, if the member is in the process of the server: the number of the
    /// error object there. Otherwise 0.
    #[prost(uint64, tag = "13")]
    pub error_object: u64,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum OnExisting {
    Reject = 0,
    Keep = 1,
    Replace = 2,
}
impl OnExisting {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Reject => "ON_EXISTING_REJECT",
            Self::Keep => "ON_EXISTING_KEEP",
            Self::Replace => "ON_EXISTING_REPLACE",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "ON_EXISTING_REJECT" => Some(Self::Reject),
            "ON_EXISTING_KEEP" => Some(Self::Keep),
            "ON_EXISTING_REPLACE" => Some(Self::Replace),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum LatePush {
    /// It fails with the number of the current round.
    Reject = 0,
    /// It belongs to the open round, or to the next one.
    Next = 1,
}
impl LatePush {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::Reject => "LATE_PUSH_REJECT",
            Self::Next => "LATE_PUSH_NEXT",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "LATE_PUSH_REJECT" => Some(Self::Reject),
            "LATE_PUSH_NEXT" => Some(Self::Next),
            _ => None,
        }
    }
}

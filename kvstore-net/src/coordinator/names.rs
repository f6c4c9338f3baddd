//! [`Names`]: the keys of a group in etcd.

use kvstore_core::{Error, Result};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::etcd::KeyValue;
use crate::rules::Role;

/// The keys of a group. All begin with `/kvstore/GROUP/`.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(group: &str) -> Self {
        Self { prefix: format!("/kvstore/{group}/") }
    }

    /// The [`Config`], which the first server of the group writes.
    pub(super) fn config(&self) -> String {
        format!("{}config", self.prefix)
    }

    /// The prefix of the [`Address`](Registered) of each live server.
    pub(super) fn servers(&self) -> String {
        format!("{}servers/", self.prefix)
    }

    /// The live server with this index. The key has the lease of the server.
    pub(super) fn server(&self, index: u32) -> String {
        format!("{}{index}", self.servers())
    }

    /// The number of the last run of a server with this index. The key has no lease.
    pub(super) fn run(&self, index: u32) -> String {
        format!("{}runs/{index}", self.prefix)
    }

    /// The live server that keeps what follows: that with index 0. The key has its lease.
    pub(super) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    /// The number of barriers that the group has passed.
    pub(super) fn barriers(&self) -> String {
        format!("{}barriers", self.prefix)
    }

    /// The smallest layout that is not reserved.
    pub(super) fn layouts(&self) -> String {
        format!("{}layouts", self.prefix)
    }

    /// The prefix of the [`MemberRecord`] of each member, live or dead.
    pub(super) fn members(&self) -> String {
        format!("{}members/", self.prefix)
    }

    pub(super) fn member(&self, name: &str) -> String {
        format!("{}{name}", self.members())
    }
}

/// What is fixed for a group.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) num_servers: u32,
}

/// A live server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registered {
    /// Where members connect, `HOST:PORT`.
    pub(super) address: String,
    /// The number of the run of the server.
    pub(super) run: u64,
}

/// What a later leader needs to know of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    pub(crate) rank: u64,
    is_reader: bool,
    /// The random number of the process that has the name.
    pub(crate) process: u64,
    /// Those of the processes that had it before.
    pub(crate) replaced: Vec<u64>,
}

impl MemberRecord {
    pub(crate) fn new(rank: u64, role: Role, process: u64, replaced: Vec<u64>) -> Self {
        Self { rank, is_reader: role == Role::Reader, process, replaced }
    }

    pub(crate) fn role(&self) -> Role {
        if self.is_reader { Role::Reader } else { Role::Worker }
    }
}

/// Returns the JSON of a value.
pub(super) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Internal(error.to_string()))
}

/// Reads the JSON of a key.
///
/// # Errors
/// - [`Code::DataLoss`](tonic::Code::DataLoss) if another program has changed it.
pub(super) fn parse<'a, T: Deserialize<'a>>(found: &'a KeyValue) -> Result<T, Status> {
    serde_json::from_slice(&found.value).map_err(|error| {
        let key = String::from_utf8_lossy(&found.key);
        Status::data_loss(format!("the key `{key}` has another form than expected: {error}"))
    })
}

/// Reads the number of a key.
///
/// # Errors
/// - [`Code::DataLoss`](tonic::Code::DataLoss) if another program has changed it.
pub(super) fn parse_number(found: &KeyValue) -> Result<u64, Status> {
    parse(found)
}

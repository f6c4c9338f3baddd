//! Groups whose state is in etcd: which servers there are, and what the first one keeps.
//!
//! | key, after `/kvstore/GROUP/` | value | lease |
//! |---|---|---|
//! | `config` | the number of servers | no |
//! | `servers/INDEX` | the address and the run of a live server | its own |
//! | `runs/INDEX` | the last run of a server with this index | no |
//! | `leader` | the run of the server with index 0 | that server's |
//! | `layouts` | the smallest layout that is not reserved | no |
//! | `barriers` | the number of barriers that the group has passed | no |
//! | `members/NAME` | rank, role and process of a member | no |
//!
//! Only the leader writes the last three, in transactions that require that `leader` has its lease.

mod directory;
mod leader;
mod names;
mod options;
mod registration;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

pub(crate) use self::directory::{Route, find_servers, follow_servers};
pub(crate) use self::leader::{KeptGroup, LeaderState};
pub(crate) use self::names::MemberRecord;
pub use self::options::Coordinator;
pub(crate) use self::registration::{Place, Registration};

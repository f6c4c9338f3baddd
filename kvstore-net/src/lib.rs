//! A store of named tensors that other machines can reach: a server holds the values, and workers
//! join and leave at any time.
//!
//! [`Server`] is a store behind gRPC, [`NetStore`] is a store on servers. The command `kvstore` of
//! the crate `kvstore-cli` starts servers and shows their state. It was tested with several
//! processes on one machine, but not between machines.
//!
//! # What is guaranteed
//!
//! - Each push is one step, at once. With one worker, results have the bits of a `local` store.
//!   With several, they depend on the order in which pushes arrive.
//! - A call takes effect once. If the connection is lost, the worker repeats the call with the same
//!   number, and the server returns the outcome of the first attempt.
//! - If it is not known whether a call took effect, for example because the server has restarted,
//!   its error says so.
//! - A pull with the staleness `s` waits until no live worker is more than `s` pushes of the key
//!   behind. A member that joins or comes back starts at the count of the slowest worker.
//! - `barrier` waits for all live workers.
//! - Updaters run in the process of the server. Their errors reach the worker whose push caused
//!   them.
//!
//! # Several servers
//!
//! - The name of a key decides which server has it: its home. The rows of large values are divided
//!   among all servers.
//! - Results have the bits of one server. Layer-wise optimizers need complete values: set them
//!   before `init`.
//! - A push is one step on each of its servers, so a pull may see it on some of them only. An
//!   updater gets the rows of its server.
//! - If a server fails during a call, the error says how many servers have made their part. An
//!   `init` that fails removes its keys again, also those that it has replaced.
//! - A snapshot is taken on each server, at slightly different moments if workers push meanwhile.
//! - The first server keeps ranks and barriers. All members need the same list of servers. With a
//!   [`Coordinator`], etcd keeps the list and what the first server needs, so any server may die.
//!
//! # Members
//!
//! A member has a name, a rank and a lease, which every message renews.
//!
//! | event | the server | the member |
//! |---|---|---|
//! | its process ends | notices the closed connection | |
//! | its process is stopped | notices it when the lease ends | continues when it runs again |
//! | its connection is lost | counts the member as dead | joins again and repeats its calls |
//! | a new process takes a dead name | gives it the rank | the earlier process is rejected |
//! | a second live process takes a name | rejects it | gets `InvalidArgument` |
//! | the server is shut down | completes running calls | waits for a server |
//! | the member is dead for an hour | forgets it | joins as a new one |
//!
//! # Limits
//!
//! - With compression, members send codes and keep the residuals. A snapshot has those of the
//!   member that takes it, and a checkpoint on servers has none.
//! - Two workers that change settings at the same time may leave servers with different ones.
//! - `clip_global_norm` needs one server.
//! - `restore` replaces the contents of the server, so one worker should call it.
//! - The calls of one machine share a limit of bytes, which is checked before memory is allocated.
//! - Without [`Certificates`], connections are neither authenticated nor encrypted, so only
//!   processes of the same machine may use them, unless the options permit it.
//!
//! # Structure
//!
//! - `proto/kvstore/v1/store.proto` is the protocol: gRPC with one stream per member, and streams
//!   that carry calls one after another. In `peers.proto` is what servers tell each other.
//! - [`rules`] decides who is a member, which call is a repetition, which pull waits, and which
//!   server has a key. It has no I/O, threads or clocks.
//! - `etcd` is a client of etcd, and `coordinator` keeps a group there.
//! - `wire` converts values and errors to messages; `server` and `client` move them.

// The authority of the tests names this crate.
#[cfg(test)]
extern crate self as kvstore_net;

mod accounts;
#[cfg(test)]
#[allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a check fails by panicking"
)]
mod attacks;
mod certificates;
mod client;
mod coordinator;
#[cfg(test)]
#[allow(clippy::disallowed_macros, clippy::unwrap_used, reason = "a check fails by panicking")]
mod draining;
mod endpoint;
mod etcd;
#[cfg(test)]
mod faults;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod http2;
mod journal;
mod proto;
#[cfg(test)]
mod quiet;
mod random;
mod replay;
pub mod rules;
mod runtime;
mod same_machine;
mod same_process;
mod server;
#[cfg(test)]
mod simulation;
mod trace;
#[cfg(test)]
#[allow(clippy::disallowed_macros, clippy::unwrap_used, reason = "a check fails by panicking")]
mod versions;
mod wire;

pub use certificates::Certificates;
pub use client::{
    JournalStatus, LatePush, NetStore, NetStoreOptions, RecoveryStatus, ServerStatus,
};
pub use coordinator::Coordinator;
pub use journal::{IncompleteRecord, JournalMode};
pub use kvstore_core::GroupMember;
pub use replay::{
    Difference, ReplayOptions, ReplayReport, ReplayedKey, ReplayedStep, StepMember, replay,
    replay_steps,
};
pub use server::{CommandHandler, Server, ServerOptions};
pub use trace::TraceContext;

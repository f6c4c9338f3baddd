//! Stores that span processes, and what processes do together: wait for each other, and exchange bytes.
//!
//! - [`DistStore`]: the store; [`Group`]: the processes that share stores
//! - [`transport`]: what a transport implements, and parts to build one from
//! - [`Collective`]: the verbs, each with a deadline ([`Wait`]); [`LastCalls`]: those before its end; [`Buffer`], [`Slices`]: the bytes
//! - [`LocalCollective`]: threads of one process
//! - [`MpiCollective`]: processes that a launcher of MPI has started; its library is opened when the first one is made

#![cfg_attr(test, allow(clippy::disallowed_macros, reason = "a test may abort without memory"))]

mod launched;
mod local;
mod mpi;
mod store;
pub mod transport;

pub use launched::open_collective;
pub use local::LocalCollective;
pub use mpi::{MpiCollective, MpiOptions};
pub use store::{DistStore, Group};
pub use transport::{Buffer, Collective, DEFAULT_TIMEOUT, LastCalls, SharedSlices, Slices, Wait};

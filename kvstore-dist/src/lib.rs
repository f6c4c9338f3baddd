//! Stores that span processes, and the transports between the processes.
//!
//! - [`DistStore`]: the store. [`Group`]: the processes that share stores.
//! - [`transport`]: the trait of a transport, and parts to build one.
//! - [`Collective`]: the operations of a transport. Each has a deadline ([`Wait`]).
//!   [`LastCalls`]: the calls to make before the collective ends. [`Buffer`] and [`Slices`]: the
//!   bytes of a call.
//! - [`LocalCollective`]: a transport between threads of one process.
//! - [`MpiCollective`]: a transport between processes that an MPI launcher has started. The first
//!   one opens the MPI library.

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

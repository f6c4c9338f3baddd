//! [`Collective`], the trait of a transport, and parts to build a transport.
//!
//! A transport moves bytes between processes and does no arithmetic. The implementations in this
//! crate, `local.rs` and `mpi/`, use the other types here:
//!
//! - [`Buffer`], [`Slices`], [`SharedSlices`]: the bytes of a call. The call owns them while it
//!   runs.
//! - [`Call`]: the verb and number of a call. Every message carries its [tag](Call::tag), so that
//!   ranks in different calls are detected.
//! - [`CallOrder`]: one call at a time per member, until a [`Fault`] ends the collective.
//! - [`Place`]: rank, call and deadline, for checks and error messages.
//! - [`check_root`], [`check_len`], [`begin_all_to_all`]: the checks of arguments.

mod buffer;
mod call;
mod call_order;
mod collective;
mod fault;

pub use buffer::{Buffer, SharedSlices, Slices};
pub use call::{Call, Place, Verb};
pub use call_order::{CallGuard, CallOrder};
pub use collective::{
    Collective, DEFAULT_TIMEOUT, LastCalls, Wait, begin_all_to_all, check_len, check_root,
};
pub use fault::{Fault, Ranks};

//! The rules of a group, without I/O, threads or clocks: who is a member, which call is a
//! repetition, which pull must wait, who takes part in a round, which server has a key, which calls
//! belong together, and whether a server still owns its place.
//!
//! The caller passes the time, as the duration since any fixed moment. So tests can try every order
//! of events.

mod backoff;
mod calls;
mod clocks;
mod followed;
mod joint;
mod link;
mod members;
mod ownership;
pub mod placement;
mod rounds;
mod versions;
mod votes;

pub use backoff::Backoff;
pub use calls::{Begun, Calls, SavedCalls};
pub use clocks::Clocks;
pub use followed::Followed;
pub use joint::{JointCalls, JointId, JointServers, MOST_OPERATIONS, made_elsewhere};
pub use link::Link;
pub use members::{Joined, Member, Members, Refusal, Role, SavedMember};
pub use ownership::{Ownership, Standing};
pub use rounds::{Quorum, Round};
pub use versions::Versions;
pub use votes::Votes;

//! [`NetStore`]: a store on a server that this process reaches over the network.

mod connection;
mod failures;
mod membership;
mod options;
mod status;
mod store;

pub use options::NetStoreOptions;
pub use status::ServerStatus;
pub use store::{GroupMember, NetStore};

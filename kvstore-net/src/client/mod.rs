//! [`NetStore`]: a store on servers that this process reaches over the network.

mod connection;
mod failures;
mod group;
mod membership;
mod options;
mod residuals;
mod servers;
mod sharded;
mod status;
mod store;
mod streams;

pub use options::NetStoreOptions;
pub use status::ServerStatus;
pub use store::NetStore;

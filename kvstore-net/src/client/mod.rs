//! [`NetStore`]: a store on servers that this process reaches over the network.

mod barriers;
pub(crate) mod connection;
mod descriptions;
pub(crate) mod driver;
mod events;
mod group;
pub(crate) mod membership;
mod operations;
mod options;
mod pulled;
mod residuals;
mod round_options;
mod rounds;
pub(crate) mod servers;
mod sharded;
mod snapshots;
mod status;
mod store;
pub(crate) mod streams;
mod unanswered;

pub use options::NetStoreOptions;
pub use round_options::LatePush;
pub use status::{JournalStatus, RecoveryStatus, ServerStatus};
pub use store::NetStore;

//! Stores, servers, optimizers, snapshots and checkpoints.

pub(crate) mod checkpoint;
pub(crate) mod handle;
mod members;
pub(crate) mod optimizer;
mod row_outputs;
pub(crate) mod server;
pub(crate) mod snapshot;
mod stats;
pub(crate) mod updater;
mod verbs;

//! Stores, optimizers, snapshots and checkpoints.

pub(crate) mod checkpoint;
pub(crate) mod optimizer;
pub(crate) mod snapshot;
pub(crate) mod updater;
pub(crate) mod verbs;

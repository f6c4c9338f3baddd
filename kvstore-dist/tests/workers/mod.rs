//! Runs workers as threads, each with a store.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, CpuBackend};
use kvstore_dist::DistStore;

use crate::threads::as_workers;

pub(crate) fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

/// Calls `work` on every worker of a group with its store. Returns the results in the order of
/// ranks.
pub(crate) fn on_workers<R: Send>(
    name: &str,
    size: usize,
    backends: &Backends,
    work: impl Fn(&DistStore) -> R + Sync,
) -> Vec<R> {
    as_workers(size, |group| work(&DistStore::new(name, backends, group).unwrap()))
}

//! Workers that are threads, each with a store.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kvstore_core::{Backends, CpuBackend};
use kvstore_dist::{DistStore, Group, LocalCollective};

pub(crate) fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

/// Calls `work` on every worker of a group, and returns what they return in the order of ranks.
pub(crate) fn on_workers<R: Send>(
    name: &str,
    size: usize,
    backends: &Backends,
    work: impl Fn(&DistStore) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let workers: Vec<_> = LocalCollective::group(size)
            .into_iter()
            .map(|member| {
                let work = &work;
                scope.spawn(move || {
                    let group = Group::new(Arc::new(member)).unwrap();
                    group.set_timeout(Duration::from_secs(20));
                    work(&DistStore::new(name, backends, &group).unwrap())
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

//! Runs workers as threads.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kvstore_dist::{Group, LocalCollective};

/// How long a worker waits for the others. A busy machine may stall a thread for many seconds.
const LONG: Duration = Duration::from_secs(120);

/// Calls `work` as every worker of a group. Returns the results in the order of ranks.
pub(crate) fn as_workers<R: Send>(size: usize, work: impl Fn(&Arc<Group>) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let workers: Vec<_> = LocalCollective::group(size)
            .into_iter()
            .map(|member| {
                let work = &work;
                scope.spawn(move || {
                    let group = Group::new(Arc::new(member)).unwrap();
                    group.set_timeout(LONG);
                    work(&group)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

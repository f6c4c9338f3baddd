//! The traffic of `init`: each value is sent once, and long values are not copied.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::sync::{Arc, Mutex, Weak};
use std::thread;

use kvstore_core::{Backends, CpuBackend, Key, KvStore, OnExisting, Result, WorkerGroup};
use kvstore_dist::{
    Buffer, Collective, DistStore, Group, LastCalls, LocalCollective, SharedSlices, Slices, Wait,
};
use values::{floats, full, key};

#[allow(dead_code, reason = "each program of tests uses some of it")]
mod values;

/// A collective that records the length of each broadcast and whether it sends a tensor.
#[derive(Debug)]
struct CountingCollective {
    member: LocalCollective,
    broadcasts: Mutex<Vec<(usize, bool)>>,
}

impl CountingCollective {
    fn taken(&self) -> Vec<(usize, bool)> {
        std::mem::take(&mut self.broadcasts.lock().unwrap())
    }
}

impl Collective for CountingCollective {
    fn rank(&self) -> usize {
        self.member.rank()
    }

    fn size(&self) -> usize {
        self.member.size()
    }

    fn barrier(&self, wait: &Wait<'_>) -> Result<()> {
        self.member.barrier(wait)
    }

    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()> {
        let is_tensor = bytes.clone().into_tensor().is_some();
        self.broadcasts.lock().unwrap().push((bytes.len(), is_tensor));
        self.member.broadcast(root, bytes, wait)
    }

    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()> {
        self.member.all_to_all(sent, received, wait)
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        self.member.all_gather(slices, wait)
    }

    fn before_end(&self, last: Weak<dyn LastCalls>) {
        self.member.before_end(last);
    }
}

/// Runs `act` on two ranks.
fn two(act: impl Fn(&DistStore, &Backends, &CountingCollective) + Sync) {
    thread::scope(|scope| {
        for member in LocalCollective::group(2) {
            let act = &act;
            scope.spawn(move || {
                let counting =
                    Arc::new(CountingCollective { member, broadcasts: Mutex::default() });
                let collective: Arc<dyn Collective> = counting.clone();
                let group = Group::new(collective).unwrap();
                let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
                let store = DistStore::new("dist_sync", &backends, &group).unwrap();
                act(&store, &backends, &counting);
            });
        }
    });
}

const LONG: usize = 1 << 20;

#[test]
fn values_are_sent_once_and_long_values_without_a_copy() {
    two(|store, backends, counting| {
        let number = if store.rank().unwrap() == 0 { 3.0 } else { 5.0 };
        let keys: Vec<Key> = ["long", "a", "b"].map(key).into();
        let values = [LONG, 2, 3].map(|len| full(backends, &[len], number));
        store.init(&keys, &values).unwrap();
        // The short values are packed into one message.
        let mut found = counting.taken();
        found.sort_unstable();
        assert_eq!(found, [(4 * 5, false), (4 * LONG, true)]);
        for name in ["long", "a", "b"] {
            assert!(floats(store, name).iter().all(|number| *number == 3.0));
        }
    });
}

#[test]
fn kept_keys_are_not_sent() {
    two(|store, backends, counting| {
        store.init(&[key("a")], &[full(backends, &[LONG], 1.0)]).unwrap();
        counting.taken();
        let values = [full(backends, &[LONG], 2.0), full(backends, &[2], 2.0)];
        store.init_with(&[key("a"), key("b")], &values, OnExisting::Keep).unwrap();
        let num_bytes: Vec<usize> =
            counting.taken().iter().map(|(num_bytes, _)| *num_bytes).collect();
        assert_eq!(num_bytes, [4 * 2]);
        assert_eq!((floats(store, "a")[0], floats(store, "b")[0]), (1.0, 2.0));
        store.init_with(&[key("a")], &values[..1], OnExisting::Replace).unwrap();
        assert_eq!(floats(store, "a")[0], 2.0);
    });
}

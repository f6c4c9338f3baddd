//! Snapshots and checkpoints of several servers are of one moment, while workers push.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{
    Device, Error, Key, KvStore, LocalStore, Optimizer, Result, Snapshot, Tensor, Value,
    WorkerGroup,
};
use kvstore_net::rules::placement::home;
use kvstore_net::{LatePush, NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::{LONG, connect, key};

const LENGTH: usize = 600;

/// The first value is divided among the servers, and the others are on one server each.
fn keys() -> Vec<Key> {
    ["divided", "0", "1", "2", "3", "4", "5"].map(key).into()
}

fn values(number: f32) -> Vec<Value> {
    let value = |length: usize| {
        Tensor::from_slice(backends(), Device::cpu(0), [length], &vec![number; length])
    };
    (0..keys().len())
        .map(|index| value(if index == 0 { LENGTH } else { 3 }).unwrap().into())
        .collect()
}

/// Starts servers with a folder for checkpoints. The first one leads the others.
fn start(num_servers: usize, folder: &Path) -> Vec<Arc<Server>> {
    let options = || ServerOptions::new("127.0.0.1:0").checkpoints(folder);
    let start = |options: &ServerOptions| Arc::new(Server::start(backends(), options).unwrap());
    let mut servers: Vec<_> = (1..num_servers).map(|_| start(&options())).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    servers.insert(0, start(&options().followers(addresses)));
    servers
}

fn options(servers: &[Arc<Server>]) -> NetStoreOptions {
    let addresses = servers.iter().map(|server| server.address().to_string());
    NetStoreOptions::of_servers(addresses).divide_above(LENGTH).timeout(LONG)
}

/// Returns the different numbers in all values of a store.
fn numbers(store: &dyn KvStore) -> BTreeSet<String> {
    let pulled = store.pull(&keys(), 0).unwrap();
    let elements = pulled.iter().flat_map(|value| value.to_vec::<f32>().unwrap());
    elements.map(|element| element.to_string()).collect()
}

/// Ends the workers, also if a check fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls a function while workers push. Each push subtracts 1 from all elements of all values.
fn while_pushing(servers: &[Arc<Server>], is_in_rounds: bool, call: impl FnOnce(&NetStore)) {
    let store = connect(&options(servers));
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.init(&keys(), &values(0.0)).unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let options = options(servers);
                let worker = connect(&if is_in_rounds {
                    options.quorum(1).grace(Duration::ZERO).late(LatePush::Next)
                } else {
                    options
                });
                while !has_ended.load(Ordering::Relaxed) {
                    worker.push(&keys(), &values(1.0), 0).unwrap();
                }
            });
        }
        let _end = EndOnDrop(&has_ended);
        call(&store);
    });
}

fn local() -> LocalStore {
    LocalStore::new("local", backends().clone()).unwrap()
}

#[test]
fn snapshots_are_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    for (num_servers, is_in_rounds) in [(2, false), (3, false), (2, true), (3, true)] {
        let servers = start(num_servers, folder.path());
        while_pushing(&servers, is_in_rounds, |store| {
            let mut seen = BTreeSet::new();
            for _ in 0..50 {
                let snapshot = store.snapshot().unwrap();
                // Also when it is read later.
                thread::sleep(Duration::from_millis(2));
                let restored = local();
                restored.rollback(&snapshot.load().unwrap()).unwrap();
                let numbers = numbers(&restored);
                assert_eq!(numbers.len(), 1, "{num_servers} servers: {numbers:?}");
                seen.extend(numbers);
            }
            assert!(seen.len() > 5, "the workers hardly push: {seen:?}");
        });
    }
}

/// They restore on another number of servers, and into a local store.
#[test]
fn checkpoints_are_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let servers = start(3, folder.path());
    while_pushing(&servers, false, |store| {
        for _ in 0..20 {
            store.checkpoint_on_servers("model").unwrap();
            let snapshot = Snapshot::read(backends(), folder.path().join("model")).unwrap();
            let (here, others) = (local(), start(2, folder.path()));
            let there = connect(&options(&others));
            for restored in [&here as &dyn KvStore, &there] {
                restored.rollback(&snapshot).unwrap();
                let numbers = numbers(restored);
                assert_eq!(numbers.len(), 1, "{numbers:?}");
            }
            assert_eq!(numbers(&here), numbers(&there));
        }
    });
}

/// A server that does not answer delays a snapshot, and no push is lost or waits for ever.
#[test]
fn a_snapshot_without_all_servers_times_out() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let servers = start(2, folder.path());
    let store = connect(&options(&servers).timeout(Duration::from_secs(2)));
    store.init(&keys(), &values(0.0))?;
    servers[1].shut_down();
    let error = store.snapshot().unwrap_err();
    assert!(matches!(error, Error::Transport { .. } | Error::Timeout(_)), "{}", error.chain());
    let text = error.chain();
    assert!(text.contains(&servers[1].address().to_string()), "{text}");
    // The first server continues.
    let is_at_first = |key: &Key| home(key.as_str(), 2) == 0;
    let key = keys().into_iter().skip(1).find(is_at_first).unwrap();
    store.push(&[key], &values(1.0)[1..2], 0)
}

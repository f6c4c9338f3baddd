//! Workers that die within calls of several steps: other workers never see a mix of the old and the
//! new contents, and continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{ErrorCode, Key, KvStore, OnExisting, Result, Snapshot, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server};

use super::network::proxy::Proxy;
use super::network::{SHORT, eventually, key};
use super::{connect, files, numbers, options, start, start_with, value, with_folder};

/// How long the calls wait that find a server in another state.
const HURRIED: Duration = Duration::from_millis(500);

/// Returns a key whose home is the first of two servers.
fn key_of_first() -> Key {
    let is_first = |key: &Key| kvstore_net::rules::placement::home(key.as_str(), 2) == 0;
    (0..100).map(|number| key(&format!("key-{number}"))).find(is_first).unwrap()
}

/// A worker that is connected to two servers through proxies.
struct Worker {
    proxies: [Proxy; 2],
    store: Arc<NetStore>,
}

impl Worker {
    fn connect(servers: &[Arc<Server>]) -> Self {
        let proxies = [0, 1].map(|index: usize| Proxy::new(servers[index].address()));
        let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
        let options = NetStoreOptions::of_servers(addresses).divide_above(super::DIVIDE_ABOVE);
        let store = NetStore::connect(backends(), &options.timeout(2 * SHORT)).unwrap();
        Self { proxies, store: Arc::new(store) }
    }

    /// Ends the connection to a server.
    fn disconnect(&self, server: usize) {
        *self.proxies[server].server.lock().unwrap() = None;
        self.proxies[server].cut();
    }

    fn reconnect(&self, servers: &[Arc<Server>], server: usize) {
        *self.proxies[server].server.lock().unwrap() = Some(servers[server].address());
    }

    fn start(
        &self,
        call: impl FnOnce(&NetStore) -> Result<()> + Send + 'static,
    ) -> JoinHandle<Result<()>> {
        let store = Arc::clone(&self.store);
        thread::spawn(move || call(&store))
    }
}

/// Returns the elements of the part of a server.
fn part(server: &Server, key: &Key) -> Vec<f32> {
    server.store().pull(std::slice::from_ref(key), 0).unwrap()[0].to_vec().unwrap()
}

/// Checks that another worker gets a timeout, not a mix of the parts of two values.
#[track_caller]
fn check_no_mix(servers: &[Arc<Server>], key: &Key) {
    let options = options(servers).timeout(HURRIED);
    let hurried = NetStore::connect(backends(), &options).unwrap();
    let error = hurried.pull(std::slice::from_ref(key), 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
    let error = hurried.push(std::slice::from_ref(key), &[value(&[1.0; 10])], 0).unwrap_err();
    let is_partial = error.to_string().contains("1 of 2 servers have made their part");
    assert!(error.code() == ErrorCode::Timeout || is_partial, "{}", error.chain());
}

/// Checks that a worker can replace a key, push and pull.
#[track_caller]
fn check_going_on(store: &NetStore, key: &Key) {
    let keys = std::slice::from_ref(key);
    store.init_with(keys, &[value(&[3.0; 10])], OnExisting::Replace).unwrap();
    store.push(keys, &[value(&[4.0; 10])], 0).unwrap();
    assert_eq!(numbers(store, key.as_str()), [4.0; 10]);
}

/// The worker dies after the home has its part, or after both servers have theirs.
fn dies_while_it_replaces(has_both_parts: bool) {
    let (servers, key) = (start(2), key_of_first());
    let other = connect(&servers);
    other.init(std::slice::from_ref(&key), &[value(&[1.0; 10])]).unwrap();
    let worker = Worker::connect(&servers);
    worker.disconnect(1);
    let replaced = key.clone();
    let init = worker.start(move |store| {
        store.init_with(&[replaced], &[value(&[2.0; 10])], OnExisting::Replace)
    });
    eventually("the home has its part", || part(&servers[0], &key) == [2.0; 5]);
    if has_both_parts {
        worker.disconnect(0);
        worker.reconnect(&servers, 1);
        eventually("both have their parts", || part(&servers[1], &key) == [2.0; 5]);
        worker.disconnect(1);
    }
    worker.disconnect(0);
    eventually("the worker is dead", || other.num_dead_node(4).unwrap() == 1);
    check_no_mix(&servers, &key);
    assert!(other.contains(&key).unwrap());
    check_going_on(&other, &key);
    init.join().unwrap().unwrap_err();
    assert_eq!(numbers(&other, key.as_str()), [4.0; 10], "the dead worker changes nothing");
    // The worker comes back.
    (0..2).for_each(|server| worker.reconnect(&servers, server));
    check_going_on(&worker.store, &key);
}

#[test]
fn a_worker_may_die_while_it_replaces_a_value() {
    dies_while_it_replaces(false);
}

#[test]
fn a_worker_may_die_before_it_finishes_to_replace_a_value() {
    dies_while_it_replaces(true);
}

#[test]
fn a_worker_may_die_in_a_rollback() {
    let (servers, key) = (start(2), key_of_first());
    let other = connect(&servers);
    other.init(std::slice::from_ref(&key), &[value(&[1.0; 10])]).unwrap();
    let snapshot = other.snapshot().unwrap().load().unwrap();
    other.push(std::slice::from_ref(&key), &[value(&[2.0; 10])], 0).unwrap();
    let worker = Worker::connect(&servers);
    worker.disconnect(1);
    let restored = snapshot.clone();
    let rollback = worker.start(move |store| store.rollback(&restored));
    eventually("the first server is rolled back", || part(&servers[0], &key) == [1.0; 5]);
    worker.disconnect(0);
    eventually("the worker is dead", || other.num_dead_node(4).unwrap() == 1);
    assert_eq!(part(&servers[1], &key), [2.0; 5]);
    check_no_mix(&servers, &key);
    let error = rollback.join().unwrap().unwrap_err();
    let text = error.chain();
    let says_so = ["servers have made their part", "not known whether the call took effect"];
    assert!(says_so.iter().any(|part| text.contains(part)), "{text}");
    other.rollback(&snapshot).unwrap();
    assert_eq!(numbers(&other, key.as_str()), [1.0; 10]);
    check_going_on(&other, &key);
}

#[test]
fn a_worker_may_die_in_a_checkpoint_on_servers() {
    let (folder, options) = with_folder();
    let servers = start_with(2, &options);
    let key = key_of_first();
    let other = connect(&servers);
    other.init(std::slice::from_ref(&key), &[value(&[1.0; 10])]).unwrap();
    other.checkpoint_on_servers("model").unwrap();
    other.push(std::slice::from_ref(&key), &[value(&[2.0; 10])], 0).unwrap();
    let saved = folder.path().join("model");
    let num_files = files(&saved).len();
    let read = || {
        let restored = start(1);
        let store = connect(&restored);
        store.rollback(&Snapshot::read(backends(), &saved).unwrap()).unwrap();
        numbers(&store, key.as_str())
    };
    let worker = Worker::connect(&servers);
    // The second server gets each request later than the first one.
    worker.proxies[1].delay.store(500, Ordering::SeqCst);
    let checkpoint = worker.start(|store| store.checkpoint_on_servers("model"));
    eventually("the first server has written its part", || files(&saved).len() > num_files);
    worker.disconnect(1);
    worker.disconnect(0);
    eventually("the worker is dead", || other.num_dead_node(4).unwrap() == 1);
    checkpoint.join().unwrap().unwrap_err();
    assert_eq!(read(), [1.0; 10], "the earlier checkpoint is complete");
    other.checkpoint_on_servers("model").unwrap();
    assert_eq!(read(), [2.0; 10]);
    assert_eq!(files(&saved).len(), num_files, "no part of the unfinished checkpoint is left");
}

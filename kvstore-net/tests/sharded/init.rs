//! `init` on several servers: workers that fail, die, wait for each other or replace the same keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{ErrorCode, Key, KvStore, OnExisting, Optimizer, Tensor, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server};

use super::network::proxy::Proxy;
use super::network::{LONG, SHORT, eventually, key};
use super::{DIVIDE_ABOVE, connect, numbers, options, start, start_limited, value};

#[test]
fn an_init_that_fails_on_one_server_leaves_no_key() {
    let mut servers = start(2);
    servers.push(start_limited(4096));
    let store = connect(&servers);
    store.init(&[key("before")], &[value(&[1.0; 6])]).unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let error = store.init(&[key("s"), key(name)], &[value(&[1.0]), value(&vec![1.0; 6000])]);
        let error = error.unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfMemory, "{name}");
        let full = servers[2].address().to_string();
        assert!(error.chain().contains(&full), "{name}: {}", error.chain());
        for server in &servers {
            assert_eq!(server.store().keys().unwrap(), [key("before")], "{name}");
        }
    }
    store.init(&[key("a")], &[value(&[1.0; 60])]).unwrap();
    assert_eq!(numbers(&store, "a"), [1.0; 60]);
}

#[test]
fn an_init_that_fails_keeps_the_values_that_it_would_replace() {
    let mut servers = start(2);
    servers.push(start_limited(4096));
    let store = connect(&servers);
    store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    let keys = ["a", "b", "c", "d", "e", "f"].map(key);
    let contents = |servers: &[Arc<Server>]| {
        let snapshot = |server: &Arc<Server>| server.store().snapshot().unwrap();
        servers.iter().map(snapshot).collect::<Vec<_>>()
    };
    let ones = keys.each_ref().map(|_| value(&[1.0; 9]));
    store.init(&keys, &ones).unwrap();
    store.push(&keys, &ones, 0).unwrap();
    let before = contents(&servers);
    let other = connect(&servers);
    let versions = other.versions(&keys).unwrap();
    for key in &keys {
        let failing = [key.clone(), self::key("new")];
        let values = [value(&[2.0; 12]), value(&vec![2.0; 9000])];
        let error = store.init_with(&failing, &values, OnExisting::Replace).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
        for (before, after) in before.iter().zip(contents(&servers)) {
            assert!(before.is_identical(&after).unwrap(), "{key}");
        }
    }
    assert_eq!(other.versions(&keys).unwrap(), versions);
    for store in [&other, &store] {
        store.push(&keys, &ones, 0).unwrap();
    }
    store.init_with(&keys, &ones, OnExisting::Replace).unwrap();
    assert_eq!(numbers(&other, "a"), [1.0; 9]);
}

/// Returns a key whose home is the first of two servers.
fn key_of_first(servers: &[Arc<Server>]) -> Key {
    let store = connect(servers);
    let is_first = |key: &Key| {
        store.init(std::slice::from_ref(key), &[value(&[1.0])]).unwrap();
        let found = servers[0].store().contains(key).unwrap();
        store.remove(std::slice::from_ref(key)).unwrap();
        found
    };
    (0..1000).map(|number| key(&format!("key-{number}"))).find(is_first).unwrap()
}

/// A worker whose `init` reaches only the home of the key, through proxies.
struct Halfway {
    proxies: Vec<Proxy>,
    init: std::thread::JoinHandle<kvstore_core::Result<NetStore>>,
}

impl Halfway {
    fn start(servers: &[Arc<Server>], key: &Key, timeout: Duration) -> Self {
        let proxies: Vec<Proxy> =
            servers.iter().map(|server| Proxy::new(server.address())).collect();
        let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
        let options = NetStoreOptions::of_servers(addresses).divide_above(DIVIDE_ABOVE);
        let store = NetStore::connect(backends(), &options.timeout(timeout)).unwrap();
        *proxies[1].server.lock().unwrap() = None;
        proxies[1].cut();
        let (new, home) = (key.clone(), servers[0].store());
        let replaced = home.contains(key).unwrap();
        let before = replaced.then(|| home.pull(std::slice::from_ref(key), 0).unwrap());
        let existing = if replaced { OnExisting::Replace } else { OnExisting::Reject };
        let init = std::thread::spawn(move || {
            store.init_with(&[new], &[value(&[1.0; 10])], existing)?;
            Ok(store)
        });
        eventually("the home has its part", || {
            let now = home.pull(std::slice::from_ref(key), 0).ok();
            let elements = |pulled: &[Tensor]| pulled[0].to_vec::<f32>().unwrap();
            now.is_some_and(|now| before.as_deref().map(elements) != Some(elements(&now)))
        });
        Self { proxies, init }
    }

    /// Ends the connection to a server.
    fn disconnect(&self, server: usize) {
        *self.proxies[server].server.lock().unwrap() = None;
        self.proxies[server].cut();
    }
}

#[test]
fn a_key_whose_worker_dies_in_init_can_be_initialised() {
    let servers = start(2);
    let key = key_of_first(&servers);
    let worker = Halfway::start(&servers, &key, SHORT);
    let store = connect(&servers);
    assert!(!store.contains(&key).unwrap(), "the other server has no part yet");
    assert!(store.keys().unwrap().is_empty() && store.snapshot().unwrap().is_empty());
    let error = store.init(std::slice::from_ref(&key), &[value(&[2.0; 10])]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::KeyExists, "{error}");
    worker.disconnect(0);
    eventually("the worker is dead", || store.num_dead_node(4).unwrap() == 1);
    store.init(std::slice::from_ref(&key), &[value(&[2.0; 10])]).unwrap();
    assert_eq!(numbers(&store, key.as_str()), [2.0; 10]);
    worker.init.join().unwrap().unwrap_err();
    assert_eq!(numbers(&store, key.as_str()), [2.0; 10]);
}

#[test]
fn init_that_keeps_waits_for_a_worker_that_has_not_finished() {
    let servers = start(2);
    let key = key_of_first(&servers);
    let worker = Halfway::start(&servers, &key, LONG);
    let (store, kept) = (connect(&servers), key.clone());
    let other = std::thread::spawn(move || {
        store.init_with(&[kept], &[value(&[2.0; 10])], OnExisting::Keep).unwrap();
        store
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!other.is_finished());
    *worker.proxies[1].server.lock().unwrap() = Some(servers[1].address());
    let store = other.join().unwrap();
    assert_eq!(numbers(&store, key.as_str()), [1.0; 10]);
    worker.init.join().unwrap().unwrap();
}

#[test]
fn a_key_that_is_being_replaced_is_still_there() {
    let servers = start(2);
    let (key, store) = (key_of_first(&servers), connect(&servers));
    store.init(std::slice::from_ref(&key), &[value(&[2.0; 10])]).unwrap();
    let worker = Halfway::start(&servers, &key, LONG);
    assert_eq!(store.keys().unwrap(), std::slice::from_ref(&key));
    let name = key.as_str().to_owned();
    let pulling = std::thread::spawn(move || (numbers(&store, &name), store.snapshot().unwrap()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!pulling.is_finished());
    *worker.proxies[1].server.lock().unwrap() = Some(servers[1].address());
    worker.init.join().unwrap().unwrap();
    let (pulled, snapshot) = pulling.join().unwrap();
    assert_eq!((pulled, snapshot.len()), (vec![1.0; 10], 1));
}

#[test]
fn keys_that_several_workers_replace_are_always_there() {
    let servers = start(3);
    let keys = ["a", "b", "c", "d", "e", "f"].map(key);
    let values = |number| keys.each_ref().map(|_| value(&[number; 10]));
    connect(&servers).init(&keys, &values(0.0)).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let replacing = [1.0, 2.0].map(|number| {
            let (servers, keys, values) = (&servers, &keys, &values);
            scope.spawn(move || {
                let store = connect(servers);
                for _ in 0..50 {
                    store.init_with(keys, &values(number), OnExisting::Replace).unwrap();
                }
            })
        });
        let reading = [0, 1].map(|_| {
            let (servers, keys, is_done) = (&servers, &keys, &is_done);
            scope.spawn(move || {
                let store = connect(servers);
                while !is_done.load(Ordering::Relaxed) {
                    store.describe(keys).unwrap();
                }
            })
        });
        let replaced = replacing.map(ScopedJoinHandle::join);
        is_done.store(true, Ordering::Relaxed);
        let read = reading.map(ScopedJoinHandle::join);
        replaced.into_iter().chain(read).for_each(Result::unwrap);
    });
    let num_keys = servers.iter().map(|server| server.store().keys().unwrap().len());
    assert_eq!(num_keys.sum::<usize>(), 3 * keys.len(), "no part of a replaced value is left");
}

#[test]
fn parts_of_a_worker_that_died_in_init_do_not_prevent_an_optimizer() {
    let servers = start(2);
    let key = key_of_first(&servers);
    let worker = Halfway::start(&servers, &key, SHORT);
    let store = connect(&servers);
    worker.disconnect(0);
    *worker.proxies[1].server.lock().unwrap() = Some(servers[1].address());
    eventually("the other server has its part", || servers[1].store().contains(&key).unwrap());
    let error = worker.init.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("not known"), "{error}");
    store.set_optimizer(Optimizer::new("lamb").unwrap()).unwrap();
    for server in &servers {
        assert_eq!(server.store().keys().unwrap(), []);
        assert_eq!(server.store().optimizer().unwrap().unwrap().name(), "lamb");
    }
}

#[test]
fn threads_of_a_process_may_initialise_the_same_key() {
    let servers = start(2);
    let store = connect(&servers);
    std::thread::scope(|scope| {
        for number in [1.0, 2.0, 3.0, 4.0] {
            let store = &store;
            scope.spawn(move || {
                let keep = OnExisting::Keep;
                store.init_with(&[key("w")], &[value(&[number; 64])], keep).unwrap();
            });
        }
    });
    let found = numbers(&store, "w");
    assert!(found[0] >= 1.0 && found.iter().all(|number| *number == found[0]), "{found:?}");
}

/// Two processes that are the first members at the same moment must have the same list of servers.
#[test]
fn first_members_agree_on_the_list_of_servers() {
    let mut num_admitted = [0; 2];
    for _ in 0..1000 {
        let servers = start(2);
        let together = std::sync::Barrier::new(2);
        let join = |list: &[Arc<Server>]| {
            let options = options(list);
            together.wait();
            NetStore::connect(backends(), &options)
        };
        let stores = std::thread::scope(|scope| {
            let first = scope.spawn(|| join(&servers[..1]));
            let second = scope.spawn(|| join(&servers));
            [first.join().unwrap(), second.join().unwrap()]
        });
        assert!(!stores.iter().all(Result::is_ok), "two members have different lists");
        for (count, store) in num_admitted.iter_mut().zip(&stores) {
            *count += usize::from(store.is_ok());
        }
    }
    println!("admitted with one server: {}, with two: {}", num_admitted[0], num_admitted[1]);
}

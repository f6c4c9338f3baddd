//! Servers on this machine. `proxy.rs` breaks the connections to them.

#![allow(dead_code, reason = "each test uses some of them")]

pub(crate) mod authority;
pub(crate) mod group;
pub(crate) mod journals;
pub(crate) mod proxy;
pub(crate) mod pushes;
pub(crate) mod recorded;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{backends, push_staleness};
use kvstore_core::{Device, Key, KvStore, Tensor, Value};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The timeout of calls that must fail. Connecting takes less, also on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn value(number: f32) -> Value {
    Tensor::from_slice(backends(), Device::cpu(0), [2], &[number; 2]).unwrap().into()
}

pub(crate) fn server() -> Arc<Server> {
    Arc::new(Server::start(backends(), &ServerOptions::new("127.0.0.1:0")).unwrap())
}

pub(crate) fn options(server: &Server) -> NetStoreOptions {
    NetStoreOptions::new(server.address().to_string()).timeout(LONG)
}

pub(crate) fn connect(options: &NetStoreOptions) -> NetStore {
    NetStore::connect(backends(), options).unwrap()
}

/// Sets an updater that records how stale each push is.
pub(crate) fn recorded_staleness(server: &Server) -> Arc<Mutex<Vec<Option<u64>>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let updater = move |key: &Key, _: &Tensor, _: &mut Tensor| {
        record.lock().unwrap().push(push_staleness(key));
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(updater))).unwrap();
    seen
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

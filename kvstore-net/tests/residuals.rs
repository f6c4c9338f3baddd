//! The residuals of compression, also when only some of the servers accept a push.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kvstore::backends;
use kvstore_core::{Compression, Device, Error, Key, KvStore, Result, Tensor, Value};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::{LONG, key};

/// Two pushes of this number exceed the threshold of the compression. Three do not exceed twice the
/// threshold.
const PUSHED: f32 = 0.3;
const THRESHOLD: f32 = 0.5;

fn start(count: usize) -> Vec<Arc<Server>> {
    let options = ServerOptions::new("127.0.0.1:0");
    (0..count).map(|_| Arc::new(Server::start(backends(), &options).unwrap())).collect()
}

/// Joins the servers. Values of more than 8 bytes are divided.
fn connect(servers: &[Arc<Server>]) -> NetStore {
    let addresses = servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses).divide_above(8).timeout(LONG);
    NetStore::connect(backends(), &options).unwrap()
}

fn compress(store: &NetStore) {
    let threshold = f64::from(THRESHOLD);
    store.set_compression(Some(Compression::new("2bit", threshold).unwrap())).unwrap();
}

fn value(numbers: &[f32]) -> Value {
    Tensor::from_slice(backends(), Device::cpu(0), [numbers.len()], numbers).unwrap().into()
}

fn numbers(store: &NetStore, key: &Key) -> Vec<f32> {
    store.pull(std::slice::from_ref(key), 0).unwrap()[0].to_vec().unwrap()
}

/// A store on two servers with compression, and a key with two elements on each server.
struct Divided {
    servers: Vec<Arc<Server>>,
    store: NetStore,
    key: Key,
}

impl Divided {
    fn start() -> Self {
        let servers = start(2);
        let store = connect(&servers);
        let key = key("w");
        store.init(std::slice::from_ref(&key), &[value(&[0.0; 4])]).unwrap();
        compress(&store);
        Self { servers, store, key }
    }

    fn push(&self) -> Result<()> {
        self.store.push(std::slice::from_ref(&self.key), &[value(&[PUSHED; 4])], 0)
    }

    /// Pushes while a server lacks its part of the value. Returns the error.
    fn push_without(&self, server: usize) -> Error {
        let (part, keys) = (self.servers[server].store(), std::slice::from_ref(&self.key));
        let kept = part.pull(keys, 0).unwrap();
        part.remove(keys).unwrap();
        let error = self.push().unwrap_err();
        part.init(keys, &[Value::from(&kept[0])]).unwrap();
        error
    }
}

#[test]
fn an_error_of_one_server_keeps_the_residuals_of_the_other_one() {
    for failing in 0..2 {
        let divided = Divided::start();
        let (store, key) = (&divided.store, &divided.key);
        divided.push().unwrap();
        assert_eq!(numbers(store, key), [0.0; 4]);
        let error = divided.push_without(failing).chain();
        assert!(error.contains("1 of 2 servers have made their part"), "{error}");
        assert_eq!(error.matches("have made their part").count(), 1, "{error}");

        // The other server has got the threshold from the second push, so 0.1 is left of its part.
        divided.push().unwrap();
        let mut expected = [0.0; 4];
        expected[2 * failing..][..2].fill(THRESHOLD);
        assert_eq!(numbers(store, key), expected, "server {failing}");
    }
}

#[test]
fn a_snapshot_has_zeros_for_parts_that_a_server_has_not_accepted() {
    for failing in 0..2 {
        let divided = Divided::start();
        let (store, key) = (&divided.store, &divided.key);
        divided.push_without(failing);
        let snapshot = store.snapshot().unwrap();
        let residuals = snapshot.residuals(key).unwrap();
        let mut expected = [PUSHED; 4];
        expected[2 * failing..][..2].fill(0.0);
        assert_eq!(residuals[0].to_vec::<f32>().unwrap(), expected, "server {failing}");
        let loaded = snapshot.load().unwrap();
        let expected = expected.map(|left| if left > 0.0 { THRESHOLD } else { 0.0 });
        for snapshot in [&snapshot, &loaded] {
            store.rollback(snapshot).unwrap();
            divided.push().unwrap();
            assert_eq!(numbers(store, key), expected, "server {failing}");
        }
    }
}

/// Returns keys that begin with these names: the last one on the second server, the others on the
/// first one.
fn keys_of(store: &NetStore, servers: &[Arc<Server>], names: &[&str]) -> Vec<Key> {
    let is_at = |key: &Key, server: usize| {
        store.init(std::slice::from_ref(key), &[value(&[0.0])]).unwrap();
        let found = servers[server].store().contains(key).unwrap();
        store.remove(std::slice::from_ref(key)).unwrap();
        found
    };
    let find = |(index, name): (usize, &&str)| {
        let server = usize::from(index + 1 == names.len());
        let mut candidates = (0..1000).map(|number| key(&format!("{name}-{number}")));
        candidates.find(|key| is_at(key, server)).unwrap()
    };
    names.iter().enumerate().map(find).collect()
}

#[test]
fn an_updater_that_fails_keeps_the_residuals_of_the_keys_before_it_and_of_other_servers() {
    for num_servers in 1..=2 {
        let servers = start(num_servers);
        let store = connect(&servers);
        let keys = match num_servers {
            1 => ["c", "b", "a", "d"].map(key).to_vec(),
            _ => keys_of(&store, &servers, &["c", "b", "a", "d"]),
        };
        let fails = Arc::new(AtomicBool::new(false));
        for server in &servers {
            let (fails, failing) = (Arc::clone(&fails), keys[1].clone());
            let add = move |key: &Key, pushed: &Tensor, stored: &mut Tensor| {
                if fails.load(Ordering::Relaxed) && *key == failing {
                    return Err("planned".into());
                }
                let sum: Vec<f32> = pushed.to_vec()?;
                let old: Vec<f32> = stored.to_vec()?;
                *stored = Tensor::from_slice(backends(), Device::cpu(0), [1], &[sum[0] + old[0]])?;
                Ok(())
            };
            server.store().set_updater(Some(Arc::new(add))).unwrap();
        }
        let values = || vec![value(&[PUSHED]); keys.len()];
        store.init(&keys, &vec![value(&[0.0]); keys.len()]).unwrap();
        compress(&store);
        store.push(&keys, &values(), 0).unwrap();
        fails.store(true, Ordering::Relaxed);
        let error = store.push(&keys, &values(), 0).unwrap_err();
        assert!(matches!(&error, Error::Updater { key, .. } if *key == keys[1]), "{error}");
        fails.store(false, Ordering::Relaxed);
        store.push(&keys, &values(), 0).unwrap();

        // Each key has got the threshold once: with the second push if its server took it, with the
        // third one otherwise. The fourth push makes the difference: 1.2 or 0.9 were pushed.
        let stored = || keys.iter().map(|key| numbers(&store, key)[0]).collect::<Vec<_>>();
        assert_eq!(stored(), [THRESHOLD; 4], "{num_servers} servers");
        store.push(&keys, &values(), 0).unwrap();
        let is_taken = [true, false, false, num_servers == 2];
        let expected = is_taken.map(|is_taken| if is_taken { 2.0 * THRESHOLD } else { THRESHOLD });
        assert_eq!(stored(), expected, "{num_servers} servers");
    }
}

/// The updater of the first server fails on its part of `x`. It updates `y` before, although `x` is
/// before `y` in the call: the home of a key gets the key first.
#[test]
fn each_server_has_its_own_order() {
    let servers = start(2);
    let store = connect(&servers);
    let [y, x] = keys_of(&store, &servers, &["y", "x"]).try_into().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    for (index, server) in servers.iter().enumerate() {
        let (fails, failing) = (Arc::clone(&fails), x.clone());
        let assign = move |key: &Key, pushed: &Tensor, stored: &mut Tensor| {
            if index == 0 && fails.load(Ordering::Relaxed) && *key == failing {
                return Err("planned".into());
            }
            *stored = pushed.clone();
            Ok(())
        };
        server.store().set_updater(Some(Arc::new(assign))).unwrap();
    }
    store.init(&[x.clone(), y.clone()], &[value(&[0.0; 4]), value(&[0.0])]).unwrap();
    compress(&store);
    let push = || {
        let values = [value(&[PUSHED; 4]), value(&[PUSHED])];
        store.push(&[x.clone(), y.clone()], &values, 0)
    };
    push().unwrap();
    fails.store(true, Ordering::Relaxed);
    push().unwrap_err();
    assert_eq!(numbers(&store, &y), [THRESHOLD]);
    fails.store(false, Ordering::Relaxed);
    push().unwrap();
    // The first server has taken `y` twice and its part of `x` once before.
    assert_eq!(numbers(&store, &y), [0.0]);
    let halves = numbers(&store, &x);
    assert_eq!(halves.iter().filter(|half| **half == THRESHOLD).count(), 2, "{halves:?}");
}

#[test]
fn each_worker_compresses_its_values_and_keeps_its_residuals() {
    let servers = start(1);
    let (first, second) = (connect(&servers), connect(&servers));
    first.init(&[key("w")], &[value(&[0.0; 2])]).unwrap();
    second.push(&[key("w")], &[value(&[0.25; 2])], 0).unwrap();
    assert_eq!(numbers(&first, &key("w"))[0], 0.25);
    let compression = Compression::new("2bit", 0.5).unwrap();
    first.set_compression(Some(compression)).unwrap();
    // The second worker does not know the compression yet.
    let push = |store: &NetStore| {
        store.push(&[key("w")], &[value(&[0.25; 2])], 0).unwrap();
        numbers(&first, &key("w"))[0]
    };
    assert_eq!((push(&second), push(&first)), (0.0, 0.0));
    assert_eq!((push(&second), push(&first)), (0.5, 0.5));
    assert_eq!(second.compression().unwrap(), Some(compression));
    assert_eq!(servers[0].store().compression().unwrap(), None, "the store gets decoded values");
    push(&second);
    let snapshot = second.snapshot().unwrap();
    assert_eq!(snapshot.residuals(&key("w")).unwrap()[0].to_vec::<f32>().unwrap(), [0.25; 2]);
    assert_eq!(snapshot.compression(), Some(compression));
    first.set_compression(None).unwrap();
    assert_eq!(push(&second), 0.25);
    second.rollback(&snapshot).unwrap();
    assert_eq!((first.compression().unwrap(), push(&second)), (Some(compression), 0.5));
}

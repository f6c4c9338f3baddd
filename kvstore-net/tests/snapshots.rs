//! Snapshots whose values stay on the servers.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{
    Backends, BinaryOp, Compression, CpuBackend, Device, ErrorCode, Key, KvStore, LocalStore,
    Optimizer, RowSparse, Snapshot, Tensor, Updater, Value, WorkerGroup,
};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::proxy::Proxy;
use self::network::{LONG, SHORT, eventually, key, options, server, value};

/// The number of bytes of [`large`].
const LARGE: usize = 4 << 20;

/// Returns a value that two servers divide.
fn large(number: f32) -> Value {
    let numbers = vec![number; LARGE / 4];
    Tensor::from_slice(backends(), Device::cpu(0), [LARGE / 4], &numbers).unwrap().into()
}

/// Returns backends whose memory has this limit in bytes.
fn limited(num_bytes: usize) -> Backends {
    let cpu = CpuBackend::new();
    cpu.set_memory_limit(Some(num_bytes));
    Backends::new(vec![cpu])
}

fn start(count: usize) -> Vec<Arc<Server>> {
    (0..count).map(|_| server()).collect()
}

/// Returns the settings of stores on these servers, which divide only [`large`] values.
fn of(servers: &[Arc<Server>]) -> NetStoreOptions {
    let addresses = servers.iter().map(|server| server.address().to_string());
    NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(LARGE / 2)
}

fn connect(servers: &[Arc<Server>]) -> NetStore {
    NetStore::connect(backends(), &of(servers)).unwrap()
}

/// Returns the first element of a pulled value.
fn pulled(store: &NetStore, name: &str) -> f32 {
    store.pull(&[key(name)], 0).unwrap()[0].to_vec::<f32>().unwrap()[0]
}

/// Returns the first element of a value of a snapshot.
fn number(snapshot: &Snapshot, name: &str) -> f32 {
    let value = snapshot.get(&key(name)).unwrap().unwrap().to_dense().unwrap();
    value.to_vec::<f32>().unwrap()[0]
}

#[test]
fn only_the_values_that_are_read_are_transferred() {
    for num_servers in [1, 2] {
        let servers = start(num_servers);
        let store = connect(&servers);
        store.set_optimizer(Optimizer::sgd().with("momentum", 0.5).unwrap()).unwrap();
        store.init(&[key("large"), key("small")], &[large(1.0), value(2.0)]).unwrap();
        store.push(&[key("small")], &[value(1.0)], 0).unwrap();
        // This process has no room for the large value.
        let reading = NetStore::connect(&limited(LARGE / 2), &of(&servers)).unwrap();
        let snapshot = reading.snapshot().unwrap();
        store.push(&[key("large"), key("small")], &[large(1.0), value(1.0)], 0).unwrap();
        assert!(snapshot.keys().eq([&key("large"), &key("small")]));
        let stats: Vec<_> = snapshot.stats().collect();
        let bytes: Vec<_> =
            stats.iter().map(|stats| (stats.value_bytes, stats.state_bytes)).collect();
        assert_eq!(bytes, [(LARGE, 0), (8, 8)]);
        assert_eq!(stats[0].spec, *large(0.0).spec());
        assert_eq!(snapshot.optimizer().unwrap(), &store.optimizer().unwrap().unwrap());
        assert!(snapshot.contains(&key("large")) && !snapshot.contains(&key("other")));
        assert!(snapshot.get(&key("other")).unwrap().is_none());
        for _ in 0..2 {
            assert_eq!(number(&snapshot, "small"), 1.99);
            let momentum = snapshot.optimizer_state(&key("small")).unwrap().unwrap();
            assert_eq!(momentum.num_updates(), 1);
            let error = snapshot.get(&key("large")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
        }
        let error = snapshot.load().unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfMemory, "{}", error.chain());
        // No value is transferred, so there is room.
        reading.rollback(&snapshot).unwrap();
        assert_eq!((pulled(&store, "large"), pulled(&store, "small")), (1.0, 1.99));
        assert_eq!(store.keys().unwrap(), [key("large"), key("small")]);
    }
}

/// A snapshot that is loaded, written, compared or restored elsewhere has all values and states.
#[test]
fn the_values_can_be_used_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    for num_servers in [1, 2] {
        let servers = start(num_servers);
        let store = connect(&servers);
        let local = LocalStore::new("local", backends().clone()).unwrap();
        for each in [&store as &dyn KvStore, &local] {
            each.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
            each.init(&[key("large"), key("small")], &[large(1.0), value(2.0)]).unwrap();
            each.push(&[key("large"), key("small")], &[large(0.5), value(0.5)], 0).unwrap();
        }
        let (snapshot, expected) = (store.snapshot().unwrap(), local.snapshot().unwrap());
        assert!(snapshot.source().is_some());
        let path = folder.path().join("store");
        snapshot.write(&path).unwrap();
        let read = Snapshot::read(backends(), &path).unwrap();
        let loaded = snapshot.load().unwrap();
        assert!(loaded.source().is_none());
        store.push(&[key("small")], &[value(0.5)], 0).unwrap();
        for each in [&snapshot, &read, &loaded] {
            assert!(each.changed_keys(&expected).unwrap().is_empty());
            assert!(expected.changed_keys(each).unwrap().is_empty());
        }
        assert_eq!(snapshot.changed_keys(&store.snapshot().unwrap()).unwrap(), [key("small")]);
        let others = start(2);
        let other = connect(&others);
        other.rollback(&snapshot).unwrap();
        local.rollback(&snapshot).unwrap();
        for each in [&other as &dyn KvStore, &local] {
            assert!(each.snapshot().unwrap().changed_keys(&loaded).unwrap().is_empty());
        }
        let facade = kvstore::Store::new(Arc::new(connect(&others)));
        facade.checkpoint(&path).unwrap().wait().unwrap();
        facade.remove(["large", "small"]).unwrap();
        facade.restore(&path).unwrap();
        assert!(facade.snapshot().unwrap().changed_keys(&loaded).unwrap().is_empty());
        drop(store);
        // The servers do not keep it any more.
        let error = snapshot.get(&key("small")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Closed, "{}", error.chain());
        assert_eq!(number(&loaded, "large"), number(&expected, "large"));
    }
}

/// A delta of a snapshot on servers has only the changes. It transfers the values to compare them.
#[test]
fn deltas_have_the_changes_since_a_snapshot_on_the_servers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    for num_servers in [1, 2] {
        let servers = start(num_servers);
        let store = kvstore::Store::new(Arc::new(connect(&servers)));
        store.init(["large", "small"], vec![large(1.0), value(2.0)]).unwrap();
        let first = store.snapshot().unwrap();
        assert!(first.source().is_some());
        let error = store.checkpoint_since(path("0"), &first).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
        first.write(path("1")).unwrap();
        store.push("small", vec![value(0.5)]).unwrap();
        // Also a base with all values in this process, which has the same file.
        let loaded = first.load().unwrap();
        assert_eq!(loaded.file(), first.file());
        for (name, base) in [("2", &first), ("3", &loaded)] {
            store.checkpoint_since(path(name), base).unwrap().wait().unwrap();
            assert!(std::fs::metadata(path(name)).unwrap().len() < 2000);
            let read = Snapshot::read(backends(), path(name)).unwrap();
            assert!(read.changed_keys(&store.snapshot().unwrap()).unwrap().is_empty());
        }
        let second = store.snapshot().unwrap();
        second.write_since(path("2"), &first).unwrap();
        store.push("large", vec![large(0.25)]).unwrap();
        store.checkpoint_since(path("3"), &second).unwrap().wait().unwrap();
        let expected = store.snapshot().unwrap().load().unwrap();
        store.remove(["large", "small"]).unwrap();
        store.restore(path("3")).unwrap();
        assert!(store.snapshot().unwrap().changed_keys(&expected).unwrap().is_empty());
    }
}

/// A rollback gives a value back the servers that it had when the snapshot was taken.
#[test]
fn a_rollback_keeps_the_servers_of_values() {
    let servers = start(2);
    let store = connect(&servers);
    store.set_optimizer(Optimizer::new("lamb").unwrap()).unwrap();
    store.init(&[key("complete")], &[large(1.0)]).unwrap();
    store.set_optimizer(Optimizer::sgd()).unwrap();
    store.init(&[key("divided")], &[large(2.0)]).unwrap();
    let parts = || {
        let stats = servers.iter().flat_map(|server| server.store().stats().unwrap());
        let mut parts: Vec<_> =
            stats.map(|stats| (stats.key.as_str().to_owned(), stats.value_bytes)).collect();
        parts.sort_unstable();
        parts
    };
    let expected = [("complete", LARGE), ("divided", LARGE / 2), ("divided", LARGE / 2)];
    let expected = expected.map(|(name, num_bytes)| (name.to_owned(), num_bytes));
    assert_eq!(parts(), expected);
    let snapshot = store.snapshot().unwrap();
    store.remove(&[key("divided")]).unwrap();
    store.init(&[key("later")], &[value(3.0)]).unwrap();
    store.push(&[key("complete")], &[large(1.0)], 0).unwrap();
    store.rollback(&snapshot).unwrap();
    assert_eq!(parts(), expected);
    let other = connect(&servers);
    for store in [&store, &other] {
        assert_eq!((pulled(store, "complete"), pulled(store, "divided")), (1.0, 2.0));
        assert_eq!(store.keys().unwrap(), [key("complete"), key("divided")]);
    }
}

#[test]
fn residuals_belong_to_the_member_that_has_taken_the_snapshot() {
    for num_servers in [1, 2] {
        let servers = start(num_servers);
        let (store, other) = (connect(&servers), connect(&servers));
        store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
        store.init(&[key("w")], &[value(0.0)]).unwrap();
        for each in [&store, &other] {
            each.push(&[key("w")], &[value(0.75)], 0).unwrap();
        }
        let residual = |snapshot: &Snapshot| {
            let residuals = snapshot.residuals(&key("w")).unwrap();
            residuals.iter().map(|left| left.to_vec::<f32>().unwrap()[0]).collect::<Vec<_>>()
        };
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.stats().next().unwrap().state_bytes, 8);
        store.push(&[key("w")], &[value(0.125)], 0).unwrap();
        assert_eq!(residual(&snapshot), [0.25]);
        assert_eq!(residual(&store.snapshot().unwrap()), [0.375]);
        store.rollback(&snapshot).unwrap();
        for each in [&store, &other] {
            assert_eq!(residual(&each.snapshot().unwrap()), [0.25]);
        }
    }
}

#[test]
fn a_server_frees_the_values_of_snapshots_that_are_not_needed() {
    let cpu = CpuBackend::new();
    let memory = Backends::new(vec![Arc::clone(&cpu)]);
    let lease = Duration::from_secs(2);
    let at = ServerOptions::new("127.0.0.1:0").lease(lease);
    let server = Server::start(&memory, &at).unwrap();
    let store = NetStore::connect(backends(), &options(&server)).unwrap();
    store.init(&[key("w")], &[large(0.0)]).unwrap();
    let num_values = || {
        let live = cpu.memory().iter().map(|memory| memory.live).sum::<usize>();
        live / LARGE
    };
    // Each snapshot keeps its own value.
    let take = |store: &NetStore| {
        let snapshot = store.snapshot().unwrap();
        store.push(&[key("w")], &[large(1.0)], 0).unwrap();
        snapshot
    };
    let (first, second) = (take(&store), take(&store));
    eventually("three values", || num_values() == 3);
    drop((first.clone(), first));
    eventually("two values", || num_values() == 2);
    drop(second);
    eventually("one value", || num_values() == 1);
    let leaving = NetStore::connect(backends(), &options(&server)).unwrap();
    let _left = take(&leaving);
    assert_eq!(num_values(), 2);
    leaving.leave().unwrap();
    eventually("one value", || num_values() == 1);
    let proxy = Proxy::new(server.address());
    let dying = NetStoreOptions::new(proxy.address.to_string()).timeout(LONG);
    let dying = NetStore::connect(backends(), &dying).unwrap();
    let lost = take(&dying);
    // The process comes back at once.
    proxy.cut();
    assert_eq!(number(&lost, "w"), 1.0);
    // The process comes back later.
    *proxy.server.lock().unwrap() = None;
    proxy.cut();
    eventually("one value", || num_values() == 1);
    *proxy.server.lock().unwrap() = Some(server.address());
    let error = lost.get(&key("w")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Backend, "{}", error.chain());
    assert!(error.chain().contains("does not keep it any more"), "{}", error.chain());
    assert_eq!(number(&take(&dying), "w"), 1.0);
}

/// A server that was not reachable when a snapshot was dropped hears of it later.
#[test]
fn a_snapshot_is_released_although_the_connection_was_lost() {
    let server = server();
    let proxy = Proxy::new(server.address());
    let options = NetStoreOptions::new(proxy.address.to_string());
    let store =
        NetStore::connect(backends(), &options.timeout(Duration::from_millis(500))).unwrap();
    store.init(&[key("w")], &[value(0.0)]).unwrap();
    let last: Arc<()> = Arc::default();
    let held = Arc::clone(&last);
    let updater = move |_: &Key, _: &Tensor, _: &mut Tensor| {
        let _ = &held;
        Ok(())
    };
    server.store().set_updater(Some(Arc::new(updater))).unwrap();
    let snapshot = store.snapshot().unwrap();
    server.store().set_updater(None).unwrap();
    assert_eq!(Arc::strong_count(&last), 2, "the snapshot has the updater");
    *proxy.server.lock().unwrap() = None;
    proxy.cut();
    drop(snapshot);
    // Longer than the timeout of a call.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(Arc::strong_count(&last), 2);
    *proxy.server.lock().unwrap() = Some(server.address());
    eventually("a released snapshot", || Arc::strong_count(&last) == 1);
}

/// A rollback restores what a file cannot contain: an updater. It also restores settings, and rows.
#[test]
fn a_rollback_restores_updaters_settings_and_rows() {
    for num_servers in [1, 2] {
        let servers = start(num_servers);
        let store = connect(&servers);
        let set = |updater: Option<Arc<dyn Updater>>| {
            for server in &servers {
                server.store().set_updater(updater.clone()).unwrap();
            }
        };
        let sparse = |number: f32| -> Value {
            let rows = Tensor::from_slice(backends(), Device::cpu(0), [1, 2], &[number; 2]);
            RowSparse::new([LARGE, 2], vec![3], rows.unwrap()).unwrap().into()
        };
        store.init(&[key("rows")], &[sparse(1.0)]).unwrap();
        let rows = |snapshot: &Snapshot| match snapshot.get(&key("rows")).unwrap().unwrap() {
            Value::Rows(rows) => (rows.indices().to_vec(), rows.rows().to_vec::<f32>().unwrap()),
            Value::Dense(_) => panic!("expected rows"),
        };
        store.init(&[key("w")], &[value(1.0)]).unwrap();
        if num_servers == 1 {
            store.set_clip_global_norm(Some(3.0)).unwrap();
        }
        let adding = |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
            stored.binary_assign(BinaryOp::Add, pushed)?;
            Ok(())
        };
        set(Some(Arc::new(adding)));
        let with_updater = store.snapshot().unwrap();
        assert!(with_updater.has_updater());
        store.set_optimizer(Optimizer::sgd()).unwrap();
        let with_optimizer = store.snapshot().unwrap();
        store.set_hyper_parameters(&[("learning_rate", 0.5)]).unwrap();
        if num_servers == 1 {
            store.set_clip_global_norm(None).unwrap();
        }
        store.push(&[key("rows")], &[sparse(5.0)], 0).unwrap();
        assert_eq!(rows(&with_updater), (vec![3], vec![1.0; 2]));
        let changed = with_updater.changed_keys(&store.snapshot().unwrap()).unwrap();
        assert_eq!(changed, [key("rows")]);
        store.rollback(&with_optimizer).unwrap();
        assert_eq!(store.optimizer().unwrap().as_ref(), with_optimizer.optimizer());
        let bound = (num_servers == 1).then_some(3.0);
        assert_eq!(store.clip_global_norm().unwrap(), bound);
        assert_eq!(rows(&store.snapshot().unwrap()), (vec![3], vec![1.0; 2]));
        store.rollback(&with_updater).unwrap();
        store.push(&[key("w")], &[value(0.5)], 0).unwrap();
        assert_eq!(pulled(&store, "w"), 1.5);
    }
}

/// The servers of a snapshot have the same settings, also while another worker changes them. Values
/// that belong to no key are not part of it.
#[test]
fn a_snapshot_of_several_servers_is_consistent() {
    let servers = start(2);
    let store = NetStore::connect(backends(), &of(&servers).timeout(SHORT)).unwrap();
    store.init(&[key("w")], &[large(1.0)]).unwrap();
    servers[1].store().init(&[key("left")], &[value(1.0)]).unwrap();
    servers[1].store().set_optimizer(Optimizer::sgd()).unwrap();
    let error = store.snapshot().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
    servers[0].store().set_optimizer(Optimizer::sgd()).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert!(snapshot.keys().eq([&key("w")]));
    store.rollback(&snapshot).unwrap();
    assert_eq!(servers[1].store().keys().unwrap(), [key("w")]);
}

/// A rollback changes no server if one of them does not keep its part of the snapshot any more.
#[test]
fn a_restarted_server_does_not_keep_snapshots() {
    for restarted in 0..2 {
        let mut servers = start(2);
        let store = NetStore::connect(backends(), &of(&servers).timeout(SHORT)).unwrap();
        store.init(&[key("w")], &[large(1.0)]).unwrap();
        let snapshot = store.snapshot().unwrap();
        store.push(&[key("w")], &[large(2.0)], 0).unwrap();
        let at = ServerOptions::new(servers[restarted].address().to_string());
        servers[restarted].shut_down();
        servers[restarted] = Arc::new(Server::start(backends(), &at).unwrap());
        let other = &servers[1 - restarted];
        let before = other.store().snapshot().unwrap();
        for error in [snapshot.get(&key("w")).unwrap_err(), store.rollback(&snapshot).unwrap_err()]
        {
            assert_eq!(error.code(), ErrorCode::Backend, "{}", error.chain());
            assert!(error.chain().contains("does not keep it any more"), "{}", error.chain());
        }
        assert!(before.is_identical(&other.store().snapshot().unwrap()).unwrap());
    }
}

#[test]
fn a_member_has_a_limited_number_of_snapshots() {
    let server = server();
    let store = NetStore::connect(backends(), &options(&server)).unwrap();
    let mut kept: Vec<Snapshot> = Vec::new();
    let error = loop {
        match store.snapshot() {
            Ok(snapshot) => kept.push(snapshot),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
    assert!(
        error.chain().contains("expected at most 1024 of a process at a time, found 1025"),
        "{}",
        error.chain()
    );
    assert_eq!(kept.len(), 1024);
    // Other members have their own.
    let other = NetStore::connect(backends(), &options(&server)).unwrap();
    drop(other.snapshot().unwrap());
    kept.truncate(1000);
    eventually("released snapshots", || store.snapshot().is_ok());
}

/// Snapshots of two servers are taken while other members add, replace and remove keys.
#[test]
fn snapshots_have_complete_values_while_keys_change() {
    let servers = start(2);
    let store = connect(&servers);
    store.init(&[key("large")], &[large(0.0)]).unwrap();
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let other = connect(&servers);
            for round in 0_u16..30 {
                other.init(&[key("new")], &[large(f32::from(round))]).unwrap();
                other.remove(&[key("new")]).unwrap();
                other.rollback(&other.snapshot().unwrap()).unwrap();
            }
        });
        while !changing.is_finished() {
            let snapshot = store.snapshot().unwrap();
            for key in snapshot.keys() {
                let value = snapshot.get(key).unwrap().unwrap().to_dense().unwrap();
                let numbers = value.to_vec::<f32>().unwrap();
                assert_eq!(numbers.len(), LARGE / 4);
                assert!(numbers.iter().all(|number| *number == numbers[0]), "{key}");
            }
        }
    });
}

//! Stores whose keys are on several servers.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod deaths;
mod disk;
mod init;
#[path = "../network/mod.rs"]
mod network;
mod updaters;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore::{Store, backends};
use kvstore_core::{
    Backends, Compression, CpuBackend, DType, Device, Error, ErrorCode, Key, KvStore, LocalStore,
    OnExisting, Optimizer, RowSparse, Snapshot, Tensor, Updater, Value, WorkerGroup,
};
use kvstore_net::rules::placement::home;
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
use kvstore_tests::operations::{Operation, program};
use kvstore_tests::policy::Policy;
use kvstore_tests::replay;
use proptest::prelude::*;

use self::network::proxy::Proxy;
use self::network::{LONG, SHORT, eventually, key};

/// Values of more bytes are divided among the servers.
const DIVIDE_ABOVE: usize = 8;

fn start(count: usize) -> Vec<Arc<Server>> {
    start_with(count, &ServerOptions::new("127.0.0.1:0"))
}

fn start_with(count: usize, options: &ServerOptions) -> Vec<Arc<Server>> {
    (0..count).map(|_| Arc::new(Server::start(backends(), options).unwrap())).collect()
}

/// Starts a server with a memory limit of this number of bytes.
fn start_limited(limit: usize) -> Arc<Server> {
    let cpu = CpuBackend::new();
    cpu.set_memory_limit(Some(limit));
    let limited = Backends::new(vec![cpu]);
    Arc::new(Server::start(&limited, &ServerOptions::new("127.0.0.1:0")).unwrap())
}

fn options(servers: &[Arc<Server>]) -> NetStoreOptions {
    let addresses = servers.iter().map(|server| server.address().to_string());
    NetStoreOptions::of_servers(addresses).divide_above(DIVIDE_ABOVE).timeout(LONG)
}

fn connect(servers: &[Arc<Server>]) -> NetStore {
    NetStore::connect(backends(), &options(servers)).unwrap()
}

fn value(numbers: &[f32]) -> Value {
    Tensor::from_slice(backends(), Device::cpu(0), [numbers.len()], numbers).unwrap().into()
}

fn numbers(store: &NetStore, name: &str) -> Vec<f32> {
    store.pull(&[key(name)], 0).unwrap()[0].to_vec().unwrap()
}

/// Returns a program without calls that several servers reject, and without updaters, which would
/// see the parts of values.
fn without_updaters(program: Vec<Operation>) -> Vec<Operation> {
    let is_supported = |operation: &Operation| {
        !matches!(
            operation,
            Operation::SetClipGlobalNorm(Some(_)) | Operation::SetPolicy(Policy::Updater(..))
        )
    };
    program.into_iter().filter(is_supported).collect()
}

/// Returns the number of random programs: 48, or `PROPTEST_CASES`.
fn cases() -> u32 {
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    if is_set { ProptestConfig::default().cases } else { 48 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(program in program(), num_servers in 2_usize..4) {
        let servers = start(num_servers);
        let store = Store::new(Arc::new(connect(&servers)));
        replay::run(&store, &without_updaters(program)).map_err(TestCaseError::fail)?;
    }
}

/// The shapes of the keys `0`, `1`, .. of a run. All but the first are divided by most optimizers.
const SHAPES: [&[usize]; 4] = [&[1], &[7], &[64, 3], &[5000]];

fn keys() -> Vec<Key> {
    (0..SHAPES.len()).map(|index| key(&index.to_string())).collect()
}

/// Returns different values of all keys for each seed.
fn values(dtype: DType, seed: usize) -> Vec<Value> {
    let value = |shape: &&[usize]| {
        let numbers = (0..shape.iter().product()).map(|index| {
            let mixed = (index * 7919 + seed * 104_729) % 2003;
            f32::from(u16::try_from(mixed).unwrap()) / 1001.0 - 1.0
        });
        let numbers: Vec<f32> = numbers.collect();
        let tensor = Tensor::from_slice(backends(), Device::cpu(0), *shape, &numbers).unwrap();
        tensor.cast(dtype).unwrap().into()
    };
    SHAPES.iter().map(value).collect()
}

/// Pushes two values of each key, and pulls.
fn step(store: &dyn KvStore, dtype: DType, seed: usize) -> Vec<Vec<u8>> {
    let twice = [keys(), keys()].concat();
    store.push(&twice, &[values(dtype, seed), values(dtype, seed + 1)].concat(), 0).unwrap();
    store.pull(&keys(), 0).unwrap().iter().map(|value| value.to_bytes().unwrap()).collect()
}

/// Every optimizer gives the bits of a local store, also after a rollback to a snapshot of
/// either store and with the states of a snapshot. `sgd` also runs with compression.
#[test]
fn steps_have_the_bits_of_a_local_store() {
    let servers = start(3);
    for (index, name) in Optimizer::names().chain(["sgd"]).enumerate() {
        for dtype in [DType::F32, DType::F16] {
            let store = connect(&servers);
            store.remove(&store.keys().unwrap()).unwrap();
            store.set_compression(None).unwrap();
            let local = LocalStore::new("local", backends().clone()).unwrap();
            for each in [&store as &dyn KvStore, &local] {
                each.set_optimizer(Optimizer::new(name).unwrap()).unwrap();
                if index == Optimizer::names().count() {
                    each.set_compression(Some(Compression::new("2bit", 0.25).unwrap())).unwrap();
                }
                each.init(&keys(), &values(dtype, 1)).unwrap();
            }
            let both = |seed| (step(&store, dtype, seed), step(&local, dtype, seed));
            let check = |seed: usize| {
                let (found, expected) = both(seed);
                assert!(found == expected, "{name} {dtype}, step {seed}");
            };
            check(2);
            check(4);
            let (snapshot, expected) = (store.snapshot().unwrap(), local.snapshot().unwrap());
            let changed = expected.changed_keys(&snapshot).unwrap();
            assert!(changed.is_empty(), "{name} {dtype}: {changed:?}");
            check(6);
            // Each store continues from its own snapshot, then from that of the other one.
            store.rollback(&snapshot).unwrap();
            local.rollback(&expected).unwrap();
            check(6);
            store.rollback(&expected).unwrap();
            local.rollback(&snapshot).unwrap();
            check(6);
            let state_of = |key: Key| Some((key.clone(), snapshot.optimizer_state(&key).unwrap()?));
            let states: BTreeMap<_, _> = keys().into_iter().filter_map(state_of).collect();
            for each in [&store as &dyn KvStore, &local] {
                each.set_optimizer_states(None, states.clone()).unwrap();
            }
            check(8);
        }
    }
}

#[test]
fn layer_wise_optimizers_keep_values_on_one_server() {
    let servers = start(2);
    let store = connect(&servers);
    store.set_optimizer(Optimizer::new("lamb").unwrap()).unwrap();
    store.init(&[key("w")], &[value(&[1.0; 64])]).unwrap();
    let num_bytes = |server: &Arc<Server>| {
        server.store().stats().unwrap().iter().map(|stats| stats.value_bytes).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = servers.iter().flat_map(num_bytes).collect();
    assert_eq!(all, [256], "the value is complete on one server");
    store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
    store.init(&[key("x")], &[value(&[1.0; 64])]).unwrap();
    all = servers.iter().flat_map(num_bytes).collect();
    all.sort_unstable();
    assert_eq!(all, [128, 128, 256], "the second value is divided");
    let error = store.set_optimizer(Optimizer::new("lamb").unwrap()).unwrap_err();
    assert!(error.to_string().contains("key `x`: optimizer `lamb` needs complete"), "{error}");
    assert_eq!(store.optimizer().unwrap().unwrap().name(), "sgd");
}

#[test]
fn divided_values_have_one_description_and_one_statistic() {
    let servers = start(3);
    let store = connect(&servers);
    store.init(&[key("w"), key("s")], &[value(&[1.0; 10]), value(&[2.0])]).unwrap();
    store.push(&[key("w")], &[value(&[3.0; 10])], 0).unwrap();
    let stats = store.stats().unwrap();
    let names: Vec<_> = stats.iter().map(|stats| stats.key.as_str()).collect();
    assert_eq!(names, ["w", "s"]);
    assert_eq!((stats[0].value_bytes, stats[0].num_pushes), (40, 1));
    assert_eq!(stats[0].spec.shape().dims(), [10]);
    assert_eq!(store.versions(&[key("s"), key("w")]).unwrap(), [0, 1]);
    assert_eq!(store.describe(&[key("w")]).unwrap()[0].spec.shape().dims(), [10]);
    let on_servers = servers.iter().map(|server| server.store().keys().unwrap().len());
    assert_eq!(on_servers.sum::<usize>(), 4, "three parts and a complete value");
}

#[test]
fn a_worker_finds_keys_that_another_one_has_replaced() {
    let servers = start(3);
    let (first, second) = (connect(&servers), connect(&servers));
    first.init(&[key("w")], &[value(&[1.0; 10])]).unwrap();
    assert_eq!(numbers(&second, "w"), [1.0; 10]);
    first.remove(&[key("w")]).unwrap();
    let error = second.pull(&[key("w")], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::KeyNotFound, "{error}");
    first.init(&[key("w")], &[value(&[2.0])]).unwrap();
    assert_eq!(numbers(&second, "w"), [2.0]);
    let replaced = first.init_with(&[key("w")], &[value(&[3.0; 7])], OnExisting::Replace);
    replaced.unwrap();
    second.push(&[key("w")], &[value(&[4.0; 7])], 0).unwrap();
    assert_eq!(numbers(&first, "w"), [4.0; 7]);
    first.init_with(&[key("w")], &[value(&[5.0])], OnExisting::Replace).unwrap();
    assert_eq!(numbers(&second, "w"), [5.0]);
    let rows = Tensor::from_slice(backends(), Device::cpu(0), [1, 1], &[6f32]).unwrap();
    let rows = RowSparse::new([7, 1], vec![6], rows).unwrap();
    let error = second.push(&[key("w")], &[rows.into()], 0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SpecMismatch, "{error}");
    let num_keys = servers.iter().map(|server| server.store().keys().unwrap().len());
    assert_eq!(num_keys.sum::<usize>(), 1, "no part of a replaced value is left");
}

#[test]
fn all_members_need_the_same_list_of_servers() {
    let servers = start(2);
    let _first = connect(&servers);
    let reversed: Vec<_> = servers.iter().rev().cloned().collect();
    let error = NetStore::connect(backends(), &options(&reversed)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.to_string().contains("is number 2 of 2, for this one it is number 1"), "{error}");
    let error = NetStore::connect(backends(), &options(&servers[..1])).unwrap_err();
    assert!(error.to_string().contains("number 1 of 1"), "{error}");
    let twice = [Arc::clone(&servers[0]), Arc::clone(&servers[0])];
    let error = NetStore::connect(backends(), &options(&twice)).unwrap_err();
    assert!(error.to_string().contains("is in the list twice"), "{error}");
    let none = NetStoreOptions::of_servers(Vec::<String>::new());
    let error = NetStore::connect(backends(), &none).unwrap_err();
    assert!(error.to_string().contains("expected at least one"), "{error}");
}

#[test]
fn settings_and_commands_reach_every_server() {
    let servers = start(3);
    let store = connect(&servers);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (number, server) in servers.iter().enumerate() {
        let seen = Arc::clone(&seen);
        server.on_command(Arc::new(move |head, body| {
            seen.lock().unwrap().push((number, head, body.to_owned()));
            Ok(())
        }));
    }
    store.send_command_to_servers(7, "decay").unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, [0, 1, 2].map(|number| (number, 7, "decay".to_owned())));
    store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
    store.init(&[key("w")], &[value(&[1.0; 10])]).unwrap();
    for (rate, expected) in [(0.5, 0.5), (0.25, 0.25)] {
        store.set_hyper_parameters(&[("learning_rate", rate), ("wd", 0.0)]).unwrap();
        store.push(&[key("w")], &[value(&[1.0; 10])], 0).unwrap();
        assert_eq!(numbers(&store, "w"), [expected; 10]);
    }
}

#[test]
fn servers_without_a_connection_are_counted() {
    let servers = start(2);
    let proxy = Proxy::new(servers[1].address());
    let addresses = [servers[0].address(), proxy.address].map(|address| address.to_string());
    let store = NetStore::connect(backends(), &NetStoreOptions::of_servers(addresses)).unwrap();
    let num_dead = || [1, 2, 4, 7].map(|group| store.num_dead_node(group).unwrap());
    assert_eq!(num_dead(), [0; 4]);
    *proxy.server.lock().unwrap() = None;
    proxy.cut();
    eventually("the server is lost", || num_dead() == [0, 1, 0, 1]);
    *proxy.server.lock().unwrap() = Some(servers[1].address());
    eventually("the server is back", || num_dead() == [0; 4]);
}

#[test]
fn a_bounded_pull_waits_for_pushes_to_every_server() {
    let servers = start(2);
    let fast = NetStore::connect(backends(), &options(&servers).staleness(0)).unwrap();
    let slow = connect(&servers);
    fast.init(&[key("w")], &[value(&[0.0; 10])]).unwrap();
    fast.push(&[key("w")], &[value(&[1.0; 10])], 0).unwrap();
    std::thread::scope(|scope| {
        let pulling = scope.spawn(|| numbers(&fast, "w"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!pulling.is_finished());
        slow.push(&[key("w")], &[value(&[5.0; 10])], 0).unwrap();
        assert_eq!(pulling.join().unwrap(), [5.0; 10]);
    });
}

#[test]
fn a_push_for_which_one_server_has_no_memory_says_so() {
    let mut servers = start(1);
    servers.push(start_limited(40_000));
    let store = connect(&servers);
    store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    store.init(&[key("w")], &[value(&vec![1.0; 8000])]).unwrap();
    let error = store.push(&[key("w")], &[value(&vec![2.0; 8000])], 0).unwrap_err().chain();
    assert!(error.contains("1 of 2 servers have made their part"), "{error}");
    assert!(error.contains("out of memory"), "{error}");
    let found = numbers(&store, "w");
    assert!(found[0] < 1.0 && found[7999] == 1.0, "{} {}", found[0], found[7999]);
}

#[test]
fn a_push_that_one_server_misses_says_so() {
    let servers = start(2);
    let short = options(&servers).timeout(Duration::from_secs(2));
    let store = NetStore::connect(backends(), &short).unwrap();
    store.init(&[key("w")], &[value(&[1.0; 10])]).unwrap();
    servers[1].shut_down();
    let error = store.push(&[key("w")], &[value(&[2.0; 10])], 0).unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{}", error.chain());
    assert!(error.chain().contains("1 of 2 servers have made their part"), "{}", error.chain());
}

#[test]
fn pushes_of_several_workers_are_not_lost() {
    let servers = start(2);
    let adding = |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        stored.binary_assign(kvstore::BinaryOp::Add, pushed)?;
        Ok(())
    };
    for server in &servers {
        server.store().set_updater(Some(Arc::new(adding))).unwrap();
    }
    let store = connect(&servers);
    store.init(&[key("w"), key("s")], &[value(&[0.0; 9]), value(&[0.0])]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let servers = &servers;
            scope.spawn(move || {
                let worker = connect(servers);
                for _ in 0..25 {
                    let values = [value(&[1.0; 9]), value(&[1.0])];
                    worker.push(&[key("w"), key("s")], &values, 0).unwrap();
                }
            });
        }
    });
    assert_eq!((numbers(&store, "w"), numbers(&store, "s")), (vec![100.0; 9], vec![100.0]));
}

/// Returns the names of the files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns a new folder, and the options of servers that write their checkpoints there.
fn with_folder() -> (tempfile::TempDir, ServerOptions) {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions::new("127.0.0.1:0").checkpoints(folder.path());
    (folder, options)
}

#[test]
fn checkpoints_on_servers_restore_anywhere() {
    let (folder, options_of_servers) = with_folder();
    for num_servers in [1, 3] {
        let servers = start_with(num_servers, &options_of_servers);
        let store = connect(&servers);
        store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
        store.init(&keys(), &values(DType::F32, 1)).unwrap();
        step(&store, DType::F32, 2);
        store.checkpoint_on_servers("model").unwrap();
        step(&store, DType::F32, 4);
        store.checkpoint_on_servers("model").unwrap();
        let saved = folder.path().join("model");
        assert_eq!(files(&saved).len(), num_servers + 1, "{:?}", files(&saved));
        let snapshot = Snapshot::read(backends(), &saved).unwrap();
        assert!(snapshot.changed_keys(&store.snapshot().unwrap()).unwrap().is_empty());
        let expected = step(&store, DType::F32, 6);
        let local = LocalStore::new("local", backends().clone()).unwrap();
        let others = start(2);
        for other in [&local as &dyn KvStore, &connect(&others)] {
            other.rollback(&snapshot).unwrap();
            assert!(step(other, DType::F32, 6) == expected);
        }
        std::fs::remove_dir_all(saved).unwrap();
    }
}

#[test]
fn a_checkpoint_replaces_the_parts_that_an_earlier_run_of_the_servers_has_written() {
    let (folder, options) = with_folder();
    let saved = folder.path().join("model");
    for number in [1.0, 2.0] {
        let servers = start_with(2, &options);
        let store = connect(&servers);
        store.init(&[key("w")], &[value(&[number; 100])]).unwrap();
        store.checkpoint_on_servers("model").unwrap();
        std::fs::write(saved.join("7-0.txt"), "notes").unwrap();
    }
    assert_eq!(files(&saved).len(), 4, "{:?}", files(&saved));
    let servers = start(1);
    let store = connect(&servers);
    store.rollback(&Snapshot::read(backends(), &saved).unwrap()).unwrap();
    assert_eq!(numbers(&store, "w"), [2.0; 100]);
}

#[test]
fn an_updater_cannot_checkpoint_its_own_server() {
    let (_folder, options) = with_folder();
    for num_servers in [1, 2] {
        let servers = start_with(num_servers, &options);
        let (store, other) = (connect(&servers), Arc::new(connect(&servers)));
        store.init(&[key("w")], &[value(&[1.0; 2])]).unwrap();
        let updater = move |_: &Key, _: &Tensor, _: &mut Tensor| {
            other.checkpoint_on_servers("model").map_err(Into::into)
        };
        let updater: Arc<dyn Updater> = Arc::new(updater);
        for server in &servers {
            server.store().set_updater(Some(Arc::clone(&updater))).unwrap();
        }
        let error = store.push(&[key("w")], &[value(&[1.0; 2])], 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Updater, "{}", error.chain());
        assert!(error.chain().contains("checkpoint_on_servers"), "{}", error.chain());
        for server in &servers {
            server.store().set_updater(None).unwrap();
        }
    }
}

#[test]
fn calls_of_keys_whose_parts_are_lost_fail_until_a_rollback() {
    let home = home("w", 2);
    for restarted in [home, 1 - home] {
        let mut servers = start(2);
        let options = options(&servers).timeout(SHORT);
        let store = NetStore::connect(backends(), &options).unwrap();
        store.init(&[key("w")], &[value(&[1.0; 100])]).unwrap();
        let snapshot = store.snapshot().unwrap().load().unwrap();
        let address = servers[restarted].address().to_string();
        servers[restarted].shut_down();
        servers[restarted] =
            Arc::new(Server::start(backends(), &ServerOptions::new(&*address)).unwrap());
        let error = store.pull(&[key("w")], 0).unwrap_err();
        if restarted == home {
            assert_eq!(error.code(), ErrorCode::KeyNotFound, "{}", error.chain());
        } else {
            let hint = format!("server `{address}` was restarted, and may need a restore");
            assert_eq!(error.code(), ErrorCode::Timeout, "{}", error.chain());
            assert!(error.chain().ends_with(&hint), "{}", error.chain());
        }
        store.rollback(&snapshot).unwrap();
        assert_eq!(numbers(&store, "w"), [1.0; 100]);
    }
}

#[test]
fn workers_that_checkpoint_at_once_leave_a_complete_checkpoint() {
    let (folder, options) = with_folder();
    let servers = start_with(2, &options);
    let stores = [0, 1, 2].map(|_| connect(&servers));
    stores[0].init(&[key("w"), key("x")], &[value(&[1.0; 100]), value(&[2.0])]).unwrap();
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| (0..20).for_each(|_| store.checkpoint_on_servers("model").unwrap()));
        }
    });
    let saved = folder.path().join("model");
    let snapshot = Snapshot::read(backends(), &saved).unwrap();
    assert!(snapshot.changed_keys(&stores[0].snapshot().unwrap()).unwrap().is_empty());
    assert_eq!(files(&saved).len(), 3, "{:?}", files(&saved));
}

#[test]
fn a_process_whose_name_was_taken_at_one_server_leaves_all_servers() {
    let lease = Duration::from_millis(500);
    let servers = start_with(2, &ServerOptions::new("127.0.0.1:0").lease(lease));
    let proxy = Proxy::new(servers[0].address());
    let through = [proxy.address.to_string(), servers[1].address().to_string()];
    let through = NetStoreOptions::of_servers(through).timeout(LONG).name("worker");
    let old = NetStore::connect(backends(), &through).unwrap();
    let watcher = connect(&servers);
    let server = proxy.server.lock().unwrap().take();
    proxy.cut();
    eventually("the first server notices", || watcher.members().unwrap().len() == 1);
    // The second server still has the old process.
    let new = options(&servers).name("worker");
    let error = NetStore::connect(backends(), &new).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{}", error.chain());
    *proxy.server.lock().unwrap() = server;
    eventually("the name is free", || NetStore::connect(backends(), &new).is_ok());
    let text = old.keys().unwrap_err().chain();
    assert!(text.contains("this process is not a member, or a later one has its name"), "{text}");
}

#[test]
fn checkpoints_on_servers_that_fail_keep_the_earlier_one() {
    let (folder, good) = with_folder();
    let mut servers = start_with(2, &good);
    let store = connect(&servers[..1]);
    for name in ["", "..", ".", "a/b", "/tmp/x", "a\0b", &"x".repeat(300)] {
        let error = store.checkpoint_on_servers(name).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{name}: {error}");
    }
    drop(store);
    let servers_without = start(1);
    let error = connect(&servers_without).checkpoint_on_servers("model").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("--checkpoints"), "{error}");

    servers = start_with(2, &good);
    let store = connect(&servers);
    store.init(&keys(), &values(DType::F32, 1)).unwrap();
    store.checkpoint_on_servers("model").unwrap();
    let saved = folder.path().join("model");
    let before = files(&saved);
    // A file in place of the folder of the next checkpoint.
    std::fs::write(folder.path().join("other"), "").unwrap();
    let error = store.checkpoint_on_servers("other").unwrap_err();
    assert!(error.chain().contains("other"), "{}", error.chain());
    assert_eq!(files(&saved), before);
    let snapshot = Snapshot::read(backends(), &saved).unwrap();
    assert!(snapshot.changed_keys(&store.snapshot().unwrap()).unwrap().is_empty());
}

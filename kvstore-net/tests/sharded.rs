//! Stores whose keys are on several servers.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore::{Store, backends};
use kvstore_core::{
    Backends, Compression, CpuBackend, DType, Device, Error, ErrorCode, Key, KvStore, LocalStore,
    OnExisting, Optimizer, RowSparse, Snapshot, Tensor, Value, WorkerGroup,
};
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

/// Every optimizer gives the bits of a local store, also after a rollback to the snapshot of the
/// other store and with the states of a snapshot. `sgd` also runs with compression.
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
            // Each store continues from the snapshot of the other one.
            store.rollback(&expected).unwrap();
            local.rollback(&snapshot).unwrap();
            check(6);
            let state_of = |key: Key| {
                let state = snapshot.optimizer_state(&key)?.clone();
                Some((key, state))
            };
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
fn an_init_that_fails_on_one_server_leaves_no_key() {
    let mut servers = start(2);
    servers.push(start_limited(4096));
    let store = connect(&servers);
    store.init(&[key("before")], &[value(&[1.0; 6])]).unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let error = store.init(&[key("s"), key(name)], &[value(&[1.0]), value(&vec![1.0; 6000])]);
        assert_eq!(error.unwrap_err().code(), ErrorCode::OutOfMemory, "{name}");
        for server in &servers {
            assert_eq!(server.store().keys().unwrap(), [key("before")], "{name}");
        }
    }
    store.init(&[key("a")], &[value(&[1.0; 60])]).unwrap();
    assert_eq!(numbers(&store, "a"), [1.0; 60]);
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
    *worker.proxies[0].server.lock().unwrap() = None;
    worker.proxies[0].cut();
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

#[test]
fn checkpoints_on_servers_restore_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let options_of_servers = ServerOptions::new("127.0.0.1:0").checkpoints(folder.path());
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
fn checkpoints_on_servers_that_fail_keep_the_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let good = ServerOptions::new("127.0.0.1:0").checkpoints(folder.path());
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

/// A small file system, if the test may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64k", "none"];
        let mounted = Command::new("mount").args(options).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        println!("skipped: a full disk: no permission to mount a file system");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_keeps_the_earlier_checkpoint() {
    let Some(disk) = SmallDisk::mount() else { return };
    let servers = start_with(2, &ServerOptions::new("127.0.0.1:0").checkpoints(disk.0.path()));
    let store = connect(&servers);
    store.init(&[key("w")], &[value(&[1.0; 100])]).unwrap();
    store.checkpoint_on_servers("model").unwrap();
    store.init(&[key("x")], &[value(&vec![1.0; 30_000])]).unwrap();
    let error = store.checkpoint_on_servers("model").unwrap_err();
    assert!(error.chain().contains("No space left"), "{}", error.chain());
    let snapshot = Snapshot::read(backends(), disk.0.path().join("model")).unwrap();
    assert_eq!(snapshot.keys().cloned().collect::<Vec<_>>(), [key("w")]);
    // The store still works, and a smaller checkpoint succeeds.
    assert_eq!(numbers(&store, "x"), vec![1.0; 30_000]);
    store.remove(&[key("x")]).unwrap();
    store.checkpoint_on_servers("model").unwrap();
}

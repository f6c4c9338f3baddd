//! Rounds over several servers: all of them commit the same members.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod failures;
mod journals;
#[path = "../network/mod.rs"]
mod network;
mod random;
mod values;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{
    BinaryOp, Error, ErrorCode, Key, KvStore, OnExisting, Result, Tensor, WorkerGroup,
};
use kvstore_net::rules::placement::home;
use kvstore_net::{LatePush, NetStore, NetStoreOptions, Server, ServerOptions};

use self::network::pushes::{initial, momentum};
use self::network::{LONG, SHORT, connect, eventually, key, value};

const HOUR: Duration = Duration::from_secs(3600);

/// Values of more bytes are divided among the servers: all but the vectors of a push.
const DIVIDE_ABOVE: usize = 40;

/// Starts servers. The first one leads the others.
fn start(count: usize) -> Vec<Arc<Server>> {
    start_with(count, || ServerOptions::new("127.0.0.1:0"), Server::address)
}

/// Starts servers, the first one last. `reached_at` returns where it reaches another one.
fn start_with(
    count: usize,
    options: impl Fn() -> ServerOptions,
    reached_at: impl Fn(&Server) -> SocketAddr,
) -> Vec<Arc<Server>> {
    let start = |options: &ServerOptions| Arc::new(Server::start(backends(), options).unwrap());
    let mut servers: Vec<_> = (1..count).map(|_| start(&options())).collect();
    let addresses: Vec<_> = servers.iter().map(|server| reached_at(server).to_string()).collect();
    servers.insert(0, start(&options().followers(addresses)));
    servers
}

fn options(servers: &[Arc<Server>]) -> NetStoreOptions {
    let addresses = servers.iter().map(|server| server.address().to_string());
    NetStoreOptions::of_servers(addresses).divide_above(DIVIDE_ABOVE).timeout(LONG)
}

fn in_rounds(servers: &[Arc<Server>], name: &str, min: usize) -> NetStoreOptions {
    options(servers).name(name).quorum(min).grace(HOUR)
}

fn member(servers: &[Arc<Server>], name: &str, min: usize) -> NetStore {
    connect(&in_rounds(servers, name, min))
}

/// Returns a key whose home is this server.
fn key_of(server: usize, num_servers: usize) -> Key {
    let is_there = |key: &Key| home(key.as_str(), num_servers) == server;
    (0..100).map(|number| key(&format!("key-{number}"))).find(is_there).unwrap()
}

/// Adds the values of pushes to a store, and sets its optimizer.
fn initialise(store: &NetStore) {
    let (keys, values) = initial();
    store.init(&keys, &values).unwrap();
    store.set_optimizer(momentum()).unwrap();
}

fn number(store: &dyn KvStore, key: &Key) -> f32 {
    store.pull(std::slice::from_ref(key), 0).unwrap()[0].to_vec::<f32>().unwrap()[0]
}

fn push(store: &NetStore, keys: &[Key], number: f32) -> Result<()> {
    let values: Vec<_> = keys.iter().map(|_| value(number)).collect();
    store.push(keys, &values, 0)
}

/// Pushes a number for each store at the same time. Returns the results.
fn push_all(stores: &[(&NetStore, f32)], keys: &[Key]) -> Vec<Result<()>> {
    thread::scope(|scope| {
        let pushes: Vec<_> = stores
            .iter()
            .map(|(store, number)| scope.spawn(move || push(store, keys, *number)))
            .collect();
        pushes.into_iter().map(|push| push.join().unwrap()).collect()
    })
}

#[track_caller]
fn check_late(error: &Error, expected: (&Key, u64, u64)) {
    match error {
        Error::LatePush { key, pushed, current } => assert_eq!((key, *pushed, *current), expected),
        other => panic!("{other}"),
    }
}

/// A key on each server, and small values that no server divides.
fn with_keys(num_servers: usize) -> (Vec<Arc<Server>>, Vec<Key>) {
    let keys = (0..num_servers).map(|server| key_of(server, num_servers)).collect();
    (start(num_servers), keys)
}

fn init(store: &NetStore, keys: &[Key]) {
    let zeros: Vec<_> = keys.iter().map(|_| value(0.0)).collect();
    store.init(keys, &zeros).unwrap();
}

#[test]
fn a_late_push_is_rejected_by_all_servers() {
    let (servers, keys) = with_keys(3);
    let grace = Duration::from_millis(300);
    let [a, b, c] =
        ["a", "b", "c"].map(|name| connect(&options(&servers).name(name).quorum(2).grace(grace)));
    init(&a, &keys);
    // A round of keys of any servers.
    for keys in [&keys[..], &keys[..1], &keys[1..], &keys[2..]] {
        for store in [&a, &b, &c] {
            store.pull(keys, 0).unwrap();
        }
        let version = a.versions(&keys[..1]).unwrap()[0];
        let start = Instant::now();
        for result in push_all(&[(&a, 1.0), (&b, 2.0)], keys) {
            result.unwrap();
        }
        assert!(start.elapsed() >= grace, "{:?}", start.elapsed());
        // The third one is based on the values before the round.
        let error = push(&c, keys, 4.0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::LatePush, "{error}");
        let late = keys.iter().find(|key| home(key.as_str(), 3) == 0).unwrap_or(&keys[0]);
        if keys.len() == 1 {
            check_late(&error, (late, version + 1, version + 2));
        }
        for store in [&a, &b, &c] {
            store.pull(keys, 0).unwrap();
        }
        // All live workers have pushed, so the round does not wait.
        for result in push_all(&[(&a, 1.0), (&b, 2.0), (&c, 4.0)], keys) {
            result.unwrap();
        }
        assert!(keys.iter().all(|key| number(&a, key) == 7.0));
    }
}

#[test]
fn a_late_push_may_belong_to_the_next_round() {
    let (servers, keys) = with_keys(2);
    let [a, b] = ["a", "b"].map(|name| {
        let options = options(&servers).name(name).quorum(1).late(LatePush::Next);
        connect(&options.grace(Duration::from_millis(50)))
    });
    init(&a, &keys);
    assert_eq!((number(&a, &keys[0]), number(&b, &keys[1])), (0.0, 0.0));
    push(&a, &keys, 1.0).unwrap();
    push(&b, &keys, 2.0).unwrap();
    assert_eq!((number(&a, &keys[0]), number(&b, &keys[1])), (2.0, 2.0));
}

#[test]
fn a_push_without_enough_members_times_out_on_all_servers() {
    let (servers, keys) = with_keys(2);
    let a = connect(&in_rounds(&servers, "a", 2).timeout(SHORT));
    let b = member(&servers, "b", 2);
    init(&a, &keys);
    let error = push(&a, &keys, 5.0).unwrap_err();
    let key = keys.iter().min().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "timed out: push of `{key}` to a round: 1 members have pushed, at least 2 must, \
             waiting for `b`"
        )
    );
    for result in push_all(&[(&a, 2.0), (&b, 4.0)], &keys) {
        result.unwrap();
    }
    assert_eq!((number(&b, &keys[0]), number(&b, &keys[1])), (6.0, 6.0));
}

#[test]
fn without_the_addresses_of_the_other_servers_the_error_names_the_option() {
    let servers: Vec<_> = (0..2).map(|_| network::server()).collect();
    let a = member(&servers, "a", 1);
    init(&a, &[key("w")]);
    let error = push(&a, &[key("w")], 1.0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert_eq!(
        error.to_string(),
        "quorum with 2 servers: expected the addresses of the other 1 servers in \
         the option `followers` (KVSTORE_FOLLOWERS) of the first server, found 0"
    );
    assert_eq!(number(&a, &key("w")), 0.0);
}

#[test]
fn wrong_pushes_are_rejected_and_change_nothing() {
    let (servers, keys) = with_keys(2);
    let a = member(&servers, "a", 2);
    init(&a, &keys);
    let both = [keys[0].clone(), key("missing")];
    let error = push(&a, &both, 1.0).unwrap_err();
    assert_eq!((error.code(), error.key().unwrap().as_str()), (ErrorCode::KeyNotFound, "missing"));
    for wrong in 0..2 {
        let mut values = [value(1.0), value(1.0)];
        let other =
            Tensor::from_slice(backends(), kvstore_core::Device::cpu(0), [3], &[1.0_f32; 3]);
        values[wrong] = other.unwrap().into();
        let error = a.push(&keys, &values, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("key `{}`: expected [2] f32, found [3] f32", keys[wrong])
        );
    }
    // While a push of both keys waits.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| push(&a, &keys, 2.0));
        let b = member(&servers, "b", 2);
        let other = connect(&in_rounds(&servers, "c", 3).weight(2.0).late(LatePush::Next));
        eventually("a push waits", || {
            let text = push(&other, &keys, 1.0).unwrap_err().to_string();
            text.starts_with(
                "quorum: expected quorum 2, grace 3600 s, late `reject`, weights false",
            )
        });
        for key in &keys {
            let error = push(&b, std::slice::from_ref(key), 1.0).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "push of `{key}` to a round: expected the keys that other members push \
                     together with it, found 1 keys"
                )
            );
        }
        let error = push(&a, &keys, 3.0).unwrap_err().to_string();
        assert!(error.ends_with("to a round: another push of this member is waiting"), "{error}");
        assert_eq!((number(&b, &keys[0]), number(&b, &keys[1])), (0.0, 0.0));
        other.leave().unwrap();
        push(&b, &keys, 5.0).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!((number(&a, &keys[0]), number(&a, &keys[1])), (7.0, 7.0));
}

/// The home of one of the keys changes nothing, but the other servers have applied the round.
#[test]
fn a_failing_updater_fails_the_push_of_every_member() {
    let (servers, keys) = with_keys(2);
    for failing in 0..2 {
        let [a, b] = ["a", "b"].map(|name| member(&servers, name, 2));
        a.init_with(&keys, &[value(1.0), value(1.0)], OnExisting::Replace).unwrap();
        let add = |fails: bool| {
            move |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
                if fails {
                    return Err("no".into());
                }
                stored.binary_assign(BinaryOp::Add, pushed)?;
                Ok(())
            }
        };
        servers[failing].store().set_updater(Some(Arc::new(add(true)))).unwrap();
        servers[1 - failing].store().set_updater(Some(Arc::new(add(false)))).unwrap();
        for result in push_all(&[(&a, 1.0), (&b, 2.0)], &keys) {
            assert_eq!(result.unwrap_err().code(), ErrorCode::Updater);
        }
        assert_eq!((number(&a, &keys[failing]), number(&a, &keys[1 - failing])), (1.0, 4.0));
        assert_eq!(b.versions(&keys).unwrap().iter().sum::<u64>(), 1);
        servers[failing].store().set_updater(Some(Arc::new(add(false)))).unwrap();
        b.pull(&keys, 0).unwrap();
        for result in push_all(&[(&a, 1.0), (&b, 2.0)], &keys) {
            result.unwrap();
        }
        assert_eq!((number(&a, &keys[failing]), number(&a, &keys[1 - failing])), (4.0, 7.0));
        for store in [a, b] {
            store.leave().unwrap();
        }
    }
}

#[test]
fn a_key_that_is_replaced_while_a_push_waits_is_pushed_to_its_new_servers() {
    let (servers, _) = with_keys(2);
    let [a, b, c] = ["a", "b", "c"].map(|name| member(&servers, name, 2));
    let whole = key("w");
    let rows = |rows: usize, number: f32| -> kvstore_core::Value {
        let elements = vec![number; rows];
        let device = kvstore_core::Device::cpu(0);
        Tensor::from_slice(backends(), device, [rows], &elements).unwrap().into()
    };
    c.leave().unwrap();
    a.init(std::slice::from_ref(&whole), &[rows(8, 0.0)]).unwrap();
    let keys = std::slice::from_ref(&whole);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| a.push(keys, &[rows(8, 2.0)], 0));
        thread::sleep(Duration::from_millis(200));
        // On one server now.
        let other = connect(&options(&servers).name("init").divide_above(1 << 20));
        other.init_with(keys, &[rows(8, 10.0)], OnExisting::Replace).unwrap();
        other.leave().unwrap();
        b.push(keys, &[rows(8, 4.0)], 0).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(b.pull(keys, 0).unwrap()[0].to_vec::<f32>().unwrap(), [6.0; 8]);
}

//! Calls through a proxy, which delays them, loses messages, cuts connections and counts bytes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Compression, Device, ErrorCode, Key, KvStore, Tensor, Value, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server};

use self::network::proxy::Proxy;
use self::network::{LONG, eventually, key, recorded_staleness, server};

/// Two frames of a message, divided between two servers.
const NUM_ELEMENTS: usize = 1 << 18;

fn ones() -> Value {
    let elements = vec![1_f32; NUM_ELEMENTS];
    Tensor::from_slice(backends(), Device::cpu(0), [NUM_ELEMENTS], &elements).unwrap().into()
}

/// Sets an updater that adds, and returns proxies to the servers.
fn proxies_to(servers: &[Arc<Server>]) -> Vec<Proxy> {
    let adding = |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        stored.binary_assign(kvstore::BinaryOp::Add, pushed)?;
        Ok(())
    };
    for server in servers {
        server.store().set_updater(Some(Arc::new(adding))).unwrap();
    }
    servers.iter().map(|server| Proxy::new(server.address())).collect()
}

/// Pushes while connections are cut in the middle of requests and replies. Each part of a push
/// takes effect once.
fn pushes_count_once(num_servers: usize) {
    let servers: Vec<_> = (0..num_servers).map(|_| server()).collect();
    let proxies = proxies_to(&servers);
    let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(1 << 10);
    let store = NetStore::connect(backends(), &options).unwrap();
    store.init(&[key("w")], &[ones()]).unwrap();
    let mut num_cuts = 0;
    thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            for _ in 0..40 {
                store.push(&[key("w")], &[ones()], 0).unwrap();
            }
        });
        // From before the first frame of a push until after its reply.
        for pause in (0..).map(|round| round % 23) {
            if pushing.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(40 + pause));
            proxies.iter().for_each(Proxy::cut);
            num_cuts += 1;
        }
    });
    println!("all connections were cut {num_cuts} times");
    assert!(num_cuts >= 5, "{num_cuts} cuts");
    let found = store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap();
    assert!(found.iter().all(|element| *element == 41.0), "{:?}", &found[..3]);
}

#[test]
fn pushes_to_one_server_count_once() {
    pushes_count_once(1);
}

#[test]
fn parts_of_a_push_to_two_servers_count_once() {
    pushes_count_once(2);
}

/// Neither end of the connection gets an error. The client tests whether the server answers.
#[test]
fn pushes_through_a_network_that_loses_messages_count_once() {
    let servers = [server(), server()];
    let proxies = proxies_to(&servers);
    let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(1 << 10);
    let store = NetStore::connect(backends(), &options).unwrap();
    store.init(&[key("w")], &[ones()]).unwrap();
    // In the middle of the next request to the second server.
    let before = proxies[1].num_sent.load(Ordering::SeqCst);
    proxies[1].lose_above.store(before + NUM_ELEMENTS, Ordering::SeqCst);
    store.push(&[key("w")], &[ones()], 0).unwrap();
    assert_eq!(proxies[1].num_lost.load(Ordering::SeqCst), 1);
    store.push(&[key("w")], &[ones()], 0).unwrap();
    let found = store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap();
    assert!(found.iter().all(|element| *element == 3.0), "{:?}", &found[..3]);
}

#[test]
fn a_lost_connection_does_not_change_how_stale_a_push_is() {
    let server = server();
    let seen = recorded_staleness(&server);
    let proxy = Proxy::new(server.address());
    let options = |address: String| NetStoreOptions::new(address).timeout(LONG);
    let fast = NetStore::connect(backends(), &options(server.address().to_string())).unwrap();
    let slow = NetStore::connect(backends(), &options(proxy.address.to_string())).unwrap();
    fast.init(&[key("w")], &[one().into()]).unwrap();
    let push = |store: &NetStore| store.push(&[key("w")], &[one().into()], 0).unwrap();
    (0..3).for_each(|_| push(&fast));
    slow.pull(&[key("w")], 0).unwrap();
    push(&fast);
    *proxy.server.lock().unwrap() = None;
    proxy.cut();
    eventually("the connection is lost", || slow.num_dead_node(2).unwrap() == 1);
    thread::scope(|scope| {
        scope.spawn(|| push(&slow));
        thread::sleep(Duration::from_millis(50));
        *proxy.server.lock().unwrap() = Some(server.address());
    });
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 1].map(Some));
}

#[test]
fn a_delay_below_the_timeout_is_no_failure() {
    let servers = [server()];
    let proxies = proxies_to(&servers);
    proxies[0].delay.store(20, Ordering::SeqCst);
    let options = NetStoreOptions::new(proxies[0].address.to_string());
    let store = NetStore::connect(backends(), &options.clone().timeout(LONG)).unwrap();
    store.init(&[key("w")], &[Value::from(one())]).unwrap();
    for _ in 0..5 {
        store.push(&[key("w")], &[Value::from(one())], 0).unwrap();
    }
    assert_eq!(store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap(), [6.0]);
    proxies[0].delay.store(3000, Ordering::SeqCst);
    let hurried = options.timeout(Duration::from_millis(300));
    let error = NetStore::connect(backends(), &hurried).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout, "{error}");
}

fn one() -> Tensor {
    Tensor::from_slice(backends(), Device::cpu(0), [1], &[1_f32]).unwrap()
}

#[test]
fn a_compressed_push_sends_a_sixteenth() {
    let servers = [server()];
    let proxies = proxies_to(&servers);
    let options = NetStoreOptions::new(proxies[0].address.to_string()).timeout(LONG);
    let store = NetStore::connect(backends(), &options).unwrap();
    store.init(&[key("w")], &[ones()]).unwrap();
    let num_sent_by_a_push = || {
        let before = proxies[0].num_sent.load(Ordering::SeqCst);
        store.push(&[key("w")], &[ones()], 0).unwrap();
        proxies[0].num_sent.load(Ordering::SeqCst) - before
    };
    let dense = num_sent_by_a_push();
    store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
    let codes = num_sent_by_a_push();
    println!("{dense} bytes, {codes} with compression");
    assert!(dense >= 4 * NUM_ELEMENTS && codes >= NUM_ELEMENTS / 4);
    assert!(codes < NUM_ELEMENTS / 4 + 1000, "{codes}");
}

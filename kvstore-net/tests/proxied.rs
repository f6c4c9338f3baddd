//! Calls through a proxy, which delays them, loses messages, cuts connections and counts bytes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{
    Compression, Device, ErrorCode, Key, KvStore, RowSparse, Tensor, Value, WorkerGroup,
};
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

/// How often the connections are cut.
const NUM_CUTS: u64 = 12;

/// Pushes while connections are cut in the middle of requests and replies. Each part of a push
/// takes effect once.
fn pushes_count_once(num_servers: usize) {
    let servers: Vec<_> = (0..num_servers).map(|_| server()).collect();
    let proxies = proxies_to(&servers);
    let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(1 << 10);
    let store = NetStore::connect(backends(), &options).unwrap();
    store.init(&[key("w")], &[ones()]).unwrap();
    let (mut num_cuts, are_enough) = (0, AtomicBool::new(false));
    let num_pushes = thread::scope(|scope| {
        let pushing = scope.spawn(|| {
            for num_pushes in 1_u16.. {
                store.push(&[key("w")], &[ones()], 0).unwrap();
                if are_enough.load(Ordering::Relaxed) {
                    return num_pushes;
                }
            }
            0
        });
        // From before the first frame of a push until after its reply.
        for pause in (0..NUM_CUTS).map(|round| round % 23) {
            if pushing.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(40 + pause));
            proxies.iter().for_each(Proxy::cut);
            num_cuts += 1;
        }
        are_enough.store(true, Ordering::Relaxed);
        pushing.join().unwrap()
    });
    println!("{num_pushes} pushes, and all connections were cut {num_cuts} times");
    let found = store.pull(&[key("w")], 0).unwrap()[0].to_vec::<f32>().unwrap();
    let expected = f32::from(num_pushes) + 1.0;
    assert!(found.iter().all(|element| *element == expected), "{:?}", &found[..3]);
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

/// The number of bytes that travel besides the elements: heads of requests and renewals of leases.
const OVERHEAD: usize = 8 << 10;

/// Returns the number of bytes to and from each server during a call.
fn traffic(proxies: &[Proxy], call: impl FnOnce()) -> Vec<[usize; 2]> {
    let now = || {
        let count = |proxy: &Proxy| {
            [&proxy.num_sent, &proxy.num_received].map(|bytes| bytes.load(Ordering::SeqCst))
        };
        proxies.iter().map(count).collect::<Vec<_>>()
    };
    let before = now();
    call();
    let difference =
        |(after, before): ([usize; 2], [usize; 2])| [after[0] - before[0], after[1] - before[1]];
    now().into_iter().zip(before).map(difference).collect()
}

/// Checks that this number of bytes of elements has travelled.
#[track_caller]
fn check_bytes(found: usize, elements: usize) {
    assert!((elements..elements + OVERHEAD).contains(&found), "{found} bytes for {elements}");
}

/// Connects to two servers. Each gets half of the rows of a value.
fn connect_to_two() -> (Vec<Arc<Server>>, Vec<Proxy>, NetStore) {
    let servers = Vec::from([server(), server()]);
    let proxies = proxies_to(&servers);
    let addresses = proxies.iter().map(|proxy| proxy.address.to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(1 << 10);
    let store = NetStore::connect(backends(), &options).unwrap();
    (servers, proxies, store)
}

#[test]
fn a_compressed_push_sends_codes_and_a_pull_gets_elements() {
    let (_servers, proxies, store) = connect_to_two();
    store.init(&[key("w")], &[ones()]).unwrap();
    let push = || store.push(&[key("w")], &[ones()], 0).unwrap();
    let pull = || drop(store.pull(&[key("w")], 0).unwrap());
    let num_bytes = size_of::<f32>() * NUM_ELEMENTS / 2;
    for [sent, received] in traffic(&proxies, push) {
        check_bytes(sent, num_bytes);
        check_bytes(received, 0);
    }
    for (name, num_in_a_byte) in [("2bit", 4), ("1bit", 8)] {
        store.set_compression(Some(Compression::new(name, 0.5).unwrap())).unwrap();
        for [sent, received] in traffic(&proxies, push) {
            check_bytes(sent, NUM_ELEMENTS / 2 / num_in_a_byte);
            check_bytes(received, 0);
        }
        for [sent, received] in traffic(&proxies, pull) {
            check_bytes(sent, 0);
            check_bytes(received, num_bytes);
        }
    }
}

#[test]
fn only_the_rows_of_row_sparse_values_travel() {
    const ROW: usize = 1 << 12;
    let (_servers, proxies, store) = connect_to_two();
    let num_rows = NUM_ELEMENTS / ROW;
    let elements = vec![1_f32; NUM_ELEMENTS];
    let value = Tensor::from_slice(backends(), Device::cpu(0), [num_rows, ROW], &elements).unwrap();
    store.init(&[key("w")], &[value.into()]).unwrap();
    // Two rows of the first server, and one of the second.
    let indices = Vec::from([0, 2, i64::try_from(num_rows).unwrap() - 1]);
    let rows = Tensor::from_slice(backends(), Device::cpu(0), [3, ROW], &elements[..3 * ROW]);
    let rows = RowSparse::new([num_rows, ROW], indices.clone(), rows.unwrap()).unwrap();
    let num_bytes = [2, 1].map(|num_rows| num_rows * ROW * size_of::<f32>());
    let push = || store.push(&[key("w")], &[Value::Rows(rows)], 0).unwrap();
    for ([sent, received], num_bytes) in traffic(&proxies, push).into_iter().zip(num_bytes) {
        check_bytes(sent, num_bytes);
        check_bytes(received, 0);
    }
    let pull = || {
        let pulled = store.pull_rows(&[key("w")], &[&indices], 0).unwrap();
        assert!(pulled[0].rows().to_vec::<f32>().unwrap().iter().all(|element| *element == 2.0));
    };
    for ([sent, received], num_bytes) in traffic(&proxies, pull).into_iter().zip(num_bytes) {
        check_bytes(sent, 0);
        check_bytes(received, num_bytes);
    }
}

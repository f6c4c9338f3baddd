//! Barriers of members that die, come back or are replaced, and of servers that end.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{ErrorCode, Key, KvStore, Tensor, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions};

use self::network::proxy::Proxy;
use self::network::{LONG, SHORT, connect, eventually, key, options, server, value};

#[test]
fn a_barrier_waits_for_every_live_member() {
    let server = server();
    let stores: Vec<_> =
        (0..3).map(|number| connect(&options(&server).name(format!("{number}")))).collect();
    let arrived = AtomicUsize::new(0);
    thread::scope(|scope| {
        for (number, store) in stores.iter().enumerate() {
            let arrived = &arrived;
            scope.spawn(move || {
                for round in 0..10 {
                    if number == round % 3 {
                        thread::yield_now();
                    }
                    arrived.fetch_add(1, Ordering::SeqCst);
                    store.barrier().unwrap();
                    assert!(arrived.load(Ordering::SeqCst) >= 3 * (round + 1));
                }
            });
        }
    });
    let hurried = connect(&options(&server).name("hurried").timeout(SHORT));
    let error = hurried.barrier().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
    assert!(error.to_string().contains("`0`, `1`, `2`"), "{error}");
}

#[test]
fn several_servers_have_one_barrier_and_one_rank_for_each_member() {
    let servers = [server(), server(), server()];
    let addresses = || servers.iter().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses()).timeout(LONG);
    let stores = ["first", "second"].map(|name| connect(&options.clone().name(name)));
    for (rank, store) in stores.iter().enumerate() {
        assert_eq!((store.rank().unwrap(), store.num_workers().unwrap()), (rank, 2));
    }
    let [first, second] = stores;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.barrier());
        thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        second.barrier().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_process_that_waits_at_a_barrier_can_be_replaced() {
    let server = server();
    let proxy = Proxy::new(server.address());
    // It never arrives at the barrier.
    let _other = connect(&options(&server).name("other"));
    let old = connect(&NetStoreOptions::new(proxy.address.to_string()).timeout(LONG).name("one"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| old.barrier().unwrap_err());
        eventually("it has arrived", || server.num_running_calls() == 1);
        *proxy.server.lock().unwrap() = None;
        proxy.cut();
        let mut new = None;
        let start = Instant::now();
        while new.is_none() {
            assert!(start.elapsed() < LONG, "the new process cannot join");
            let options = options(&server).name("one").timeout(SHORT);
            new = NetStore::connect(backends(), &options).ok();
        }
        *proxy.server.lock().unwrap() = Some(server.address());
        let error = waiting.join().unwrap();
        assert!(error.to_string().contains("a later one has its name"), "{}", error.chain());
    });
}

#[test]
fn a_lost_member_does_not_hold_up_a_barrier() {
    let server = server();
    let proxy = Proxy::new(server.address());
    let first = connect(&options(&server).name("first"));
    let lost = connect(&NetStoreOptions::new(proxy.address.to_string()).timeout(LONG).name("lost"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.barrier().unwrap());
        *proxy.server.lock().unwrap() = None;
        proxy.cut();
        waiting.join().unwrap();
    });
    // When it is back, the barrier that the others have passed does not stop it, and all continue
    // together.
    *proxy.server.lock().unwrap() = Some(server.address());
    lost.barrier().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| first.barrier().unwrap());
        lost.barrier().unwrap();
    });
}

#[test]
fn a_server_that_ends_releases_members_that_wait() {
    let server = server();
    let first = connect(&options(&server).name("first").timeout(SHORT));
    let _second = connect(&options(&server).name("second"));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| first.barrier().unwrap_err());
        eventually("it has arrived", || server.num_running_calls() == 1);
        let start = Instant::now();
        server.shut_down();
        assert!(start.elapsed() < Duration::from_secs(30), "the barrier held up the server");
        let error = waiting.join().unwrap();
        assert_eq!(error.code(), ErrorCode::Closed, "{error}");
    });
}

#[test]
fn a_barrier_that_a_server_refuses_continues_at_the_next_one() {
    let (first, second) = (server(), server());
    let proxy = Proxy::new(first.address());
    let store = connect(&NetStoreOptions::new(proxy.address.to_string()).timeout(LONG));
    // The group of the second server has passed fewer barriers.
    store.barrier().unwrap();
    let pushing = connect(&options(&first));
    let waiting = connect(&options(&first));
    pushing.init(&[key("w")], &[value(1.0)]).unwrap();
    let (release, released) = std::sync::mpsc::channel();
    let released = Mutex::new(released);
    let slow = move |_: &Key, _: &Tensor, _: &mut Tensor| Ok(released.lock().unwrap().recv()?);
    first.store().set_updater(Some(Arc::new(slow))).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| pushing.push(&[key("w")], &[value(2.0)], 0).unwrap());
        let waiting = scope.spawn(|| waiting.barrier().unwrap_err());
        eventually("both calls run", || first.num_running_calls() == 2);
        let ending = scope.spawn(|| first.shut_down());
        // The server accepts no calls from the moment when it ends those that wait.
        waiting.join().unwrap();
        let barrier = scope.spawn(|| store.barrier());
        thread::sleep(Duration::from_millis(100));
        *proxy.server.lock().unwrap() = Some(second.address());
        release.send(()).unwrap();
        ending.join().unwrap();
        barrier.join().unwrap().unwrap();
    });
}

#[test]
fn closing_a_store_waits_at_a_barrier_if_it_is_set() {
    let server = server();
    let (first, second) = (connect(&options(&server)), connect(&options(&server)));
    first.set_barrier_before_exit(true).unwrap();
    let closing = thread::spawn(move || drop(first));
    thread::sleep(Duration::from_millis(100));
    assert!(!closing.is_finished());
    second.barrier().unwrap();
    closing.join().unwrap();
}

//! Servers and workers in processes of their own, which are killed during pushes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, Key, NDArray, NetStoreOptions, Optimizer, Store, connect, full};

use self::process::{LONG, Process, for_each_address};

/// As many elements as travel in two frames.
const NUM_ELEMENTS: usize = 1 << 18;

fn filled(number: f64) -> NDArray {
    full([NUM_ELEMENTS], number, DType::F32, Device::cpu(0)).unwrap()
}

/// Returns the number that all elements of the value equal.
fn number(store: &Store) -> f32 {
    let pulled = filled(0.0);
    store.pull("w", &pulled).unwrap();
    let elements = pulled.to_vec::<f32>().unwrap();
    assert!(elements.iter().all(|element| *element == elements[0]), "a part of a push is missing");
    elements[0]
}

/// Initialises the value with 0. Each push of 1 subtracts 1.
fn init(store: &Store) {
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.init("w", &filled(0.0)).unwrap();
}

/// The program of a worker, which pushes until it is killed. Outside of the tests below, it does
/// nothing.
#[test]
fn worker() {
    let Ok(server) = std::env::var("KVSTORE_TEST_SERVER") else { return };
    let store = connect(&NetStoreOptions::new(server).timeout(LONG).name("worker")).unwrap();
    println!();
    for count in 1.. {
        store.push("w", &filled(1.0)).unwrap();
        println!("pushed {count}");
    }
}

fn start_worker(address: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker", "--nocapture"]);
    Process::start(command.env("KVSTORE_TEST_SERVER", address))
}

#[test]
fn pushes_of_killed_workers_take_effect_completely_or_not_at_all() {
    for_each_address(|address| {
        let (_server, address) = Process::serve(&["--address", address]);
        let watcher =
            connect(&NetStoreOptions::new(&address).timeout(LONG).name("watcher")).unwrap();
        init(&watcher);
        let (mut total, mut before) = (0.0, 0.0);
        for round in 0..10 {
            let mut worker = start_worker(&address);
            worker.rest_of_line(&format!("pushed {}", 3 + round));
            thread::sleep(Duration::from_micros(300 * round));
            worker.signal("KILL");
            let last = worker
                .rest_of_lines("pushed ")
                .last()
                .map_or(3 + round, |text| text.parse().expect("a number"));
            let start = Instant::now();
            while watcher.members().unwrap().len() > 1 {
                assert!(start.elapsed() < LONG, "the death is not noticed");
            }
            // The next process of this name joins after the calls of this one are done.
            drop(connect(&NetStoreOptions::new(&address).timeout(LONG).name("worker")).unwrap());
            let after = -number(&watcher);
            let num_acknowledged = f32::from(u16::try_from(last).unwrap());
            // The push that was running may have taken effect.
            assert!([0.0, 1.0].contains(&(after - before - num_acknowledged)), "{before} {after}");
            total += num_acknowledged;
            before = after;
        }
        let version = watcher.version(&Key::new("w").unwrap()).unwrap();
        assert_eq!(f32::from(u16::try_from(version).unwrap()), before);
        println!("{total} acknowledged pushes, {before} took effect");
    });
}

/// A worker is stopped for longer than its lease, and another process takes its name. When the
/// worker continues, it cannot push any more.
#[test]
fn a_stopped_worker_whose_name_was_taken_cannot_push() {
    for_each_address(|address| {
        let (_server, address) = Process::serve(&["--address", address, "--lease", "1"]);
        let options = NetStoreOptions::new(&address).timeout(LONG);
        let watcher = connect(&options.clone().name("watcher")).unwrap();
        init(&watcher);
        let mut worker = start_worker(&address);
        worker.rest_of_line("pushed 3");
        worker.signal("STOP");
        let start = Instant::now();
        while watcher.members().unwrap().len() > 1 {
            assert!(start.elapsed() < LONG, "the end of the lease is not noticed");
        }
        // Waits for the push that was running.
        let successor = connect(&options.name("worker")).unwrap();
        let before = number(&successor);
        worker.signal("CONT");
        assert!(!worker.child.wait().unwrap().success(), "its push must fail");
        assert_eq!(number(&successor), before);
        successor.push("w", &filled(1.0)).unwrap();
        assert_eq!(number(&watcher), before - 1.0);
    });
}

/// One of two servers is killed. Another one takes its address, and gets its values back by a
/// rollback.
#[test]
fn one_of_two_servers_is_killed_and_replaced() {
    for_each_address(|address| {
        let (_first, first_address) = Process::serve(&["--address", address]);
        let (second, second_address) = Process::serve(&["--address", address]);
        let options = NetStoreOptions::of_servers([&first_address, &second_address])
            .timeout(Duration::from_secs(3))
            .divide_above(1 << 10);
        let store = connect(&options).unwrap();
        init(&store);
        store.push("w", &filled(1.0)).unwrap();
        let saved = store.snapshot().unwrap().load().unwrap();
        second.signal("KILL");
        drop(second);
        let error = store.push("w", &filled(1.0)).unwrap_err().chain();
        assert!(error.contains(&second_address) && !error.contains(&first_address), "{error}");
        let (_second, _) = Process::serve(&["--address", &second_address]);
        store.rollback(&saved).unwrap();
        assert_eq!(number(&store), -1.0);
        store.push("w", &filled(1.0)).unwrap();
        assert_eq!(number(&store), -2.0);
    });
}

#[test]
fn a_killed_server_is_named_and_another_one_may_follow() {
    for_each_address(|address| {
        let (server, address) = Process::serve(&["--address", address]);
        let options = NetStoreOptions::new(&address).timeout(Duration::from_secs(3));
        let store = connect(&options).unwrap();
        init(&store);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                server.signal("KILL");
            });
            let error = loop {
                if let Err(error) = store.push("w", &filled(1.0)) {
                    break error;
                }
            };
            let text = error.chain();
            let says_so = text.contains(&address) || text.contains("connection was lost");
            assert!(says_so, "{text}");
        });
        drop(server);
        let error = store.push("w", &filled(1.0)).unwrap_err().chain();
        assert!(error.contains(&address), "{error}");
        // A server with the same address has an empty store.
        let (_server, _) = Process::serve(&["--address", &address]);
        assert!(store.keys().unwrap().is_empty());
        init(&store);
        store.push("w", &filled(1.0)).unwrap();
        assert_eq!(number(&store), -1.0);
    });
}

#[test]
fn sigterm_during_pushes_completes_them() {
    for_each_address(|address| {
        let (mut server, address) = Process::serve(&["--address", address]);
        let options = NetStoreOptions::new(&address).timeout(Duration::from_secs(3));
        let store = connect(&options).unwrap();
        init(&store);
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                server.signal("TERM");
            });
            loop {
                if let Err(error) = store.push("w", &filled(1.0)) {
                    break error.chain();
                }
            }
        });
        // The calls that ran have their replies, so no call is in doubt.
        assert!(error.contains("the server is ending") || error.contains(&address), "{error}");
        assert!(!error.contains("not known"), "{error}");
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    });
}

//! Servers that go back together, and then one of them loses its folder of recovery points.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::backends;
use kvstore_core::{Device, KvStore, LocalStore, Optimizer, Snapshot, Tensor, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions};

use self::network::group::{Group, rewinds};
use self::network::{LONG, connect, eventually, key, value};

/// The rows of the value, which all servers have parts of.
const NUM_ROWS: usize = 64;

fn rows(number: f32) -> kvstore_core::Value {
    let rows = [number; NUM_ROWS];
    Tensor::from_slice(backends(), Device::cpu(0), [NUM_ROWS], &rows).unwrap().into()
}

fn options(group: &Group) -> NetStoreOptions {
    group.options().divide_above(NUM_ROWS).timeout(LONG)
}

fn numbers(store: &NetStore) -> Vec<f32> {
    let pulled = store.pull(&[key("rows"), key("a"), key("b"), key("c")], 0).unwrap();
    pulled.iter().flat_map(|value| value.to_vec::<f32>().unwrap()).collect()
}

fn push(store: &NetStore) {
    let keys = ["rows", "a", "b", "c"].map(key);
    store.push(&keys, &[rows(1.0), value(1.0), value(1.0), value(1.0)], 0).unwrap();
}

/// After all servers have gone back to a point, one of them is started again without its folder.
/// There is no point that both have. It is empty, and a checkpoint makes the group complete again.
fn lose(lost: usize, is_in_rounds: bool) {
    println!("server {lost} loses its folder; rounds: {is_in_rounds}");
    let mut group = Group::start(2);
    let options = options(&group);
    let options = if is_in_rounds { options.quorum(1) } else { options };
    let store = connect(&options);
    let rewinds = rewinds(&store);
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    let keys = ["rows", "a", "b", "c"].map(key);
    store.init(&keys, &[rows(0.0), value(0.0), value(0.0), value(0.0)]).unwrap();
    push(&store);
    store.checkpoint_on_servers("model").unwrap();
    thread::sleep(Duration::from_millis(300));
    group.restart(1);
    for _ in 0..2 {
        rewinds.recv_timeout(LONG).unwrap();
    }
    push(&store);
    assert!(numbers(&store).iter().all(|number| *number == -2.0));

    group.restart_empty(lost);
    let model = Snapshot::read(backends(), group.checkpoint("model")).unwrap();
    eventually("the checkpoint is restored", || store.rollback(&model).is_ok());
    for expected in [-2.0, -3.0, -4.0] {
        push(&store);
        let numbers = numbers(&store);
        assert!(numbers.iter().all(|number| *number == expected), "{expected}: {numbers:?}");
    }
    // Later points are of one moment again.
    thread::sleep(Duration::from_secs(1));
    while rewinds.try_recv().is_ok() {}
    group.restart(1 - lost);
    for _ in 0..2 {
        let rewound = rewinds.recv_timeout(LONG).unwrap();
        assert!(group.addresses.contains(&rewound.server), "{rewound:?}");
    }
    push(&store);
    assert!(numbers(&store).iter().all(|number| *number == -5.0));
}

#[test]
fn a_follower_may_lose_its_folder() {
    lose(1, false);
    lose(1, true);
}

#[test]
fn the_first_server_may_lose_its_folder() {
    lose(0, false);
    lose(0, true);
}

/// A follower that loses its folder may have a part in the round that is being committed. Such a
/// round ends, and the next ones are made.
#[test]
fn a_folder_may_be_lost_while_rounds_are_committed() {
    for attempt in 0..10 {
        let mut group = Group::start(2);
        let store = connect(&options(&group).quorum(1).grace(Duration::ZERO));
        let keys = ["rows", "a", "b", "c"].map(key);
        store.init(&keys, &[rows(0.0), value(0.0), value(0.0), value(0.0)]).unwrap();
        let (has_ended, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    // A push to a server without its values fails.
                    let done =
                        store.push(&keys, &[rows(1.0), value(1.0), value(1.0), value(1.0)], 0);
                    assert!(begun.elapsed() < LONG / 2, "{done:?}");
                    has_begun.store(true, Ordering::Relaxed);
                }
            });
            eventually("rounds are made", || has_begun.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(100 + attempt));
            group.restart_empty(1);
            has_ended.store(true, Ordering::Relaxed);
        });
        eventually("the values are there again", || {
            let empty = LocalStore::new("local", backends().clone()).unwrap();
            empty.init(&keys, &[rows(0.0), value(0.0), value(0.0), value(0.0)]).unwrap();
            store.rollback(&empty.snapshot().unwrap()).is_ok()
        });
        push(&store);
    }
}

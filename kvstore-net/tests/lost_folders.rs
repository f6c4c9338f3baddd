//! Servers that go back together, and then one of them loses its folder of recovery points.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Device, KvStore, Optimizer, Rewound, Snapshot, Tensor, WorkerGroup};
use kvstore_net::{NetStore, NetStoreOptions, Server, ServerOptions};
use tempfile::TempDir;

use self::network::{LONG, connect, eventually, key, value};

/// The rows of the value, which all servers have parts of.
const NUM_ROWS: usize = 64;

fn rows(number: f32) -> kvstore_core::Value {
    let rows = [number; NUM_ROWS];
    Tensor::from_slice(backends(), Device::cpu(0), [NUM_ROWS], &rows).unwrap().into()
}

/// Two servers, which continue from their folders when they are started again.
struct Group {
    folders: [TempDir; 2],
    checkpoints: TempDir,
    addresses: [String; 2],
    servers: [Option<Server>; 2],
}

impl Group {
    fn start() -> Self {
        let mut group = Self {
            folders: [(), ()].map(|()| tempfile::tempdir().unwrap()),
            checkpoints: tempfile::tempdir().unwrap(),
            addresses: [(), ()].map(|()| "127.0.0.1:0".to_owned()),
            servers: [None, None],
        };
        for index in [1, 0] {
            group.restart(index);
        }
        group
    }

    fn restart(&mut self, index: usize) {
        self.servers[index] = None;
        let options =
            ServerOptions::new(&self.addresses[index]).recovery(self.folders[index].path());
        let options = options.save_every(Duration::from_millis(20));
        let options = options.checkpoints(self.checkpoints.path());
        let options = if index == 0 { options.followers([&self.addresses[1]]) } else { options };
        let server = Server::start(backends(), &options).unwrap();
        self.addresses[index] = server.address().to_string();
        self.servers[index] = Some(server);
    }

    /// Starts a server again without its recovery points.
    fn restart_empty(&mut self, index: usize) {
        self.servers[index] = None;
        for entry in fs::read_dir(self.folders[index].path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        self.restart(index);
    }

    fn options(&self) -> NetStoreOptions {
        NetStoreOptions::of_servers(&self.addresses).divide_above(NUM_ROWS).timeout(LONG)
    }
}

fn rewinds(store: &NetStore) -> Receiver<Rewound> {
    let (sender, receiver) = channel();
    store.on_rewind(Box::new(move |rewound: &Rewound| drop(sender.send(rewound.clone())))).unwrap();
    receiver
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
    let mut group = Group::start();
    let options = group.options();
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
    let model = group.checkpoints.path().join("model");
    let model = Snapshot::read(backends(), &model).unwrap();
    eventually("the checkpoint is restored", || store.rollback(&model).is_ok());
    for expected in [-2.0, -3.0, -4.0] {
        push(&store);
        let numbers = numbers(&store);
        assert!(numbers.iter().all(|number| *number == expected), "{expected}: {numbers:?}");
    }
    // Later points are of one moment again.
    thread::sleep(Duration::from_millis(300));
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

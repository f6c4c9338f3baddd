//! Several servers go back to a recovery point no more often than necessary, and points that no
//! restart can use do not fill their disks.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod network;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use kvstore::backends;
use kvstore_core::{Device, KvStore, Tensor, Value};
use kvstore_net::rules::placement::home;

use self::network::group::{EVERY, Group, rewinds};
use self::network::{LONG, connect, eventually, key, value};

/// Returns a key on each of these servers.
fn keys(num_servers: usize) -> Vec<kvstore_core::Key> {
    let on = |server: usize| {
        let names = (0..).map(|number| format!("w{number}"));
        let found = names.into_iter().find(|name| home(name, num_servers) == server);
        key(&found.unwrap())
    };
    (0..num_servers).map(on).collect()
}

/// The numbers of the points in a folder.
fn points(folder: &Path) -> Vec<u64> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let states = files.filter(|path| path.extension().is_some_and(|found| found == "state"));
    states.map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap()).collect()
}

fn num_points(folder: &Path) -> usize {
    points(folder).len()
}

/// Follower 2 cannot write points. The others then have no points that it does not have.
#[test]
fn points_that_not_all_servers_have_are_removed() {
    let group = Group::start(3);
    let store = connect(&group.options().timeout(LONG));
    let keys = keys(3);
    for key in &keys {
        store.init(std::slice::from_ref(key), &[value(0.0)]).unwrap();
    }
    eventually("a point is made", || (0..3).all(|server| num_points(group.folder(server)) > 0));
    // Even root cannot write files to a folder that does not exist.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(group.folder(2), elsewhere.path().join("points")).unwrap();
    for _ in 0..20 {
        for key in &keys {
            store.push(std::slice::from_ref(key), &[value(1.0)], 0).unwrap();
        }
        thread::sleep(2 * EVERY);
    }
    for server in [0, 1] {
        let found = num_points(group.folder(server));
        // The newest one that all have, and the last two.
        assert!(found <= 3, "server {server} has {found} points");
    }
}

/// The first server is ready again before the other one, which has more to read.
#[test]
fn servers_go_back_once_for_a_restart() {
    let mut group = Group::start(2);
    let store = connect(&group.options().timeout(LONG));
    let rewinds = rewinds(&store);
    let keys = keys(2);
    let large = Tensor::full(
        backends(),
        Device::cpu(0),
        kvstore_core::TensorSpec::new([16 << 20], kvstore_core::DType::F32),
        1.into(),
    );
    let large: Value = large.unwrap().into();
    store.init(&keys[..1], &[value(0.0)]).unwrap();
    store.init(&keys[1..], &[large]).unwrap();
    store.push(&keys[..1], &[value(1.0)], 0).unwrap();
    for restart in 0..8 {
        // Until the servers have a point of now.
        thread::sleep(Duration::from_millis(500));
        group.restart(1);
        for _ in 0..2 {
            rewinds.recv_timeout(LONG).unwrap();
        }
        let more = rewinds.recv_timeout(Duration::from_secs(1));
        assert!(more.is_err(), "restart {restart}: {more:?}");
        store.push(&keys[..1], &[value(1.0)], 0).unwrap();
    }
}

/// Servers whose state has not changed write no points.
#[test]
fn no_points_are_made_while_nothing_changes() {
    let group = Group::start(2);
    let store = connect(&group.options().timeout(LONG));
    for number in 0..16 {
        let key = key(&format!("w{number}"));
        store.init(std::slice::from_ref(&key), &[value(0.0)]).unwrap();
        store.push(&[key], &[value(1.0)], 0).unwrap();
    }
    let newest = || points(group.folder(0)).into_iter().max();
    eventually("no more points are made", || {
        let before = newest();
        thread::sleep(40 * EVERY);
        newest() == before
    });
}

/// Follower 2 could never write a point, so there is none that all servers have. When follower 1 is
/// started again, it begins empty, although it has points.
#[test]
fn a_restarted_server_whose_points_are_useless_begins_empty() {
    let mut group = Group::start(3);
    // Even root cannot write files to a folder that does not exist.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(group.folder(2), elsewhere.path().join("points")).unwrap();
    let store = connect(&group.options().timeout(LONG));
    let keys = keys(3);
    for key in &keys {
        store.init(std::slice::from_ref(key), &[value(1.0)]).unwrap();
    }
    eventually("points are made", || (0..2).all(|server| num_points(group.folder(server)) > 0));
    group.restart(1);
    eventually("the others keep their values", || store.keys().is_ok_and(|keys| keys.len() == 2));
    store.init(&keys[1..2], &[value(2.0)]).unwrap();
    let values = store.pull(&keys, 0).unwrap();
    let values: Vec<f32> = values.iter().map(|value| value.to_vec::<f32>().unwrap()[0]).collect();
    assert_eq!(values, [1.0, 2.0, 1.0]);
}

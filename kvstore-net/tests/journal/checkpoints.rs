//! Replays between checkpoints.

use kvstore_core::{ErrorCode, Optimizer, WorkerGroup};

use super::*;

fn between(recorded: &Recorded, from: Option<&str>, to: Option<&str>) -> ReplayOptions {
    let path = |name: &str| recorded.path(name);
    ReplayOptions { from: from.map(path), to: to.map(path), write: Some(recorded.path("written")) }
}

/// Pushes, with a checkpoint of the worker after 10 pushes, and one on the server after 20.
fn trained() -> Recorded {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    store.init(&[key("w"), key("large")], &[value(&[1.0; 3]), value(&vec![2.0; 50_000])]).unwrap();
    for step in 1..=30_u8 {
        let gradient = f32::from(step);
        let values = [value(&[gradient; 3]), value(&vec![gradient; 50_000])];
        store.push(&[key("w"), key("large")], &values, 0).unwrap();
        match step {
            10 => store.snapshot().unwrap().write(recorded.path("worker.checkpoint")).unwrap(),
            20 => store.checkpoint_on_servers("on server").unwrap(),
            _ => {}
        }
    }
    drop(store);
    recorded
}

#[test]
fn a_replay_begins_and_ends_at_checkpoints() {
    let recorded = trained();
    let report = recorded.end_and_replay();
    assert_eq!((report.num_steps, report.num_changes), (30, 2));
    assert_eq!(report.num_compared_marks, 3);
    let mut worker = Some("worker.checkpoint");
    for (from, to, num_steps, num_marks) in [
        (worker, None, 20, 2),
        (Some("on server"), None, 10, 1),
        (worker, Some("on server"), 10, 1),
        (None, worker, 10, 1),
        (None, Some("on server"), 20, 2),
        (worker.take(), Some("worker.checkpoint"), 0, 1),
    ] {
        let options = between(&recorded, from, to);
        let report = replay(backends(), recorded.journal(), &options).unwrap();
        let what = format!("{from:?} {to:?}: {report:?}");
        assert_eq!(report.difference, None, "{what}");
        assert_eq!((report.num_steps, report.num_compared_marks), (num_steps, num_marks), "{what}");
        let written = recorded.path("written");
        match to {
            None => recorded.has_contents_of(&written),
            Some(to) => {
                let [found, expected] = [written, recorded.path(to)]
                    .map(|path| Snapshot::read(backends(), path).unwrap());
                assert!(found.changed_keys(&expected).unwrap().is_empty(), "{what}");
                assert_eq!(found.optimizer(), expected.optimizer());
            }
        }
    }
}

#[test]
fn checkpoints_of_other_runs_are_rejected() {
    let recorded = trained();
    recorded.server.shut_down();
    let other = Recorded::start(JournalMode::Full);
    let store = other.connect("worker");
    store.init(&[key("w")], &[value(&[1.0; 3])]).unwrap();
    store.snapshot().unwrap().write(recorded.path("other")).unwrap();
    for (from, to) in [(Some("other"), None), (None, Some("other"))] {
        let options = between(&recorded, from, to);
        let error = replay(backends(), recorded.journal(), &options).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.to_string().contains("other`: expected a checkpoint"), "{error}");
    }
    // Backwards.
    let options = between(&recorded, Some("on server"), Some("worker.checkpoint"));
    replay(backends(), recorded.journal(), &options).unwrap_err();
    let options = between(&recorded, Some("missing"), None);
    let error = replay(backends(), recorded.journal(), &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Io);
}

/// Each of two servers finds its part of the checkpoint.
#[test]
fn a_replay_finds_the_part_of_its_server() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let servers = ["first", "second"].map(|name| {
        let options = ServerOptions::new("127.0.0.1:0")
            .journal(folder.path().join(name), JournalMode::Full)
            .checkpoints(folder.path());
        Arc::new(Server::start(backends(), &options).unwrap())
    });
    let addresses = servers.each_ref().map(|server| server.address().to_string());
    let options = NetStoreOptions::of_servers(addresses).timeout(LONG).divide_above(100);
    let store = NetStore::connect(backends(), &options).unwrap();
    let keys = ["a", "b", "c", "d", "divided"].map(key);
    let values: Vec<_> = keys.iter().map(|_| value(&[1.0; 1000])).collect();
    store.init(&keys, &values).unwrap();
    store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
    store.push(&keys, &values, 0).unwrap();
    store.checkpoint_on_servers("model").unwrap();
    store.push(&keys, &values, 0).unwrap();
    drop(store);
    for (server, name) in servers.iter().zip(["first", "second"]) {
        server.shut_down();
        let from = Some(folder.path().join("model"));
        let options = ReplayOptions { from, ..ReplayOptions::default() };
        let report = replay(backends(), folder.path().join(name), &options).unwrap();
        assert_eq!((report.num_steps, report.difference), (1, None));
        assert_eq!((report.keys["divided"].version, report.num_compared_marks), (2, 1));
    }
}

/// A server that is started again appends to its journal.
#[test]
fn a_journal_has_several_runs() {
    let first = Recorded::start(JournalMode::Full);
    let store = first.connect("worker");
    store.init(&[key("w")], &[value(&[1.0])]).unwrap();
    store.push(&[key("w")], &[value(&[2.0])], 0).unwrap();
    let saved = store.snapshot().unwrap();
    saved.write(first.path("saved")).unwrap();
    // Only one server at a time.
    let options = ServerOptions::new("127.0.0.1:0").journal(first.journal(), JournalMode::Full);
    let error = Server::start(backends(), &options).unwrap_err();
    assert!(error.chain().ends_with("another server uses this file"), "{}", error.chain());
    drop(store);
    first.end_and_replay();
    let folder = Arc::clone(&first.folder);
    drop(first);
    let second = Recorded::start_in(folder, JournalMode::Full);
    let store = second.connect("worker");
    store.rollback(&Snapshot::read(backends(), second.path("saved")).unwrap()).unwrap();
    store.push(&[key("w")], &[value(&[5.0])], 0).unwrap();
    drop((store, saved));
    let report = second.end_and_replay();
    assert_eq!((report.num_runs, report.num_steps, report.keys["w"].version), (2, 2, 2));
    let third = Recorded::start_in(Arc::clone(&second.folder), JournalMode::Order);
    let store = third.connect("other");
    store.init(&[key("x")], &[value(&[1.0])]).unwrap();
    store.push(&[key("x")], &[value(&[1.0])], 0).unwrap();
    drop(store);
    third.server.shut_down();
    let report = replay_all(&third.journal()).unwrap();
    assert_eq!((report.num_runs, report.num_runs_with_values), (3, 2));
    assert_eq!((report.num_steps, report.difference), (3, None));
}

//! What a journal has about each call.

use std::fs;

use kvstore_core::{Error, ErrorCode, Key, OnExisting, Optimizer};
use kvstore_net::{ReplayedKey, ServerStatus};

use super::*;

#[test]
fn without_values_the_journal_has_members_and_keys() {
    let recorded = Recorded::start(JournalMode::Order);
    let (first, second) = (recorded.connect("first"), recorded.connect("second"));
    first.init(&["a", "b"].map(key), &[value(&vec![1.0; 50_000]), value(&[1.0])]).unwrap();
    for _ in 0..3 {
        first.push(&[key("a")], &[value(&vec![2.0; 50_000])], 0).unwrap();
        second.push(&["b", "a"].map(key), &[value(&[1.0]), value(&vec![3.0; 50_000])], 0).unwrap();
    }
    first.push(&[key("unknown")], &[value(&[1.0])], 0).unwrap_err();
    second.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
    second.push(&[key("b")], &[value(&[1.0])], 0).unwrap();
    drop((first, second));
    recorded.server.shut_down();
    let report = replay_all(&recorded.journal()).unwrap();
    assert_eq!(report.difference, None);
    assert!(report.is_ended);
    assert_eq!((report.num_runs, report.num_runs_with_values), (1, 0));
    assert_eq!((report.num_steps, report.num_changes), (7, 2));
    let members: Vec<_> = report.members.iter().map(|(name, count)| (&**name, *count)).collect();
    assert_eq!(members, [("first", 3), ("second", 4)]);
    assert_eq!(report.keys["a"], ReplayedKey { num_steps: 6, version: 6 });
    assert_eq!(report.keys["b"], ReplayedKey { num_steps: 4, version: 4 });
    let len = fs::metadata(recorded.journal()).unwrap().len();
    assert!(len < 4096, "{len} bytes");
    // Its values are not there.
    let options = ReplayOptions { write: Some(recorded.path("written")), ..<_>::default() };
    let error = replay(backends(), recorded.journal(), &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.to_string().contains("journal_mode full"), "{error}");
}

#[test]
fn values_that_an_init_keeps_are_not_recorded() {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    let (keys, values) = ([key("w")], [value(&vec![1.0; 100_000])]);
    store.init(&keys, &values).unwrap();
    let before = fs::metadata(recorded.journal()).unwrap().len();
    store.init_with(&keys, &values, OnExisting::Keep).unwrap();
    let error = store.init_with(&keys, &values, OnExisting::Reject).unwrap_err();
    assert_eq!(error.code(), ErrorCode::KeyExists);
    assert_eq!(fs::metadata(recorded.journal()).unwrap().len(), before);
    store.init_with(&keys, &values, OnExisting::Replace).unwrap();
    assert!(fs::metadata(recorded.journal()).unwrap().len() > before + 400_000);
    drop(store);
    recorded.end_and_replay();
}

#[test]
fn pushes_of_updaters_are_not_replayed() {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    store.init(&[key("w")], &[value(&[1.0])]).unwrap();
    let updater = |_: &Key, _: &Tensor, _: &mut Tensor| Ok(());
    recorded.server.store().set_updater(Some(Arc::new(updater))).unwrap();
    store.push(&[key("w")], &[value(&[2.0])], 0).unwrap();
    drop(store);
    recorded.server.shut_down();
    let error = replay_all(&recorded.journal()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    let text = error.to_string();
    assert!(text.contains("an updater has made this push") && text.contains("at byte"), "{text}");
}

/// An updater may make other calls, and wait for them.
#[test]
fn an_updater_may_push_to_other_keys() {
    for mode in [JournalMode::Order, JournalMode::Full] {
        let recorded = Recorded::start(mode);
        let store = Arc::new(recorded.connect("worker"));
        store.init(&["a", "b"].map(key), &[value(&[1.0]), value(&[1.0])]).unwrap();
        let other = Arc::clone(&store);
        let updater = move |updated: &Key, sum: &Tensor, _: &mut Tensor| {
            if updated.as_str() == "a" {
                let (other, sum) = (Arc::clone(&other), sum.clone());
                // In another thread, because an updater must not change its own store.
                let pushed = std::thread::spawn(move || {
                    let changed = other.set_clip_global_norm(Some(100.0));
                    changed.and_then(|()| other.push(&[key("b")], &[sum.into()], 0))
                });
                pushed.join().unwrap()?;
            }
            Ok(())
        };
        recorded.server.store().set_updater(Some(Arc::new(updater))).unwrap();
        store.push(&[key("a")], &[value(&[2.0])], 0).unwrap();
        recorded.server.store().set_updater(None).unwrap();
        drop(store);
        recorded.server.shut_down();
        match (mode, replay_all(&recorded.journal())) {
            (JournalMode::Order, Ok(report)) => {
                assert_eq!(report.members["worker"], 2);
                assert_eq!((report.keys["a"].num_steps, report.keys["b"].num_steps), (1, 1));
            }
            (JournalMode::Full, Err(Error::Unsupported(_))) => {}
            (mode, other) => panic!("{mode:?}: {other:?}"),
        }
    }
}

/// The program of a server may change its store without a call. A replay finds that.
#[test]
fn a_change_without_a_call_is_found() {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    store.init(&[key("w")], &[value(&[1.0])]).unwrap();
    recorded.server.store().push(&[key("w")], &[value(&[2.0])], 0).unwrap();
    store.push(&[key("w")], &[value(&[3.0])], 0).unwrap();
    drop(store);
    recorded.server.shut_down();
    let report = replay_all(&recorded.journal()).unwrap();
    let difference = report.difference.unwrap();
    assert_eq!(difference.text, "key `w`: expected version 2, found version 1");
}

#[test]
fn the_status_has_the_journal() {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    store.init(&[key("w")], &[value(&[1.0])]).unwrap();
    let status = || {
        let address = recorded.server.address().to_string();
        ServerStatus::of(&NetStoreOptions::new(address)).unwrap().journal.unwrap()
    };
    let before = status();
    assert_eq!((&*before.mode, before.num_records, before.error), ("full", 2, None));
    store.push(&[key("w")], &[value(&[2.0])], 0).unwrap();
    let after = status();
    assert_eq!(after.num_records, 3);
    assert_eq!(after.num_bytes, fs::metadata(recorded.journal()).unwrap().len());
    assert!(after.num_bytes > before.num_bytes);
    let without = network::server();
    let options = NetStoreOptions::new(without.address().to_string());
    assert_eq!(ServerStatus::of(&options).unwrap().journal, None);
}

#[test]
fn options_without_a_file_are_rejected() {
    let options = ServerOptions::new("127.0.0.1:0").journal_required();
    let error = Server::start(backends(), &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "journal_required: expected also `journal`, the file of the journal"
    );
    assert_eq!(
        JournalMode::from_name("all").unwrap_err().to_string(),
        "journal_mode: expected order or full, found `all`"
    );
    let options = ServerOptions::new("127.0.0.1:0").journal("/", JournalMode::Full);
    let error = Server::start(backends(), &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Io);
    assert!(error.chain().starts_with("/: opening a journal: "), "{}", error.chain());
}

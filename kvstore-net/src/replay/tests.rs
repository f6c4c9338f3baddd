//! Replays across recovery points.

use std::path::Path;
use std::sync::Arc;

use kvstore_core::{CpuBackend, Device, Key, KvStore, LocalStore, Tensor};

use super::*;
use crate::journal::{Journal, JournalMode, JournalOptions};
use crate::server::contents::Contents;

fn backends() -> Backends {
    Backends::new(Vec::from([CpuBackend::with_threads(1)]))
}

/// Returns a snapshot of a store with one key.
fn snapshot(element: f32) -> Snapshot {
    let backends = backends();
    let store = LocalStore::new("local", backends.clone()).unwrap();
    let value = Tensor::from_slice(&backends, Device::cpu(0), [1], &[element]).unwrap();
    store.init(&[Key::new("w").unwrap()], &[value.into()]).unwrap();
    store.snapshot().unwrap()
}

/// Returns the contents of a run of a server with this journal.
fn run(path: &Path, number: u64) -> Contents {
    let (path, mode, is_required) = (path.to_owned(), JournalMode::Full, false);
    let journal = Journal::open(&JournalOptions { path, mode, is_required }, number, "local");
    let store = Arc::new(LocalStore::new("local", backends()).unwrap());
    Contents::new(store, backends(), usize::MAX).with_journal(Some(journal.unwrap()))
}

/// Replays a run that makes a recovery point with the element 1, and one that continues from it.
fn replayed(recovered: f32) -> ReplayReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let first = run(&path, 1);
    first.rollback(&snapshot(1.0)).unwrap();
    let point = first.mark_point();
    first.mark_point();
    first.rollback(&snapshot(2.0)).unwrap();
    drop(first);
    let second = run(&path, 2);
    second.rollback(&snapshot(recovered)).unwrap();
    second.mark_recovered(point);
    second.end_journal();
    replay(&backends(), &path, &ReplayOptions::default()).unwrap()
}

#[test]
fn a_replay_compares_the_values_from_which_a_server_continues() {
    let report = replayed(1.0);
    assert!(report.difference.is_none(), "{report:?}");
    assert_eq!(report.num_compared_marks, 2);
    let difference = replayed(2.0).difference.unwrap();
    let expected = "the value, the state or the version of key `w` differs after the server has \
                    continued from a recovery point";
    assert_eq!(difference.text, expected);
}

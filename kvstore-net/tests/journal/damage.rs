//! Damaged and incomplete journals.

use std::fs;
use std::thread;

use kvstore_core::{ErrorCode, Optimizer};

use super::*;

/// Returns the bytes of a small journal with two pushes and a round, and the ends of its calls.
fn small() -> (Vec<u8>, Vec<u64>) {
    let recorded = Recorded::start(JournalMode::Full);
    let store = recorded.connect("worker");
    let mut ends = Vec::new();
    let mut note = || ends.push(fs::metadata(recorded.journal()).unwrap().len());
    note();
    store.init(&[key("w")], &[value(&[1.0, 2.0])]).unwrap();
    note();
    store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
    note();
    for number in [3.0, 4.0] {
        store.push(&[key("w")], &[value(&[number; 2])], 0).unwrap();
        note();
    }
    let members = pair(&recorded.server);
    thread::scope(|scope| {
        for member in &members {
            scope.spawn(|| member.push(&[key("w")], &[value(&[5.0; 2])], 0).unwrap());
        }
    });
    note();
    drop((store, members));
    recorded.server.shut_down();
    let bytes = fs::read(recorded.journal()).unwrap();
    (bytes, ends)
}

fn with_bytes(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn each_changed_bit_is_found() {
    let (bytes, _) = small();
    let (_folder, path) = with_bytes(&bytes);
    replay_all(&path).unwrap();
    for bit in 0..8 * bytes.len() {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &changed).unwrap();
        let error = replay_all(&path).expect_err(&format!("bit {bit} of {}", bytes.len()));
        assert_eq!(error.code(), ErrorCode::Corrupt, "bit {bit}: {error}");
        let text = error.to_string();
        assert!(text.contains("byte "), "bit {bit}: {text}");
        // A server does not continue such a journal, and does not change it.
        if bit % 97 == 0 {
            let options = ServerOptions::new("127.0.0.1:0").journal(&path, JournalMode::Full);
            assert_eq!(Server::start(backends(), &options).unwrap_err().code(), ErrorCode::Corrupt);
            assert!(fs::read(&path).unwrap() == changed);
        }
    }
}

#[test]
fn a_removed_repeated_or_swapped_record_is_found() {
    let (bytes, ends) = small();
    let at = |index: usize| usize::try_from(ends[index]).unwrap();
    let (first, second) = (&bytes[at(2)..at(3)], &bytes[at(3)..at(4)]);
    let (start, rest) = (&bytes[..at(2)], &bytes[at(4)..]);
    // From another journal, with the same calls.
    let (other, other_ends) = small();
    assert_eq!(ends, other_ends);
    let foreign = &other[at(2)..at(3)];
    for (what, pieces) in [
        ("removed", [start, second, rest, &[]]),
        ("repeated", [start, first, first, rest]),
        ("swapped", [start, second, first, rest]),
        ("foreign", [start, foreign, second, rest]),
    ] {
        let (_folder, path) = with_bytes(&pieces.concat());
        let error = replay_all(&path).expect_err(what);
        assert_eq!(error.code(), ErrorCode::Corrupt, "{what}: {error}");
        println!("{what}: {error}");
    }
    let (_folder, path) = with_bytes(&[start, first, second, rest].concat());
    replay_all(&path).unwrap();
}

/// A journal that ends at any byte: the complete records are replayed, and a server continues
/// after them.
#[test]
fn an_incomplete_record_is_cut_off() {
    let (bytes, ends) = small();
    for len in 0..bytes.len() {
        let (folder, path) = with_bytes(&bytes[..len]);
        let report = replay_all(&path).unwrap();
        assert_eq!(report.difference, None);
        let mut last = [0, 24].into_iter().chain(ends.iter().copied());
        let last = last.rfind(|end| *end <= len as u64).unwrap();
        let num_steps = ends[3..].iter().filter(|end| **end <= len as u64).count() as u64;
        assert_eq!(report.num_steps, num_steps, "{len} bytes");
        match report.incomplete {
            None => assert!(len == 0 || report.num_bytes + 24 == len as u64, "{len}: {report:?}"),
            Some(incomplete) => {
                // After the pushes, the ends of the records are not known here.
                assert!(incomplete.offset >= last, "{len}: {report:?}");
                assert_eq!(incomplete.offset + incomplete.num_bytes, len as u64);
            }
        }
        if len % 7 == 0 {
            let recorded = Recorded::start_in(Arc::new(folder), JournalMode::Full);
            let store = recorded.connect("later");
            store.init(&[key("x")], &[value(&[1.0])]).unwrap();
            store.push(&[key("x")], &[value(&[1.0])], 0).unwrap();
            drop(store);
            let report = recorded.end_and_replay();
            assert_eq!(report.num_steps, num_steps + 1, "{len} bytes");
        }
    }
}

/// After a power failure, a file may have its new length, but not its new bytes.
#[test]
fn zeros_at_the_end_are_cut_off() {
    let (bytes, ends) = small();
    let end = usize::try_from(ends[4]).unwrap();
    for num_zeros in [1, 24, 100, 10_000] {
        let (_folder, path) = with_bytes(&[&bytes[..end], &vec![0; num_zeros]].concat());
        let report = replay_all(&path).unwrap();
        let incomplete = report.incomplete.unwrap();
        assert_eq!((incomplete.offset, incomplete.num_bytes), (ends[4], num_zeros as u64));
        assert_eq!(report.num_steps, 2);
    }
    // But not within the journal.
    let (_folder, path) = with_bytes(&[&bytes[..end], &[0; 24], &bytes[end..]].concat());
    assert_eq!(replay_all(&path).unwrap_err().code(), ErrorCode::Corrupt);
}

#[test]
fn other_files_are_rejected() {
    for bytes in [&b"a text that is no journal"[..], &[0; 24], &[7]] {
        let (_folder, path) = with_bytes(bytes);
        let error = replay_all(&path).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt);
        assert!(error.to_string().contains("is not that of a journal"), "{error}");
        let options = ServerOptions::new("127.0.0.1:0").journal(&path, JournalMode::Full);
        assert_eq!(Server::start(backends(), &options).unwrap_err().code(), ErrorCode::Corrupt);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), &folder.path().join("missing")] {
        assert_eq!(replay_all(path).unwrap_err().code(), ErrorCode::Io);
    }
}

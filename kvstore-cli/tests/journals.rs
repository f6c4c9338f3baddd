//! Journals of servers in processes of their own, which are killed during pushes.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kvstore::{
    DType, Device, Key, NDArray, NetStoreOptions, Optimizer, Snapshot, Store, backends, connect,
    full,
};

use self::process::{KVSTORE, LONG, Process};

/// As many elements as travel in two frames.
const NUM_ELEMENTS: usize = 1 << 18;

fn filled(number: f64) -> NDArray {
    full([NUM_ELEMENTS], number, DType::F32, Device::cpu(0)).unwrap()
}

fn replay(arguments: &[&str]) -> Output {
    Command::new(KVSTORE).arg("replay").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the part of a line after its name.
fn line<'a>(output: &'a str, name: &str) -> &'a str {
    let found = output.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_else(|| panic!("no `{name}` in\n{output}")).trim()
}

fn join(address: &str, name: &str) -> Store {
    connect(&NetStoreOptions::new(address).timeout(LONG).name(name)).unwrap()
}

/// Each acknowledged push is in the journal, and the replay has the value that it gives.
#[test]
fn a_killed_server_has_all_acknowledged_pushes_in_its_journal() {
    const MEMBERS: [&str; 2] = ["first", "second"];
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let journal = journal.to_str().unwrap();
    let written = folder.path().join("written");
    let mut num_incomplete = 0;
    for round in 0..12_u64 {
        let arguments = ["--address", "127.0.0.1:0", "--journal", journal, "--lease", "1"];
        let (server, address) = Process::serve(&arguments);
        let store = join(&address, "initial");
        store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
        store.init("w", &filled(0.0)).unwrap();
        let acknowledged = AtomicU64::new(0);
        thread::scope(|scope| {
            for name in MEMBERS {
                let (address, acknowledged) = (&address, &acknowledged);
                scope.spawn(move || {
                    let options = NetStoreOptions::new(address);
                    let options = options.timeout(Duration::from_secs(3)).name(name);
                    let store = connect(&options).unwrap();
                    while store.push("w", &filled(1.0)).is_ok() {
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let start = Instant::now();
            while acknowledged.load(Ordering::SeqCst) < 3 + round {
                assert!(start.elapsed() < LONG, "the members do not push");
            }
            thread::sleep(Duration::from_micros(211 * round));
            server.signal("KILL");
        });
        let least = acknowledged.load(Ordering::SeqCst);
        let output = replay(&[journal, "--write", written.to_str().unwrap()]);
        let (shown, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{shown}{errors}");
        assert_eq!(line(&shown, "runs "), (round + 1).to_string(), "{shown}");
        assert!(shown.contains("the journal does not end with the end of its server"), "{shown}");
        num_incomplete += u64::from(shown.contains("of an incomplete record"));
        let key = Key::new("w").unwrap();
        let snapshot = Snapshot::read(backends(), &written).unwrap();
        let version = snapshot.stats().next().unwrap().num_pushes;
        // The last push of each member may have taken effect without a reply.
        assert!((least..=least + MEMBERS.len() as u64).contains(&version), "{least} {version}");
        let value = snapshot.get(&key).unwrap().unwrap().to_dense().unwrap();
        let expected = -f32::from(u16::try_from(version).unwrap());
        assert!(value.to_vec::<f32>().unwrap().iter().all(|element| *element == expected));
    }
    println!("{num_incomplete} of 12 journals ended with an incomplete record");
    // A server that ends in order, after the runs that were killed.
    let (mut server, address) = Process::serve(&["--address", "127.0.0.1:0", "--journal", journal]);
    let store = join(&address, "last");
    store.init("w", &filled(1.0)).unwrap();
    let status = Command::new(KVSTORE).args(["status", "--server", &address]).output().unwrap();
    let len = fs::metadata(journal).unwrap().len();
    assert!(text(&status.stdout).contains(&format!("journal   full, {len} bytes")));
    drop(store);
    server.signal("TERM");
    assert!(server.child.wait().unwrap().success());
    let output = replay(&[journal]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && !shown.contains("does not end"), "{shown}");
    assert_eq!(line(&shown, "runs "), "13");
    assert!(line(&shown, "compared ").ends_with("all keys 1 times"), "{shown}");
}

fn recorded(journal: &Path, mode: &str) {
    let journal = journal.to_str().unwrap();
    let arguments = ["--address", "127.0.0.1:0", "--journal", journal, "--journal-mode", mode];
    let (mut server, address) = Process::serve(&arguments);
    let store = join(&address, "worker");
    store.init("w", &filled(0.0)).unwrap();
    store.push("w", &filled(1.0)).unwrap();
    drop(store);
    server.signal("TERM");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_damaged_journal_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    recorded(&path, "full");
    let output = replay(&[path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut bytes = fs::read(&path).unwrap();
    // In the elements of the first value.
    bytes[100_000] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let output = replay(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("damaged between byte") && error.contains("journal"), "{error}");
}

#[test]
fn a_journal_without_values_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    recorded(&path, "order");
    let output = replay(&[path.to_str().unwrap()]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert_eq!(line(&shown, "order "), "1 runs have no values: only their order was checked");
    assert!(shown.contains("         1 steps  worker\n"), "{shown}");
    assert!(shown.contains("         1 steps  version          1  w\n"), "{shown}");
    let steps = text(&replay(&[path.to_str().unwrap(), "--steps"]).stdout);
    let step = line(&steps, "step ").split_once("  ").unwrap().1;
    assert_eq!((step, steps.matches("step ").count()), ("w version 1  worker", 1));
    let output = replay(&[path.to_str().unwrap(), "--write", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("journal_mode full"), "{}", text(&output.stderr));
}

/// A part of a journal of rounds, from one checkpoint to another.
#[test]
fn a_replay_begins_and_ends_with_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (journal, checkpoints) = (path("journal"), path("checkpoints"));
    let (server, address) = Process::serve(&[
        "--address",
        "127.0.0.1:0",
        "--journal",
        &journal,
        "--checkpoints",
        &checkpoints,
    ]);
    let options = NetStoreOptions::new(&address).timeout(LONG).name("worker").quorum(1).weight(2.0);
    let store = connect(&options).unwrap();
    store.init("w", &filled(0.0)).unwrap();
    for (name, num_pushes) in [("first", 2), ("second", 3), ("last", 1)] {
        for _ in 0..num_pushes {
            store.push("w", &filled(0.1)).unwrap();
        }
        store.checkpoint_on_servers(name).unwrap();
    }
    let checkpoint = |name: &str| format!("{checkpoints}/{name}");
    let (first, second) = (checkpoint("first"), checkpoint("second"));
    let output = replay(&[&journal, "--from", &first, "--to", &second, "--steps"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert_eq!(line(&shown, "steps "), "3", "{shown}");
    for version in 3..=5 {
        let step = format!("  w version {version}  worker (weight 2)\n");
        assert!(shown.contains(&step), "{shown}");
    }
    // The end is before the beginning.
    let output = replay(&[&journal, "--from", &second, "--to", &first]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("at no record"), "{}", text(&output.stderr));
    drop(store);
    drop(server);
}

#[test]
fn wrong_arguments_are_rejected() {
    let serve = |arguments: &[&str]| {
        let mut command = Command::new(KVSTORE);
        command.args(["serve", "--address", "127.0.0.1:0"]).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for (arguments, expected) in [
        (&["--journal-required"][..], "journal_required: expected also `journal`"),
        (&["--journal-mode", "full"], "option `journal_mode`: expected also `journal`"),
        (&["--journal", "j", "--journal-mode", "x"], "expected order or full, found `x`"),
    ] {
        let (code, error) = serve(arguments);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let output = replay(&["missing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("missing: reading a journal"));
}

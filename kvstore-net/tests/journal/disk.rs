//! Journals on a full disk.

use std::fs;
use std::process::Command;
use std::thread;

use kvstore_core::{Error, ErrorCode, Optimizer};
use kvstore_net::ServerStatus;
use kvstore_tests::skip::skip_or_fail;

use super::*;

/// A small file system, if the test may mount one.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=256k", "none"];
        let mounted = Command::new("mount").args(options).arg(folder.path()).output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Some(Self(folder)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => format!("`mount`: {error}"),
        };
        skip_or_fail("a full disk", &reason);
        None
    }

    fn start(&self, is_required: bool) -> (Arc<Server>, NetStore) {
        let options = ServerOptions::new("127.0.0.1:0");
        let options = options.journal(self.journal(), JournalMode::Full).metrics("127.0.0.1:0");
        let options = if is_required { options.journal_required() } else { options };
        let server = Arc::new(Server::start(backends(), &options).unwrap());
        let store = network::connect(&network::options(&server));
        store.set_optimizer(Optimizer::new("sgd").unwrap()).unwrap();
        store.init(&["w", "large"].map(key), &[value(&[1.0]), value(&vec![1.0; 20_000])]).unwrap();
        (server, store)
    }

    fn journal(&self) -> PathBuf {
        self.0.path().join("journal")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn status(server: &Server) -> kvstore_net::JournalStatus {
    let options = NetStoreOptions::new(server.address().to_string());
    ServerStatus::of(&options).unwrap().journal.unwrap()
}

#[test]
fn the_training_continues_after_a_journal_has_stopped() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (server, store) = disk.start(false);
    for _ in 0..10 {
        store.push(&[key("large")], &[value(&vec![1.0; 20_000])], 0).unwrap();
        // Small enough for the rest of the disk. Not recorded after a gap.
        store.push(&[key("w")], &[value(&[1.0])], 0).unwrap();
    }
    assert_eq!(store.versions(&[key("large")]).unwrap(), [10]);
    let journal = status(&server);
    let error = journal.error.unwrap();
    assert!(error.contains("writing a push to a journal: No space left"), "{error}");
    drop(store);
    server.shut_down();
    // The journal has what it had before.
    let report = replay_all(&disk.journal()).unwrap();
    assert_eq!((report.difference, report.incomplete, report.is_ended), (None, None, false));
    let (large, small) = (report.keys["large"], report.keys["w"]);
    assert!((1..10).contains(&large.num_steps), "{large:?}");
    assert_eq!(large.num_steps, small.num_steps);
    assert_eq!(fs::metadata(disk.journal()).unwrap().len(), journal.num_bytes);
}

#[test]
fn pushes_fail_without_a_required_journal() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (server, store) = disk.start(true);
    let push = || store.push(&[key("large")], &[value(&vec![1.0; 20_000])], 0);
    let mut num_pushed = 0;
    let error = loop {
        match push() {
            Ok(()) => num_pushed += 1,
            Err(error) => break error,
        }
        assert!(num_pushed < 10);
    };
    let is_full = |error: &Error| {
        let text = error.chain();
        assert!(text.contains("journal") && text.contains("No space left"), "{text}");
    };
    is_full(&error);
    // The rest of the disk, and of the last page of the journal, so that no record has room.
    let filler = disk.0.path().join("filler");
    fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    let small = || store.push(&[key("w")], &[value(&[1.0])], 0);
    let num_small = (0..4096).take_while(|_| small().is_ok()).count() as u64;
    // Not with a call, because the journal has no room for its mark.
    let before = server.store().snapshot().unwrap();
    is_full(&push().unwrap_err());
    is_full(&small().unwrap_err());
    is_full(&store.init(&[key("new")], &[value(&[1.0])]).unwrap_err());
    is_full(&store.set_hyper_parameters(&[("learning_rate", 0.5)]).unwrap_err());
    is_full(&store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap_err());
    is_full(&store.remove(&[key("w")]).unwrap_err());
    is_full(&store.rollback(&before).unwrap_err());
    let after = server.store().snapshot().unwrap();
    assert!(before.is_identical(&after).unwrap());
    assert_eq!(store.versions(&[key("large")]).unwrap(), [num_pushed]);
    let error = status(&server).error.unwrap();
    assert!(error.contains("No space left"), "{error}");
    // With room, the same calls succeed.
    fs::remove_file(&filler).unwrap();
    small().unwrap();
    assert_eq!(status(&server).error, None);
    drop(store);
    server.shut_down();
    let report = replay_all(&disk.journal()).unwrap();
    assert_eq!((report.difference, report.keys["large"].num_steps), (None, num_pushed));
    assert_eq!(report.keys["w"].num_steps, num_small + 1);
}

#[test]
fn rounds_continue_or_fail_without_room_for_the_pushes_of_their_members() {
    for is_required in [false, true] {
        let Some(disk) = SmallDisk::mount() else { return };
        let (server, store) = disk.start(is_required);
        let members = pair(&server);
        let push =
            |member: &NetStore| member.push(&[key("large")], &[value(&vec![1.0; 20_000])], 0);
        let mut num_pushed = 0;
        let error = loop {
            let [a, b] = thread::scope(|scope| {
                members
                    .each_ref()
                    .map(|member| scope.spawn(|| push(member)))
                    .map(|push| push.join().unwrap())
            });
            assert_eq!(a.is_ok(), b.is_ok());
            match a {
                Ok(()) => num_pushed += 1,
                Err(error) => break Some(error.chain()),
            }
            if num_pushed == 10 {
                break None;
            }
        };
        assert_eq!(error.is_some(), is_required);
        let error = error.or(status(&server).error).unwrap();
        assert!(
            error.contains("writing the push of a round to a journal: No space left"),
            "{error}"
        );
        assert_eq!(store.versions(&[key("large")]).unwrap(), [num_pushed]);
        if is_required {
            store.push(&[key("w")], &[value(&[1.0])], 0).unwrap();
        }
        drop((store, members));
        server.shut_down();
        let report = replay_all(&disk.journal()).unwrap();
        assert_eq!((report.difference, report.incomplete), (None, None));
        let num_steps = report.keys.get("large").map_or(0, |key| key.num_steps);
        assert!(if is_required { num_steps == num_pushed } else { num_steps < 10 }, "{num_steps}");
    }
}

#[test]
fn a_server_does_not_start_without_room_for_its_journal() {
    let Some(disk) = SmallDisk::mount() else { return };
    fs::write(disk.0.path().join("filler"), vec![0; 1 << 20]).unwrap_err();
    let options = ServerOptions::new("127.0.0.1:0").journal(disk.journal(), JournalMode::Full);
    let error = Server::start(backends(), &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Io);
    assert!(error.chain().contains("No space left"), "{}", error.chain());
}

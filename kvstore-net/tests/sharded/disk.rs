//! Checkpoints of servers on a full disk.

use std::fs;
use std::process::Command;

use kvstore_tests::skip::skip_or_fail;

use super::*;

/// A small file system, if the test may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-t", "tmpfs", "-o", "size=128k", "none"];
        let mounted = Command::new("mount").args(options).arg(folder.path()).output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Some(Self(folder)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => format!("`mount`: {error}"),
        };
        skip_or_fail("a full disk", &reason);
        None
    }

    /// Returns the contents of each file, and the paths of the folders.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    files.insert(path.display().to_string(), Vec::new());
                    folders.push(path);
                } else {
                    files.insert(path.display().to_string(), fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn disk_is_full(error: &Error, servers: &[Arc<Server>]) {
    let text = error.chain();
    let names_server = |server: &Arc<Server>| text.contains(&server.address().to_string());
    assert!(servers.iter().any(names_server) && text.contains("No space left"), "{text}");
}

#[test]
fn a_full_disk_keeps_the_earlier_checkpoint() {
    for num_servers in [1, 2] {
        let Some(disk) = SmallDisk::mount() else { return };
        let options = ServerOptions::new("127.0.0.1:0").checkpoints(disk.0.path());
        let servers = start_with(num_servers, &options);
        let store = connect(&servers);
        store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
        store.init(&[key("w")], &[value(&[1.0; 100])]).unwrap();
        store.checkpoint_on_servers("model").unwrap();
        let filler = disk.0.path().join("filler");
        fs::write(&filler, vec![0; 92 << 10]).unwrap();
        let earlier = disk.files();
        // No room for the new checkpoint beside the earlier one, but for the part of one server.
        store.init(&[key("x")], &[value(&vec![1.0; 8000])]).unwrap();
        let mut num_left = 0;
        for attempt in 0..4 {
            disk_is_full(&store.checkpoint_on_servers("model").unwrap_err(), &servers);
            let mut files = disk.files();
            for (path, contents) in &earlier {
                assert!(files.remove(path).as_ref() == Some(contents), "{path} has changed");
            }
            let left: Vec<_> = files.into_keys().collect();
            // The part of a server that had room, which its next attempt replaces.
            assert!(left.len() < num_servers, "attempt {attempt}: {left:?}");
            num_left = num_left.max(left.len());
        }
        println!("{num_servers} servers: {num_left} files left");
        let read = || Snapshot::read(backends(), disk.0.path().join("model")).unwrap();
        assert_eq!(read().keys().cloned().collect::<Vec<_>>(), [key("w")]);
        // The servers continue.
        store.push(&[key("x")], &[value(&vec![1.0; 8000])], 0).unwrap();
        assert_eq!(numbers(&store, "x"), vec![0.0; 8000]);
        // With room, the same checkpoint succeeds, and nothing else is left.
        fs::remove_file(&filler).unwrap();
        store.checkpoint_on_servers("model").unwrap();
        assert!(read().changed_keys(&store.snapshot().unwrap()).unwrap().is_empty());
        assert_eq!(files(&disk.0.path().join("model")).len(), num_servers + 1);
    }
}

/// Each server has its own disk, and the second disk is full.
#[test]
fn failed_checkpoints_do_not_fill_the_disks_of_other_servers() {
    let Some(full) = SmallDisk::mount() else { return };
    let (folder, with_room) = with_folder();
    let options = ServerOptions::new("127.0.0.1:0").checkpoints(full.0.path());
    let servers = [start_with(1, &with_room).remove(0), start_with(1, &options).remove(0)];
    let store = connect(&servers);
    store.init(&[key("w")], &[value(&vec![1.0; 1000])]).unwrap();
    let filler = full.0.path().join("filler");
    // Fails when the disk is full.
    fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    let saved = folder.path().join("model");
    for _ in 0..5 {
        disk_is_full(&store.checkpoint_on_servers("model").unwrap_err(), &servers);
        assert_eq!(files(&saved).len(), 1, "{:?}", files(&saved));
    }
    // Nor those of a worker that has died meanwhile.
    drop(store);
    let store = connect(&servers);
    disk_is_full(&store.checkpoint_on_servers("model").unwrap_err(), &servers);
    assert_eq!(files(&saved).len(), 1, "{:?}", files(&saved));
    fs::remove_file(&filler).unwrap();
    store.checkpoint_on_servers("model").unwrap();
    assert_eq!(files(&saved).len(), 2, "{:?}", files(&saved));
}

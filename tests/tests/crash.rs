//! A process that writes checkpoints is killed at any moment, or the disk is full. Afterwards, the
//! complete old file or the complete new one exists.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![allow(clippy::float_cmp, reason = "small whole numbers")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use kvstore::{Snapshot, backends};
use kvstore_tests::samples::words;

const WRITER: &str = env!("CARGO_BIN_EXE_checkpoint_writer");

/// Returns the number in all elements of all keys of a checkpoint.
fn number_in(path: &Path) -> f32 {
    let snapshot = Snapshot::read(backends(), path).unwrap();
    assert_eq!(snapshot.len(), 3);
    let numbers = snapshot.keys().flat_map(|key| {
        snapshot.get(key).unwrap().unwrap().to_dense().unwrap().to_vec::<f32>().unwrap()
    });
    let numbers: Vec<f32> = numbers.collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "two checkpoints in one file");
    numbers[0]
}

/// Lets a writer run for `delay` after its first checkpoint, kills it, and returns the last number
/// that it has reported as complete.
fn kill_a_writer(path: &Path, delay: Duration) -> f32 {
    let mut writer = Command::new(WRITER).arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    #[expect(clippy::disallowed_methods, reason = "it is to be any moment")]
    thread::sleep(delay);
    end(&mut writer);
    // The pipe keeps its contents after the writer is dead. The last line may be cut off.
    let rest = lines.map_while(Result::ok).filter_map(|line| line.parse().ok());
    rest.last().unwrap_or_else(|| first.parse().unwrap_or_else(|_| panic!("{first}")))
}

fn end(writer: &mut Child) {
    // SIGKILL: the process runs no more code.
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn a_killed_writer_leaves_a_complete_file() {
    const KILLS: usize = 120;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.checkpoint");
    let (mut last, mut unannounced, mut left_over) = (0.0, 0, 0);
    for delay in words(7).take(KILLS) {
        let delay = Duration::from_micros(delay % 12_000);
        let safe = kill_a_writer(&path, delay);
        let found = number_in(&path);
        assert!(safe > last, "a writer continues from the file");
        assert!(found == safe || found == safe + 1.0, "{found}, after {safe} was safe");
        (last, unannounced) = (found, unannounced + usize::from(found > safe));
        let num_files = fs::read_dir(folder.path()).unwrap().count();
        assert!(num_files <= 2, "the next process removes the files of a killed one");
        left_over += num_files - 1;
    }
    println!(
        "{KILLS} kills, {left_over} of them while a file was being written, {unannounced} \
         between the file and its announcement; {last} checkpoints"
    );
    // Otherwise no kill happened while a file was being written.
    assert!(left_over > 0);
}

/// A folder of deltas has a complete chain after any crash.
#[test]
fn a_killed_writer_of_deltas_leaves_complete_chains() {
    const KILLS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let mut left_over = 0;
    for delay in words(8).take(KILLS) {
        let safe = kill_a_writer(folder.path(), Duration::from_micros(delay % 12_000));
        let names = fs::read_dir(folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (files, others): (Vec<_>, Vec<_>) = names.partition(|name| name.parse::<u16>().is_ok());
        let mut numbers: Vec<u16> = files.iter().map(|name| name.parse().unwrap()).collect();
        numbers.sort_unstable();
        let newest = f32::from(*numbers.last().unwrap());
        assert!(newest == safe || newest == safe + 1.0, "{newest}, after {safe} was safe");
        // The complete file and the deltas since then, which the next writer continues.
        for number in numbers.iter().rev().take(8) {
            assert_eq!(number_in(&folder.path().join(number.to_string())), f32::from(*number));
        }
        assert_eq!(numbers.len(), usize::from(*numbers.last().unwrap()));
        left_over += usize::from(!others.is_empty());
    }
    println!("{KILLS} kills, {left_over} of them while a file was being written");
    assert!(left_over > 0);
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.checkpoint");
    let safe = kill_a_writer(&path, Duration::ZERO);
    let before = number_in(&path);
    assert!(before >= safe);
    let text = write_without_room(&path);
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert_eq!(number_in(&path), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    // The target of the link does not exist yet, and must not exist in part afterwards.
    let link = folder.path().join("link");
    symlink("first.checkpoint", &link).unwrap();
    write_without_room(&link);
    assert!(!link.exists() && link.is_symlink());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    kill_a_writer(&link, Duration::ZERO);
    assert!(number_in(&link) >= 1.0 && link.is_symlink());
}

/// Lets a writer run until it fails, and returns its output.
fn write_without_room(path: &Path) -> String {
    // Limits files of this shell's children to 256 KiB, like a full disk. Blocks have 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f 512; exec '{WRITER}' \"$0\"");
    let output = Command::new("sh").args(["-c", &script]).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && text.starts_with("Io: "), "{text}");
    text
}

/// On a separate disk with space for one checkpoint, but not for a second one beside it.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, copy) = (folder.path().join("disk"), folder.path().join("copy"));
    fs::create_dir(&disk).unwrap();
    // A namespace for the children of this process, in which any user may mount.
    let script = "mount -t tmpfs -o size=1800k none \"$0\" || exit 77
        \"$1\" \"$0/model\"
        ls -A \"$0\" && cp \"$0/model\" \"$2\"";
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", script]).arg(&disk).arg(WRITER).arg(&copy);
    let output = command.output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        println!("not run: nothing can be mounted here");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("1\nIo: ") && text.contains("No space left on device"), "{text}");
    assert!(text.ends_with("\nmodel\n"), "nothing is left beside it: {text}");
    assert_eq!(number_in(&copy), 1.0);
}

#[test]
fn concurrent_writers_of_one_file_do_not_interfere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.checkpoint");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut writer =
                    Command::new(WRITER).arg(&path).stdout(Stdio::piped()).spawn().unwrap();
                let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
                let said: Vec<String> = lines.take(30).map(Result::unwrap).collect();
                end(&mut writer);
                assert!(said.iter().all(|line| line.parse::<f32>().is_ok()), "{said:?}");
            });
        }
    });
    assert!(number_in(&path) >= 30.0);
}

#[test]
fn files_of_other_programs_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.checkpoint");
    let prefix = format!(".kvstore-{:08x}-", crc32fast::hash(b"model.checkpoint"));
    let beside = |end: &str| folder.path().join(prefix.clone() + end);
    fs::write(beside("notes.txt"), "mine").unwrap();
    symlink("elsewhere", beside("a-link")).unwrap();
    // Opening it for writing would block until it has a reader.
    assert!(Command::new("mkfifo").arg(beside("a-pipe")).status().unwrap().success());
    // A partial file of a killed process, with the read-only mode of the file that it was to
    // replace.
    fs::write(beside("abcdef"), "half").unwrap();
    fs::set_permissions(beside("abcdef"), fs::Permissions::from_mode(0o444)).unwrap();
    kill_a_writer(&path, Duration::ZERO);
    assert!(
        ["notes.txt", "a-link", "a-pipe"]
            .iter()
            .all(|end| beside(end).is_symlink() || beside(end).exists())
    );
    assert!(!beside("abcdef").exists());
}

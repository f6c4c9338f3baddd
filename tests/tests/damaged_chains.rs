//! Deltas whose base is missing, exchanged, damaged or malicious, and bases that no delta can have:
//! an error names the files, and nothing changes.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use kvstore::{Checkpoint, Error, ErrorCode, Result, Snapshot, Store, backends, create};
use kvstore_tests::fuzz::{self, changed, with_checksum};
use kvstore_tests::suite::array;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// A folder with the complete checkpoint `a`, its delta `b` and the delta `c` of `b`.
struct Chain {
    folder: TempDir,
    store: Store,
    /// The snapshots of `a`, `b` and `c`.
    snapshots: Vec<Snapshot>,
}

impl Chain {
    fn new() -> Self {
        let store = create("local").unwrap();
        store.init("w", &array(&[1.0; 100])).unwrap();
        store.init("v", &array(&[1.0; 3])).unwrap();
        let mut chain = Self { folder: tempfile::tempdir().unwrap(), store, snapshots: Vec::new() };
        chain.snapshots.push(chain.store.snapshot().unwrap());
        chain.snapshots[0].write(chain.path("a")).unwrap();
        for (name, number) in [("b", 2.0), ("c", 3.0)] {
            chain.store.push("v", &array(&[number; 3])).unwrap();
            let snapshot = chain.store.snapshot().unwrap();
            snapshot.write_since(chain.path(name), chain.snapshots.last().unwrap()).unwrap();
            chain.snapshots.push(snapshot);
        }
        chain
    }

    /// Returns the canonical path of a file.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn read(&self, name: &str) -> Result<Snapshot> {
        Snapshot::read(backends(), self.path(name))
    }

    /// Checks that restoring `c` fails with a message that has all of `parts`, and that the store
    /// does not change.
    fn assert_rejected(&self, code: ErrorCode, parts: &[&str]) {
        let before = self.store.snapshot().unwrap();
        let error = self.store.restore(self.path("c")).unwrap_err();
        assert_error(&error, code, parts);
        assert!(self.store.snapshot().unwrap().is_identical(&before).unwrap());
    }

    fn name_of<'a>(&self, path: &'a Path) -> &'a str {
        assert!(path.starts_with(self.folder.path().canonicalize().unwrap()));
        path.to_str().unwrap()
    }
}

fn assert_error(error: &Error, code: ErrorCode, parts: &[&str]) {
    let text = error.chain();
    assert_eq!(error.code(), code, "{text}");
    for part in parts {
        assert!(text.contains(part), "expected {part}, found {text}");
    }
}

/// Returns a file with a changed header and manifest, with a valid checksum.
fn with_header(bytes: &[u8], change: impl FnOnce(&mut Json, &mut Json)) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
    let mut header: Json = serde_json::from_slice(header).unwrap();
    let text = header["__metadata__"]["kvstore"].as_str().unwrap();
    let mut manifest: Json = serde_json::from_str(text).unwrap();
    change(&mut header, &mut manifest);
    header["__metadata__"]["kvstore"] = manifest.to_string().into();
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    with_checksum([&length[..], header.as_bytes(), data].concat())
}

#[test]
fn a_missing_base_is_named_with_the_delta_that_needs_it() {
    for (missing, needed_by) in [("a", "b"), ("b", "c")] {
        let chain = Chain::new();
        fs::remove_file(chain.path(missing)).unwrap();
        let [missing, needed_by] = [missing, needed_by].map(|name| chain.path(name));
        let parts = [
            format!("{}: reading the base of ", missing.display()),
            needed_by.display().to_string(),
        ];
        chain.assert_rejected(ErrorCode::Io, &[&parts[0], &parts[1]]);
        // A folder in its place is no base, and neither is a pipe, whose other end never comes.
        fs::create_dir(&missing).unwrap();
        let parts = [chain.name_of(&missing), chain.name_of(&needed_by), "no regular file"];
        chain.assert_rejected(ErrorCode::Corrupt, &parts);
        #[cfg(unix)]
        {
            fs::remove_dir(&missing).unwrap();
            let made = std::process::Command::new("mkfifo").arg(&missing).status().unwrap();
            assert!(made.success());
            chain.assert_rejected(ErrorCode::Corrupt, &parts);
        }
    }
}

#[test]
fn an_exchanged_base_is_named_with_the_delta_that_needs_it() {
    for (exchanged, needed_by) in [("a", "b"), ("b", "c")] {
        let chain = Chain::new();
        let other = create("local").unwrap();
        other.init("w", &array(&[7.0; 100])).unwrap();
        other.init("v", &array(&[1.0; 3])).unwrap();
        let [path, needed_by] = [exchanged, needed_by].map(|name| chain.path(name));
        let expected = chain.snapshots[usize::from(exchanged == "b")].file().unwrap();
        let expected = format!(
            "expected the base of {} with {} bytes and checksum {:08x}, found ",
            needed_by.display(),
            expected.num_bytes(),
            expected.checksum()
        );
        let parts = [chain.name_of(&path), &expected];
        // A valid file of the same length, and others.
        other.snapshot().unwrap().write(&path).unwrap();
        chain.assert_rejected(ErrorCode::Corrupt, &parts);
        for bytes in [&b""[..], b"abc", &[0; 5000]] {
            fs::write(&path, bytes).unwrap();
            chain.assert_rejected(ErrorCode::Corrupt, &parts);
        }
    }
}

/// Only reading the entire base can detect bytes that changed before its checksum.
#[test]
fn every_damaged_byte_of_a_base_is_detected() {
    let chain = Chain::new();
    for (damaged, needed_by) in [("a", "b"), ("b", "c")] {
        let [path, needed_by] = [damaged, needed_by].map(|name| chain.path(name));
        let good = fs::read(&path).unwrap();
        let parts = [chain.name_of(&path), chain.name_of(&needed_by)];
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            chain.assert_rejected(ErrorCode::Corrupt, &parts);
        }
        fs::write(&path, &good).unwrap();
        chain.read("c").unwrap();
    }
}

/// Overwrites the manifest of a delta, so that it expects the present file `base` as its base.
fn set_base(delta: &Path, base: &Path, name: &str) {
    let base = fs::read(base).unwrap();
    let checksum = u32::from_le_bytes(*base.last_chunk().unwrap());
    let bytes = with_header(&fs::read(delta).unwrap(), |_, manifest| {
        manifest["base"] = json!({"file": name, "checksum": checksum, "num_bytes": base.len()});
    });
    fs::write(delta, bytes).unwrap();
}

/// The checksum of every file of a cycle.
const FORGED: u32 = 1_234_567_890;

/// Changes the last four bytes before the checksum, so that the checksum is [`FORGED`].
fn forge(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() - 4);
    let at = bytes.len() - 4;
    let checksum_with = |bytes: &mut [u8], word: u32| {
        bytes[at..].copy_from_slice(&word.to_le_bytes());
        crc32fast::hash(bytes)
    };
    // The difference that a bit of the word makes does not depend on the other bits. So this is a
    // system of linear equations.
    let zero = checksum_with(bytes, 0);
    let mut equations: Vec<(u32, u32)> =
        (0..32).map(|bit| (checksum_with(bytes, 1 << bit) ^ zero, 1 << bit)).collect();
    let (mut left, mut word) = (FORGED ^ zero, 0);
    for bit in 0..32 {
        let place = equations.iter().position(|(effect, _)| effect >> bit & 1 == 1).unwrap();
        let (effect, bits) = equations.swap_remove(place);
        for equation in equations.iter_mut().filter(|equation| equation.0 >> bit & 1 == 1) {
            *equation = (equation.0 ^ effect, equation.1 ^ bits);
        }
        if left >> bit & 1 == 1 {
            (left, word) = (left ^ effect, word ^ bits);
        }
    }
    assert_eq!((left, checksum_with(bytes, word)), (0, FORGED));
    bytes.extend(FORGED.to_le_bytes());
}

#[test]
fn a_cycle_of_bases_is_rejected() {
    let chain = Chain::new();
    let [b, c] = ["b", "c"].map(|name| chain.path(name));
    let good = fs::read(&c).unwrap();
    // All files get the same length and checksum, so each can be the base of each.
    let with_base = |name: &str, num_bytes: usize| {
        let base = json!({"file": name, "checksum": FORGED, "num_bytes": num_bytes});
        let mut bytes = with_header(&good, |_, manifest| manifest["base"] = base);
        forge(&mut bytes);
        bytes
    };
    let length = with_base("c", 999).len();
    assert!((100..1000).contains(&length));
    fs::write(&b, with_base("c", length)).unwrap();
    fs::write(&c, with_base("b", length)).unwrap();
    let parts = [chain.name_of(&b), "its base `c` is a delta that needs this file"];
    chain.assert_rejected(ErrorCode::Corrupt, &parts);
    // A file that is its own base, also through a symbolic link.
    fs::write(&c, with_base("c", length)).unwrap();
    let parts = [chain.name_of(&c), "its base `c` is a delta that needs this file"];
    chain.assert_rejected(ErrorCode::Corrupt, &parts);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("c", chain.path("d")).unwrap();
        fs::write(&c, with_base("d", length)).unwrap();
        let parts = [chain.name_of(&c), "its base `d` is a delta that needs this file"];
        chain.assert_rejected(ErrorCode::Corrupt, &parts);
    }
}

#[test]
fn a_chain_has_at_most_1000_deltas() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().canonicalize().unwrap().join(number.to_string());
    let store = create("local").unwrap();
    store.init("w", &array(&[1.0])).unwrap();
    let mut base = store.snapshot().unwrap();
    base.write(path(0)).unwrap();
    base.write_since(path(1), &base.clone()).unwrap();
    // Copies of this delta, with the right base each.
    for number in 2..=1001 {
        fs::copy(path(number - 1), path(number)).unwrap();
        set_base(&path(number), &path(number - 1), &(number - 1).to_string());
    }
    base = Snapshot::read(backends(), path(1000)).unwrap();
    assert_eq!(base.file().unwrap().chain().count(), 1001);
    assert!(base.is_identical(&store.snapshot().unwrap()).unwrap());
    let error = Snapshot::read(backends(), path(1001)).unwrap_err();
    let name = path(1001).display().to_string();
    assert_error(&error, ErrorCode::Corrupt, &[&name, "needs more than 1000 deltas"]);
    let error = store.checkpoint_since(path(2000), &base).unwrap_err();
    let parts = ["2000", "at most 1000 deltas: write a complete checkpoint"];
    assert_error(&error, ErrorCode::InvalidArgument, &parts);
    assert!(!path(2000).exists());
}

#[test]
fn a_delta_needs_a_base_in_a_file_of_its_folder() {
    let chain = Chain::new();
    let [a, b, c] = [0, 1, 2].map(|number| &chain.snapshots[number]);
    let elsewhere = tempfile::tempdir().unwrap();
    let never_written = chain.store.snapshot().unwrap();
    let other_folder = elsewhere.path().join("d");
    let no_folder = chain.path("none").join("d");
    let parts_of_a = [
        "a delta must be in the folder of its base",
        chain.name_of(&chain.path("a")).to_owned().leak() as &str,
    ];
    let cases: [(PathBuf, &Snapshot, &[&str]); 6] = [
        (chain.path("d"), &never_written, &["must be in a file"]),
        (other_folder, a, &parts_of_a),
        (no_folder, a, &parts_of_a),
        (chain.path("a"), a, &["a delta cannot replace a file that it needs"]),
        (chain.path("a"), c, &["a delta cannot replace a file that it needs"]),
        (chain.path("b"), c, &["a delta cannot replace a file that it needs"]),
    ];
    for (path, base, parts) in cases {
        let now = chain.store.snapshot().unwrap();
        let results = [
            now.write_since(&path, base),
            Checkpoint::begin_since(&now, &path, base).map(drop),
            chain.store.checkpoint_since(&path, base).map(drop),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert_error(
                &error,
                ErrorCode::InvalidArgument,
                &[parts, &[path.to_str().unwrap()]].concat(),
            );
        }
    }
    chain.read("c").unwrap();
    // A symbolic link does not hide the file.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("a", chain.path("link")).unwrap();
        let error = c.write_since(chain.path("link"), b).unwrap_err();
        assert_error(&error, ErrorCode::InvalidArgument, &["cannot replace"]);
    }
    // `b` does not need `c`, so a second branch may replace it.
    chain.store.push("v", &array(&[9.0; 3])).unwrap();
    let now = chain.store.snapshot().unwrap();
    now.write_since(chain.path("c"), b).unwrap();
    assert!(chain.read("c").unwrap().is_identical(&now).unwrap());
    assert!(!now.is_identical(c).unwrap());
}

#[test]
fn a_base_that_was_replaced_is_an_error_before_anything_is_written() {
    let chain = Chain::new();
    let (now, base) = (chain.store.snapshot().unwrap(), &chain.snapshots[1]);
    now.write(chain.path("b")).unwrap();
    let error = now.write_since(chain.path("d"), base).unwrap_err();
    let parts = [chain.path("b"), chain.path("d")].map(|path| path.display().to_string());
    assert_error(&error, ErrorCode::Corrupt, &[&parts[0], &parts[1], "expected the base"]);
    fs::remove_file(chain.path("b")).unwrap();
    let error = now.write_since(chain.path("d"), base).unwrap_err();
    assert_error(&error, ErrorCode::Io, &[&parts[0], &parts[1]]);
    assert!(!chain.path("d").exists());
}

#[test]
fn headers_of_deltas_are_checked() {
    type Change = fn(&mut Json, &mut Json);
    let base = fuzz::delta_base();
    let good = fuzz::deltas().swap_remove(0);
    Snapshot::from_delta_bytes(backends(), &good, base).unwrap();
    let cases: [(&str, Change); 14] = [
        ("its base `../a` is not the name of a file", |_, manifest| {
            manifest["base"]["file"] = json!("../a");
        }),
        ("its base `` is not the name of a file", |_, manifest| {
            manifest["base"]["file"] = json!("");
        }),
        ("its base `..` is not the name of a file", |_, manifest| {
            manifest["base"]["file"] = json!("..");
        }),
        ("unknown field `more`", |_, manifest| manifest["base"]["more"] = json!(1)),
        ("missing field `checksum`", |_, manifest| {
            drop(manifest["base"].as_object_mut().unwrap().remove("checksum"));
        }),
        ("expected checksum 00000007", |_, manifest| manifest["base"]["checksum"] = json!(7)),
        ("optimizer states, which have no base", |_, manifest| {
            manifest["content"] = json!("optimizer_states");
        }),
        ("`value/v` is missing, also in the base", |_, manifest| {
            manifest["keys"][1]["key"] = json!("v");
        }),
        ("tensor `value/half` of the base: expected [4] f16, found [3] f16", |_, manifest| {
            manifest["keys"][0]["shape"] = json!([4]);
            manifest["keys"][0]["state"] = json!(null);
        }),
        ("key `rows`: expected 4 rows, found 3", |_, manifest| {
            manifest["keys"][3]["num_rows"] = json!(4);
        }),
        ("`changed_rows/rows/rows` is missing", |header, _| {
            let rows = header.as_object_mut().unwrap().remove("changed_rows/rows/rows").unwrap();
            header["other"] = rows;
        }),
        ("`changed_rows/rows/rows`: expected [2, 3] f32, found [3, 2] f32", |header, _| {
            header["changed_rows/rows/rows"]["shape"] = json!([3, 2]);
        }),
        ("tensor `changed_row_indices/value/x` belongs to no key", |header, _| {
            let rows = header.as_object_mut().unwrap().remove("changed_rows/value/table").unwrap();
            header["changed_rows/value/x"] = rows;
            let indices =
                header.as_object_mut().unwrap().remove("changed_row_indices/value/table").unwrap();
            header["changed_row_indices/value/x"] = indices;
        }),
        ("`changed_row_indices/value/table`: expected [1] i64, found [1, 1] i64", |header, _| {
            header["changed_row_indices/value/table"]["shape"] = json!([1, 1]);
        }),
    ];
    for (cause, change) in cases {
        let bytes = with_header(&good, change);
        let error = Snapshot::from_delta_bytes(backends(), &bytes, base).unwrap_err();
        assert_error(&error, ErrorCode::Corrupt, &[cause]);
    }
    // The indices of changed rows come first, because their elements are the largest.
    let start = 8 + usize::try_from(u64::from_le_bytes(*good.first_chunk().unwrap())).unwrap();
    for (index, cause) in [(-1_i64, "out of range"), (1 << 40, "out of range")] {
        for at in [start, start + 8, start + 16] {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&index.to_le_bytes());
            let bytes = with_checksum(bytes);
            let error = Snapshot::from_delta_bytes(backends(), &bytes, base).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Corrupt);
            let text = error.to_string();
            assert!(text.contains(cause) || text.contains("strictly ascending"), "{text}");
        }
    }
}

#[test]
fn changed_deltas_are_read_or_rejected() {
    let files = [fuzz::deltas(), fuzz::checkpoints()].concat();
    for seed in 0..20_000 {
        fuzz::checkpoint(&changed(&files, seed));
    }
}

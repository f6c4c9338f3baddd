//! Checkpoints: after a restore, the next steps give the bits of an uninterrupted run.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::path::Path;

use kvstore::{
    Checkpoint, DType, ErrorCode, Key, LrScheduler, NDArray, Optimizer, OptimizerStates, RowSparse,
    Snapshot, Store, Warmup, backends, create,
};
use kvstore_tests::arrays::to_array;
use kvstore_tests::format::float_dtypes;
use kvstore_tests::samples::{nasty, tame};
use kvstore_tests::suite::{array, assert_code, floats, stored};
use kvstore_tests::value::Spec;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn value(dtype: DType, seed: u64) -> NDArray {
    to_array(&tame(Spec::new(&[3, 5], dtype), seed))
}

/// Returns every optimizer with each of its formulas, schedules and multipliers.
fn optimizers() -> Vec<Optimizer> {
    let mut all = Vec::new();
    for name in Optimizer::names() {
        let plain = Optimizer::new(name).unwrap();
        let has = |parameter: &str| plain.get(parameter).is_ok();
        let mut full = plain.clone().with("wd", 0.01).unwrap().with("clip_gradient", 5.5).unwrap();
        for (parameter, value) in [("momentum", 0.9), ("centered", 1.0), ("clip_weights", 3.0)] {
            if has(parameter) {
                full = full.with(parameter, value).unwrap();
            }
        }
        let warmup = |it: LrScheduler| it.with_warmup(2, 1e-4, Warmup::Linear).unwrap();
        let schedules = [
            LrScheduler::factor(2, 0.7).unwrap().with_stop(1e-5).unwrap(),
            LrScheduler::multi_factor(vec![2, 4], 0.3).unwrap(),
            warmup(LrScheduler::poly(9, 1.3, 1e-6).unwrap()),
            LrScheduler::cosine(7, 0.1 + 0.2).unwrap(),
        ];
        let schedule = schedules[all.len() / 2 % 4].clone();
        let full = full.with_scheduler(schedule).with_lr_multiplier(key("b"), 1.0 / 3.0).unwrap();
        all.extend([plain, full.with_wd_multiplier(key("a"), 0.1).unwrap()]);
    }
    all
}

/// Runs a step. Every third step first changes a hyper-parameter.
fn step(store: &Store, dtype: DType, number: u64) {
    if number == 3
        && store.optimizer().unwrap().is_some_and(|optimizer| optimizer.get("momentum").is_ok())
    {
        store.set_hyper_parameters(&[("momentum", 0.0)]).unwrap();
    }
    if number == 5 {
        store.set_hyper_parameters(&[("learning_rate", 0.003)]).unwrap();
    }
    let values = [value(dtype, number), value(dtype, 100 + number), value(dtype, 200 + number)];
    // Three values of one key and one of another.
    store.push(["a", "b", "a", "a"], [&values[..], &values[..1]].concat()).unwrap();
}

fn begin(optimizer: &Optimizer, dtype: DType, compression: Option<&str>) -> Store {
    let store = create("local").unwrap();
    store.init(["b", "a"], vec![value(dtype, 1), value(dtype, 2)]).unwrap();
    store.set_optimizer(optimizer.clone()).unwrap();
    if let Some(name) = compression {
        store.set_gradient_compression(name, 0.75).unwrap();
    }
    store
}

#[test]
fn every_optimizer_continues_with_the_same_bits() {
    let mut count = 0;
    for optimizer in optimizers() {
        for dtype in float_dtypes() {
            for compression in [None, Some("2bit"), Some("1bit")] {
                let uninterrupted = begin(&optimizer, dtype, compression);
                let mut resumed = begin(&optimizer, dtype, compression);
                for number in 0..7 {
                    step(&uninterrupted, dtype, number);
                    step(&resumed, dtype, number);
                    // The other store must get everything from these bytes.
                    let bytes = resumed.snapshot().unwrap().to_bytes().unwrap();
                    resumed = create("local").unwrap();
                    resumed.rollback(&Snapshot::from_bytes(backends(), &bytes).unwrap()).unwrap();
                }
                let (uninterrupted, resumed) =
                    (uninterrupted.snapshot().unwrap(), resumed.snapshot().unwrap());
                assert!(uninterrupted.is_identical(&resumed).unwrap(), "{optimizer:?} {dtype}");
                assert_eq!(uninterrupted.to_bytes().unwrap(), resumed.to_bytes().unwrap());
                assert_eq!(uninterrupted.changed_keys(&resumed).unwrap(), []);
                count += 1;
            }
        }
    }
    println!("{count} runs, each interrupted seven times");
}

#[test]
fn restored_states_continue_with_the_same_bits() {
    let folder = folder();
    let path = folder.path().join("states");
    for optimizer in optimizers() {
        for (dtype, dump) in float_dtypes().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            let store = begin(&optimizer, dtype, None);
            for number in 0..5 {
                step(&store, dtype, number);
            }
            store.save_optimizer_states(&path, dump).unwrap();
            let (before, then) = (store.snapshot().unwrap(), store.optimizer().unwrap());
            for number in 5..7 {
                step(&store, dtype, number);
            }
            let expected =
                ["a", "b"].map(|key| store.pull_new(key).unwrap()[0].to_bytes().unwrap());

            let other = create("device").unwrap();
            let values = ["b", "a"].map(|text| {
                NDArray::new(before.get(&key(text)).unwrap().unwrap().to_dense().unwrap())
            });
            other.init(["b", "a"], values.to_vec()).unwrap();
            // If the file does not contain the optimizer, it must be set first.
            other
                .set_optimizer(if dump { Optimizer::sgd() } else { then.clone().unwrap() })
                .unwrap();
            other.load_optimizer_states(&path).unwrap();
            assert_eq!(other.optimizer().unwrap(), then);
            for number in 5..7 {
                step(&other, dtype, number);
            }
            let found = ["a", "b"].map(|key| other.pull_new(key).unwrap()[0].to_bytes().unwrap());
            assert_eq!(found, expected, "{optimizer:?} {dtype} {dump}");
        }
    }
}

#[test]
fn every_dtype_shape_and_key_survives_a_round_trip() {
    let folder = folder();
    let path = folder.path().join("all");
    let store = create("local").unwrap();
    let mut seed = 0;
    for dtype in DType::ALL {
        for shape in [&[][..], &[1], &[3, 1, 5], &[2; 7], &[1000]] {
            seed += 1;
            let text = format!("{dtype} {shape:?}");
            store.init(text.as_str(), &to_array(&nasty(Spec::new(shape, dtype), seed))).unwrap();
        }
    }
    for text in ["", "checksum", "__metadata__", "value/x", "x", "state/0/x", "a\"b\\c\n", "é漢"]
    {
        store.init(text, &array(&[1.0])).unwrap();
    }
    store.checkpoint(&path).unwrap().wait().unwrap();
    let snapshot = Snapshot::read(backends(), &path).unwrap();
    assert!(snapshot.is_identical(&store.snapshot().unwrap()).unwrap());
    assert_eq!(snapshot.store_name(), "local");
    assert_eq!(snapshot.to_bytes().unwrap(), std::fs::read(&path).unwrap());
    let pieces = snapshot.to_pieces().unwrap();
    let mut joined = pieces.header;
    pieces.tensors.iter().for_each(|tensor| joined.extend(tensor.to_bytes().unwrap()));
    joined.extend(pieces.checksum);
    assert!(joined == snapshot.to_bytes().unwrap());
}

#[test]
fn row_sparse_values_stay_row_sparse() {
    let rows = |indices: &[i64], seed| {
        let value = to_array(&tame(Spec::new(&[indices.len(), 3], DType::F32), seed));
        RowSparse::new([1_000_000_000_000, 3], indices.to_vec(), value.tensor()).unwrap()
    };
    let store = create("local").unwrap();
    // The dense value would need terabytes.
    store.init(["some", "none"], vec![rows(&[1, 5, 999], 1), rows(&[], 2)]).unwrap();
    store.push("some", &rows(&[2, 5], 3)).unwrap();
    let before = store.snapshot().unwrap();
    // Two rows of three numbers, and their two indices.
    let stats = store.stats().unwrap();
    assert_eq!(stats[0].value_bytes, 2 * 3 * 4 + 2 * 8);
    assert_eq!(stats, before.stats().collect::<Vec<_>>());
    let read = Snapshot::from_bytes(backends(), &before.to_bytes().unwrap()).unwrap();
    assert!(read.is_identical(&before).unwrap());
    store.push("some", &rows(&[7], 4)).unwrap();
    assert_eq!(before.changed_keys(&store.snapshot().unwrap()).unwrap(), [key("some")]);
    store.rollback(&read).unwrap();
    let pulled = &store.pull_rows("some", &[[5, 1, 2]]).unwrap()[0];
    assert_eq!(pulled.indices(), [1, 2, 5]);
    assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
}

/// Lazy steps on some rows. The states of the other rows must be restored, too.
#[test]
fn lazy_steps_continue_with_the_same_bits() {
    for name in ["sgd", "adam", "adagrad", "ftrl"] {
        for dtype in float_dtypes() {
            let mut optimizer = Optimizer::new(name).unwrap();
            if name == "sgd" {
                optimizer.set("momentum", 0.9).unwrap();
            }
            let begin = || {
                let store = create("local").unwrap();
                store.set_optimizer(optimizer.clone()).unwrap();
                store.init("w", &to_array(&tame(Spec::new(&[9, 5], dtype), 1))).unwrap();
                store
            };
            let step = |store: &Store, number: u64| {
                let value = to_array(&tame(Spec::new(&[2, 5], dtype), number)).tensor();
                let rows = RowSparse::new([9, 5], vec![1 + number.cast_signed() % 3, 7], value);
                store.push("w", &rows.unwrap()).unwrap();
            };
            let (uninterrupted, mut resumed) = (begin(), begin());
            for number in 0..6 {
                step(&uninterrupted, number);
                step(&resumed, number);
                let bytes = resumed.snapshot().unwrap().to_bytes().unwrap();
                resumed = create("local").unwrap();
                resumed.rollback(&Snapshot::from_bytes(backends(), &bytes).unwrap()).unwrap();
            }
            let (uninterrupted, resumed) =
                (uninterrupted.snapshot().unwrap(), resumed.snapshot().unwrap());
            assert!(uninterrupted.is_identical(&resumed).unwrap(), "{name} {dtype}");
        }
    }
}

#[test]
fn a_checkpoint_has_the_contents_at_its_start() {
    let folder = folder();
    let path = folder.path().join("model");
    let store = create("local").unwrap();
    store.init("w", &array(&vec![1.0; 1 << 20])).unwrap();
    let checkpoint = store.checkpoint(&path).unwrap();
    // These pushes run while the file is written.
    for number in 2_u8..20 {
        store.push("w", &array(&vec![number.into(); 1 << 20])).unwrap();
    }
    let (num_bytes, mut last) = (checkpoint.progress().num_bytes(), 0);
    while !checkpoint.is_done() {
        let written = checkpoint.progress().num_bytes_written();
        assert!(last <= written && written <= num_bytes);
        last = written;
    }
    assert_eq!(checkpoint.progress().num_bytes_written(), num_bytes);
    assert_eq!(checkpoint.path(), path);
    checkpoint.wait().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), num_bytes);
    store.restore(&path).unwrap();
    assert_eq!(stored(&store, "w"), vec![1.0; 1 << 20]);
}

/// A large file takes longer to write than a small one that is started after it.
#[test]
fn the_checkpoint_started_last_stays_in_the_file() {
    let folder = folder();
    let path = folder.path().join("model");
    let link = folder.path().join("link");
    if cfg!(unix) {
        #[cfg(unix)]
        std::os::unix::fs::symlink(&path, &link).unwrap();
    }
    for number in 0_u8..10 {
        let begin = |number: u8, len: usize| {
            let store = create("local").unwrap();
            store.init("w", &array(&vec![number.into(); len])).unwrap();
            let path = if number.is_multiple_of(2) && cfg!(unix) { &link } else { &path };
            store.checkpoint(path).unwrap()
        };
        // The first writer takes longest, so without a queue its file would be the last.
        let writing = [begin(number, 1 << 21), begin(number + 1, 1000), begin(number + 2, 1)];
        for checkpoint in writing.into_iter().rev() {
            checkpoint.wait().unwrap();
        }
        let store = create("local").unwrap();
        store.restore(&path).unwrap();
        let found = stored(&store, "w");
        assert_eq!((found.len(), found[0]), (1, f32::from(number + 2)));
    }
}

#[test]
fn an_updater_is_not_in_the_file() {
    let folder = folder();
    let path = folder.path().join("model");
    let store = create("local").unwrap();
    store.init("w", &array(&[1.0])).unwrap();
    let add = |_: &Key, pushed: &NDArray, stored: &NDArray| Ok(stored.add_assign(pushed)?);
    store.set_updater(add).unwrap();
    store.checkpoint(&path).unwrap().wait().unwrap();
    let other = create("local").unwrap();
    other.init("v", &array(&[5.0])).unwrap();
    assert_code(other.restore(&path), ErrorCode::InvalidArgument);
    assert_eq!(other.keys().unwrap(), [key("v")]);
    other.set_updater(add).unwrap();
    other.restore(&path).unwrap();
    other.push("w", &array(&[2.0])).unwrap();
    assert_eq!(stored(&other, "w"), [3.0]);
    // A snapshot in memory contains it.
    let snapshot = store.snapshot().unwrap();
    store.clear_updater().unwrap();
    store.rollback(&snapshot).unwrap();
    store.push("w", &array(&[2.0])).unwrap();
    assert_eq!(stored(&store, "w"), [3.0]);
}

#[test]
fn states_that_do_not_fit_are_rejected() {
    let folder = folder();
    let (path, model) = (folder.path().join("states"), folder.path().join("model"));
    let store = begin(&Optimizer::new("adam").unwrap(), DType::F32, None);
    step(&store, DType::F32, 0);
    store.save_optimizer_states(&path, false).unwrap();
    store.checkpoint(&model).unwrap().wait().unwrap();
    let assert_rejected = |other: &Store, code| {
        let before = other.snapshot().unwrap();
        assert_code(other.load_optimizer_states(&path), code);
        assert!(other.snapshot().unwrap().is_identical(&before).unwrap());
    };
    let other = create("local").unwrap();
    assert_rejected(&other, ErrorCode::InvalidArgument);
    assert_code(other.save_optimizer_states(&path, true), ErrorCode::InvalidArgument);
    other.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    assert_rejected(&other, ErrorCode::KeyNotFound);
    assert_rejected(&begin(&Optimizer::sgd(), DType::F32, None), ErrorCode::InvalidArgument);
    assert_rejected(
        &begin(&Optimizer::new("adam").unwrap(), DType::F16, None),
        ErrorCode::SpecMismatch,
    );
    // A file of the other kind is rejected.
    assert_code(store.load_optimizer_states(&model), ErrorCode::Corrupt);
    assert_code(store.restore(&path), ErrorCode::Corrupt);
}

#[test]
fn errors_name_files_that_cannot_be_written_or_read() {
    let folder = folder();
    let store = create("local").unwrap();
    store.init("w", &array(&[1.0])).unwrap();
    let snapshot = store.snapshot().unwrap();
    let no_folder = folder.path().join("none").join("model");
    let mut places = vec![no_folder.as_path(), folder.path()];
    if cfg!(target_os = "linux") {
        // A device without space, and a folder in which no file can be created.
        places.extend([Path::new("/dev/full"), Path::new("/proc/model.checkpoint")]);
    }
    for path in places {
        let begun = Checkpoint::begin(&snapshot, path).unwrap();
        let error = begun.wait().unwrap_err();
        assert_eq!(error.code(), ErrorCode::Io, "{}", error.chain());
        assert!(error.chain().contains(path.to_str().unwrap()), "{}", error.chain());
    }
    let error = store.restore(&no_folder).unwrap_err();
    assert!(error.chain().contains(no_folder.to_str().unwrap()), "{}", error.chain());
    assert_eq!(floats(&store.pull_new("w").unwrap()[0]), [1.0]);
}

/// The longest string in a file, in bytes.
const MAX_TEXT_BYTES: usize = 65_536;

/// Checks that a store is saved and read with the same contents, or that all ways to save it are
/// rejected.
fn assert_saved(store: &Store, is_allowed: bool, what: &str) {
    let folder = folder();
    let path = folder.path().join("model");
    let snapshot = store.snapshot().unwrap();
    if is_allowed {
        let file = snapshot.to_bytes().unwrap();
        let read = Snapshot::from_bytes(backends(), &file).unwrap();
        assert!(read.is_identical(&snapshot).unwrap(), "{what}");
        snapshot.write(&path).unwrap();
        store.checkpoint(&path).unwrap().wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), file);
        return;
    }
    std::fs::write(&path, "before").unwrap();
    let results =
        [snapshot.to_bytes().map(drop), snapshot.write(&path), store.checkpoint(&path).map(drop)];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{what}");
        let said = error.to_string();
        assert!(said.contains("at most 65536") && said.len() < 400, "{said}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!((left.len(), &*std::fs::read(&path).unwrap()), (1, &b"before"[..]), "{what}");
}

/// Returns the length of a string in JSON, without its quotes.
fn json_length(text: &str) -> usize {
    serde_json::to_string(text).unwrap().len() - 2
}

/// Returns a string of these letters with this length in JSON. If they do not fill it, appends up
/// to five more letters.
fn of_length(letters: &[&str], length: usize) -> String {
    let mut text = String::new();
    let mut left = length;
    for letter in letters.iter().cycle() {
        let Some(rest) = left.checked_sub(json_length(letter)) else { break };
        text += letter;
        left = rest;
    }
    text + &"a".repeat(left)
}

#[test]
fn keys_are_saved_up_to_the_longest_that_can_be_read() {
    let alphabets: [&[&str]; 8] = [
        &["a"],
        &["\""],
        &["\\"],
        &["\n"],
        &["\u{1}"],
        &["\u{7f}", "\u{e9}", "\u{20ac}", "\u{1f600}"],
        &["\\", "\"", "\u{1f}", "x", "\u{1f600}", "\t"],
        &["\\u", "\\\"", "\\ud83d"],
    ];
    for letters in alphabets {
        for over in [0, 1, 2] {
            let key = of_length(letters, MAX_TEXT_BYTES - "value/".len() + over);
            assert_eq!(json_length(&format!("value/{key}")), MAX_TEXT_BYTES + over);
            let store = create("local").unwrap();
            store.init(&*key, &array(&[1.0])).unwrap();
            store.init("short", &array(&[1.0])).unwrap();
            assert_saved(&store, over == 0, &format!("{letters:?} and {over}"));
        }
    }
}

#[test]
fn every_name_made_of_a_key_respects_the_limit() {
    type Fill = fn(&Store, &str);
    let push: Fill = |store, key| {
        store.init(key, &array(&[1.0])).unwrap();
        store.push(key, &array(&[1.0])).unwrap();
    };
    let cases: [(&str, Fill); 4] = [
        ("row_indices/", |store, key| {
            let row = to_array(&tame(Spec::new(&[1, 1], DType::F32), 1)).tensor();
            store.init(key, &RowSparse::new([9, 1], vec![3], row).unwrap()).unwrap();
        }),
        ("state/0/", push),
        ("residual/0/", push),
        ("", |store, name| {
            let sgd = Optimizer::sgd().with_lr_multiplier(key(name), 0.5).unwrap();
            store.set_optimizer(sgd).unwrap();
        }),
    ];
    for (prefix, fill) in cases {
        for over in [0, 1] {
            let store = create("local").unwrap();
            match prefix {
                "state/0/" => {
                    let sgd = Optimizer::sgd().with("momentum", 0.9).unwrap();
                    store.set_optimizer(sgd).unwrap();
                }
                "residual/0/" => store.set_gradient_compression("2bit", 0.5).unwrap(),
                _ => {}
            }
            fill(&store, &of_length(&["\"", "\\"], MAX_TEXT_BYTES - prefix.len() + over));
            assert_saved(&store, over == 0, &format!("`{prefix}` and {over}"));
            if prefix == "state/0/" {
                let snapshot = store.snapshot().unwrap();
                for dump in [false, true] {
                    let states = snapshot.optimizer_states_to_bytes(dump);
                    let read = states.map(|bytes| OptimizerStates::from_bytes(backends(), &bytes));
                    match read {
                        Ok(read) => assert_eq!((read.unwrap().states.len(), over), (1, 0)),
                        Err(error) => {
                            assert_eq!((error.code(), over), (ErrorCode::InvalidArgument, 1));
                        }
                    }
                }
            }
        }
    }
}

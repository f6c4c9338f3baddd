//! Deltas: a restored chain has the bits of a complete checkpoint of the same moment.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fs;
use std::path::PathBuf;

use kvstore::{
    Checkpoint, DType, ErrorCode, Key, NDArray, Optimizer, RowSparse, Snapshot, Store, backends,
    create,
};
use kvstore_tests::arrays::to_array;
use kvstore_tests::model::Model;
use kvstore_tests::operations::program;
use kvstore_tests::replay::{compare_contents, run_watched};
use kvstore_tests::samples::tame;
use kvstore_tests::suite::{array, stored};
use kvstore_tests::value::Spec;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use safetensors::SafeTensors;
use tempfile::TempDir;

/// A folder with a complete checkpoint and the deltas since then.
struct Chain {
    folder: TempDir,
    /// The snapshot of each file.
    snapshots: Vec<Snapshot>,
}

impl Chain {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), snapshots: Vec::new() }
    }

    /// Returns the path of a file.
    fn path(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{number}.checkpoint"))
    }

    /// Writes the contents of the store: the first time completely, then the changes.
    fn add(&mut self, store: &Store) {
        let (path, snapshot) = (self.path(self.snapshots.len()), store.snapshot().unwrap());
        match self.snapshots.last() {
            None => snapshot.write(path).unwrap(),
            Some(base) => snapshot.write_since(path, base).unwrap(),
        }
        self.snapshots.push(snapshot);
    }

    fn read(&self, number: usize) -> Snapshot {
        Snapshot::read(backends(), self.path(number)).unwrap()
    }

    /// Checks that each file has the contents of its snapshot, and remembers its chain.
    fn check(&self) {
        for (number, snapshot) in self.snapshots.iter().enumerate() {
            let read = self.read(number);
            // A file does not contain the function of an updater.
            let is_identical = read.is_identical(snapshot).unwrap();
            assert!(is_identical || snapshot.has_updater(), "file {number}");
            assert_eq!(read.to_bytes().unwrap(), snapshot.to_bytes().unwrap(), "file {number}");
            assert_eq!(read.file(), snapshot.file());
            let chain: Vec<PathBuf> =
                read.file().unwrap().chain().map(|file| file.path().to_owned()).collect();
            let expected = (0..=number).rev().map(|link| self.path(link).canonicalize().unwrap());
            assert_eq!(chain, expected.collect::<Vec<_>>());
        }
    }

    /// Returns the names of the tensors in a file. Another library reads them.
    fn names(&self, number: usize) -> Vec<String> {
        let bytes = fs::read(self.path(number)).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let mut names: Vec<String> = tensors.names().into_iter().map(str::to_owned).collect();
        names.retain(|name| name != "checksum");
        names.sort();
        names
    }

    fn num_bytes(&self, number: usize) -> u64 {
        fs::metadata(self.path(number)).unwrap().len()
    }
}

fn rows(num_rows: usize, indices: &[i64], seed: u64) -> RowSparse {
    let rows = to_array(&tame(Spec::new(&[indices.len(), 3], DType::F32), seed)).tensor();
    RowSparse::new([num_rows, 3], indices, rows).unwrap()
}

fn dense(dims: &[usize], seed: u64) -> NDArray {
    to_array(&tame(Spec::new(dims, DType::F32), seed))
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// Random programs of all verbs, with a delta after every second call. Stores that continue
    /// from a read delta agree with the model.
    #[test]
    fn chains_of_random_programs_have_the_bits_of_complete_checkpoints(program in program()) {
        let (store, mut chain) = (create("local").unwrap(), Chain::new());
        let mut number = 0;
        let mut watch = |model: &Model| {
            number += 1;
            if number % 2 == 0 {
                return Ok(());
            }
            chain.add(&store);
            let restored = create("device").unwrap();
            // A file has no updater.
            if !chain.snapshots.last().unwrap().has_updater() {
                restored.restore(chain.path(chain.snapshots.len() - 1)).unwrap();
                compare_contents(&restored, model)?;
            }
            Ok(())
        };
        run_watched(Model::default(), &store, &program, &mut watch).map_err(TestCaseError::fail)?;
        chain.check();
    }

    /// Row-sparse values, whose rows are added, changed and removed.
    #[test]
    fn chains_of_row_sparse_values_have_the_bits_of_complete_checkpoints(
        pushes in vec((btree_set(0_i64..20, 0..6), 0_u8..4), 1..8),
        is_assigned in any::<bool>(),
    ) {
        let (store, mut chain) = (create("local").unwrap(), Chain::new());
        store.init("w", &rows(20, &[2, 3, 11], 1)).unwrap();
        if !is_assigned {
            store.set_optimizer(Optimizer::sgd()).unwrap();
        }
        chain.add(&store);
        for (seed, (indices, kind)) in (2..).zip(pushes) {
            let indices: Vec<i64> = indices.into_iter().collect();
            match kind {
                0 => {
                    store.remove("w").unwrap();
                    store.init("w", &rows(20, &indices, seed)).unwrap();
                }
                1 => store.init("w2", &rows(30, &indices, seed)).unwrap_or_default(),
                _ => store.push("w", &rows(20, &indices, seed)).unwrap(),
            }
            chain.add(&store);
        }
        chain.check();
    }
}

#[test]
fn every_optimizer_continues_from_a_chain_with_the_same_bits() {
    for name in Optimizer::names() {
        for dtype in [DType::F32, DType::F16, DType::F64] {
            let value = |seed| to_array(&tame(Spec::new(&[4, 5], dtype), seed));
            let (store, mut chain) = (create("local").unwrap(), Chain::new());
            store.set_optimizer(Optimizer::new(name).unwrap()).unwrap();
            store.set_gradient_compression("2bit", 0.5).unwrap();
            store.init(["a", "b"], vec![value(1), value(2)]).unwrap();
            for seed in 3..7 {
                store.push("a", &value(seed)).unwrap();
                chain.add(&store);
                if seed == 4 {
                    let parameters = [("learning_rate", 0.5), ("wd", 0.25)];
                    store.set_hyper_parameters(&parameters).unwrap();
                }
            }
            chain.check();
            let restored = create("local").unwrap();
            restored.restore(chain.path(3)).unwrap();
            for store in [&store, &restored] {
                store.push(["a", "b"], vec![value(8), value(9)]).unwrap();
            }
            let [left, right] = [&store, &restored].map(|store| store.snapshot().unwrap());
            assert!(left.is_identical(&right).unwrap(), "{name} {dtype}");
        }
    }
}

#[test]
fn a_delta_has_only_the_changes() {
    let (store, mut chain) = (create("local").unwrap(), Chain::new());
    store.init("table", &dense(&[1000, 8], 1)).unwrap();
    store.init("bias", &dense(&[5], 2)).unwrap();
    store.init("scalar", &dense(&[], 3)).unwrap();
    store.init("sparse", &rows(1_000_000, &[1, 5, 900], 4)).unwrap();
    store.set_optimizer(Optimizer::sgd().with("momentum", 0.9).unwrap()).unwrap();
    chain.add(&store);
    // Nothing has changed.
    chain.add(&store);
    assert_eq!(chain.names(1), [""; 0]);

    // Two of 1000 rows of the value. Its momentum is new.
    let table_rows = RowSparse::new([1000, 8], vec![3, 999], dense(&[2, 8], 5).tensor()).unwrap();
    store.push("table", &table_rows).unwrap();
    chain.add(&store);
    let changed_rows = ["changed_row_indices/value/table", "changed_rows/value/table"];
    assert_eq!(chain.names(2), [changed_rows[0], changed_rows[1], "state/0/table"]);
    let bytes = fs::read(chain.path(2)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let indices = tensors.tensor(changed_rows[0]).unwrap();
    assert_eq!(indices.data(), [3_i64.to_le_bytes(), 999_i64.to_le_bytes()].concat());
    assert_eq!(tensors.tensor(changed_rows[1]).unwrap().shape(), [2, 8]);

    store.push("table", &table_rows).unwrap();
    chain.add(&store);
    let changed_state = ["changed_row_indices/state/0/table", "changed_rows/state/0/table"];
    let mut expected = [changed_rows, changed_state].concat();
    expected.sort_unstable();
    assert_eq!(chain.names(3), expected);
    assert!(chain.num_bytes(3) < 5000, "{}", chain.num_bytes(3));

    // Small tensors are complete.
    store.push(["bias", "scalar"], vec![array(&[1.0; 5]), dense(&[], 9)]).unwrap();
    chain.add(&store);
    assert_eq!(chain.names(4), ["state/0/bias", "state/0/scalar", "value/bias", "value/scalar"]);
    chain.check();

    // The same bits in other memory are no change.
    let copy = create("local").unwrap();
    copy.rollback(
        &Snapshot::from_bytes(backends(), &store.snapshot().unwrap().to_bytes().unwrap()).unwrap(),
    )
    .unwrap();
    chain.add(&copy);
    assert_eq!(chain.names(5), [""; 0]);
    // Keys that are removed, added, or initialised again with another shape or form.
    store.remove(["bias", "sparse", "table"]).unwrap();
    store.init("sparse", &dense(&[3, 3], 10)).unwrap();
    store.init("table", &rows(1000, &[1], 11)).unwrap();
    store.init("new", &dense(&[2], 12)).unwrap();
    chain.add(&store);
    let expected = ["row_indices/table", "rows/table", "value/new", "value/sparse"];
    assert_eq!(chain.names(6), expected);
    chain.check();
}

#[test]
fn added_rows_of_a_row_sparse_value_are_changes() {
    let (store, mut chain) = (create("local").unwrap(), Chain::new());
    let indices: Vec<i64> = (0..500).map(|row| 3 * row).collect();
    store.init("w", &rows(1 << 40, &indices, 1)).unwrap();
    store.set_optimizer(Optimizer::sgd()).unwrap();
    chain.add(&store);
    let mut more = indices.clone();
    more.extend([4, 5, 1 << 39]);
    more.sort_unstable();
    store.remove("w").unwrap();
    // The rows that were there keep their bits, except row 3.
    let old = chain.snapshots[0].get(&Key::new("w").unwrap()).unwrap().unwrap();
    let old_numbers = old.rows().unwrap().rows().to_vec::<f32>().unwrap();
    let mut numbers = Vec::new();
    for index in &more {
        match indices.binary_search(index) {
            Ok(place) if *index != 3 => numbers.extend(&old_numbers[3 * place..3 * place + 3]),
            _ => numbers.extend([0.5, 1.5, 2.5]),
        }
    }
    let tensor = array(&numbers).tensor().view(0, [more.len(), 3].into()).unwrap();
    store.init("w", &RowSparse::new([1 << 40, 3], more.clone(), tensor).unwrap()).unwrap();
    chain.add(&store);
    assert_eq!(chain.names(1), ["changed_row_indices/rows/w", "changed_rows/rows/w"]);
    let bytes = fs::read(chain.path(1)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let found = tensors.tensor("changed_row_indices/rows/w").unwrap();
    let expected = [3_i64, 4, 5, 1 << 39].map(i64::to_le_bytes).concat();
    assert_eq!(found.data(), expected);
    chain.check();
}

/// Values that are compared in several steps: 16 MiB at once, then 4 KiB, then a row.
#[test]
fn changes_of_large_values_are_found() {
    const NUM_ROWS: usize = (1 << 21) + 5;
    let numbers = |len: usize, changed: &[usize]| {
        let mut numbers: Vec<f32> = (0_u16..1000).map(f32::from).cycle().take(len).collect();
        for at in changed {
            numbers[*at] = -1.0;
        }
        numbers
    };
    // Rows of 12 bytes: the first step ends after row 1398101.
    let rows = [0, 340, 341, 342, 1_398_100, 1_398_101, 1_398_102, NUM_ROWS - 1];
    let changed: Vec<usize> = rows.iter().map(|row| 3 * row + 1).collect();
    let table = |changed: &[usize]| {
        let numbers = array(&numbers(3 * NUM_ROWS, changed)).tensor();
        numbers.view(0, [NUM_ROWS, 3].into()).unwrap()
    };
    let (store, mut chain) = (create("local").unwrap(), Chain::new());
    let all: Vec<i64> = (0..).map(|row: i64| 2 * row).take(NUM_ROWS).collect();
    // The base lacks some of the rows of the sparse value: also the first and the last one.
    let is_new = |row: &usize| [0, 7, 1_398_101, NUM_ROWS - 1].contains(row);
    let old: Vec<usize> = (0..NUM_ROWS).filter(|row| !is_new(row)).collect();
    let old_numbers = numbers(3 * NUM_ROWS, &[]);
    let old_numbers: Vec<f32> =
        old.iter().flat_map(|row| old_numbers[3 * row..3 * row + 3].to_owned()).collect();
    let old_rows = array(&old_numbers).tensor().view(0, [old.len(), 3].into()).unwrap();
    let old_indices: Vec<i64> = old.iter().map(|row| all[*row]).collect();
    store.init("dense", &NDArray::new(table(&[]))).unwrap();
    store.init("sparse", &RowSparse::new([1 << 40, 3], old_indices, old_rows).unwrap()).unwrap();
    chain.add(&store);
    store.remove("sparse").unwrap();
    store.push("dense", &NDArray::new(table(&changed))).unwrap();
    store.init("sparse", &RowSparse::new([1 << 40, 3], all, table(&changed)).unwrap()).unwrap();
    chain.add(&store);
    let bytes = fs::read(chain.path(1)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let indices = |name: &str| -> Vec<usize> {
        let indices = tensors.tensor(name).unwrap();
        let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        indices.data().chunks(8).map(|bytes| number(bytes).try_into().unwrap()).collect()
    };
    assert_eq!(indices("changed_row_indices/value/dense"), rows);
    let mut expected: Vec<usize> = [&rows[..], &[7]].concat();
    expected.sort_unstable();
    let found = indices("changed_row_indices/rows/sparse");
    assert_eq!(found, expected.iter().map(|row| 2 * row).collect::<Vec<_>>());
    chain.check();
}

#[test]
fn a_background_delta_has_the_contents_at_its_start() {
    let (store, folder) = (create("local").unwrap(), tempfile::tempdir().unwrap());
    let path = |name| folder.path().join(name);
    store.init("w", &array(&vec![1.0; 1 << 20])).unwrap();
    store.init("v", &array(&[1.0])).unwrap();
    let base = store.snapshot().unwrap();
    assert_eq!(base.file(), None);
    // The second call waits for the first file.
    let complete = Checkpoint::begin(&base, path("base")).unwrap();
    store.push("v", &array(&[2.0])).unwrap();
    let delta = store.checkpoint_since(path("delta"), &base).unwrap();
    assert!(complete.is_done());
    store.push(["w", "v"], vec![array(&vec![3.0; 1 << 20]), array(&[3.0])]).unwrap();
    let progress = delta.progress().clone();
    delta.wait().unwrap();
    complete.wait().unwrap();
    let num_bytes = fs::metadata(path("delta")).unwrap().len();
    assert!(num_bytes < 2000, "{num_bytes}");
    assert_eq!((progress.num_bytes(), progress.num_bytes_written()), (num_bytes, num_bytes));
    store.restore(path("delta")).unwrap();
    assert_eq!(stored(&store, "v"), [2.0]);
    assert_eq!(stored(&store, "w"), vec![1.0; 1 << 20]);
}

/// A store that continues from a read delta writes the next one.
#[test]
fn a_chain_continues_after_a_restart() {
    let mut chain = Chain::new();
    for number in 0..4_u8 {
        let store = create("local").unwrap();
        match number.checked_sub(1) {
            None => store.init("w", &dense(&[100, 3], 1)).unwrap(),
            Some(last) => {
                let base = chain.read(last.into());
                store.rollback(&base).unwrap();
                *chain.snapshots.last_mut().unwrap() = base;
            }
        }
        store.push("w", &rows(100, &[number.into()], 7)).unwrap();
        chain.add(&store);
    }
    assert!(chain.num_bytes(3) < 1000);
    chain.check();
    // The files can be moved together, and the delta can be reached by a symbolic link.
    let moved = tempfile::tempdir().unwrap();
    for number in 0..4 {
        let path = chain.path(number);
        fs::rename(&path, moved.path().join(path.file_name().unwrap())).unwrap();
    }
    let mut newest = moved.path().join("3.checkpoint");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&newest, chain.folder.path().join("latest")).unwrap();
        newest = chain.folder.path().join("latest");
    }
    let read = Snapshot::read(backends(), newest).unwrap();
    assert!(read.is_identical(chain.snapshots.last().unwrap()).unwrap());
}

#[test]
fn a_complete_checkpoint_has_no_base_and_bytes_of_a_delta_need_one() {
    let (store, mut chain) = (create("local").unwrap(), Chain::new());
    store.init("w", &array(&[1.0])).unwrap();
    chain.add(&store);
    chain.add(&store);
    let [complete, delta] = [0, 1].map(|number| fs::read(chain.path(number)).unwrap());
    assert_eq!(chain.snapshots[1].to_bytes().unwrap(), complete, "a complete file is the same");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(!text(&complete).contains("base") && text(&delta).contains("0.checkpoint"));
    let base = Snapshot::from_bytes(backends(), &complete).unwrap();
    let read = Snapshot::from_delta_bytes(backends(), &delta, &base).unwrap();
    assert!(read.is_identical(&base).unwrap());
    assert_eq!(read.file(), None);
    let other = create("local").unwrap().snapshot().unwrap();
    for (result, cause) in [
        (Snapshot::from_bytes(backends(), &delta), "its base `0.checkpoint` is missing"),
        (Snapshot::from_delta_bytes(backends(), &complete, &base), "it is complete, not a delta"),
        (Snapshot::from_delta_bytes(backends(), &delta, &read), "expected checksum"),
        (Snapshot::from_delta_bytes(backends(), &delta, &other), "found no file"),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Corrupt);
        assert!(error.to_string().contains(cause), "expected {cause}, found {error}");
    }
}

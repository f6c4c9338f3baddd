//! Checks that a fuzzer runs on arbitrary bytes, and the files that it starts with. The tests run
//! the same checks on changed files.

use std::sync::LazyLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kvstore::{
    ArrayList, DType, Device, Error, ErrorCode, Key, LrScheduler, NDArray, Optimizer,
    OptimizerStates, Result, RowSparse, Snapshot, Store, Tensor, backends,
};
use kvstore_core::{KvStore, LocalStore};
use safetensors::SafeTensors;
use serde_json::Value as Json;

use crate::arrays::to_array;
use crate::json::{list, text};
use crate::recorded;
use crate::samples::{tame, words};
use crate::value::Spec;

/// The number of bytes before the first array of a file.
pub const LIST_HEADER: usize = 24;

/// Returns the recorded files of arrays: name, bytes and the arrays as JSON.
pub fn recorded_files() -> Vec<(String, Vec<u8>, Json)> {
    let file = recorded::load_file();
    let decoded = |case: &Json| {
        let bytes = BASE64_STANDARD.decode(text(&case["base64"])).expect("base64");
        (text(&case["name"]).to_owned(), bytes, case["expect"].clone())
    };
    list(&file["ndarray_files"]).iter().map(decoded).collect()
}

/// Checks these bytes as a file of arrays. Either the file is rejected, or its arrays use no more
/// memory than the file may request, and are the same after they are written and read again.
pub fn array_file(bytes: &[u8]) {
    let read = match ArrayList::from_bytes(backends(), bytes) {
        Ok(read) => read,
        Err(error) => return assert_rejection(&error),
    };
    assert_modest(read.arrays(), bytes);
    let file = file_of(&read);
    let again = ArrayList::from_bytes(backends(), &file).expect("a file of ours");
    assert_eq!(again.names(), read.names());
    assert_eq!(again.arrays().len(), read.arrays().len());
    for (array, again) in read.arrays().iter().zip(again.arrays()) {
        assert_same(array, again);
    }
    assert_eq!(file_of(&again), file);
}

/// Checks these bytes as a single array without a file header.
pub fn record(bytes: &[u8]) {
    let read = match NDArray::deserialize(backends(), bytes) {
        Ok(read) => read,
        Err(error) => return assert_rejection(&error),
    };
    assert_modest(std::slice::from_ref(&read), bytes);
    let record = read.serialize().expect("memory for a small array");
    let again = NDArray::deserialize(backends(), &record).expect("an array of ours");
    assert_same(&read, &again);
}

/// Checks these bytes as a checkpoint, as a delta and as a file of optimizer states. Either the
/// file is rejected, or its contents are the same after they are written and read again. Random
/// bytes rarely end with a valid checksum, so the bytes are also checked with a valid one.
pub fn checkpoint(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), with_checksum(bytes.to_vec())] {
        if let Some(read) = read_or_rejected(Snapshot::from_bytes(backends(), &bytes)) {
            SafeTensors::deserialize(&bytes).expect("what the format's own library reads");
            let file = read.to_bytes().expect("few keys");
            let again = Snapshot::from_bytes(backends(), &file).expect("a file of ours");
            assert!(again.is_identical(&read).expect("memory of the host"));
            assert_eq!(again.to_bytes().expect("few keys"), file);
        }
        let base = delta_base();
        if let Some(read) = read_or_rejected(Snapshot::from_delta_bytes(backends(), &bytes, base)) {
            SafeTensors::deserialize(&bytes).expect("what the format's own library reads");
            let file = read.to_bytes().expect("few keys");
            let again = Snapshot::from_bytes(backends(), &file).expect("a file of ours");
            assert!(again.is_identical(&read).expect("memory of the host"));
        }
        if let Some(read) = read_or_rejected(OptimizerStates::from_bytes(backends(), &bytes)) {
            SafeTensors::deserialize(&bytes).expect("what the format's own library reads");
            give_back(read);
        }
    }
}

fn read_or_rejected<T>(read: Result<T>) -> Option<T> {
    read.inspect_err(|error| assert_eq!(error.code(), ErrorCode::Corrupt, "{}", error.chain())).ok()
}

/// Loads states into a store, which may reject states of unknown keys.
fn give_back(read: OptimizerStates) {
    let filled = filled().and_then(|store| store.snapshot()).expect("all of it is allowed");
    let store = LocalStore::new("local", backends().clone()).expect("a known name");
    store.rollback(&filled).expect("no updater runs");
    let before = store.snapshot().expect("no updater runs");
    let OptimizerStates { optimizer, states } = read;
    let is_given = store.set_optimizer_states(optimizer, states);
    let after = store.snapshot().expect("no updater runs");
    assert!(is_given.is_ok() || after.is_identical(&before).expect("memory of the host"));
}

/// Returns valid files: a small checkpoint with every kind of content, a checkpoint of an empty
/// store, and files of states with and without the optimizer.
pub fn checkpoints() -> Vec<Vec<u8>> {
    let bytes_of = |store: &Store| {
        store.snapshot().and_then(|snapshot| snapshot.to_bytes()).expect("few keys")
    };
    let empty = kvstore::create("local").expect("a store of this machine");
    let store = filled().expect("all of it is allowed");
    let states = [false, true].map(|dump| {
        let snapshot = store.snapshot().expect("no updater runs");
        snapshot.optimizer_states_to_bytes(dump).expect("it has an optimizer")
    });
    [vec![bytes_of(&store), bytes_of(&empty)], states.into()].concat()
}

/// Returns the base of [`deltas`].
pub fn delta_base() -> &'static Snapshot {
    static BASE: LazyLock<Snapshot> = LazyLock::new(|| {
        let store = filled_with_table().expect("all of it is allowed");
        let bytes = store.snapshot().and_then(|snapshot| snapshot.to_bytes()).expect("few keys");
        Snapshot::from_bytes(backends(), &bytes).expect("a file of ours")
    });
    &BASE
}

/// Returns valid deltas of [`delta_base`]: one with changed rows of each kind of tensor, and one
/// without changes.
pub fn deltas() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name| folder.path().join(name);
    let store = filled_with_table().expect("all of it is allowed");
    let base = store.snapshot().expect("no updater runs");
    base.write(path("base")).expect("room for it");
    let delta = |name| {
        let snapshot = store.snapshot().expect("no updater runs");
        snapshot.write_since(path(name), &base).expect("room for it");
        std::fs::read(path(name)).expect("a file")
    };
    let unchanged = delta("unchanged");
    change_rows(&store).expect("all of it is allowed");
    Vec::from([delta("changed"), unchanged])
}

/// Returns [`filled`] with a table, of which a delta has some rows.
fn filled_with_table() -> Result<Store> {
    let store = filled()?;
    let table = |seed| to_array(&tame(Spec::new(&[6, 4], DType::F32), seed));
    store.init("table", &table(6))?;
    store.push("table", &table(7))?;
    Ok(store)
}

/// Changes one row of the table. Changes one row of the row-sparse value and adds another one.
fn change_rows(store: &Store) -> Result<()> {
    store.clear_gradient_compression()?;
    let rows = |dims: [usize; 2], seed| to_array(&tame(Spec::new(&dims, DType::F32), seed));
    store.push("table", &RowSparse::new([6, 4], vec![2], rows([1, 4], 8).tensor())?)?;
    let mut numbers = rows([2, 3], 5).to_vec::<f32>()?;
    numbers.truncate(3);
    numbers.extend(rows([2, 3], 9).to_vec::<f32>()?);
    let three = Tensor::from_slice(backends(), Device::cpu(0), [3, 3], &numbers)?;
    store.remove("rows")?;
    store.init("rows", &RowSparse::new([9, 3], vec![1, 3, 5], three)?)
}

/// Returns a small store with every kind of content.
fn filled() -> Result<Store> {
    let store = kvstore::create("local")?;
    let adam = Optimizer::new("adam")?.with_lr_multiplier(Key::new("w")?, 0.5)?;
    let adam = adam.with_scheduler(LrScheduler::factor(2, 0.5)?);
    store.set_optimizer(adam.with("learning_rate", 0.1)?)?;
    store.set_gradient_compression("2bit", 0.5)?;
    store.init("half", &to_array(&tame(Spec::new(&[3], DType::F16), 1)))?;
    store.init("w", &to_array(&tame(Spec::new(&[2], DType::F32), 2)))?;
    store.push("w", &to_array(&tame(Spec::new(&[2], DType::F32), 3)))?;
    store.push("half", &to_array(&tame(Spec::new(&[3], DType::F16), 4)))?;
    let two = to_array(&tame(Spec::new(&[2, 3], DType::F32), 5)).tensor();
    store.init("rows", &RowSparse::new([9, 3], vec![1, 3], two)?)?;
    Ok(store)
}

/// Returns the bytes with the last four replaced by the checksum of the others.
pub fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len().saturating_sub(4));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn assert_rejection(error: &Error) {
    let code = error.code();
    assert!(matches!(code, ErrorCode::Corrupt | ErrorCode::Unsupported), "{code}: {error}");
}

fn assert_modest(arrays: &[NDArray], bytes: &[u8]) {
    let held: usize = arrays.iter().map(|array| array.tensor().num_bytes()).sum();
    assert!(held <= 1024 * bytes.len(), "{held} bytes from {}", bytes.len());
}

/// Checks that the arrays are the same bit for bit. An array without axes is read with one axis.
fn assert_same(array: &NDArray, again: &NDArray) {
    let shape = array.shape();
    let dims = if shape.dims().is_empty() { &[1][..] } else { shape.dims() };
    assert_eq!((again.dtype(), again.shape().dims()), (array.dtype(), dims));
    let bytes = |array: &NDArray| array.to_bytes().expect("an array can be read");
    assert_eq!(bytes(again), bytes(array));
}

/// Returns these arrays as a file. The store itself can only write to a folder.
fn file_of(read: &ArrayList) -> Vec<u8> {
    let number = |count: usize| (count as u64).to_le_bytes();
    let mut file = [0x112u64.to_le_bytes(), [0; 8], number(read.arrays().len())].concat();
    for array in read.arrays() {
        file.extend(array.serialize().expect("memory for a small array"));
    }
    file.extend(number(read.names().len()));
    for name in read.names() {
        file.extend(number(name.len()));
        file.extend(name.as_bytes());
    }
    file
}

/// Numbers that often break sizes, codes and positions.
const EDGES: [i64; 12] =
    [0, 1, -1, 2, 3, 4, 255, 1 << 16, i32::MAX as i64, 1 << 32, i64::MAX, i64::MIN];

/// Returns one of the files with one to four changes, or random bytes. The same seed gives the same
/// bytes.
pub fn changed(files: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut words = words(seed).map(|word| usize::try_from(word >> 32).expect("32 bits"));
    let mut below = |limit: usize| words.next().expect("words never end") % limit.max(1);
    let mut bytes = files[below(files.len())].clone();
    for _ in 0..=below(4) {
        let at = below(bytes.len());
        // Sizes are at multiples of four.
        let word = at / 4 * 4;
        match below(6) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(8)),
            1 => replace(&mut bytes, word, &EDGES[below(EDGES.len())].to_le_bytes()[..4]),
            2 => replace(&mut bytes, word, &EDGES[below(EDGES.len())].to_le_bytes()),
            3 => drop(bytes.drain(word..(word + 4 * below(8)).min(bytes.len()))),
            4 => {
                let other = &files[below(files.len())];
                let from = below(other.len()) / 4 * 4;
                let piece = &other[from..(from + 4 * below(24)).min(other.len())];
                drop(bytes.splice(word..word, piece.iter().copied()));
            }
            _ => bytes.iter_mut().skip(at).take(below(64)).for_each(|byte| {
                *byte = u8::try_from(below(256)).expect("a byte");
            }),
        }
    }
    bytes
}

/// Overwrites the bytes from `at` on with a number. Cuts the number off at the end of the bytes.
fn replace(bytes: &mut [u8], at: usize, number: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(number) {
        *byte = *new;
    }
}

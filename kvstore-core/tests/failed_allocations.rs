//! A failed allocation returns an error. It neither aborts the process nor changes a store.
//!
//! Each case runs in a child process, so that an abort names its case. The file has one test,
//! because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(unsafe_code, reason = "an allocator is one")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::process::Command;
use std::ptr::null_mut;

use kvstore_core::{
    ArrayList, Backends, BinaryOp, BoxError, Compression, CpuBackend, DType, Device, ErrorCode,
    Existing, Key, KvStore, LocalStore, NDArray, Optimizer, OptimizerState, Range, Reduction,
    Result, RowSparse, Scalar, Snapshot, Tensor, UnaryOp, Value,
};

#[path = "failed_allocations/many_values.rs"]
mod many_values;

/// Only allocations of at least this size fail. Smaller ones do not depend on the size of the
/// arrays.
const LONG: usize = 64 << 10;

/// The elements of the arrays of these cases.
const LEN: usize = 100_000;

thread_local! {
    /// The number of long allocations that still succeed; all do if negative.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
    /// Whether exactly one allocation fails.
    static ONCE: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, which fails on request.
struct FailingAllocator;

impl FailingAllocator {
    fn fails(num_bytes: usize) -> bool {
        if num_bytes < LONG || LEFT.get() < 0 {
            return false;
        }
        if LEFT.get() > 0 {
            LEFT.set(LEFT.get() - 1);
            return false;
        }
        if ONCE.get() {
            LEFT.set(-1);
        }
        HAS_FAILED.set(true);
        true
    }
}

// SAFETY: forwards to the system's allocator, or returns null.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::fails(layout.size()) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if Self::fails(size) {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// The call whose allocations may fail.
type Call = Box<dyn FnOnce() -> Result<()>>;
type Case = (&'static str, Box<dyn Fn() -> Call>);

fn backends() -> Backends {
    // Failures are per thread, so the work must stay in this thread.
    Backends::new(vec![CpuBackend::with_threads(1)])
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn tensor() -> Tensor {
    let numbers: Vec<f32> = (0..LEN).map(|number| (number % 97) as f32).collect();
    Tensor::from_slice(&backends(), Device::cpu(0), [LEN / 4, 4], &numbers).unwrap()
}

fn rows() -> RowSparse {
    let indices: Vec<i64> = (0..LEN / 4).map(|row| 3 * i64::try_from(row).unwrap()).collect();
    RowSparse::new([LEN, 4], indices, tensor()).unwrap()
}

fn key() -> [Key; 1] {
    [Key::new("w").unwrap()]
}

fn store(value: impl Into<Value>) -> LocalStore {
    let store = LocalStore::new("local", backends()).unwrap();
    store.init(&key(), &[value.into()]).unwrap();
    store
}

/// Returns a case that changes no store.
fn plain<T, R>(
    name: &'static str,
    prepare: impl Fn() -> T + 'static,
    call: impl Fn(T) -> Result<R> + Clone + 'static,
) -> Case
where
    T: 'static,
{
    let prepare = move || -> Call {
        let (given, call) = (prepare(), call.clone());
        Box::new(move || call(given).map(drop))
    };
    (name, Box::new(prepare))
}

/// Returns a case whose failed call must leave the store unchanged.
fn change(
    name: &'static str,
    prepare: impl Fn() -> (LocalStore, Vec<Value>) + 'static,
    call: impl Fn(&LocalStore, &[Value]) -> Result<()> + Clone + 'static,
) -> Case {
    let prepare = move || -> Call {
        let ((store, values), call) = (prepare(), call.clone());
        let before = store.snapshot().unwrap();
        Box::new(move || {
            let done = call(&store, &values);
            let left = LEFT.replace(-1);
            if done.is_err() {
                assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
            }
            LEFT.set(left);
            done
        })
    };
    (name, Box::new(prepare))
}

fn reading_cases() -> Vec<Case> {
    vec![
        plain("Tensor::to_vec", tensor, |it| it.to_vec::<f32>()),
        plain("Tensor::read_as", tensor, |it| it.read_as::<f64>()),
        plain("Tensor::to_bytes", tensor, |it| it.to_bytes()),
        plain("NDArray::to_vec", || NDArray::new(tensor()), |it| it.to_vec::<f32>()),
        plain("NDArray::serialize", || NDArray::new(tensor()), |it| it.serialize()),
        plain(
            "NDArray::deserialize",
            || NDArray::new(tensor()).serialize().unwrap(),
            |bytes| NDArray::deserialize(&backends(), &bytes),
        ),
        plain(
            "Tensor::from_slice",
            || vec![1.0_f32; LEN],
            |it| Tensor::from_slice(&backends(), Device::cpu(0), [LEN], &it),
        ),
        plain(
            "Tensor::full",
            || (),
            |()| {
                let spec = kvstore_core::TensorSpec::new([LEN], DType::F32);
                Tensor::full(&backends(), Device::cpu(0), spec, Scalar::Float(1.0))
            },
        ),
        plain(
            "arange",
            || Range { start: 0.0, stop: 1e5, step: 1.0, repeat: 2 },
            |range| kvstore_core::arange(&backends(), Device::cpu(0), DType::F32, &range),
        ),
        plain("ArrayList::write", tensor, |it| {
            let folder = tempfile::tempdir().unwrap();
            ArrayList::unnamed([NDArray::new(it)]).write(folder.path().join("arrays"))
        }),
        plain(
            "ArrayList::read",
            || {
                let folder = tempfile::tempdir().unwrap();
                ArrayList::unnamed([NDArray::new(tensor())])
                    .write(folder.path().join("a"))
                    .unwrap();
                folder
            },
            |folder| ArrayList::read(&backends(), folder.path().join("a")),
        ),
    ]
}

// `dot` is missing: the buffers of its library have a fixed length.
fn computing_cases() -> Vec<Case> {
    vec![
        plain("a cast", tensor, |it| it.cast(DType::F64)),
        plain("a cast to half precision", tensor, |it| it.cast(DType::F16)),
        plain("a copy", tensor, |it| it.duplicate()),
        plain(
            "a change of a shared value",
            || {
                let array = NDArray::new(tensor());
                (array.tensor(), array)
            },
            |(shared, array)| {
                array.fill(Scalar::Float(1.0))?;
                shared.to_vec::<f32>()
            },
        ),
        plain(
            "a change of a view",
            || {
                let array = NDArray::new(tensor());
                (array.tensor(), array.slice(5, 9).unwrap())
            },
            |(shared, view)| {
                view.fill(Scalar::Float(1.0))?;
                shared.to_vec::<f32>()
            },
        ),
        plain("arithmetic", tensor, |it| it.binary(BinaryOp::Add, &it)),
        plain("a function", tensor, |it| it.unary(UnaryOp::Sqrt)),
        plain("a reduction", tensor, |it| it.reduce(Reduction::Sum)),
        plain("a transpose", tensor, |it| it.transpose()),
        plain("a join", tensor, |it| Tensor::concatenate(&[it.clone(), it], 0)),
    ]
}

fn row_cases() -> Vec<Case> {
    vec![
        plain(
            "RowSparse::from_ids",
            || {
                let ids: Vec<i64> = rows().indices().iter().rev().copied().collect();
                (ids, tensor())
            },
            |(ids, rows)| RowSparse::from_ids([LEN, 4], &ids, rows),
        ),
        plain("RowSparse::from_ids in order", rows, |it| {
            RowSparse::from_ids([LEN, 4], it.indices(), it.rows().clone())
        }),
        plain("RowSparse::to_dense", rows, |it| it.to_dense()),
        plain(
            "arithmetic of rows",
            || (Value::from(rows()), Value::from(rows())),
            |(left, right)| left.binary(BinaryOp::Sub, &right),
        ),
        plain(
            "arithmetic of rows and a dense value",
            || (Value::from(rows()), Value::from(rows().to_dense().unwrap())),
            |(left, right)| left.binary(BinaryOp::Mul, &right),
        ),
        plain(
            "arithmetic of rows and a number",
            || Value::from(rows()),
            |rows| rows.binary_scalar(BinaryOp::Add, Scalar::Float(1.0), false),
        ),
        plain(
            "Value::clip",
            || Value::from(rows()),
            |rows| rows.clip(Scalar::Float(1.0), Scalar::Float(2.0)),
        ),
        plain("Value::into_rows", || Value::from(tensor()), Value::into_rows),
        plain(
            "pull_rows",
            || (store(rows()), rows()),
            |(store, rows)| store.pull_rows(&key(), &[rows.indices()], 0),
        ),
        change(
            "push of rows",
            || (store(rows()), vec![rows().into(), rows().into()]),
            |store, values| store.push(&[key(), key()].concat(), values, 0),
        ),
        change(
            "push of rows to an optimizer",
            || {
                let store = store(rows().to_dense().unwrap());
                store.set_optimizer(Optimizer::sgd()).unwrap();
                (store, vec![rows().into(), rows().into()])
            },
            |store, values| store.push(&[key(), key()].concat(), values, 0),
        ),
    ]
}

/// Returns the cases of optimizers outside any store.
fn optimizer_cases() -> Vec<Case> {
    let prepare = || {
        let weight = rows().to_dense().unwrap();
        let optimizer = Optimizer::new("adam").unwrap();
        let state = optimizer.create_state(&weight).unwrap();
        (optimizer, weight, state)
    };
    vec![
        plain(
            "Optimizer::update",
            move || (prepare(), rows().to_dense().unwrap()),
            |((optimizer, mut weight, mut state), gradient)| {
                optimizer.update(&key()[0], &mut weight, &[gradient], &mut state)
            },
        ),
        plain(
            "Optimizer::update_rows",
            move || (prepare(), rows()),
            |((optimizer, mut weight, mut state), gradient)| {
                optimizer.update_rows(&key()[0], &mut weight, &gradient, &mut state)
            },
        ),
        plain("OptimizerState::to_bytes", prepare, |(_, _, state)| state.to_bytes(&backends())),
        plain(
            "OptimizerState::from_bytes",
            move || prepare().2.to_bytes(&backends()).unwrap(),
            |bytes| OptimizerState::from_bytes(&backends(), &bytes),
        ),
    ]
}

fn store_cases() -> Vec<Case> {
    let pair = || vec![Value::from(tensor()), tensor().into()];
    let both = || [key(), key()].concat();
    vec![
        change(
            "init",
            move || (LocalStore::new("local", backends()).unwrap(), pair()),
            |store, values| store.init(&key(), &values[..1]),
        ),
        change(
            "push",
            move || (store(tensor()), pair()),
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "push to an optimizer",
            move || {
                let store = store(tensor());
                store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
                (store, pair())
            },
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "push of compressed values",
            move || {
                let store = store(tensor());
                let compression = Compression::new("2bit", 0.5).unwrap();
                store.set_compression(Some(compression)).unwrap();
                (store, pair())
            },
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "replacement of a key in a full table",
            || {
                // A hash map with 8,192 buckets is full at this number of entries.
                let keys: Vec<Key> = many_keys("w").drain(..7168).collect();
                let value = Tensor::from_slice(&backends(), Device::cpu(0), [1], &[0.5_f32]);
                let values = vec![Value::from(value.unwrap()); keys.len()];
                let store = LocalStore::new("local", backends()).unwrap();
                store.init(&keys, &values).unwrap();
                (store, values)
            },
            |store, values| {
                let keys = [Key::new("w7000").unwrap()];
                store.init_with(&keys, &values[..1], Existing::Replace)
            },
        ),
        plain("pull", || store(tensor()), |it| it.pull(&key(), 0)?[0].to_vec::<f32>()),
    ]
}

/// A list of so many pointers is a long allocation.
const NUM_KEYS: usize = 9000;

#[expect(clippy::unnecessary_wraps, reason = "the signature of an updater")]
fn assign(_: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
    *stored = pushed.clone();
    Ok(())
}

fn many_keys(prefix: &str) -> Vec<Key> {
    (0..NUM_KEYS).map(|number| Key::new(&format!("{prefix}{number}")).unwrap()).collect()
}

/// Returns a case that calls a store of many small keys, with one value per key.
fn many(
    name: &'static str,
    configure: impl Fn(&LocalStore) -> Result<()> + 'static,
    call: impl Fn(&LocalStore, &[Key], &[Value]) -> Result<()> + Clone + 'static,
) -> Case {
    let prepare = move || {
        let value = || Tensor::from_slice(&backends(), Device::cpu(0), [2], &[0.25_f32; 2]);
        let values: Vec<Value> = (0..NUM_KEYS).map(|_| value().unwrap().into()).collect();
        let store = LocalStore::new("local", backends()).unwrap();
        store.init(&many_keys("w"), &values).unwrap();
        configure(&store).unwrap();
        (store, values)
    };
    change(name, prepare, move |store, values| {
        let left = LEFT.replace(-1);
        let keys = many_keys("w");
        LEFT.set(left);
        call(store, &keys, values)
    })
}

fn cases_of_many_keys() -> Vec<Case> {
    let push = |store: &LocalStore, keys: &[Key], values: &[Value]| store.push(keys, values, 0);
    let compress =
        |store: &LocalStore| store.set_compression(Some(Compression::new("2bit", 0.5).unwrap()));
    vec![
        many("push to many keys", |_| Ok(()), push),
        many("push to many keys with an optimizer", |it| it.set_optimizer(Optimizer::sgd()), push),
        many("push to many keys with a compression", compress, push),
        many("pull of many keys", |_| Ok(()), |store, keys, _| store.pull(keys, 0).map(drop)),
        many(
            "init of many more keys",
            |_| Ok(()),
            |store, _, values| {
                let left = LEFT.replace(-1);
                let more = many_keys("v");
                LEFT.set(left);
                store.init(&more, values)
            },
        ),
        many(
            "pull of rows of many keys",
            |_| Ok(()),
            |store, keys, _| {
                let left = LEFT.replace(-1);
                let rows = vec![[0].as_slice(); keys.len()];
                LEFT.set(left);
                store.pull_rows(keys, &rows, 0).map(drop)
            },
        ),
        many("keys", |_| Ok(()), |store, _, _| store.keys().map(drop)),
        many("stats", |_| Ok(()), |store, _, _| store.stats().map(drop)),
        many("a snapshot of many keys", |_| Ok(()), |store, _, _| store.snapshot().map(drop)),
        many(
            "a rollback of many keys",
            |_| Ok(()),
            |store, _, _| {
                let left = LEFT.replace(-1);
                let snapshot = store.snapshot()?;
                LEFT.set(left);
                store.rollback(&snapshot)
            },
        ),
    ]
}

/// Returns a store with states of an optimizer.
fn trained() -> LocalStore {
    let store = store(tensor());
    store.set_optimizer(Optimizer::new("adam").unwrap()).unwrap();
    store.push(&key(), &[tensor().into()], 0).unwrap();
    store
}

fn checkpoint_cases() -> Vec<Case> {
    let bytes = |it: &LocalStore| it.snapshot().unwrap().to_bytes().unwrap();
    vec![
        plain("Snapshot::to_bytes", trained, |it| it.snapshot()?.to_bytes()),
        plain("Snapshot::to_bytes of rows", || store(rows()), |it| it.snapshot()?.to_bytes()),
        plain("Snapshot::write", trained, |it| {
            let folder = tempfile::tempdir().unwrap();
            it.snapshot()?.write(folder.path().join("checkpoint"))
        }),
        plain(
            "Snapshot::from_bytes",
            move || bytes(&trained()),
            |bytes| Snapshot::from_bytes(&backends(), &bytes),
        ),
        plain(
            "Snapshot::from_bytes of rows",
            move || bytes(&store(rows())),
            |bytes| Snapshot::from_bytes(&backends(), &bytes),
        ),
        plain(
            "Snapshot::read",
            move || {
                let folder = tempfile::tempdir().unwrap();
                trained().snapshot().unwrap().write(folder.path().join("a")).unwrap();
                folder
            },
            |folder| {
                let path = folder.path().join("a");
                assert!(File::open(&path).is_ok());
                Snapshot::read(&backends(), path)
            },
        ),
        plain("optimizer states", trained, |it| it.snapshot()?.optimizer_states_to_bytes(true)),
    ]
}

fn cases() -> Vec<Case> {
    [
        reading_cases(),
        computing_cases(),
        row_cases(),
        optimizer_cases(),
        store_cases(),
        cases_of_many_keys(),
        many_values::cases(),
        checkpoint_cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Runs the call once per long allocation, and lets that allocation fail. Returns the number of
/// allocations.
fn fail_each(prepare: &dyn Fn() -> Call, once: bool) -> usize {
    for count in 0.. {
        let call = prepare();
        HAS_FAILED.set(false);
        ONCE.set(once);
        LEFT.set(count);
        let done = call();
        LEFT.set(-1);
        match (HAS_FAILED.get(), done) {
            (false, Ok(())) => return usize::try_from(count).unwrap(),
            // Emptying the pool may have freed enough.
            (true, Ok(())) => {}
            (true, Err(error)) => assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}"),
            (false, Err(error)) => panic!("without a failure: {error}"),
        }
        assert!(count < 1000, "too many long allocations");
    }
    unreachable!()
}

const CASE: &str = "KVSTORE_TEST_CASE";

#[test]
fn a_failed_allocation_is_an_error() {
    if let Ok(wanted) = std::env::var(CASE) {
        let (_, prepare) = cases().into_iter().find(|(name, _)| *name == wanted).unwrap();
        let counts = [true, false].map(|once| fail_each(&prepare, once));
        println!("allocations: {counts:?}");
        return;
    }
    let mut faults = Vec::new();
    for (name, _) in cases() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_failed_allocation_is_an_error", "--nocapture"]);
        let output = child.env(CASE, name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let count = said.lines().find(|line| line.contains("allocations"));
        println!("{name}: {}, {}", output.status, count.unwrap_or_default());
        if !output.status.success() || count.is_none() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            faults.push(format!("{name}: {}: {text}", output.status));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

//! Tests that a failed allocation returns an error. It must neither abort the process nor change a
//! store.
//!
//! Each case runs in a child process, so that the test can name the case that aborted. The file has
//! one test, because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::fs::File;

use kvstore_allocators::{FailingAllocator, case, run_cases, without_failures};
use kvstore_core::{
    ArrayList, Backends, BinaryOp, BoxError, Compression, CpuBackend, DType, Device, Error,
    ErrorCode, Key, KvStore, LocalStore, NDArray, Optimizer, OptimizerState, Range, Reduction,
    Result, RowSparse, Scalar, Snapshot, Tensor, UnaryOp, Value,
};

#[path = "failed_allocations/many.rs"]
mod many;
#[path = "failed_allocations/many_rows.rs"]
mod many_rows;

/// The number of elements of the arrays in these cases.
const LEN: usize = 32_000;

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

type Case = kvstore_allocators::Case<Error>;

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

/// Returns a store with one key and an optimizer.
fn optimized(name: &str) -> LocalStore {
    let store = store(tensor());
    store.set_optimizer(Optimizer::new(name).unwrap()).unwrap();
    store
}

/// Returns a case whose failed call must leave the store unchanged.
fn change(
    name: &'static str,
    prepare: impl Fn() -> (LocalStore, Vec<Value>) + 'static,
    call: impl Fn(&LocalStore, &[Value]) -> Result<()> + Clone + Send + 'static,
) -> Case {
    Case::new(name, move || {
        let ((store, values), call) = (prepare(), call.clone());
        let before = store.snapshot().unwrap();
        Box::new(move || {
            let done = call(&store, &values);
            without_failures(|| {
                if done.is_err() {
                    assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
                }
            });
            done
        })
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of an updater")]
fn assign(_: &Key, pushed: &Tensor, stored: &mut Tensor) -> Result<(), BoxError> {
    *stored = pushed.clone();
    Ok(())
}

fn reading_cases() -> Vec<Case> {
    // Only long allocations fail, so every case works on arrays of `LEN` elements.
    vec![
        case("Tensor::to_vec", tensor, |tensor| tensor.to_vec::<f32>()),
        case("Tensor::read_as", tensor, |tensor| tensor.read_as::<f64>()),
        case("Tensor::to_bytes", tensor, |tensor| tensor.to_bytes()),
        case("NDArray::to_vec", || NDArray::new(tensor()), |array| array.to_vec::<f32>()),
        case("NDArray::serialize", || NDArray::new(tensor()), |array| array.serialize()),
        case(
            "NDArray::deserialize",
            || NDArray::new(tensor()).serialize().unwrap(),
            |bytes| NDArray::deserialize(&backends(), &bytes),
        ),
        case(
            "Tensor::from_slice",
            || vec![1.0_f32; LEN],
            |elements| Tensor::from_slice(&backends(), Device::cpu(0), [LEN], &elements),
        ),
        case(
            "Tensor::full",
            || (),
            |()| {
                let spec = kvstore_core::TensorSpec::new([LEN], DType::F32);
                Tensor::full(&backends(), Device::cpu(0), spec, Scalar::Float(1.0))
            },
        ),
        case(
            "arange",
            || Range { start: 0.0, stop: 1e5, step: 1.0, repeat: 2 },
            |range| kvstore_core::arange(&backends(), Device::cpu(0), DType::F32, &range),
        ),
        case("ArrayList::write", tensor, |tensor| {
            let folder = tempfile::tempdir().unwrap();
            ArrayList::unnamed([NDArray::new(tensor)])?.write(folder.path().join("arrays"))
        }),
        case(
            "ArrayList::read",
            || {
                let folder = tempfile::tempdir().unwrap();
                ArrayList::unnamed([NDArray::new(tensor())])
                    .unwrap()
                    .write(folder.path().join("a"))
                    .unwrap();
                folder
            },
            |folder| ArrayList::read(&backends(), folder.path().join("a")),
        ),
    ]
}

/// Returns the cases of operations on one tensor. `dot` is missing, because its library allocates
/// only buffers of fixed length.
fn computing_cases() -> Vec<Case> {
    vec![
        case("a cast", tensor, |tensor| tensor.cast(DType::F64)),
        case("a cast to half precision", tensor, |tensor| tensor.cast(DType::F16)),
        case("a copy", tensor, |tensor| tensor.duplicate()),
        Case::new("Compression::encode", || {
            let (value, mut residual) = (tensor(), Some(tensor()));
            // The memory is shared, so the change must allocate.
            let before = residual.clone();
            Box::new(move || {
                let compression = without_failures(|| Compression::new("2bit", 0.5).unwrap());
                let done = compression.encode(&backends(), &value, &mut residual);
                without_failures(|| {
                    let bytes =
                        |tensor: &Option<Tensor>| tensor.as_ref().unwrap().to_bytes().unwrap();
                    assert!(done.is_ok() || bytes(&residual) == bytes(&before));
                });
                done.map(drop)
            })
        }),
        // In the next two cases, a snapshot shares the memory, so the change must allocate.
        case(
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
        case(
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
        case("arithmetic", tensor, |tensor| tensor.binary(BinaryOp::Add, &tensor)),
        case("a unary operation", tensor, |tensor| tensor.unary(UnaryOp::Sqrt)),
        case("a reduction", tensor, |tensor| tensor.reduce(Reduction::Sum)),
        case("a transpose", tensor, |tensor| tensor.transpose()),
        case("Tensor::concatenate", tensor, |tensor| {
            Tensor::concatenate(&[tensor.clone(), tensor], 0)
        }),
    ]
}

fn row_cases() -> Vec<Case> {
    vec![
        case(
            "RowSparse::from_ids",
            || {
                // In descending order, so that `from_ids` must sort them.
                let ids: Vec<i64> = rows().indices().iter().rev().copied().collect();
                (ids, tensor())
            },
            |(ids, rows)| RowSparse::from_ids([LEN, 4], &ids, rows),
        ),
        case("RowSparse::from_ids in order", rows, |rows| {
            RowSparse::from_ids([LEN, 4], rows.indices(), rows.rows().clone())
        }),
        case("RowSparse::to_dense", rows, |rows| rows.to_dense()),
        case(
            "arithmetic of rows",
            || (Value::from(rows()), Value::from(rows())),
            |(left, right)| left.binary(BinaryOp::Sub, &right),
        ),
        case(
            "arithmetic of rows and a dense value",
            || (Value::from(rows()), Value::from(rows().to_dense().unwrap())),
            |(left, right)| left.binary(BinaryOp::Mul, &right),
        ),
        case(
            "arithmetic of rows and a number",
            || Value::from(rows()),
            |rows| rows.binary_scalar(BinaryOp::Add, Scalar::Float(1.0), false),
        ),
        case(
            "Value::clip",
            || Value::from(rows()),
            |rows| rows.clip(Scalar::Float(1.0), Scalar::Float(2.0)),
        ),
        case("Value::into_rows", || Value::from(tensor()), Value::into_rows),
        case(
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

/// Returns the cases of optimizers without a store.
fn optimizer_cases() -> Vec<Case> {
    // Updates change weight and state, so each case needs new ones.
    let prepare = || {
        let weight = rows().to_dense().unwrap();
        let optimizer = Optimizer::new("adam").unwrap();
        let state = optimizer.create_state(&weight).unwrap();
        (optimizer, weight, state)
    };
    vec![
        case(
            "Optimizer::update",
            move || (prepare(), rows().to_dense().unwrap()),
            |((optimizer, mut weight, mut state), gradient)| {
                optimizer.update(&key()[0], &mut weight, &[gradient], &mut state)
            },
        ),
        case(
            "Optimizer::update_rows",
            move || (prepare(), rows()),
            |((optimizer, mut weight, mut state), gradient)| {
                optimizer.update_rows(&key()[0], &mut weight, &gradient, &mut state)
            },
        ),
        case("OptimizerState::to_bytes", prepare, |(_, _, state)| state.to_bytes(&backends())),
        case(
            "OptimizerState::from_bytes",
            move || prepare().2.to_bytes(&backends()).unwrap(),
            |bytes| OptimizerState::from_bytes(&backends(), &bytes),
        ),
    ]
}

fn store_cases() -> Vec<Case> {
    // Two values of one key, so that a push needs memory for their sum.
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
            move || (optimized("adam"), pair()),
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "push to a row-wise optimizer",
            move || (optimized("groupadagrad"), pair()),
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "push to a layer-wise optimizer",
            move || (optimized("lamb"), pair()),
            move |store, values| store.push(&both(), values, 0),
        ),
        change(
            "push of clipped values",
            move || {
                let store = store(tensor());
                store.set_clip_global_norm(Some(0.5)).unwrap();
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
        case("pull", || store(tensor()), |store| store.pull(&key(), 0)?[0].to_vec::<f32>()),
    ]
}

/// Returns a store whose key has optimizer state.
fn trained() -> LocalStore {
    let store = optimized("adam");
    store.push(&key(), &[tensor().into()], 0).unwrap();
    store
}

/// Returns a snapshot of a value, and a snapshot of the value after every second row has changed.
/// The first one is in the file `a` of the folder.
fn changed(value: impl Into<Value>) -> (Snapshot, Snapshot, tempfile::TempDir) {
    let value = value.into();
    let folder = tempfile::tempdir().unwrap();
    let base = store(value.clone()).snapshot().unwrap();
    base.write(folder.path().join("a")).unwrap();
    let mut numbers = tensor().to_vec::<f32>().unwrap();
    numbers.chunks_mut(8).for_each(|two_rows| two_rows[1] += 0.5);
    let tensor = Tensor::from_slice(&backends(), Device::cpu(0), [LEN / 4, 4], &numbers).unwrap();
    let store = match value {
        Value::Dense(_) => store(tensor),
        Value::Rows(rows) => store(RowSparse::new([LEN, 4], rows.indices(), tensor).unwrap()),
    };
    (base, store.snapshot().unwrap(), folder)
}

fn delta_cases() -> Vec<Case> {
    let write = |(base, now, folder): (Snapshot, Snapshot, tempfile::TempDir)| {
        now.write_since(folder.path().join("b"), &base)
    };
    let written = |(base, now, folder): (Snapshot, Snapshot, tempfile::TempDir)| {
        now.write_since(folder.path().join("b"), &base).unwrap();
        folder
    };
    let read = |folder: tempfile::TempDir| Snapshot::read(&backends(), folder.path().join("b"));
    let more_rows = || {
        let folder = tempfile::tempdir().unwrap();
        let indices = Vec::from(&rows().indices()[..LEN / 4 - 1]);
        let fewer = tensor().view(0, [LEN / 4 - 1, 4].into()).unwrap();
        let base = store(RowSparse::new([LEN, 4], indices, fewer).unwrap()).snapshot().unwrap();
        base.write(folder.path().join("a")).unwrap();
        let more = store(rows());
        (base, more.snapshot().unwrap(), folder)
    };
    vec![
        case("Snapshot::write_since", || changed(tensor()), write),
        case("Snapshot::write_since of rows", || changed(rows()), write),
        case("Snapshot::write_since of more rows", more_rows, write),
        case("Snapshot::read of a delta", move || written(changed(tensor())), read),
        case("Snapshot::read of a delta of rows", move || written(changed(rows())), read),
        case("Snapshot::read of a delta of more rows", move || written(more_rows()), read),
    ]
}

fn checkpoint_cases() -> Vec<Case> {
    // The preparation of a case writes the file, so that only reading it can fail.
    let bytes = |store: &LocalStore| store.snapshot().unwrap().to_bytes().unwrap();
    vec![
        case("Snapshot::to_bytes", trained, |store| store.snapshot()?.to_bytes()),
        case("Snapshot::to_pieces", trained, |store| store.snapshot()?.to_pieces()),
        case("Snapshot::to_bytes of rows", || store(rows()), |store| store.snapshot()?.to_bytes()),
        case("Snapshot::write", trained, |store| {
            let folder = tempfile::tempdir().unwrap();
            store.snapshot()?.write(folder.path().join("checkpoint"))
        }),
        case(
            "Snapshot::from_bytes",
            move || bytes(&trained()),
            |bytes| Snapshot::from_bytes(&backends(), &bytes),
        ),
        case(
            "Snapshot::from_bytes of rows",
            move || bytes(&store(rows())),
            |bytes| Snapshot::from_bytes(&backends(), &bytes),
        ),
        case(
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
        case("optimizer states", trained, |store| {
            store.snapshot()?.optimizer_states_to_bytes(true)
        }),
    ]
}

fn cases() -> Vec<Case> {
    [
        reading_cases(),
        computing_cases(),
        row_cases(),
        optimizer_cases(),
        store_cases(),
        checkpoint_cases(),
        delta_cases(),
        many::cases_of_keys(),
        many::checkpoint_cases(),
        many::cases_of_values(),
        many::cases_of_arrays(),
        many_rows::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn a_failed_allocation_is_an_error() {
    run_cases("a_failed_allocation_is_an_error", cases(), |error| {
        error.code() == ErrorCode::OutOfMemory
    });
}

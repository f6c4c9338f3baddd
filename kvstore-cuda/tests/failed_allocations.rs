//! A failed allocation of the host in a call on a GPU returns an error, and the store is unchanged.
//!
//! The file has one test, because the allocator is global.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

#[allow(dead_code, reason = "shared with other tests")]
mod cards;

use std::sync::{Once, OnceLock};

use kvstore_allocators::{Case, FailingAllocator, case, run_cases, without_failures};
use kvstore_core::{
    Backends, BinaryOp, Compression, DType, Device, Error, ErrorCode, Key, KvStore, LocalStore,
    Optimizer, Result, RowSparse, Scalar, Tensor, TensorSpec, Value,
};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

/// A list of this many addresses is a long allocation.
const LEN: usize = 2800;

/// A list of this many jobs is a long allocation. It is short, because the emulated driver is slow.
const NUM_JOBS: usize = 1500;

fn backends() -> &'static Backends {
    static BACKENDS: OnceLock<Backends> = OnceLock::new();
    BACKENDS.get_or_init(|| cards::backends(1))
}

fn tensor(dims: [usize; 2]) -> Tensor {
    let spec = TensorSpec::new(dims, DType::F32);
    Tensor::full(backends(), Device::gpu(0), spec, Scalar::Float(0.25)).unwrap()
}

fn rows() -> RowSparse {
    let indices: Vec<i64> = (0..LEN).map(|row| 2 * i64::try_from(row).unwrap()).collect();
    RowSparse::new([2 * LEN, 2], indices, tensor([LEN, 2])).unwrap()
}

fn key(number: usize) -> Key {
    Key::new(&number.to_string()).unwrap()
}

/// Returns a store with the keys of these values.
fn stored(
    values: Vec<(Key, Value)>,
    configure: &dyn Fn(&LocalStore) -> Result<()>,
) -> (LocalStore, Vec<Key>, Vec<Value>) {
    let store = LocalStore::new("device", backends().clone()).unwrap();
    let (keys, values): (Vec<Key>, Vec<Value>) = values.into_iter().unzip();
    for (key, value) in keys.iter().zip(&values) {
        if !store.contains(key).unwrap() {
            store.init(std::slice::from_ref(key), std::slice::from_ref(value)).unwrap();
        }
    }
    configure(&store).unwrap();
    (store, keys, values)
}

/// Returns a case that pushes these values. A failed call must leave the store unchanged.
fn push(
    name: &'static str,
    values: fn() -> Vec<(Key, Value)>,
    configure: impl Fn(&LocalStore) -> Result<()> + 'static,
) -> Case<Error> {
    let prepare = move || {
        // The first push loads the kernels, whose size is fixed.
        static WARM_UP: Once = Once::new();
        let stored = || {
            let (store, keys, values) = stored(values(), &configure);
            (store.snapshot().unwrap(), store, keys, values)
        };
        WARM_UP.call_once(|| {
            let (_, store, keys, values) = stored();
            store.push(&keys, &values, 0).unwrap();
        });
        stored()
    };
    case(name, prepare, |(before, store, keys, values)| {
        let done = store.push(&keys, &values, 0);
        without_failures(|| {
            if done.is_err() {
                assert!(store.snapshot().unwrap().is_identical(&before).unwrap());
            }
        });
        done
    })
}

/// Returns rows, after the kernels that use them are loaded.
fn warm_rows() -> RowSparse {
    let store = LocalStore::new("device", backends().clone()).unwrap();
    store.init(&[key(0)], &[rows().to_dense().unwrap().into()]).unwrap();
    store.pull_rows(&[key(0)], &[&[0]], 0).unwrap();
    Value::sum(&[rows().into(), rows().into()]).unwrap();
    rows()
}

/// Returns a row and a matrix, after the kernels that compare them are loaded.
fn repeated() -> (Tensor, Tensor) {
    let (row, matrix) = (tensor([1, 64]), tensor([LEN, 64]));
    row.binary(BinaryOp::Greater, &matrix).unwrap();
    (row, matrix)
}

fn cases() -> Vec<Case<Error>> {
    let plain = |_: &LocalStore| Ok(());
    let sgd = |store: &LocalStore| store.set_optimizer(Optimizer::sgd());
    let compress = |store: &LocalStore| store.set_compression(Some(Compression::new("2bit", 0.5)?));
    // LARS has no states, whose memory the emulated driver takes long to allocate.
    let lars = |store: &LocalStore| store.set_optimizer(Optimizer::new("lars")?);
    let clip = |store: &LocalStore| store.set_clip_global_norm(Some(1e-3));
    let many_values = || vec![(key(0), tensor([1, 2]).into()); LEN];
    let many_jobs = || vec![(key(0), tensor([1, 2]).into()); NUM_JOBS];
    let many_keys = || (0..NUM_JOBS).map(|at| (key(at), tensor([1, 2]).into())).collect();
    let two_of_rows = || vec![(key(0), rows().into()); 2];
    vec![
        push("push of many values", many_values, plain),
        push("push of many values to an optimizer", many_values, sgd),
        push("compressed push of many values", many_jobs, compress),
        push("push to many keys", many_keys, sgd),
        push("layer-wise steps of many keys", many_keys, lars),
        push("clipped push to many keys", many_keys, clip),
        push("push of many rows", two_of_rows, plain),
        push("push of many rows to an optimizer", two_of_rows, sgd),
        case("sum of many rows, whose indices are read", warm_rows, |rows| {
            let sum = Value::sum(&[rows.clone().into(), rows.into()])?;
            // Computes the indices, which cannot report an error.
            assert_eq!(sum.rows().unwrap().indices().len(), LEN);
            Ok(sum)
        }),
        case("pull of many rows", warm_rows, |rows| {
            let store = without_failures(|| {
                let store = LocalStore::new("device", backends().clone()).unwrap();
                store.init(&[key(0)], &[rows.to_dense()?.into()]).map(|()| store)
            })?;
            store.pull_rows(&[key(0)], &[rows.indices()], 0)
        }),
        case("an axis repeated many times", repeated, |(row, matrix)| {
            row.binary(BinaryOp::Greater, &matrix)
        }),
    ]
}

#[test]
fn a_failed_allocation_is_an_error() {
    run_cases("a_failed_allocation_is_an_error", cases(), |error: &Error| {
        error.code() == ErrorCode::OutOfMemory
    });
}

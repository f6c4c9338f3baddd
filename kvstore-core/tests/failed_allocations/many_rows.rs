//! Cases with row-sparse pushes to many keys or of many values, sums of many codes, and a full
//! table of keys.

use std::sync::Arc;

use kvstore_allocators::{case, without_failures};
use kvstore_core::backend::DequantizeJob;
use kvstore_core::storage::{Span, SpanMut};
use kvstore_core::{
    Compression, CpuBackend, DType, Device, Key, KvStore, LocalStore, OnExisting, Optimizer,
    Result, RowSparse, Tensor, Value,
};

use super::many::many_keys;
use super::{Case, assign, backends, change, key};

/// The number of values of one key. Pushing them needs long lists, even when pairs of values are
/// merged.
const NUM_VALUES: usize = 6_400;

/// Returns a case that pushes `num_values` row-sparse values to each key. The keys have two rows.
fn many_rows(
    name: &'static str,
    keys: impl Fn() -> Vec<Key> + Clone + Send + 'static,
    num_values: usize,
    configure: impl Fn(&LocalStore) -> Result<()> + 'static,
) -> Case {
    let of_push = keys.clone();
    let prepare = move || {
        let rows = Tensor::from_slice(&backends(), Device::cpu(0), [1, 2], &[0.25_f32; 2]).unwrap();
        let value = Value::from(RowSparse::new([2, 2], vec![1], rows).unwrap());
        let store = LocalStore::new("local", backends()).unwrap();
        store.init(&keys(), &vec![value.clone(); keys().len()]).unwrap();
        configure(&store).unwrap();
        (store, vec![value; keys().len() * num_values])
    };
    change(name, prepare, move |store, values| {
        // The list of keys belongs to the caller. Only allocations of `push` must fail.
        let keys: Vec<Key> = without_failures(|| {
            of_push().into_iter().flat_map(|key| vec![key; num_values]).collect()
        });
        store.push(&keys, values, 0)
    })
}

pub(super) fn cases() -> Vec<Case> {
    let step = |store: &LocalStore| store.set_optimizer(Optimizer::sgd());
    let update = |store: &LocalStore| store.set_updater(Some(Arc::new(assign)));
    let many = || many_keys("w");
    let one = || key().to_vec();
    vec![
        change(
            "replacement of a key in a full table",
            || {
                // A hash map with 2,048 buckets is full at this number of entries.
                let keys: Vec<Key> = many_keys("w").drain(..1792).collect();
                let value = Tensor::from_slice(&backends(), Device::cpu(0), [1], &[0.5_f32]);
                let values = vec![Value::from(value.unwrap()); keys.len()];
                let store = LocalStore::new("local", backends()).unwrap();
                store.init(&keys, &values).unwrap();
                (store, values)
            },
            |store, values| {
                let keys = [Key::new("w7000").unwrap()];
                store.init_with(&keys, &values[..1], OnExisting::Replace)
            },
        ),
        many_rows("row-sparse push of many keys with two values each", many, 2, |_| Ok(())),
        many_rows("row-sparse push of many keys with an optimizer", many, 2, step),
        many_rows("row-sparse push of many keys with an updater", many, 2, update),
        many_rows("row-sparse push of many values of one key", one, NUM_VALUES, |_| Ok(())),
        many_rows("row-sparse push of many values with an optimizer", one, NUM_VALUES, step),
        case("sum of the codes of many values", || (), |()| sum_codes(NUM_VALUES)),
    ]
}

/// Sums the codes of `num_values` compressed values with one element each.
fn sum_codes(num_values: usize) -> Result<()> {
    let (device, dtype) = (Device::cpu(0), DType::F32);
    let quantizer = Compression::new("2bit", 0.5)?.of(dtype)?;
    let backend = CpuBackend::with_threads(1);
    let codes = backend.allocate(device, quantizer.code.num_bytes(1))?;
    let mut sum = backend.allocate(device, dtype.size())?;
    let span = Span { storage: &*codes, start: 0, num_bytes: quantizer.code.num_bytes(1) };
    let codes = without_failures(|| vec![span; num_values]);
    let storage = Arc::get_mut(&mut sum).unwrap();
    let dst = SpanMut { storage, start: 0, num_bytes: dtype.size() };
    let mut jobs = [DequantizeJob { quantizer, device, dtype, codes: &codes, dst }];
    backend.dequantize(&mut jobs)
}

//! Pushes to rounds, whose sums show in which order they were added.

use kvstore::backends;
use kvstore_core::{
    BinaryOp, DType, Device, Key, KvStore, LocalStore, Optimizer, RowSparse, Scalar, Tensor, Value,
};

use super::key;

/// Returns elements whose sums in different orders differ.
pub(crate) fn varied(shape: &[usize], dtype: DType, seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = f32::from(u16::try_from(state >> 20).unwrap());
        number * if state & 1 << 18 == 0 { 1e-3 } else { -1.7 }
    };
    let elements: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    let tensor = Tensor::from_slice(backends(), Device::cpu(0), shape, &elements).unwrap();
    tensor.cast(dtype).unwrap()
}

/// Returns the values of a push: a large one, which has several ranges, short ones and rows.
pub(crate) fn pushed(seed: u32) -> (Vec<Key>, Vec<Value>) {
    let indices = Vec::from([i64::from(seed % 3), 3 + i64::from(seed % 2)]);
    let rows = RowSparse::new([6, 2], indices, varied(&[2, 2], DType::F32, seed + 1)).unwrap();
    let values = [
        ("z", varied(&[280, 1001], DType::F32, seed).into()),
        ("half", varied(&[3], DType::F16, seed + 2).into()),
        ("rows", rows.into()),
        ("a", varied(&[5], DType::F64, seed + 3).into()),
    ];
    values.into_iter().map(|(name, value)| (key(name), value)).unzip()
}

/// Returns the weighted mean of pushes, given by their seeds and weights. It is computed as workers
/// and servers do: products, a fold, and one division.
pub(crate) fn weighted_mean(pushes: &[(u32, f64)]) -> (Vec<Key>, Vec<Value>) {
    let (keys, _) = pushed(0);
    let products = pushes.iter().map(|(seed, weight)| {
        let product =
            |value: Value| value.binary_scalar(BinaryOp::Mul, Scalar::from(*weight), false);
        pushed(*seed).1.into_iter().map(|value| product(value).unwrap()).collect::<Vec<_>>()
    });
    let products: Vec<_> = products.collect();
    let total = pushes.iter().map(|(_, weight)| *weight).reduce(|sum, next| sum + next).unwrap();
    let mean = |key: usize| {
        let addends: Vec<_> = products.iter().map(|values| values[key].clone()).collect();
        let sum = Value::sum(&addends).unwrap();
        sum.binary_scalar(BinaryOp::Div, Scalar::from(total), false).unwrap()
    };
    let means = (0..keys.len()).map(mean).collect();
    (keys, means)
}

pub(crate) fn initial() -> (Vec<Key>, Vec<Value>) {
    let (keys, values) = pushed(0);
    let zeros = values.iter().map(|value| value.to_dense().unwrap().into()).collect();
    (keys, zeros)
}

pub(crate) fn momentum() -> Optimizer {
    Optimizer::new("sgd").unwrap().with("momentum", 0.9).unwrap().with("wd", 0.01).unwrap()
}

/// A local store with the initial values.
pub(crate) fn model() -> LocalStore {
    let model = LocalStore::new("local", backends().clone()).unwrap();
    let (keys, values) = initial();
    model.init(&keys, &values).unwrap();
    model.set_optimizer(momentum()).unwrap();
    model
}

#[track_caller]
pub(crate) fn check_equal(store: &dyn KvStore, model: &LocalStore) {
    let keys = initial().0;
    let (found, expected) = (store.pull(&keys, 0).unwrap(), model.pull(&keys, 0).unwrap());
    for ((key, found), expected) in keys.iter().zip(found).zip(expected) {
        assert!(found.to_bytes().unwrap() == expected.to_bytes().unwrap(), "key `{key}` differs");
    }
}

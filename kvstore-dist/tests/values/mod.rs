//! Creates values whose elements are all equal, and reads values.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, Device, Key, KvStore, Tensor, Value};

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn floats(store: &dyn KvStore, name: &str) -> Vec<f32> {
    store.pull(&[key(name)], 0).unwrap()[0].read_as().unwrap()
}

/// Returns the rank as a number to push.
pub(crate) fn rank(store: &dyn KvStore) -> f32 {
    f32::from(u8::try_from(store.rank().unwrap()).unwrap())
}

pub(crate) fn full(backends: &Backends, dims: &[usize], number: f32) -> Value {
    let elements = vec![number; dims.iter().product()];
    Tensor::from_slice(backends, Device::cpu(0), dims, &elements).unwrap().into()
}

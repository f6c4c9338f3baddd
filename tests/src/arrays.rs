//! Conversions between the model's values and the store's arrays, and the named updaters as
//! functions.

use std::sync::{Arc, Mutex};

use kvstore::{BinaryOp, Error, Key, NDArray, Scalar, Store, Tensor, TensorSpec};

use crate::place::device;
use crate::policy::NamedUpdater;
use crate::value::{Spec, Value};

/// The keys that an updater was called for, in order.
pub type UpdaterLog = Arc<Mutex<Vec<String>>>;

/// Returns a new array that holds the value.
pub fn to_array(value: &Value) -> NDArray {
    let spec = TensorSpec::new(value.spec.shape.clone(), value.spec.dtype);
    kvstore::from_bytes(&value.to_bytes(), spec, device(0))
        .expect("a value has as many bytes as it needs")
}

/// Returns a new array for each value.
pub fn to_arrays(values: &[Value]) -> Vec<NDArray> {
    values.iter().map(to_array).collect()
}

/// Returns the value of an array.
pub fn from_array(array: &NDArray) -> Value {
    from_tensor(&array.tensor())
}

/// Returns the value of a tensor.
pub fn from_tensor(tensor: &Tensor) -> Value {
    let spec = Spec::new(tensor.shape().dims(), tensor.dtype());
    Value::from_bytes(spec, &tensor.to_bytes().expect("a tensor can be read"))
}

/// Returns the key with this name.
pub fn key(text: &str) -> Key {
    Key::new(text).expect("the keys of tests have no NUL")
}

/// Returns the keys with these names.
pub fn keys(texts: &[String]) -> Vec<Key> {
    texts.iter().map(|text| key(text)).collect()
}

/// Sets a named updater on the store. It logs its keys.
pub fn set_updater(store: &Store, updater: NamedUpdater, log: &UpdaterLog) -> Result<(), Error> {
    let log = Arc::clone(log);
    store.set_updater(move |key, pushed, stored| {
        log.lock().expect("logging does not panic").push(key.to_string());
        if updater.fails_for(key.as_str()) {
            stored.fill(Scalar::Int(13))?;
            return Err(format!("no taste for `{key}`").into());
        }
        Ok(run(updater, pushed, stored)?)
    })
}

fn run(updater: NamedUpdater, pushed: &NDArray, stored: &NDArray) -> Result<(), Error> {
    let two = Scalar::Int(2);
    match updater {
        NamedUpdater::Assign => stored.assign(&pushed.tensor()),
        NamedUpdater::Add | NamedUpdater::Picky => stored.binary_assign(BinaryOp::Add, pushed),
        NamedUpdater::Sub => stored.binary_assign(BinaryOp::Sub, pushed),
        NamedUpdater::AddTwice => {
            stored.binary_assign(BinaryOp::Add, &pushed.binary_scalar(BinaryOp::Mul, two, false)?)
        }
        NamedUpdater::DecayAdd => {
            stored.binary_scalar_assign(BinaryOp::Div, two)?;
            stored.binary_assign(BinaryOp::Add, pushed)
        }
        NamedUpdater::Nothing => Ok(()),
    }
}

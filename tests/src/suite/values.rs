//! Checks of the verbs on values: tensors, without arrays.

use kvstore_core::{Backends, ErrorCode, Key, KvStore, OnExisting, Scalar, Tensor, Value};

use super::assert_code;

use crate::place::device;

fn tensor(backends: &Backends, values: &[f32]) -> Tensor {
    Tensor::from_slice(backends, device(0), [values.len()], values).expect("enough memory")
}

fn value(backends: &Backends, values: &[f32]) -> Value {
    tensor(backends, values).into()
}

fn key(text: &str) -> Key {
    Key::new(text).expect("the keys of tests have no NUL")
}

fn pulled(store: &dyn KvStore, text: &str) -> Vec<f32> {
    store.pull(&[key(text)], 0).unwrap()[0].to_vec().unwrap()
}

/// Keys and values are parallel lists. A pull returns a value for every position, in call order.
pub fn keys_and_values_are_parallel_lists(store: &dyn KvStore, backends: &Backends) {
    let values = [value(backends, &[1.0]), value(backends, &[2.0, 3.0])];
    assert_code(store.init(&[key("a")], &values), ErrorCode::LengthMismatch);
    store.init(&[key("a"), key("b")], &values).unwrap();
    assert_code(store.push(&[key("a")], &values, 0), ErrorCode::LengthMismatch);
    let found = store.pull(&[key("b"), key("a"), key("b")], 0).unwrap();
    let found: Vec<Vec<f32>> = found.iter().map(|value| value.to_vec().unwrap()).collect();
    assert_eq!(found, [vec![2.0, 3.0], vec![1.0], vec![2.0, 3.0]]);
    assert!(store.pull(&[], 0).unwrap().is_empty());
    let described = store.describe(&[key("b"), key("a")]).unwrap();
    assert!(described[0].order > described[1].order);
    assert_eq!(described[0].spec, *values[1].spec());
}

/// `init` rejects, keeps or replaces keys that exist. A call changes all keys or none.
pub fn existing_keys_are_rejected_kept_or_replaced(store: &dyn KvStore, backends: &Backends) {
    let value = |x: f32| value(backends, &[x]);
    store.init(&[key("a"), key("b")], &[value(1.0), value(2.0)]).unwrap();
    let again = [key("c"), key("a")];
    let values = [value(3.0), value(4.0)];
    assert_code(store.init(&again, &values), ErrorCode::KeyExists);
    assert!(!store.contains(&key("c")).unwrap());
    store.init_with(&again, &values, OnExisting::Keep).unwrap();
    assert_eq!((pulled(store, "a"), pulled(store, "c")), (vec![1.0], vec![3.0]));
    assert_eq!(store.keys().unwrap(), [key("a"), key("b"), key("c")]);
    // With another shape, and at the end of the order.
    store
        .init_with(&[key("a")], &[tensor(backends, &[5.0, 6.0]).into()], OnExisting::Replace)
        .unwrap();
    assert_eq!(pulled(store, "a"), [5.0, 6.0]);
    assert_eq!(store.keys().unwrap(), [key("b"), key("c"), key("a")]);
    for existing in [OnExisting::Reject, OnExisting::Keep, OnExisting::Replace] {
        let twice = [key("d"), key("d")];
        assert_code(store.init_with(&twice, &values, existing), ErrorCode::KeyExists);
        let nothing = [tensor(backends, &[]).into()];
        assert_code(store.init_with(&[key("d")], &nothing, existing), ErrorCode::InvalidArgument);
        assert!(!store.contains(&key("d")).unwrap());
    }
}

/// Changing a tensor after it was passed or returned does not change the store.
pub fn later_changes_of_tensors_do_not_change_the_store(store: &dyn KvStore, backends: &Backends) {
    let mut given = tensor(backends, &[1.0, 2.0]);
    store.init(&[key("w")], &[Value::from(&given)]).unwrap();
    given.fill(Scalar::Int(9)).unwrap();
    let mut returned = store.pull(&[key("w")], 0).unwrap();
    returned[0].fill(Scalar::Int(8)).unwrap();
    assert_eq!(pulled(store, "w"), [1.0, 2.0]);
    store.push(&[key("w")], &[Value::from(&given)], 0).unwrap();
    given.fill(Scalar::Int(7)).unwrap();
    assert_eq!(pulled(store, "w"), [9.0, 9.0]);
}

/// A failed updater changes nothing, even if it has written `stored`.
pub fn a_failed_updater_changes_nothing(store: &dyn KvStore, backends: &Backends) {
    store.init(&[key("w")], &[value(backends, &[1.0])]).unwrap();
    let updater = |_: &Key, pushed: &Tensor, stored: &mut Tensor| {
        *stored = pushed.clone();
        Err("after the fact".into())
    };
    store.set_updater(Some(std::sync::Arc::new(updater))).unwrap();
    let pushed = store.push(&[key("w")], &[value(backends, &[2.0])], 0);
    assert_code(pushed, ErrorCode::Updater);
    assert_eq!(pulled(store, "w"), [1.0]);
}

/// An updater must not change the shape or dtype of a key.
pub fn an_updater_cannot_change_the_spec(store: &dyn KvStore, backends: &Backends) {
    store.init(&[key("w")], &[value(backends, &[1.0])]).unwrap();
    let other = tensor(backends, &[1.0, 2.0]);
    let updater = move |_: &Key, _: &Tensor, stored: &mut Tensor| {
        *stored = other.clone();
        Ok(())
    };
    store.set_updater(Some(std::sync::Arc::new(updater))).unwrap();
    let pushed = store.push(&[key("w")], &[value(backends, &[2.0])], 0);
    assert_code(pushed, ErrorCode::SpecMismatch);
    assert_eq!(pulled(store, "w"), [1.0]);
}

//! Sums of values have the bits of a push.

use kvstore_core::{DType, Device, Key, KvStore, LocalStore, RowSparse, Shape, Tensor, Value};
use kvstore_tests::place;

/// The same type, and the same bits in all rows.
fn check_equal(found: &Value, expected: &Value) {
    assert_eq!(
        (found.spec(), found.rows().is_some()),
        (expected.spec(), expected.rows().is_some())
    );
    let bits = |value: &Value| value.to_dense()?.to_bytes();
    assert_eq!(bits(found).expect("elements"), bits(expected).expect("elements"));
}

#[test]
fn sums_are_those_of_a_push() {
    let (_, backends) = place::backends(&[2]).remove(0);
    let half = |shape: Shape, elements: &[f32]| {
        let tensor = Tensor::from_slice(&backends, Device::cpu(0), shape, elements).unwrap();
        tensor.cast(DType::F16).unwrap()
    };
    let dense = |elements: [f32; 4]| Value::from(half([2, 2].into(), &elements));
    let rows = |index: i64, elements: [f32; 2]| {
        let rows = half([1, 2].into(), &elements);
        Value::from(RowSparse::new([2, 2], Vec::from([index]), rows).unwrap())
    };
    // The sums of two of these numbers have more digits than a half.
    let dense = [dense([2048.0, 1.0, 0.1, 7.0]), dense([1.0, 2048.0, 0.2, 9.0])];
    let rows = [rows(1, [1.0, 4096.0]), rows(0, [1.0, 3.0]), rows(1, [2.0, 1.0])];
    let store = LocalStore::new("local", backends.clone()).unwrap();
    let key = Key::new("w").unwrap();
    store.init(std::slice::from_ref(&key), &dense[..1]).unwrap();
    let mixed: Vec<Value> = dense.iter().chain(&rows).cloned().collect();
    for values in [&dense[..], &rows, &mixed, &rows[..1]] {
        let keys = vec![key.clone(); values.len()];
        let expected = store.sums(&keys, values, None).unwrap();
        let sum = Value::sum(values).unwrap();
        check_equal(&sum, &expected[0]);
        assert_eq!(sum.rows().is_some(), values.iter().all(|value| value.rows().is_some()));
    }
    assert_eq!(
        Value::sum(&[]).unwrap_err().to_string(),
        "sum: expected at least one value, found none"
    );
    let other = Tensor::from_slice(&backends, Device::cpu(0), [4], &[0_f32; 4]).unwrap();
    let error = Value::sum(&[rows[0].clone(), other.clone().into()]).unwrap_err();
    assert_eq!(error.to_string(), "sum: expected [2, 2] f16, found [4] f32");
}

#[test]
fn a_sum_may_be_a_part_of_a_tensor() {
    let (_, backends) = place::backends(&[2]).remove(0);
    let tensor =
        |numbers: &[f32]| Tensor::from_slice(&backends, Device::cpu(0), [numbers.len()], numbers);
    let mut sum = tensor(&[1.0, 2.0, 3.0, 4.0]).unwrap();
    let before = sum.clone();
    let addends = [tensor(&[10.0, 20.0]).unwrap(), tensor(&[0.5, 0.25]).unwrap()];
    sum.sum_into(1, &addends).unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [1.0, 10.5, 20.25, 4.0]);
    assert_eq!(before.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    for (first, addends, expected) in [
        (3, &addends[..], "sum: 2 elements from 3 on are out of range for [4] f32"),
        (usize::MAX, &addends, "sum: 2 elements from 18446744073709551615 on are out of range"),
        (0, &[], "sum: expected at least one tensor, found none"),
        (0, &[addends[0].clone(), sum.clone()], "sum: expected [2] f32, found [4] f32"),
    ] {
        let error = sum.sum_into(first, addends).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(sum.to_vec::<f32>().unwrap(), [1.0, 10.5, 20.25, 4.0]);
}

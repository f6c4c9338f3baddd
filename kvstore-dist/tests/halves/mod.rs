//! Half precision over ranks: each rank rounds its own sum once, and the sum of the ranks is
//! rounded once.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{DType, Device, Key, KvStore, Tensor, Value, WorkerGroup};

use crate::values::{floats, key};
use crate::workers::{backends, on_workers};

/// Returns the pulled value after each rank has pushed its numbers as separate values.
fn sum_over_ranks(dtype: DType, numbers: &[&[f32]]) -> f32 {
    let backends = backends();
    let value = |number: f32| -> Value {
        let tensor = Tensor::from_slice(&backends, Device::cpu(0), [1], &[number]).unwrap();
        tensor.cast(dtype).unwrap().into()
    };
    let pulled = on_workers("dist_sync", numbers.len(), &backends, |store| {
        store.init(&[key("w")], &[value(0.0)]).unwrap();
        let values: Vec<Value> =
            numbers[store.rank().unwrap()].iter().map(|number| value(*number)).collect();
        let keys: Vec<Key> = values.iter().map(|_| key("w")).collect();
        store.push(&keys, &values, 0).unwrap();
        floats(store, "w")[0]
    });
    assert!(pulled.iter().all(|found| *found == pulled[0]), "{pulled:?}");
    pulled[0]
}

/// Above `large`, the dtype holds only even integers: `large + 1` rounds to `large`.
const DTYPES: [(DType, f32); 2] = [(DType::F16, 2048.0), (DType::Bf16, 256.0)];

#[test]
fn one_half_value_on_each_rank_gives_the_bits_of_one_process() {
    for (dtype, large) in DTYPES {
        let one_process = sum_over_ranks(dtype, &[&[large, 1.0, 1.0]]);
        assert_eq!(one_process, large + 2.0);
        assert_eq!(sum_over_ranks(dtype, &[&[large], &[1.0], &[1.0]]), one_process);
    }
}

#[test]
fn several_half_values_on_a_rank_are_rounded_to_its_sum_first() {
    for (dtype, large) in DTYPES {
        assert_eq!(sum_over_ranks(dtype, &[&[large, 1.0, 1.0], &[0.0]]), large + 2.0);
        assert_eq!(sum_over_ranks(dtype, &[&[large, 1.0], &[1.0]]), large);
    }
}

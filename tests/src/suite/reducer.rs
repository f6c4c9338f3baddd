//! Where values of one key become one: the same sum wherever that is.

use kvstore_core::{Backends, DType, Device, Reducer, Tensor, TensorSpec};

use crate::arithmetic::sum;
use crate::arrays::from_tensor;
use crate::compare::assert_same_bits;
use crate::samples::nasty;
use crate::value::{Spec, Value};

fn tensor(backends: &Backends, device: Device, value: &Value) -> Tensor {
    let spec = TensorSpec::new(value.spec.shape.clone(), value.spec.dtype);
    Tensor::from_bytes(backends, device, spec, &value.to_bytes()).expect("memory is to be had")
}

/// Each group becomes the left fold of its values, at home.
pub fn groups_become_their_sums(reducer: &dyn Reducer, backends: &Backends) {
    let values: Vec<Vec<Value>> = (0..24)
        .map(|group| {
            let spec = Spec::new(&[group * 7 + 1], DType::ALL[group % DType::ALL.len()]);
            (0..=group as u64 % 5).map(|seed| nasty(spec.clone(), seed)).collect()
        })
        .collect();
    let groups: Vec<Vec<Tensor>> = values
        .iter()
        .map(|group| {
            let devices = [1, 0, 2].map(Device::cpu).into_iter().cycle();
            group
                .iter()
                .zip(devices)
                .map(|(value, device)| tensor(backends, device, value))
                .collect()
        })
        .collect();
    let sums = reducer.reduce(backends, &groups).unwrap();
    for ((found, group), values) in sums.iter().zip(&groups).zip(&values) {
        assert_same_bits(&sum(values), &from_tensor(found), found);
        assert_eq!(found.device(), reducer.home(group));
        for (tensor, value) in group.iter().zip(values) {
            assert_same_bits(value, &from_tensor(tensor), &"an addend");
        }
    }
    assert!(reducer.reduce(backends, &[]).unwrap().is_empty());
}

/// What is gathered has its bits, and is at home.
pub fn gathering_moves_and_keeps_values(reducer: &dyn Reducer, backends: &Backends) {
    let values: Vec<_> = (0..4).map(|seed| nasty(Spec::new(&[9], DType::F16), seed)).collect();
    let tensors: Vec<_> =
        values.iter().map(|value| tensor(backends, Device::cpu(3), value)).collect();
    let gathered = reducer.gather(backends, &tensors).unwrap();
    for (found, value) in gathered.iter().zip(&values) {
        assert_same_bits(value, &from_tensor(found), found);
        assert_eq!(found.device(), reducer.home(&tensors));
    }
}

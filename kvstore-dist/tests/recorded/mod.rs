//! Replays programs that were recorded on MXNet's `dist_sync` with one or two workers, numbered B1
//! to B15. Not replayed: B8 and B13 use `dist_async`, B9 is an error of MXNet's servers, and B14
//! hangs in MXNet.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, Compression, CpuBackend, Device, KvStore, Optimizer, Tensor, Value};

use crate::values::{floats, full, key, rank};

fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

fn list(elements: &[f32]) -> Value {
    Tensor::from_slice(&backends(), Device::cpu(0), [elements.len()], elements).unwrap().into()
}

/// The pulled values of cases B1 to B7, the same on both workers.
pub(crate) const EXPECTED: [f32; 8] = [10.0, 3.0, 6.0, 11.0, 6.0, 12.0, 6.0, 7.0];

/// Runs cases B1 to B7 as one of two workers. Returns the pulled values.
pub(crate) fn run<S: KvStore>(store: &S) -> Vec<f32> {
    let backends = backends();
    let r = rank(store);
    let small = |number: f32| full(&backends, &[2, 3], number);
    let push = |name: &str, values: &[Value]| {
        store.push(&vec![key(name); values.len()], values, 0).unwrap();
    };
    let mut found = Vec::new();
    let mut pull = |name: &str| {
        let values = floats(store, name);
        assert!(values.iter().all(|value| *value == values[0]));
        found.push(values[0]);
    };
    store.init(&[key("3")], &[small(10.0 + r)]).unwrap();
    pull("3");
    push("3", &[small(r + 1.0)]);
    pull("3");
    push("3", &[small(r + 1.0), small(r + 1.0)]);
    pull("3");
    push("3", &[small(r + 5.0)]);
    pull("3");
    // Only rank 0 sets the optimizer. After the barrier, all ranks have it.
    if store.rank().unwrap() == 0 {
        let optimizer = Optimizer::new("test").unwrap().with("rescale_grad", 2.0).unwrap();
        store.set_optimizer(optimizer).unwrap();
    }
    store.barrier().unwrap();
    store.init(&[key("4")], &[small(0.0)]).unwrap();
    push("4", &[small(r + 1.0)]);
    pull("4");
    push("4", &[small(r + 1.0)]);
    pull("4");
    let large = |number: f32| full(&backends, &[1001, 1000], number);
    store.init(&[key("large")], &[large(0.0)]).unwrap();
    push("large", &[large(r + 1.0)]);
    pull("large");
    store.init(&[key("5")], &[small(r + 7.0)]).unwrap();
    pull("5");
    found
}

/// Runs cases B10 and B11 with two workers and compression. In the recording, each of two servers
/// had a part of these values. Here each worker has a part.
pub(crate) fn compressed(store: &dyn KvStore) {
    store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
    // Initial values are not compressed.
    let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    store.init(&[key("b10")], &[list(&numbers)]).unwrap();
    assert_eq!(floats(store, "b10"), numbers);
    store.init(&[key("b11")], &[list(&[0.0; 40])]).unwrap();
    let linspace: Vec<f32> = (0_u8..40).map(|index| f32::from(index) * 2.0 / 39.0 - 1.0).collect();
    store.push(&[key("b11")], &[list(&linspace)], 0).unwrap();
    assert_eq!(floats(store, "b11"), [[-1.0; 10], [0.0; 10], [0.0; 10], [1.0; 10]].concat());
    store.set_compression(None).unwrap();
}

/// Runs cases B12 and B15 with one worker.
pub(crate) fn of_one_worker(store: &dyn KvStore) {
    store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
    store.init(&[key("b12")], &[list(&[0.0; 12])]).unwrap();
    let pushed = [-0.49, -0.3, 0.1, 0.2, 0.26, 0.49, 0.5, 0.51, 0.75, 1.0, 1.5, -2.0];
    for first in [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [-0.5, -0.5, 0.0, 0.0, 0.5, 0.5],
        [-0.5, 0.0, 0.0, 0.5, 0.0, 0.5],
        [-0.5, -0.5, 0.0, 0.0, 0.5, 0.5],
        [-0.5, -0.5, 0.5, 0.5, 0.0, 0.5],
    ] {
        store.push(&[key("b12")], &[list(&pushed)], 0).unwrap();
        let expected = [first, [0.5, 0.5, 0.5, 0.5, 0.5, -0.5]].concat();
        assert_eq!(floats(store, "b12"), expected);
    }
    store.set_compression(None).unwrap();
    store.init(&[key("b15")], &[list(&[7.0])]).unwrap();
    store.set_optimizer(Optimizer::sgd().with("learning_rate", 1.0).unwrap()).unwrap();
    store.push(&[key("b15")], &[list(&[1.0])], 0).unwrap();
    assert_eq!(floats(store, "b15"), [6.0]);
}

//! The programs that were recorded on MXNet's `dist_sync`, with two workers or one: `reference.md` numbers them B1 to B15.
//! Of these B8 and B13 are of `dist_async`, B9 is an error of its servers, and B14 waits for ever.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, Compression, CpuBackend, Device, KvStore, Optimizer, Tensor, Value};

use crate::values::{floats, full, key, rank};

fn backends() -> Backends {
    Backends::new(vec![CpuBackend::with_threads(1)])
}

fn list(elements: &[f32]) -> Value {
    Tensor::from_slice(&backends(), Device::cpu(0), [elements.len()], elements).unwrap().into()
}

/// Cases B1 to B7: what both workers have pulled.
pub(crate) const EXPECTED: [f32; 8] = [10.0, 3.0, 6.0, 11.0, 6.0, 12.0, 6.0, 7.0];

/// Does what worker `r` does, and returns what it pulls.
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
    // Set by rank 0 alone, and there for all behind a barrier.
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

/// Cases B10 and B11, of two workers and a compression. There two servers had a part each of these values; here the
/// workers have one each.
pub(crate) fn compressed(store: &dyn KvStore) {
    store.set_compression(Some(Compression::new("2bit", 0.5).unwrap())).unwrap();
    // What is initialised is not compressed.
    let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    store.init(&[key("b10")], &[list(&numbers)]).unwrap();
    assert_eq!(floats(store, "b10"), numbers);
    store.init(&[key("b11")], &[list(&[0.0; 40])]).unwrap();
    let linspace: Vec<f32> = (0_u8..40).map(|index| f32::from(index) * 2.0 / 39.0 - 1.0).collect();
    store.push(&[key("b11")], &[list(&linspace)], 0).unwrap();
    assert_eq!(floats(store, "b11"), [[-1.0; 10], [0.0; 10], [0.0; 10], [1.0; 10]].concat());
    store.set_compression(None).unwrap();
}

/// Cases B12 and B15, of one worker.
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

//! The programs that were recorded on MXNet's `dist_sync` with two workers.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use kvstore_core::{Backends, CpuBackend, KvStore, Optimizer, Value};

use crate::values::{floats, full, key, rank};

/// What both workers have pulled.
pub(crate) const EXPECTED: [f32; 8] = [10.0, 3.0, 6.0, 11.0, 6.0, 12.0, 6.0, 7.0];

/// Does what worker `r` does, and returns what it pulls.
pub(crate) fn run<S: KvStore>(store: &S) -> Vec<f32> {
    let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
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
    if store.rank() == 0 {
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

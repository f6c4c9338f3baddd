//! The time that the host needs for calls on a GPU, with a driver that does nothing.
//!
//! ```text
//! cargo bench -p kvstore-cuda --bench host_time
//! cargo bench -p kvstore-cuda --bench host_time -- rows_sgd_4     # cases that start so
//! ```
//!
//! Each case runs in turn with a loop that looks up 4096 texts in a hash map. The ratio of the two
//! times depends less on the machine than the time does.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a benchmark may abort without memory"
)]
#![allow(clippy::expect_used, reason = "a benchmark that cannot run says why")]

use std::collections::HashMap;
use std::env;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_core::{
    Backends, CpuBackend, DType, Device, Key, KvStore, LocalStore, Optimizer, RowSparse, Scalar,
    Tensor, TensorSpec, Value,
};
use kvstore_cuda::CudaBackend;
use kvstore_emulator::null;

const NUM_KEYS: usize = 4096;
/// The rows of the embedding, and the floats in a row.
const NUM_ROWS: usize = 1 << 20;
const WIDTH: usize = 128;
/// A value has one of this many rows.
const ONE_OF: usize = 8;
const NUM_VALUES: usize = 4;

/// How long a case is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// How long a case and the loop run in turn.
const TURN: Duration = Duration::from_millis(20);

/// A call. It gets the number of its turn.
type Call = Box<dyn FnMut(usize)>;

/// A call, and the time that it may take in milliseconds.
struct Case {
    name: &'static str,
    goal: f64,
    prepare: fn(&Backends) -> Call,
}

const CASES: [Case; 6] = [
    Case { name: "keys_sum_2", goal: 0.3, prepare: |backends| keys(backends, None, 2) },
    Case { name: "keys_adamw", goal: 0.6, prepare: |backends| keys(backends, Some("adamw"), 1) },
    Case { name: "rows_sum_4", goal: 0.6, prepare: |backends| rows(backends, None) },
    Case { name: "rows_sgd_4", goal: 0.8, prepare: |backends| rows(backends, Some("sgd")) },
    Case { name: "rows_gather", goal: 0.2, prepare: gather },
    Case { name: "key_sgd_2", goal: 0.005, prepare: key },
];

fn main() {
    let names: Vec<String> = env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    null::load().expect("the driver that does nothing");
    let host = CpuBackend::new();
    let gpus = CudaBackend::with_devices(Arc::clone(&host), None).expect("its device");
    let backends = Backends::new(vec![host, gpus]);
    println!("{:<12} {:>9} {:>9} {:>14}", "case", "ms", "goal ms", "ratio to loop");
    for case in CASES {
        if names.is_empty() || names.iter().any(|name| case.name.starts_with(name.as_str())) {
            let (time, of_loop) = measure((case.prepare)(&backends));
            let ratio = time / of_loop;
            println!("{:<12} {:>9.4} {:>9.3} {ratio:>14.2}", case.name, 1e3 * time, case.goal);
        }
    }
}

/// Returns the median seconds of a call and of the loop.
fn measure(mut call: Call) -> (f64, f64) {
    let mut lookups = lookups();
    let (mut calls, mut loops) = (Vec::new(), Vec::new());
    // The first calls allocate and load.
    (0..3).for_each(&mut call);
    let start = Instant::now();
    while start.elapsed() < MEASURED {
        calls.push(seconds(&mut call));
        loops.push(seconds(&mut lookups));
    }
    (median(calls), median(loops))
}

/// Returns the seconds of a call, from calls that take a turn together.
fn seconds(mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < TURN {
        call(count);
        count += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(u32::try_from(count).expect("few calls"))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Returns a loop that looks up 4096 texts in a hash map.
fn lookups() -> impl FnMut(usize) {
    let texts: Vec<String> = (0..NUM_KEYS).map(|number| format!("w{number}")).collect();
    let map: HashMap<String, usize> = texts.iter().cloned().zip(0..).collect();
    move |_| {
        let sum: usize = texts.iter().map(|text| map.get(text).copied().unwrap_or_default()).sum();
        black_box(sum);
    }
}

fn store(backends: &Backends, optimizer: Option<&str>) -> LocalStore {
    let store = LocalStore::new("device", backends.clone()).expect("a store");
    if let Some(name) = optimizer {
        store.set_optimizer(Optimizer::new(name).expect("an optimizer")).expect("a new store");
    }
    store
}

fn tensor(backends: &Backends, dims: &[usize]) -> Tensor {
    let spec = TensorSpec::new(dims.to_vec(), DType::F32);
    Tensor::full(backends, Device::gpu(0), spec, Scalar::Float(0.5)).expect("memory")
}

/// A push of many keys with different lengths.
fn keys(backends: &Backends, optimizer: Option<&str>, num_values: usize) -> Call {
    let store = store(backends, optimizer);
    let lengths: Vec<usize> = (0..NUM_KEYS).map(|number| 64 + 7919 * number % 65_536).collect();
    let names: Vec<Key> =
        (0..NUM_KEYS).map(|number| Key::new(&format!("w{number}")).expect("a name")).collect();
    let values = || lengths.iter().map(|len| Value::from(tensor(backends, &[*len])));
    store.init(&names, &values().collect::<Vec<_>>()).expect("new keys");
    let pushed_keys: Vec<Key> =
        names.iter().flat_map(|key| std::iter::repeat_n(key.clone(), num_values)).collect();
    let new_values = |len: &usize| {
        let dims = [*len];
        (0..num_values).map(move |_| Value::from(tensor(backends, &dims))).collect::<Vec<_>>()
    };
    let pushed: Vec<Value> = lengths.iter().flat_map(new_values).collect();
    Box::new(move |_| store.push(&pushed_keys, &pushed, 0).expect("a push"))
}

/// A push of one short key.
fn key(backends: &Backends) -> Call {
    let store = store(backends, Some("sgd"));
    let key = Key::new("w").expect("a name");
    store.init(std::slice::from_ref(&key), &[tensor(backends, &[1024]).into()]).expect("a new key");
    let values = [tensor(backends, &[1024]).into(), tensor(backends, &[1024]).into()];
    let keys = [key.clone(), key];
    Box::new(move |_| store.push(&keys, &values, 0).expect("a push"))
}

/// Returns ascending row indices, one of each `ONE_OF` rows.
fn ids(seed: usize) -> Vec<i64> {
    let id = |number: usize| number * ONE_OF + (number * (2 * seed + 1) + seed) * 31 % 127 % ONE_OF;
    (0..NUM_ROWS / ONE_OF).map(|number| i64::try_from(id(number)).expect("a small id")).collect()
}

/// A store with an embedding.
fn embedding(backends: &Backends, optimizer: Option<&str>) -> (LocalStore, Key) {
    let (store, key) = (store(backends, optimizer), Key::new("w").expect("a name"));
    let value = tensor(backends, &[NUM_ROWS, WIDTH]);
    store.init(std::slice::from_ref(&key), &[value.into()]).expect("a new key");
    (store, key)
}

/// A push of row-sparse values. Two sets of them alternate.
fn rows(backends: &Backends, optimizer: Option<&str>) -> Call {
    let (store, key) = embedding(backends, optimizer);
    let value = |seed: usize| {
        let ids = ids(seed);
        let rows = tensor(backends, &[ids.len(), WIDTH]);
        Value::from(RowSparse::new([NUM_ROWS, WIDTH], ids, rows).expect("ascending ids"))
    };
    let set = |set: usize| (0..NUM_VALUES).map(|n| value(n + NUM_VALUES * set)).collect();
    let sets: [Vec<Value>; 2] = [set(0), set(1)];
    let keys: Vec<Key> = std::iter::repeat_n(key, NUM_VALUES).collect();
    Box::new(move |turn| store.push(&keys, &sets[turn % 2], 0).expect("a push"))
}

/// A pull of rows.
fn gather(backends: &Backends) -> Call {
    let (store, key) = embedding(backends, None);
    let batches: Vec<Vec<i64>> = (0..NUM_VALUES).map(ids).collect();
    Box::new(move |turn| {
        let batch = batches.get(turn % NUM_VALUES).map(Vec::as_slice).unwrap_or_default();
        let pulled = store.pull_rows(std::slice::from_ref(&key), &[batch], 0);
        black_box(pulled.expect("rows of the embedding"));
    })
}

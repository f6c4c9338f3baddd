//! Row-sparse values on GPUs: long lists of row indices, which the GPU plans in several steps, give
//! the bits of the host. The suites test short ones.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

#[allow(dead_code, reason = "shared with other tests")]
mod cards;

use std::thread;

use cards::{alone, is_real};
use kvstore_core::{
    Backends, DType, Device, Key, KvStore, LocalStore, Optimizer, RowSparse, Scalar, Tensor,
    TensorSpec, Value,
};
use kvstore_emulator as emulator;

const NUM_ROWS: usize = 50_000;
const WIDTH: usize = 3;

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    /// Returns ascending row indices: none, a few, or so many that their plan takes more steps.
    fn ids(&mut self) -> Vec<i64> {
        let one_of = [NUM_ROWS, 5000, 60, 4, 2, 1][self.below(6)];
        let all = 0..i64::try_from(NUM_ROWS).unwrap();
        all.filter(|_| self.below(one_of) == 0).collect()
    }

    fn value(&mut self, backends: &Backends, device: Device) -> RowSparse {
        let ids = self.ids();
        let mut number = || f32::from(u8::try_from(self.below(5)).unwrap()) * 0.3 - 0.6;
        // Some zeros are negative: they become positive if another value lacks the row.
        let elements: Vec<f32> =
            (0..ids.len() * WIDTH).map(|n| if n % 7 == 0 { -0.0 } else { number() }).collect();
        let rows = Tensor::from_slice(backends, device, [ids.len(), WIDTH], &elements).unwrap();
        RowSparse::new([NUM_ROWS, WIDTH], ids, rows).unwrap()
    }
}

/// The row indices, or none for a dense value, and the bits.
type Bits = (Vec<i64>, Vec<u8>);

fn bits_of(value: &Value) -> Bits {
    match value {
        Value::Dense(tensor) => (Vec::new(), tensor.to_bytes().unwrap()),
        Value::Rows(rows) => (rows.indices().to_vec(), rows.rows().to_bytes().unwrap()),
    }
}

/// Pushes, pulls and sums random rows. Returns all results.
fn run(
    backends: &Backends,
    device: fn(u32) -> Device,
    optimizer: Option<&Optimizer>,
    seed: u64,
) -> Vec<Bits> {
    let (mut numbers, mut found) = (Numbers(seed), Vec::new());
    let store = LocalStore::new("device", backends.clone()).unwrap();
    let keys: Vec<Key> = (0..3).map(|key| Key::new(&format!("w{key}")).unwrap()).collect();
    let spec = TensorSpec::new([NUM_ROWS, WIDTH], DType::F32);
    let weight = Tensor::full(backends, device(0), spec, Scalar::Float(0.5)).unwrap();
    store.init(&keys, &[&weight; 3].map(Value::from)).unwrap();
    if let Some(optimizer) = optimizer {
        store.set_optimizer(optimizer.clone()).unwrap();
    }
    for _ in 0..2 {
        let (mut pushed_keys, mut pushed) = (Vec::new(), Vec::new());
        for key in &keys {
            for _ in 0..=numbers.below(4) {
                let on = device(u32::try_from(numbers.below(2)).unwrap());
                pushed_keys.push(key.clone());
                pushed.push(Value::Rows(numbers.value(backends, on)));
            }
        }
        // The second time, the row indices are where they are needed.
        for _ in 0..2 {
            store.push(&pushed_keys, &pushed, 0).unwrap();
            for value in store.pull(&keys, 0).unwrap() {
                found.push((Vec::new(), value.to_bytes().unwrap()));
            }
        }
        let (mut ids, one) = (numbers.ids(), numbers.ids());
        ids.reverse();
        for rows in store.pull_rows(&keys, &[&ids, &one, &one], 0).unwrap() {
            found.push(bits_of(&rows.into()));
        }
        let values: Vec<Value> =
            (0..3).map(|_| numbers.value(backends, device(0)).into()).collect();
        let sum = Value::sum(&values).unwrap();
        // The dense form comes before the host knows the row indices of the sum.
        found.push((Vec::new(), sum.to_dense().unwrap().to_bytes().unwrap()));
        let total = Value::sum(&[sum.clone(), values[0].clone(), sum.clone()]).unwrap();
        found.extend([bits_of(&sum), bits_of(&total)]);
    }
    found
}

#[test]
fn long_lists_of_rows_give_the_bits_of_the_host() {
    let _alone = alone();
    let backends = cards::backends(2);
    for optimizer in [None, Some("sgd"), Some("adam"), Some("groupadagrad")] {
        let optimizer = optimizer.map(|name| Optimizer::new(name).unwrap());
        for seed in 0..3 {
            let run = |device| run(&backends, device, optimizer.as_ref(), seed);
            let (expected, found) = (run(Device::cpu), run(Device::gpu));
            for (position, (expected, found)) in expected.iter().zip(&found).enumerate() {
                assert!(expected == found, "{optimizer:?}, seed {seed}, result {position}");
            }
            assert_eq!(expected.len(), found.len());
        }
    }
}

/// Threads copy the same row indices to the GPU and compute the same unions on it.
#[test]
fn threads_that_share_rows_get_the_same_sums() {
    let _alone = alone();
    let backends = cards::backends(1);
    for seed in 10..14 {
        let mut numbers = Numbers(seed);
        let values: Vec<Value> =
            (0..3).map(|_| numbers.value(&backends, Device::gpu(0)).into()).collect();
        let on_host = values.iter().map(|value| match value {
            Value::Rows(rows) => rows.to_device(&backends, Device::cpu(0)).unwrap().into(),
            Value::Dense(_) => value.clone(),
        });
        let expected = bits_of(&Value::sum(&on_host.collect::<Vec<_>>()).unwrap());
        let shared = Value::sum(&values).unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    assert!(bits_of(&Value::sum(&values).unwrap()) == expected);
                    assert!(bits_of(&shared) == expected);
                });
            }
        });
    }
}

/// A push that fails changes nothing, and leaves valid copies of the row indices.
#[test]
fn failed_pushes_of_rows_change_nothing() {
    let _alone = alone();
    if is_real() {
        println!("not run: only the emulated driver can be made to fail");
        return;
    }
    for optimizer in [None, Some(Optimizer::sgd())] {
        for (function, failure) in
            [("cuMemAlloc_v2", "+=2"), ("cuMemcpyHtoDAsync_v2", ""), ("cuLaunchKernel", "")]
        {
            let num_failures = fail_pushes(optimizer.as_ref(), function, failure);
            assert!(num_failures >= 4, "{function} fails {num_failures} times");
        }
    }
}

/// Lets each call of a driver function in a push fail in turn. Returns the number of failed pushes.
fn fail_pushes(optimizer: Option<&Optimizer>, function: &str, failure: &str) -> usize {
    let backends = cards::backends(1);
    let gpus = backends.of(Device::gpu(0)).unwrap();
    let key = [Key::new("w").unwrap()];
    let store_on = |device: Device| {
        let store = LocalStore::new("device", backends.clone()).unwrap();
        let spec = TensorSpec::new([NUM_ROWS, WIDTH], DType::F32);
        let weight = Tensor::full(&backends, device, spec, Scalar::Float(0.5)).unwrap();
        store.init(&key, &[weight.into()]).unwrap();
        if let Some(optimizer) = optimizer {
            store.set_optimizer(optimizer.clone()).unwrap();
        }
        store
    };
    let bits = |store: &LocalStore| store.pull(&key, 0).unwrap()[0].to_bytes().unwrap();
    let (store, host) = (store_on(Device::gpu(0)), store_on(Device::cpu(0)));
    let pushed_keys = vec![key[0].clone(); 3];
    let mut numbers = Numbers(99);
    for number in 0.. {
        let on_host: Vec<RowSparse> =
            (0..3).map(|_| numbers.value(&backends, Device::cpu(0))).collect();
        let values = on_host.iter().map(|value| value.to_device(&backends, Device::gpu(0)));
        let values: Vec<Value> = values.map(|value| value.unwrap().into()).collect();
        let before = bits(&store);
        gpus.trim();
        emulator::fail(&format!("{function}:{number}{failure}")).unwrap();
        let result = store.push(&pushed_keys, &values, 0);
        emulator::fail("").unwrap();
        if result.is_err() {
            assert!(bits(&store) == before, "{function} {number} changes a value");
            store.push(&pushed_keys, &values, 0).unwrap();
        }
        let on_host: Vec<Value> = on_host.into_iter().map(Value::from).collect();
        host.push(&pushed_keys, &on_host, 0).unwrap();
        assert!(bits(&store) == bits(&host), "after {function} {number}");
        if result.is_ok() {
            return number;
        }
    }
    0
}

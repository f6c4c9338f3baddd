//! The noise of `sgld` is a function of seed, key, count and element, and is normally distributed.

use kvstore::Optimizer;
use kvstore_core::{Backends, CpuBackend, Device, Key, KvStore, LocalStore, Tensor};

const LEARNING_RATE: f64 = 0.04;

/// The lengths of three keys. One of them is cut between threads.
const LENGTHS: [usize; 3] = [100_003, 1, 1030];

fn sgld(seed: f64) -> Optimizer {
    let options = [("learning_rate".to_owned(), LEARNING_RATE), ("seed".to_owned(), seed)];
    Optimizer::from_options("sgld", &options).expect("valid hyper-parameters")
}

/// A store whose backend has a given number of threads.
struct Bench {
    backends: Backends,
    store: LocalStore,
}

impl Bench {
    fn new(name: &str, num_threads: usize, optimizer: Optimizer) -> Self {
        let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
        let store = LocalStore::new(name, backends.clone()).expect("a known name");
        store.set_optimizer(optimizer).expect("any can be set");
        Self { backends, store }
    }

    fn tensor(&self, elements: &[f32]) -> Tensor {
        Tensor::from_slice(&self.backends, Device::cpu(0), [elements.len()], elements)
            .expect("enough memory")
    }

    fn zeros(&self, length: usize) -> Tensor {
        self.tensor(&vec![0.0; length])
    }

    fn init(&self, keys: &[Key]) {
        let zeros: Vec<_> =
            LENGTHS[..keys.len()].iter().map(|len| self.zeros(*len).into()).collect();
        self.store.init(keys, &zeros).expect("new keys");
    }

    fn push(&self, keys: &[Key]) {
        let known = self.store.describe(keys).expect("known keys");
        let lengths = known.iter().map(|description| description.spec.num_elements());
        let gradients: Vec<_> = lengths.map(|length| self.zeros(length).into()).collect();
        self.store.push(keys, &gradients, 0).expect("gradients of these shapes");
    }

    fn pull(&self, key: &Key) -> Vec<f32> {
        self.store.pull(std::slice::from_ref(key), 0).expect("a known key")[0]
            .to_vec()
            .expect("floats")
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn keys() -> [Key; 3] {
    ["a", "b", "c"].map(key)
}

/// Returns the noise of update `count` of a key, divided by its deviation.
fn noise(seed: f64, name: &str, count: u32, length: usize) -> Vec<f64> {
    let optimizer = sgld(seed).with("begin_num_update", f64::from(count - 1)).expect("a count");
    let bench = Bench::new("local", 2, optimizer);
    let key = [key(name)];
    bench.store.init(&key, &[bench.zeros(length).into()]).expect("a new key");
    bench.push(&key);
    bench.pull(&key[0]).into_iter().map(|x| f64::from(x) / LEARNING_RATE.sqrt()).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn noise_does_not_depend_on_threads_or_calls() {
    let run = |name, num_threads, is_one_call| {
        let bench = Bench::new(name, num_threads, sgld(3.0));
        bench.init(&keys());
        for _ in 0..2 {
            if is_one_call {
                bench.push(&keys());
            } else {
                keys().iter().rev().for_each(|key| bench.push(std::slice::from_ref(key)));
            }
        }
        keys().map(|key| bits(&bench.pull(&key)))
    };
    let expected = run("local", 1, true);
    for num_threads in [1, 2, 7] {
        for name in ["local", "device"] {
            for is_one_call in [true, false] {
                assert!(
                    run(name, num_threads, is_one_call) == expected,
                    "{name}, {num_threads} threads, one call: {is_one_call}"
                );
            }
        }
    }
}

#[test]
fn a_longer_value_starts_with_the_noise_of_a_shorter_one() {
    let long = noise(1.0, "w", 1, 5000);
    for length in [1, 2, 3, 5, 1024, 1025] {
        assert_eq!(noise(1.0, "w", 1, length), long[..length], "{length}");
    }
}

#[test]
fn counts_continue() {
    let bench = Bench::new("local", 2, sgld(1.0));
    let key = [key("w")];
    bench.store.init(&key, &[bench.zeros(100).into()]).expect("a new key");
    bench.push(&key);
    let first = bench.pull(&key[0]);
    bench.push(&key);
    let step = bench.pull(&key[0]).into_iter().zip(first).map(|(b, a)| f64::from(b - a));
    for (found, expected) in step.zip(noise(1.0, "w", 2, 100)) {
        assert!((found / LEARNING_RATE.sqrt() - expected).abs() < 1e-5);
    }
}

/// The weight and the gradient affect the step, but not the noise.
#[test]
fn a_step_is_the_formula_plus_noise() {
    let optimizer = sgld(1.0).with("wd", 0.5).and_then(|sgld| sgld.with("rescale_grad", 2.0));
    let optimizer = optimizer.and_then(|sgld| sgld.with("clip_gradient", 3.0)).expect("valid");
    let bench = Bench::new("local", 2, optimizer);
    let key = [key("w")];
    let weights = [1.0, -2.0, 0.5, 3.0];
    let gradients = [1.0, -0.25, 4.0, 0.0];
    bench.store.init(&key, &[bench.tensor(&weights).into()]).expect("a new key");
    bench.store.push(&key, &[bench.tensor(&gradients).into()], 0).expect("a gradient");
    let noise = noise(1.0, "w", 1, 4);
    for (index, found) in bench.pull(&key[0]).into_iter().enumerate() {
        let (w, g) = (f64::from(weights[index]), f64::from(gradients[index]));
        let drift = LEARNING_RATE / 2.0 * ((2.0 * g).clamp(-3.0, 3.0) + 0.5 * w);
        let expected = w - drift + LEARNING_RATE.sqrt() * noise[index];
        assert!((f64::from(found) - expected).abs() < 1e-6, "{found}, not {expected}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "a million is exact")]
fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    numbers.sum::<f64>() / count
}

const MANY: usize = 1_000_000;

/// Checks that the mean of a million numbers with this expectation and variance is within five
/// standard deviations. A correct generator fails this for one seed in a million, and the seeds are
/// fixed.
#[track_caller]
fn assert_mean(what: &str, found: f64, expectation: f64, variance: f64) {
    let deviation = (variance / 1e6).sqrt();
    println!(
        "{what}: {found:.5}, {:.2} standard deviations off",
        (found - expectation) / deviation
    );
    assert!((found - expectation).abs() < 5.0 * deviation, "{what}: {found}, not {expectation}");
}

#[test]
fn noise_is_normally_distributed() {
    for seed in [0.0, 1.0, 9_007_199_254_740_992.0] {
        let noise = noise(seed, "w", 1, MANY);
        let power = |n| mean(noise.iter().map(move |x| f64::powi(*x, n)));
        assert_mean("mean", power(1), 0.0, 1.0);
        assert_mean("variance", power(2), 1.0, 2.0);
        assert_mean("third moment", power(3), 0.0, 15.0);
        assert_mean("fourth moment", power(4), 3.0, 96.0);
        for distance in [1, 2, 3, 4, 1024] {
            let pairs = noise.iter().zip(noise.iter().cycle().skip(distance)).take(MANY);
            let products: Vec<_> = pairs.map(|(a, b)| a * b).collect();
            assert_mean("neighbours", mean(products.into_iter()), 0.0, 1.0);
        }
        let tail = noise.iter().map(|x| f64::from(u8::from(x.abs() > 3.0)));
        assert_mean("beyond three deviations", mean(tail), 0.002_699_796, 0.002_692_507);
    }
}

#[test]
fn noise_depends_on_seed_key_and_count() {
    let one = noise(0.0, "w", 1, MANY);
    for (what, other) in [
        ("seed", noise(1.0, "w", 1, MANY)),
        ("large seed", noise(4_294_967_296.0, "w", 1, MANY)),
        ("key", noise(0.0, "v", 1, MANY)),
        ("empty key", noise(0.0, "", 1, MANY)),
        ("count", noise(0.0, "w", 2, MANY)),
    ] {
        let num_same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(num_same < 100, "{what}: {num_same} numbers are the same");
        let products = one.iter().zip(&other).map(|(a, b)| a * b);
        assert_mean(what, mean(products), 0.0, 1.0);
    }
}

//! Optimizers on a store: hyper-parameters that change while it runs, counts and schedules per key,
//! multipliers, and what is refused.

#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]
#![allow(clippy::float_cmp, reason = "the numbers are exact")]

use kvstore::{
    DType, Device, Error, ErrorCode, Key, LrScheduler, NDArray, Optimizer, Store, Warmup, array,
    create, full,
};
use kvstore_core::{Backends, CpuBackend, Tensor};

fn key(text: &str) -> Key {
    Key::new(text).expect("a text without NUL")
}

fn number(value: f32) -> NDArray {
    array(&[value], [1], Device::cpu(0)).expect("memory is to be had")
}

fn store_with(optimizer: Optimizer, keys: &[&str], value: f32) -> Store {
    let store = create("local").unwrap();
    for key in keys {
        store.init(*key, &number(value)).unwrap();
    }
    store.set_optimizer(optimizer).unwrap();
    store
}

fn pulled(store: &Store, key: &str) -> f32 {
    let out = number(f32::NAN);
    store.pull(key, &out).unwrap();
    out.to_vec::<f32>().unwrap()[0]
}

/// What a step with gradient 1 takes off the weight: the learning rate, for plain SGD.
fn rate(store: &Store, key: &str) -> f64 {
    let before = pulled(store, key);
    store.push(key, &number(1.0)).unwrap();
    f64::from(before) - f64::from(pulled(store, key))
}

fn assert_rates(store: &Store, key: &str, expected: &[f64]) {
    for (number, expected) in (1..).zip(expected) {
        let found = rate(store, key);
        assert!((found - expected).abs() < 1e-6, "update {number} of {key}: {found}");
    }
}

fn sgd(learning_rate: f64) -> Optimizer {
    Optimizer::sgd().with("learning_rate", learning_rate).expect("a hyper-parameter of SGD")
}

fn assert_invalid<T: std::fmt::Debug>(result: Result<T, Error>, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains(part), "`{error}` does not name `{part}`");
}

#[test]
fn hyper_parameters_change_on_the_running_store() {
    let store = store_with(sgd(0.5).with("momentum", 0.5).unwrap(), &["w"], 0.0);
    store.push("w", &number(1.0)).unwrap();
    assert_eq!(pulled(&store, "w"), -0.5);
    store.set_hyper_parameters(&[("lr", 0.25)]).unwrap();
    let hyper_parameters = store.hyper_parameters().unwrap();
    assert!(hyper_parameters.contains(&("learning_rate", 0.25)));
    assert!(hyper_parameters.contains(&("momentum", 0.5)));
    // The momentum of the first step is still there.
    store.push("w", &number(1.0)).unwrap();
    assert_eq!(pulled(&store, "w"), -0.5 - 0.25 - 0.25);
}

#[test]
fn momentum_can_begin_later() {
    let store = store_with(sgd(0.5), &["w"], 0.0);
    store.push("w", &number(1.0)).unwrap();
    store.set_hyper_parameters(&[("momentum", 0.5)]).unwrap();
    store.push("w", &number(1.0)).unwrap();
    assert_eq!(pulled(&store, "w"), -1.0);
    store.push("w", &number(1.0)).unwrap();
    assert_eq!(pulled(&store, "w"), -1.75);
}

#[test]
fn a_half_precision_master_copy_outlives_a_change_of_formula() {
    let store = create("local").unwrap();
    let one = full([1], 1.0, DType::F16, Device::cpu(0)).unwrap();
    let gradient = full([1], -1.0, DType::F16, Device::cpu(0)).unwrap();
    store.init("w", &one).unwrap();
    store.set_optimizer(sgd(1e-4)).unwrap();
    for step in 0..40 {
        if step == 20 {
            store.set_hyper_parameters(&[("momentum", 1e-9)]).unwrap();
        }
        store.push("w", &gradient).unwrap();
    }
    // Each step alone is too small for f16 to see.
    let moved = store.pull_new("w").unwrap()[0].to_vec::<kvstore::f16>().unwrap()[0].to_f64();
    assert!((moved - 1.004).abs() < 1e-3, "{moved}");
}

#[test]
fn wrong_names_and_values_are_named_and_change_nothing() {
    let store = create("local").unwrap();
    assert_invalid(store.hyper_parameters(), "no optimizer");
    assert_invalid(store.set_hyper_parameters(&[("lr", 0.1)]), "no optimizer");
    store.set_optimizer(sgd(0.5)).unwrap();
    assert_invalid(store.set_hyper_parameters(&[("lr", 0.1), ("beta1", 0.9)]), "beta1");
    assert_invalid(store.set_hyper_parameters(&[("lr", 0.1), ("lr", f64::NAN)]), "NaN");
    assert_eq!(store.optimizer().unwrap().get("learning_rate").unwrap(), 0.5);
    assert_invalid(Optimizer::new("adma"), "adma");
    assert_invalid(Optimizer::new("adam").unwrap().with("beta1", 1.0), "beta1");
    assert_invalid(Optimizer::sgd().with("clip_gradient", -1.0), "clip_gradient");
    assert_invalid(Optimizer::new("rmsprop").unwrap().with("centered", 0.5), "0 or 1");
    assert_invalid(Optimizer::sgd().with("begin_num_update", 1.5), "whole number");
    assert_invalid(LrScheduler::factor(0, 0.5), "step");
    assert_invalid(LrScheduler::factor(1, 1.5), "1.5");
    assert_invalid(LrScheduler::multi_factor(vec![3, 3], 0.5), "ascending");
    assert_invalid(LrScheduler::cosine(5, 0.0).unwrap().with_warmup(5, 0.0, Warmup::Linear), "5");
}

#[test]
fn integer_weights_are_refused_and_stay() {
    let store = create("local").unwrap();
    let five = full([2], 5, DType::I32, Device::cpu(0)).unwrap();
    store.init("n", &five).unwrap();
    store.init("w", &number(1.0)).unwrap();
    store.set_optimizer(sgd(1.0)).unwrap();
    assert_invalid(store.push(["w", "n"], [&number(1.0), &five]), "i32");
    assert_eq!(pulled(&store, "w"), 1.0);
    assert_eq!(store.pull_new("n").unwrap()[0].to_vec::<i32>().unwrap(), [5, 5]);
}

#[test]
fn counts_and_schedules_belong_to_the_key() {
    let scheduler = LrScheduler::factor(2, 0.5).unwrap();
    let store = store_with(sgd(0.5).with_scheduler(scheduler), &["a", "b"], 0.0);
    assert_rates(&store, "a", &[0.5, 0.5, 0.25, 0.25, 0.125]);
    assert_rates(&store, "b", &[0.5, 0.5, 0.25]);
    // A new base counts from the next update on, at the place where the schedule is.
    store.set_hyper_parameters(&[("learning_rate", 1.0)]).unwrap();
    assert_rates(&store, "b", &[0.5, 0.25]);
}

#[test]
fn schedules_begin_where_they_are_told() {
    let scheduler = LrScheduler::multi_factor(vec![3, 5], 0.5).unwrap();
    let optimizer = sgd(1.0).with("begin_num_update", 2.0).unwrap().with_scheduler(scheduler);
    assert_rates(&store_with(optimizer, &["w"], 0.0), "w", &[1.0, 0.5, 0.5, 0.25]);

    let cosine = LrScheduler::cosine(6, 0.0).unwrap().with_warmup(2, 0.0, Warmup::Linear).unwrap();
    let half = 0.5_f64.sqrt() / 2.0 + 0.5;
    let expected = [0.5, 1.0, half, 0.5, 1.0 - half, 0.0, 0.0];
    assert_rates(&store_with(sgd(1.0).with_scheduler(cosine), &["w"], 0.0), "w", &expected);

    let poly = LrScheduler::poly(4, 2.0, 0.0).unwrap();
    let constant = poly.with_warmup(2, 0.25, Warmup::Constant).unwrap();
    let expected = [0.25, 1.0, 0.25, 0.0, 0.0];
    assert_rates(&store_with(sgd(1.0).with_scheduler(constant), &["w"], 0.0), "w", &expected);

    let stop = LrScheduler::factor(1, 0.1).unwrap().with_stop(0.05);
    let expected = [1.0, 0.1, 0.05, 0.05];
    assert_rates(&store_with(sgd(1.0).with_scheduler(stop), &["w"], 0.0), "w", &expected);
}

#[test]
fn multipliers_are_the_key_s_own() {
    let optimizer = sgd(1.0)
        .with("wd", 0.5)
        .unwrap()
        .with_lr_multiplier(key("slow"), 0.25)
        .with_wd_multiplier(key("bias"), 0.0);
    let store = store_with(optimizer, &["w", "slow", "bias"], 2.0);
    for key in ["w", "slow", "bias"] {
        store.push(key, &number(0.5)).unwrap();
    }
    assert_eq!(pulled(&store, "w"), 2.0 - 0.5 - 1.0);
    assert_eq!(pulled(&store, "slow"), 2.0 - 0.25 * (0.5 + 1.0));
    assert_eq!(pulled(&store, "bias"), 2.0 - 0.5);
}

#[test]
fn zero_gradients_leave_weights_where_they_are() {
    for name in Optimizer::names().filter(|name| !["sgld", "ftrl", "adamw"].contains(name)) {
        let store = store_with(Optimizer::new(name).unwrap(), &["w"], 1.5);
        for _ in 0..3 {
            store.push("w", &number(0.0)).unwrap();
        }
        let found = pulled(&store, "w");
        assert!((found - 1.5).abs() < 1e-5, "{name}: {found}");
    }
}

/// One step of Langevin dynamics without gradient from 0: only noise.
fn noise(optimizer: &Optimizer, key_text: &str, len: usize, threads: usize) -> Vec<f32> {
    let backends = Backends::new(vec![CpuBackend::with_threads(threads)]);
    let tensor = || Tensor::from_slice(&backends, Device::cpu(0), [len], &vec![0f32; len]);
    let (mut weight, gradient) = (tensor().unwrap(), tensor().unwrap());
    let mut state = optimizer.create_state(&weight).unwrap();
    optimizer.update(&key(key_text), &mut weight, &[gradient], &mut state).unwrap();
    weight.to_vec().unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "statistics over 200000 numbers")]
fn noise_depends_on_seed_key_count_and_element_alone() {
    const LEN: usize = 200_000;
    let optimizer = Optimizer::new("sgld").unwrap().with("learning_rate", 0.25).unwrap();
    let one = noise(&optimizer, "w", LEN, 1);
    assert_eq!(one, noise(&optimizer, "w", LEN, 7), "the number of threads");
    assert_eq!(one[..100], noise(&optimizer, "w", 100, 2), "the length");
    let other = [
        noise(&optimizer, "v", LEN, 2),
        noise(&optimizer.clone().with("seed", 1.0).unwrap(), "w", LEN, 2),
        noise(&optimizer.clone().with("begin_num_update", 1.0).unwrap(), "w", LEN, 2),
    ];
    for other in &other {
        let equal = one.iter().zip(other).filter(|(a, b)| a == b).count();
        assert!(equal < 10, "{equal} numbers are the same");
    }
    // Standard deviation sqrt(0.25): mean and variance within five standard errors.
    let count = 200_000_f64;
    let mean = one.iter().copied().map(f64::from).sum::<f64>() / count;
    let variance = one.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    assert!(mean.abs() < 5.0 * 0.5 / count.sqrt(), "mean {mean}");
    assert!((variance - 0.25).abs() < 5.0 * 0.25 * (2.0 / count).sqrt(), "variance {variance}");
}

#[test]
#[cfg_attr(miri, ignore = "thousands of steps, on sines, which Miri makes anew for each store")]
fn a_call_of_many_keys_is_its_calls_one_by_one() {
    for name in Optimizer::names() {
        let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        let arrays = |seed: f32| -> Vec<NDArray> {
            let of = |n: u8| {
                let elements: Vec<f32> =
                    (0..=n).map(|i| (f32::from(i) + seed).sin() + f32::from(n) * 0.01).collect();
                array(&elements, [elements.len()], Device::cpu(0)).unwrap()
            };
            (0..20).map(of).collect()
        };
        let [together, alone] = ["local", "device"].map(|kind| {
            let store = create(kind).unwrap();
            store.init(&keys[..], arrays(0.5)).unwrap();
            store.set_optimizer(Optimizer::new(name).unwrap()).unwrap();
            store
        });
        for round in 0..3_u8 {
            let gradients = arrays(f32::from(round));
            together.push(&keys[..], &gradients).unwrap();
            for (key, gradient) in keys.iter().zip(&gradients).rev() {
                alone.push(key, gradient).unwrap();
            }
        }
        for key in &keys {
            let [one, other] = [&together, &alone].map(|store| {
                let value = &store.pull_new(key).unwrap()[0];
                value.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert_eq!(one, other, "{name} {key}");
        }
    }
}

//! Schedules, compared with `MXNet`'s stateful ones, directly and on a store.

use kvstore::{DType, Device, LrScheduler, Optimizer, Warmup, create, ones, zeros};
use kvstore_tests::json::floats;
use kvstore_tests::recorded;
use kvstore_tests::schedule::{Kind, Stateful, WarmingUp};
use proptest::prelude::*;

use super::random::schedule;

const BASE: f64 = 0.1;

fn is_close(expected: f64, found: f64) -> bool {
    (expected - found).abs() <= 1e-11 * expected.abs() + 1e-15
}

proptest! {
    /// The rate is a function of the update number: calling for all updates in turn, for one only,
    /// or backwards gives the same rates.
    #[test]
    fn schedules_agree_with_stateful_ones(stateful in schedule(BASE)) {
        let scheduler = stateful.scheduler().expect("a valid schedule");
        let mut asked = stateful;
        let expected: Vec<_> = (1..=200).map(|n| (n, asked.learning_rate(n))).collect();
        for (n, expected) in expected.into_iter().rev() {
            let found = scheduler.learning_rate(BASE, n);
            prop_assert!(is_close(expected, found), "update {n}: {expected}, found {found}");
        }
    }
}

/// Returns the learning rates that a store applied: the differences of a weight that SGD steps with
/// gradients of 1.
fn effective(store: &str, optimizer: Optimizer, num_updates: usize) -> Vec<f64> {
    let store = create(store).expect("a store of this machine");
    store.set_optimizer(optimizer).expect("any can be set");
    let array = |make: fn([usize; 1], DType, Device) -> kvstore::Result<kvstore::NDArray>| {
        make([1], DType::F64, Device::cpu(0)).expect("memory for one number")
    };
    store.init("w", &array(zeros)).expect("a new key");
    let mut before = 0.0;
    let next = || {
        store.push("w", &array(ones)).expect("a gradient of this shape");
        let after = store.pull_new("w").expect("a known key")[0].to_vec::<f64>().expect("f64")[0];
        std::mem::replace(&mut before, after) - after
    };
    std::iter::repeat_with(next).take(num_updates).collect()
}

#[test]
fn the_count_of_a_schedule_includes_the_current_update() {
    let stateful = |warmup| {
        let kind = Kind::Factor { step: 3, factor: 0.5, stop_factor_lr: 1e-8 };
        Stateful::new(kind, warmup, BASE)
    };
    let warmup = WarmingUp { steps: 4, begin_lr: 0.02, is_linear: true };
    for stateful in [stateful(None), stateful(Some(warmup))] {
        let optimizer = Optimizer::sgd().with("learning_rate", BASE).expect("a learning rate");
        let optimizer = optimizer.with_scheduler(stateful.scheduler().expect("a valid schedule"));
        for name in ["local", "device"] {
            let found = effective(name, optimizer.clone(), 12);
            let mut stateful = stateful.clone();
            let expected: Vec<_> = (1..=12).map(|n| stateful.learning_rate(n)).collect();
            let mut pairs = expected.iter().zip(&found);
            assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-14), "{expected:?}, found {found:?}");
        }
    }
}

#[test]
fn learning_rates_agree_with_the_recorded_rates() {
    let recording = &recorded::load_file()["lr_schedule"];
    let (name, rates) = recording.as_object().expect("a map").iter().next().expect("one recording");
    assert_eq!(name, "factor_step2_0.5_base0.1");
    let expected = floats(&rates["python_effective_lr_per_update"]);
    let scheduler = LrScheduler::factor(2, 0.5).expect("a valid schedule");
    let optimizer = Optimizer::sgd().with("learning_rate", BASE).expect("a learning rate");
    for store in ["local", "device"] {
        let found = effective(store, optimizer.clone().with_scheduler(scheduler.clone()), 8);
        let mut pairs = expected.iter().zip(&found);
        assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-14), "{expected:?}, found {found:?}");
    }
}

/// A schedule is multiplied by the key's factor, too, and starts from the current learning rate.
#[test]
fn the_base_rate_may_change_between_pushes() {
    let scheduler = LrScheduler::factor(2, 0.5).expect("a valid schedule");
    let store = create("local").expect("a store");
    store.set_optimizer(Optimizer::sgd().with_scheduler(scheduler)).expect("any can be set");
    let one = ones([1], DType::F64, Device::cpu(0)).expect("memory");
    store.init("w", &zeros([1], DType::F64, Device::cpu(0)).expect("memory")).expect("a new key");
    let weight = || store.pull_new("w").expect("a known key")[0].to_vec::<f64>().expect("f64")[0];
    for _ in 0..2 {
        store.push("w", &one).expect("a gradient");
    }
    assert!(is_close(-0.02, weight()));
    store.set_hyper_parameters(&[("learning_rate", 1.0)]).expect("a learning rate");
    store.push("w", &one).expect("a gradient");
    assert!(is_close(-0.52, weight()), "the third update has half of the base: {}", weight());
}

#[test]
fn invalid_schedules_are_rejected() {
    assert!(LrScheduler::factor(0, 0.5).is_err());
    assert!(LrScheduler::factor(1, 1.5).is_err());
    assert!(LrScheduler::multi_factor(vec![3, 3], 0.5).is_err());
    assert!(LrScheduler::multi_factor(vec![0, 3], 0.5).is_err());
    assert!(LrScheduler::multi_factor(vec![5, 3], 0.5).is_err());
    assert!(LrScheduler::multi_factor(vec![3], 1.5).is_err());
    assert!(LrScheduler::poly(0, 2.0, 0.0).is_err());
    assert!(LrScheduler::cosine(0, 0.0).is_err());
    let cosine = LrScheduler::cosine(10, 0.0).expect("a valid schedule");
    assert!(cosine.clone().with_warmup(11, 0.0, Warmup::Linear).is_err());
    assert!(cosine.with_warmup(5, f64::NAN, Warmup::Constant).is_err());
}

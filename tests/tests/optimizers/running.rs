//! Reading and changing hyper-parameters of a running store, rejected values, and the counts and
//! states of keys.

use kvstore::{
    DType, Device, ErrorCode, Key, NDArray, Optimizer, RowSparse, create, full, ones, zeros,
};
use kvstore_tests::arrays::{from_array, to_array};
use kvstore_tests::compare::{assert_same_bits, same_number};
use kvstore_tests::optimizer::Naive;
use kvstore_tests::optimizer_run::{NaiveKey, Setup};
use kvstore_tests::samples::tame;
use kvstore_tests::suite::assert_code;
use kvstore_tests::value::{Spec, Value};

/// Changes of hyper-parameters between two pushes.
type Change = &'static [(&'static str, f64)];

fn value(seed: u64) -> Value {
    tame(Spec::new(&[3, 5], DType::F32), seed)
}

fn of(number: f64) -> NDArray {
    full([1], number, DType::F64, Device::cpu(0)).expect("memory for one number")
}

fn number(store: &kvstore::Store, key: &str) -> f64 {
    store.pull_new(key).expect("a known key")[0].to_vec::<f64>().expect("f64")[0]
}

fn plain(name: &str) -> Naive {
    Naive::new(name).with("learning_rate", 0.05).with("wd", 0.01)
}

/// Pushes three times, applies a change, pushes three times, and so on. Compares with the formulas.
fn check_changes(naive: Naive, changes: &[Change]) {
    let mut setup = Setup::new(naive);
    let store = create("local").expect("a store of this machine");
    store.set_optimizer(setup.optimizer().expect("a valid optimizer")).expect("any can be set");
    let start = value(1);
    store.init("w", &to_array(&start)).expect("a new key");
    let mut key = NaiveKey::new(&setup, "w", &start);
    let mut seed = 10;
    for change in [&[][..]].iter().chain(changes) {
        store.set_hyper_parameters(change).expect("hyper-parameters that it has");
        for (name, value) in *change {
            setup.naive = setup.naive.with(name, *value);
        }
        for _ in 0..3 {
            seed += 1;
            let gradient = value(seed);
            store.push("w", &to_array(&gradient)).expect("a gradient of this shape");
            key.push(&setup, &[gradient]);
            let found = from_array(&store.pull_new("w").expect("a known key")[0]);
            if let Some(what) = key.difference(&found) {
                panic!("{} with {change:?}, push {seed}: {what}", setup.naive.name);
            }
        }
    }
}

#[test]
fn changes_keep_counts_and_states() {
    for name in Naive::names().filter(|name| *name != "sgld") {
        check_changes(
            plain(name),
            &[
                &[("learning_rate", 0.02), ("wd", 0.1)],
                &[("clip_gradient", 1.5)],
                &[("rescale_grad", 0.5)],
            ],
        );
    }
}

#[test]
fn momentum_can_be_switched_on_and_off() {
    for name in ["sgd", "nag", "nesterov", "signum"] {
        let naive = plain(name).with("momentum", 0.0);
        check_changes(naive.clone(), &[&[("momentum", 0.9)]]);
        check_changes(naive.with("momentum", 0.5), &[&[("momentum", 0.0)]]);
    }
    check_changes(plain("adam"), &[&[("decoupled_wd", 1.0), ("decay_factor", 0.9)]]);
}

/// DCASGD keeps the previous weight with and without momentum.
#[test]
fn the_previous_weight_is_kept_when_momentum_is_switched() {
    let naive = plain("dcasgd");
    check_changes(naive.clone(), &[&[("momentum", 0.9)]]);
    check_changes(naive.with("momentum", 0.9), &[&[("momentum", 0.0)]]);
}

/// `RMSProp` keeps the mean of the squares with and without centring.
#[test]
fn the_mean_square_is_kept_when_centring_is_switched() {
    let naive = plain("rmsprop").with("epsilon", 1e-3);
    check_changes(naive.clone(), &[&[("centered", 1.0)]]);
    check_changes(naive.with("centered", 1.0), &[&[("centered", 0.0)]]);
}

/// A momentum that is turned off and on again is kept, as in `MXNet`.
#[test]
fn momentum_is_kept_while_it_is_off() {
    let naive = plain("sgd").with("momentum", 0.5);
    check_changes(naive, &[&[("momentum", 0.0)], &[("momentum", 0.9)]]);
}

#[test]
fn defaults_equal_the_defaults_of_the_model() {
    // `names` omits `test`.
    let mut ours: Vec<_> = Optimizer::names().chain(["test"]).collect();
    let mut expected: Vec<_> = Naive::names().collect();
    ours.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ours, expected);
    for name in expected {
        let optimizer = Optimizer::new(name).expect("a known name");
        let mut found = optimizer.hyper_parameters();
        found.sort_by_key(|(name, _)| *name);
        assert_eq!(found, Naive::new(name).parameters.into_iter().collect::<Vec<_>>(), "{name}");
        assert_eq!(optimizer.name(), name);
    }
}

#[test]
fn aliases_are_accepted() {
    let sgd = Optimizer::new("ccsgd").expect("another name of sgd");
    assert_eq!((sgd.name(), &sgd), ("sgd", &Optimizer::sgd()));
    for (optimizer, alias, name) in [
        ("sgd", "lr", "learning_rate"),
        ("adam", "eps", "epsilon"),
        ("dcasgd", "lambda", "lamda"),
        ("ftrl", "lambda1", "lamda1"),
    ] {
        let by_alias = Optimizer::from_options(optimizer, &[(alias.to_owned(), 0.25)]);
        let by_name = Optimizer::new(optimizer).and_then(|optimizer| optimizer.with(name, 0.25));
        assert_eq!(by_alias.expect("another name"), *by_name.as_ref().expect("a name"));
        assert_eq!(by_name.expect("a name").get(alias).expect("another name"), 0.25);
    }
}

/// Checks that the call fails with `InvalidArgument`, and that the message names the cause.
#[track_caller]
fn assert_names<T: std::fmt::Debug>(result: kvstore::Result<T>, what: &str) {
    let error = result.expect_err("an invalid argument");
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.chain().contains(what), "`{}` does not name `{what}`", error.chain());
}

#[test]
fn two_names_of_one_hyper_parameter_are_rejected() {
    let store = create("local").expect("a store of this machine");
    store.set_optimizer(Optimizer::sgd()).expect("any can be set");
    for (one, other) in [("lr", "learning_rate"), ("wd", "weight_decay")] {
        let options = [(one.to_owned(), 0.5), (other.to_owned(), 0.5)];
        let text = format!("`{one}` and `{other}` name the same hyper-parameter");
        assert_names(Optimizer::from_options("sgd", &options), &text);
        assert_names(Optimizer::sgd().set_all(&options), &text);
        assert_names(store.set_hyper_parameters(&[(one, 0.5), (other, 0.5)]), &text);
    }
    assert_eq!(store.hyper_parameters().expect("it has some"), Optimizer::sgd().hyper_parameters());
    let mut sgd = Optimizer::sgd();
    assert_names(sgd.set_all(&[("wd", 0.5), ("momentum", f64::NAN)]), "momentum");
    assert_eq!(sgd, Optimizer::sgd(), "all or none");
}

/// Bindings accept booleans for these only.
#[test]
fn flags_are_the_hyper_parameters_that_are_0_or_1() {
    for name in Optimizer::names() {
        for (parameter, _) in Optimizer::new(name).expect("a known name").hyper_parameters() {
            let set =
                |value| Optimizer::new(name).and_then(|optimizer| optimizer.with(parameter, value));
            let takes_0_and_1 = set(0.0).is_ok() && set(1.0).is_ok();
            let is_flag = takes_0_and_1 && set(0.5).is_err() && set(2.0).is_err();
            assert_eq!(Optimizer::is_flag(parameter), is_flag, "{name}, {parameter}");
        }
    }
    assert!(Optimizer::is_flag("lazy_update") && !Optimizer::is_flag("lr"));
}

#[test]
fn errors_name_unknown_and_invalid_values() {
    assert_names(Optimizer::new("sdg"), "sdg");
    assert_names(Optimizer::from_options("sdg", &[]), "sdg");
    for name in Naive::names() {
        let optimizer = Optimizer::new(name).expect("a known name");
        assert_names(optimizer.clone().with("nonsense", 1.0), "nonsense");
        assert_names(optimizer.get("nonsense"), "nonsense");
        assert_names(Optimizer::from_options(name, &[("nonsense".into(), 1.0)]), "nonsense");
        for (parameter, _) in optimizer.hyper_parameters() {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert_names(optimizer.clone().with(parameter, value), parameter);
            }
        }
    }
    for (name, parameter, value) in [
        ("sgd", "learning_rate", -0.1),
        ("sgd", "clip_gradient", -1.0),
        ("sgd", "begin_num_update", 0.5),
        ("sgd", "begin_num_update", -1.0),
        ("adam", "decoupled_wd", 0.5),
        ("adam", "beta1", 1.0),
        ("adam", "beta2", -0.5),
        ("rmsprop", "centered", 2.0),
        ("sgld", "seed", 0.5),
    ] {
        let optimizer = Optimizer::new(name).expect("a known name");
        assert_names(optimizer.with(parameter, value), parameter);
    }
}

#[test]
fn a_store_changes_all_hyper_parameters_or_none() {
    let store = create("local").expect("a store");
    assert_code(store.hyper_parameters(), ErrorCode::InvalidArgument);
    assert_code(store.set_hyper_parameters(&[("learning_rate", 0.5)]), ErrorCode::InvalidArgument);
    store.set_optimizer(Optimizer::sgd()).expect("any can be set");
    let before = store.hyper_parameters().expect("an optimizer is set");
    let changes = [("learning_rate", 0.5), ("nonsense", 1.0)];
    assert_names(store.set_hyper_parameters(&changes), "nonsense");
    assert_names(store.set_hyper_parameters(&[("wd", 0.5), ("lr", f64::NAN)]), "`lr`");
    assert_eq!(store.hyper_parameters().expect("an optimizer is set"), before);
    store.set_hyper_parameters(&[("lr", 0.5), ("momentum", 0.25)]).expect("they exist");
    let optimizer = store.optimizer().expect("a store").expect("an optimizer is set");
    assert_eq!(
        (optimizer.get("learning_rate").ok(), optimizer.get("momentum").ok()),
        (Some(0.5), Some(0.25))
    );
    store.set_updater(|_, _, _| Ok(())).expect("any can be set");
    assert_code(store.hyper_parameters(), ErrorCode::InvalidArgument);
    assert_code(store.set_hyper_parameters(&[("learning_rate", 0.5)]), ErrorCode::InvalidArgument);
}

#[test]
fn multipliers_belong_to_keys() {
    let key = |text: &str| Key::new(text).expect("a key");
    let optimizer = Optimizer::sgd()
        .with("learning_rate", 0.5)
        .and_then(|sgd| sgd.with("wd", 0.5))
        .and_then(|sgd| sgd.with_lr_multiplier(key("half"), 0.5))
        .and_then(|sgd| sgd.with_lr_multiplier(key("frozen"), 0.0))
        .and_then(|sgd| sgd.with_wd_multiplier(key("undecayed"), 0.0))
        .expect("valid");
    for factor in [f64::NAN, f64::INFINITY] {
        let (lr, wd) = (optimizer.clone(), optimizer.clone());
        assert_code(lr.with_lr_multiplier(key("half"), factor), ErrorCode::InvalidArgument);
        assert_code(wd.with_wd_multiplier(key("half"), factor), ErrorCode::InvalidArgument);
    }
    for name in ["local", "device"] {
        let store = create(name).expect("a store");
        store.set_optimizer(optimizer.clone()).expect("any can be set");
        for (key, expected) in
            [("other", 0.25), ("half", 0.625), ("frozen", 1.0), ("undecayed", 0.5)]
        {
            store.init(key, &of(1.0)).expect("a new key");
            store.push(key, &of(1.0)).expect("a gradient");
            assert_eq!(number(&store, key), expected, "{key}");
        }
        // Changing the optimizer's own learning rate keeps the multipliers.
        store.set_hyper_parameters(&[("learning_rate", 0.25)]).expect("it exists");
        store.push("frozen", &of(1.0)).expect("a gradient");
        assert_eq!(number(&store, "frozen"), 1.0);
    }
}

/// Some formulas divide by numbers that gradients of zero leave at zero. The weight must not become
/// NaN.
#[test]
fn gradients_of_zero_leave_weights_finite() {
    for name in Naive::names() {
        for (dtype, start) in [DType::F32, DType::F64, DType::F16]
            .into_iter()
            .flat_map(|dtype| [(dtype, 0.0), (dtype, 1.0)])
        {
            let store = create("local").expect("a store");
            store.set_optimizer(Optimizer::new(name).expect("a known name")).expect("any");
            let weight = full([3], start, dtype, Device::cpu(0)).expect("memory");
            store.init("w", &weight).expect("a new key");
            for _ in 0..5 {
                let gradient = zeros([3], dtype, Device::cpu(0)).expect("memory");
                store.push("w", &gradient).expect("a gradient of this shape");
            }
            let found = from_array(&store.pull_new("w").expect("a known key")[0]);
            let is_finite = found.numbers.iter().all(|number| number.to_f64().is_finite());
            assert!(is_finite, "{name} {start}: {found:?}");
            let stays = ["sgd", "nag", "nesterov", "adam", "adamax", "nadam", "rmsprop", "adagrad"];
            if stays.contains(&name) {
                assert!(found.numbers.iter().all(|number| number.to_f64() == start), "{name}");
            }
        }
    }
}

#[test]
fn counts_begin_at_begin_num_update() {
    let scheduler = || kvstore::LrScheduler::factor(2, 0.5).expect("a valid schedule");
    let optimizer = Optimizer::sgd().with("learning_rate", 1.0).expect("a learning rate");
    let optimizer = optimizer.with("begin_num_update", 3.0).expect("a count");
    let store = create("local").expect("a store");
    store.set_optimizer(optimizer.with_scheduler(scheduler())).expect("any can be set");
    store.init("w", &of(0.0)).expect("a new key");
    // Updates 4, 5, 6 and 7.
    for expected in [-0.5, -0.75, -1.0, -1.125] {
        store.push("w", &of(1.0)).expect("a gradient");
        assert_eq!(number(&store, "w"), expected);
    }
}

/// Counts and states belong to a key, until the optimizer is set again or the key is removed.
#[test]
fn set_optimizer_and_remove_reset_states() {
    let optimizer = Optimizer::new("adam").expect("a known name");
    let store = create("local").expect("a store");
    store.set_optimizer(optimizer.clone()).expect("any can be set");
    let gradients = [3.0, -1.0, 0.5];
    let run = |key: &str| {
        store.init(key, &of(1.0)).expect("a new key");
        for gradient in gradients {
            store.push(key, &of(gradient)).expect("a gradient");
        }
        let after = number(&store, key);
        store.remove(key).expect("a known key");
        after
    };
    let first = run("a");
    assert_eq!(first, run("b"), "keys are independent");
    assert_eq!(first, run("a"), "a removed key is forgotten");
    store.init("c", &of(5.0)).expect("a new key");
    store.push("c", &of(7.0)).expect("a gradient");
    store.set_optimizer(optimizer).expect("any can be set");
    store.push("c", &of(1.0)).expect("a gradient");
    let before = number(&store, "c");
    // Adam's first step has the length of the learning rate, and so does the second with a new
    // state.
    assert!((before - (5.0 - 0.002)).abs() < 1e-9, "{before}");
}

fn names_key_i(result: &kvstore::Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().starts_with("key `i`: an optimizer"))
}

#[test]
fn rejected_integers_change_nothing() {
    for name in Naive::names() {
        let optimizer = Optimizer::new(name).expect("a known name");
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            let store = create("local").expect("a store");
            let array = |dtype| ones([3], dtype, Device::cpu(0)).expect("memory");
            store.init("f", &array(DType::F32)).expect("a new key");
            store.init("i", &array(dtype)).expect("a new key");
            store.set_optimizer(optimizer.clone()).expect("any can be set");
            let pushed = store.push(["f", "i"], &[array(DType::F32), array(dtype)]);
            assert!(names_key_i(&pushed), "{pushed:?}");
            assert_code(pushed, ErrorCode::InvalidArgument);
            for (key, dtype) in [("f", DType::F32), ("i", dtype)] {
                let found = from_array(&store.pull_new(key).expect("a known key")[0]);
                assert_same_bits(&from_array(&array(dtype)), &found, &name);
            }
            let (key, mut weight) = (Key::new("i").expect("a key"), array(dtype).tensor());
            let mut state = kvstore::OptimizerState::default();
            assert_code(optimizer.create_state(&weight), ErrorCode::InvalidArgument);
            let gradients = [weight.clone()];
            let updated = optimizer.update(&key, &mut weight, &gradients, &mut state);
            assert!(names_key_i(&updated), "{updated:?}");
            assert_code(updated, ErrorCode::InvalidArgument);
            let rows = RowSparse::new([3], vec![0, 1, 2], weight.clone()).expect("three rows");
            let updated = optimizer.update_rows(&key, &mut weight, &rows, &mut state);
            assert!(names_key_i(&updated), "{updated:?}");
            assert_code(updated, ErrorCode::InvalidArgument);
            assert_eq!(weight.to_bytes().ok(), gradients[0].to_bytes().ok());
        }
    }
}

/// Without a store, a failed update changes neither weight nor count.
#[test]
fn an_update_with_invalid_gradients_changes_nothing() {
    let optimizer = Optimizer::new("adam").expect("a known name");
    let key = Key::new("w").expect("a key");
    let array = |shape: &[usize], dtype| {
        ones(shape.to_vec(), dtype, Device::cpu(0)).expect("memory").tensor()
    };
    let mut weight = array(&[3], DType::F32);
    let mut state = optimizer.create_state(&weight).expect("a weight of floats");
    for (gradients, code) in [
        (vec![], ErrorCode::InvalidArgument),
        (vec![array(&[4], DType::F32)], ErrorCode::SpecMismatch),
        (vec![array(&[3], DType::F64)], ErrorCode::SpecMismatch),
        (vec![array(&[3], DType::F32), array(&[3, 1], DType::F32)], ErrorCode::SpecMismatch),
    ] {
        assert_code(optimizer.update(&key, &mut weight, &gradients, &mut state), code);
        assert_eq!((weight.to_vec().ok(), state.num_updates()), (Some(vec![1f32; 3]), 0));
    }
}

#[test]
fn a_push_does_not_change_its_gradients() {
    for name in Naive::names() {
        let optimizer =
            Optimizer::new(name).and_then(|optimizer| optimizer.with("rescale_grad", 0.5));
        let optimizer =
            optimizer.and_then(|optimizer| optimizer.with("clip_gradient", 0.25)).expect("valid");
        let store = create("local").expect("a store");
        store.set_optimizer(optimizer).expect("any can be set");
        let (start, gradient) = (value(1), value(2));
        let (weight, pushed) = (to_array(&start), to_array(&gradient));
        store.init("w", &weight).expect("a new key");
        store.push("w", &pushed).expect("a gradient of this shape");
        assert_same_bits(&start, &from_array(&weight), &name);
        assert_same_bits(&gradient, &from_array(&pushed), &name);
        let moved = from_array(&store.pull_new("w").expect("a known key")[0]);
        let mut pairs = start.numbers.iter().zip(&moved.numbers);
        assert!(!pairs.all(|(a, b)| same_number(*a, *b)), "{name} moves the weight");
    }
}

/// Each step is too small for `f16`, so the master copy must survive the change of formula.
#[test]
fn a_master_copy_survives_a_change_of_formula() {
    let store = create("local").expect("a store");
    let of = |number| full([1], number, DType::F16, Device::cpu(0)).expect("memory");
    store.init("w", &of(1.0)).expect("a new key");
    let optimizer = Optimizer::sgd().with("learning_rate", 1e-4).expect("a learning rate");
    store.set_optimizer(optimizer).expect("any can be set");
    for step in 0..40 {
        if step == 20 {
            store.set_hyper_parameters(&[("momentum", 1e-9)]).expect("it exists");
        }
        store.push("w", &of(-1.0)).expect("a gradient");
    }
    let moved = store.pull_new("w").expect("a known key")[0].to_vec::<kvstore::f16>();
    let moved = moved.expect("f16")[0].to_f64();
    assert!((moved - 1.004).abs() < 1e-3, "{moved}");
}

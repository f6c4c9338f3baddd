//! Learning rate 0: no optimizer produces NaN or infinity, and formulas that divide by the rate
//! skip the update.

use kvstore::{DType, Key, NDArray, Optimizer, OptimizerState, RowSparse, Store, Tensor, create};
use kvstore_tests::arrays::{from_array, from_tensor, to_array};
use kvstore_tests::compare::assert_same_bits;
use kvstore_tests::format::float_dtypes;
use kvstore_tests::optimizer::Naive;
use kvstore_tests::optimizer_run::{NaiveKey, Setup};
use kvstore_tests::samples::tame;
use kvstore_tests::schedule::{Kind, Stateful};
use kvstore_tests::value::{Number, Spec, Value};

/// The optimizers whose formulas divide by the learning rate.
const DIVIDING: [&str; 2] = ["ftrl", "ftml"];
/// Learning rates that count as 0, because their reciprocals overflow `f32` or almost do.
const ZEROS: [f64; 5] = [0.0, -0.0, 1e-300, 1e-39, 1e-31];

fn value(dtype: DType, seed: u64) -> Value {
    tame(Spec::new(&[4, 3], dtype), seed)
}

fn assert_finite(values: &[Value], what: &str) {
    let mut numbers = values.iter().flat_map(|value| &value.numbers);
    assert!(numbers.all(|number| number.to_f64().is_finite()), "{what}: {values:?}");
}

/// A weight and its state, without a store.
struct Direct {
    weight: Tensor,
    state: OptimizerState,
}

impl Direct {
    fn new(optimizer: &Optimizer, dtype: DType) -> Self {
        let weight = to_array(&value(dtype, 1)).tensor();
        let state = optimizer.create_state(&weight).expect("a weight of floats");
        Self { weight, state }
    }

    fn update(&mut self, optimizer: &Optimizer, gradient: &Value) {
        let gradient = to_array(gradient).tensor();
        optimizer
            .update(&Key::default(), &mut self.weight, &[gradient], &mut self.state)
            .expect("a gradient of the weight's shape");
    }

    /// Returns the weight and the tensors of the state.
    fn values(&self) -> Vec<Value> {
        let tensors = std::iter::once(&self.weight).chain(self.state.tensors());
        tensors.map(from_tensor).collect()
    }
}

fn assert_same(expected: &[Value], found: &[Value], what: &str) {
    assert_eq!(expected.len(), found.len(), "{what}");
    for (expected, found) in expected.iter().zip(found) {
        assert_same_bits(expected, found, &what);
    }
}

fn with_rate(name: &str, rate: f64) -> Optimizer {
    let optimizer = Optimizer::new(name).expect("a known name");
    optimizer.with("learning_rate", rate).expect("a learning rate")
}

/// Some schedules end at 0, one of them through numbers below the range of `f32`.
#[test]
fn schedules_to_0_leave_every_optimizer_finite() {
    let kinds = [
        Kind::Cosine { max_update: 6, final_lr: 0.0 },
        Kind::Poly { max_update: 6, power: 1.0, final_lr: 0.0 },
        Kind::Poly { max_update: 6, power: 60.0, final_lr: 0.0 },
    ];
    for name in Naive::names() {
        for (kind, dtype) in
            kinds.iter().flat_map(|kind| float_dtypes().map(move |dtype| (kind, dtype)))
        {
            let naive = Naive::new(name);
            let base = naive.get("learning_rate");
            let schedule = Some(Stateful::new(kind.clone(), None, base));
            let setup = Setup { naive, schedule, multipliers: Vec::new() };
            let optimizer = setup.optimizer().expect("a valid optimizer");
            let mut direct = Direct::new(&optimizer, dtype);
            let mut model = NaiveKey::new(&setup, "", &value(dtype, 1));
            for update in 1..=10 {
                let what = format!("{name}, {kind:?}, {dtype}, update {update}");
                let gradient = value(dtype, 1 + update);
                direct.update(&optimizer, &gradient);
                model.push(&setup, &[gradient]);
                let values = direct.values();
                assert_finite(&values, &what);
                // The model does not simulate noise.
                let wrong = model.difference(&values[0]).filter(|_| name != "sgld");
                assert_eq!(wrong, None, "{what}");
            }
        }
    }
}

/// Checks skipped updates before, between and after steps, with finite and infinite gradients.
#[test]
fn updates_at_rate_0_are_skipped() {
    for (name, dtype) in
        DIVIDING.iter().flat_map(|name| float_dtypes().map(move |dtype| (*name, dtype)))
    {
        let optimizer = with_rate(name, 0.1);
        let (mut with, mut without) =
            (Direct::new(&optimizer, dtype), Direct::new(&optimizer, dtype));
        let infinite = Value::new(Spec::new(&[4, 3], dtype), &[Number::Float(f64::INFINITY); 12]);
        for step in 0..5 {
            for (index, zero) in ZEROS.into_iter().enumerate() {
                let (before, count) = (with.values(), with.state.num_updates());
                let gradient =
                    if index == 1 { infinite.clone() } else { value(dtype, 50 + index as u64) };
                with.update(&with_rate(name, zero), &gradient);
                assert_same(&before, &with.values(), &format!("{name} {dtype}, rate {zero}"));
                assert_eq!(with.state.num_updates(), count + 1);
            }
            let gradient = value(dtype, 10 + step);
            with.update(&optimizer, &gradient);
            without.update(&optimizer, &gradient);
            let what = format!("{name} {dtype}, step {step}");
            assert_same(&without.values(), &with.values(), &what);
            assert_finite(&with.values(), &what);
        }
    }
}

fn store_with(optimizer: Optimizer, start: &NDArray) -> Store {
    let store = create("local").expect("a store of this machine");
    store.set_optimizer(optimizer).expect("any can be set");
    for key in ["a", "b"] {
        store.init(key, start).expect("a new key");
    }
    store
}

fn pulled(store: &Store) -> Vec<NDArray> {
    store.pull_new(["a", "b"]).expect("known keys")
}

fn values_of(store: &Store) -> Vec<Value> {
    pulled(store).iter().map(from_array).collect()
}

/// A multiplier of 0 freezes one key, also while its value is shared with a pull.
#[test]
fn a_factor_of_0_freezes_one_key_of_a_push() {
    let (start, gradient) = (value(DType::F32, 1), value(DType::F32, 2));
    let rows = RowSparse::new([4, 3], vec![0, 1, 2, 3], to_array(&gradient).tensor());
    let rows = rows.expect("all rows");
    for name in DIVIDING {
        let frozen = Key::new("a").expect("a key");
        let optimizer = with_rate(name, 0.1).with_lr_multiplier(frozen, 0.0).expect("a factor");
        let store = store_with(optimizer, &to_array(&start));
        let plain = store_with(with_rate(name, 0.1), &to_array(&start));
        for push in 0..3 {
            let (shared, array) = (pulled(&store), to_array(&gradient));
            if push == 1 {
                store.push(["a", "b"], [&rows, &rows]).expect("gradients");
                plain.push(["a", "b"], [&rows, &rows]).expect("gradients");
            } else {
                store.push(["a", "b"], [&array, &array]).expect("gradients");
                plain.push(["a", "b"], [&array, &array]).expect("gradients");
            }
            let (found, expected) = (values_of(&store), values_of(&plain));
            assert_same_bits(&start, &found[0], &(name, push));
            assert_same_bits(&expected[1], &found[1], &(name, push));
            drop(shared);
        }
        assert_eq!(
            store.stats().unwrap().iter().map(|stats| stats.num_pushes).collect::<Vec<_>>(),
            [3, 3]
        );
    }
}

/// A skipped compressed push keeps its residuals.
#[test]
fn a_skipped_compressed_push_keeps_its_residual() {
    for name in DIVIDING {
        let store = store_with(with_rate(name, 0.0), &to_array(&value(DType::F32, 1)));
        store.set_gradient_compression("2bit", 0.5).expect("a threshold");
        let small = value(DType::F32, 2);
        store.push("a", &to_array(&small)).expect("a gradient");
        assert_same_bits(&value(DType::F32, 1), &values_of(&store)[0], &name);
        store.set_hyper_parameters(&[("learning_rate", 0.1)]).expect("a learning rate");
        store.push("a", &to_array(&small)).expect("a gradient");
        assert_finite(&values_of(&store), name);
    }
}

/// The number of skipped updates is saved with the state.
#[test]
fn saved_states_keep_the_number_of_skipped_updates() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("states");
    let start = to_array(&value(DType::F32, 1));
    for name in DIVIDING {
        let store = store_with(with_rate(name, 0.0), &start);
        for seed in 2..9 {
            store.push("a", &to_array(&value(DType::F32, seed))).expect("a gradient");
        }
        store.save_optimizer_states(&file, true).expect("a file");
        let other = store_with(with_rate(name, 0.0), &start);
        other.load_optimizer_states(&file).expect("the states of this optimizer");
        let plain = store_with(with_rate(name, 0.1), &start);
        for store in [&store, &other, &plain] {
            store.set_hyper_parameters(&[("learning_rate", 0.1)]).expect("a learning rate");
            store.push("a", &to_array(&value(DType::F32, 9))).expect("a gradient");
        }
        for store in [&store, &other] {
            assert_same_bits(&values_of(&plain)[0], &values_of(store)[0], &name);
        }
    }
}

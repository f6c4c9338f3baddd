//! Recorded vectors: a start, three gradients, the weight after each, and the final state.

use kvstore::{Device, Key, NDArray, Optimizer, Tensor, array, create};
use kvstore_tests::json::{floats, list, options, text};
use kvstore_tests::recorded;
use serde_json::Value as Json;

/// The tolerance, relative to the recorded number.
const TOLERANCE: f64 = 2e-5;

/// Numbers of at most this size are equal. They are the rest of a sum of numbers around 1 that
/// cancels.
const FLOOR: f64 = 1e-9;

/// Vectors that differ here, by optimizer and option, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "dcasgd",
    "momentum",
    "an error inside of MXNet left the weights as they were; the formula is in the scala vectors",
)];

/// The name of a vector, the name here, and the options with which ours is the same.
type Counterpart = (&'static str, &'static str, &'static [(&'static str, f64)]);

/// Our names for the JVM's formulas, with the JVM's defaults.
const SCALA: [Counterpart; 7] = [
    ("scala_sgd", "sgd", &[("learning_rate", 0.01), ("wd", 1e-4)]),
    ("scala_nag", "nesterov", &[("learning_rate", 0.01), ("wd", 1e-4)]),
    ("scala_dcasgd", "dcasgd", &[("learning_rate", 0.01), ("lamda", 0.04)]),
    (
        "scala_adam",
        "adam",
        &[("learning_rate", 0.002), ("decay_factor", 1.0 - 1e-8), ("decoupled_wd", 1.0)],
    ),
    ("scala_adagrad", "adagrad", &[("learning_rate", 0.05), ("epsilon", 1e-7)]),
    ("scala_adadelta", "adadelta", &[("rho", 0.05), ("epsilon", 1e-8)]),
    (
        "scala_rmsprop",
        "rmsprop",
        &[
            ("learning_rate", 0.002),
            ("gamma1", 0.95),
            ("gamma2", 0.9),
            ("centered", 1.0),
            ("epsilon", 1e-4),
            ("decoupled_wd", 1.0),
        ],
    ),
];

/// A start, gradients, and the recorded results of the optimizers.
struct Vectors {
    start: Vec<f64>,
    gradients: Vec<Vec<f64>>,
    cases: Vec<Json>,
}

impl Vectors {
    fn load(which: &str) -> Self {
        let file = &recorded::load_file()["optimizers"];
        Self {
            start: floats(&file["weight0"]),
            gradients: list(&file["grads"]).iter().map(floats).collect(),
            cases: list(&file[which]).to_vec(),
        }
    }

    /// Compares weights and states with the recording. Returns a list of the differences.
    fn compare(&self, case: &Json, optimizer: &Optimizer) -> Vec<String> {
        let expected: Vec<_> = list(&case["weights"]).iter().map(floats).collect();
        let mut runs: Vec<_> = ["local", "device"]
            .map(|name| (name.to_owned(), self.weights_on(name, optimizer)))
            .into();
        let (weights, states) = self.without_store(optimizer);
        runs.push(("without a store".to_owned(), weights));
        let wrong = |(run, weights): &(String, Vec<Vec<f64>>)| {
            let what = format!("{} {} {run}", case["optimizer"], case["kwargs"]);
            (!is_close(&expected, weights))
                .then(|| format!("{what}: expected {expected:?}, found {weights:?}"))
        };
        let mut failures: Vec<_> = runs.iter().filter_map(wrong).collect();
        let expected = states_of(&case["states"]);
        if !is_close(&expected, &states) {
            let what = format!("{} {}, states", case["optimizer"], case["kwargs"]);
            failures.push(format!("{what}: expected {expected:?}, found {states:?}"));
        }
        failures
    }

    fn weights_on(&self, name: &str, optimizer: &Optimizer) -> Vec<Vec<f64>> {
        let store = create(name).expect("a store of this machine");
        store.set_optimizer(optimizer.clone()).expect("any optimizer can be set");
        store.init("w", &of(&self.start)).expect("a new key");
        let after = |gradient: &Vec<f64>| {
            store.push("w", &of(gradient)).expect("a gradient of this shape");
            numbers(&store.pull_new("w").expect("a known key")[0].tensor())
        };
        self.gradients.iter().map(after).collect()
    }

    fn without_store(&self, optimizer: &Optimizer) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let key = Key::new("w").expect("a key");
        let mut weight = of(&self.start).tensor();
        let mut state = optimizer.create_state(&weight).expect("a weight of floats");
        let mut weights = Vec::new();
        for gradient in &self.gradients {
            let gradients = [of(gradient).tensor()];
            optimizer.update(&key, &mut weight, &gradients, &mut state).expect("a gradient");
            weights.push(numbers(&weight));
        }
        assert_eq!(state.num_updates(), self.gradients.len() as u64);
        (weights, state.tensors().iter().map(numbers).collect())
    }
}

/// Returns the arrays of a state from nested lists. Skips missing ones.
fn states_of(json: &Json) -> Vec<Vec<f64>> {
    match json {
        Json::Null => Vec::new(),
        Json::Object(by_key) => states_of(&by_key["w"]),
        Json::Array(items) if items.iter().all(Json::is_number) => vec![floats(json)],
        Json::Array(items) => items.iter().flat_map(states_of).collect(),
        other => panic!("{other} is no state"),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the vectors are of f32")]
fn of(numbers: &[f64]) -> NDArray {
    let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
    array(&numbers, [2, 2], Device::cpu(0)).expect("four numbers")
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let numbers = tensor.to_vec::<f32>().expect("a tensor of f32");
    numbers.into_iter().map(f64::from).collect()
}

fn is_close(expected: &[Vec<f64>], found: &[Vec<f64>]) -> bool {
    let lengths = |lists: &[Vec<f64>]| lists.iter().map(Vec::len).collect::<Vec<_>>();
    let mut pairs = expected.iter().flatten().zip(found.iter().flatten());
    lengths(expected) == lengths(found)
        && pairs.all(|(a, b)| (a - b).abs() <= TOLERANCE * a.abs() + FLOOR)
}

fn report(what: &str, num_cases: usize, failures: &[String]) {
    println!("{what}: {num_cases} vectors, {} failures", failures.len());
    assert!(num_cases > 0, "there are no {what} vectors");
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn updates_agree_with_vectors_of_python() {
    let mut vectors = Vectors::load("python");
    vectors.cases.retain(|case| {
        let is_exception = |(name, option, _): &(&str, &str, &str)| {
            text(&case["optimizer"]) == *name && !case["kwargs"][*option].is_null()
        };
        let exception = EXCEPTIONS.iter().find(|exception| is_exception(exception));
        if let Some((name, option, reason)) = exception {
            println!("left out: {name} with {option}: {reason}");
        }
        exception.is_none()
    });
    let compare = |case: &Json| {
        let kwargs = options(&case["kwargs"]);
        let optimizer = Optimizer::from_options(text(&case["optimizer"]), &kwargs);
        vectors.compare(case, &optimizer.expect("a valid optimizer"))
    };
    let failures: Vec<_> = vectors.cases.iter().flat_map(compare).collect();
    report("python", vectors.cases.len(), &failures);
}

#[test]
fn updates_agree_with_vectors_of_scala() {
    let vectors = Vectors::load("scala");
    let compare = |case| vectors.compare(case, &from_scala(case));
    let failures: Vec<_> = vectors.cases.iter().flat_map(compare).collect();
    report("scala", vectors.cases.len(), &failures);
}

fn from_scala(case: &Json) -> Optimizer {
    let name = text(&case["optimizer"]);
    let ours = SCALA.iter().find(|(scala, ..)| *scala == name);
    let (_, name, defaults) = ours.unwrap_or_else(|| panic!("`{name}` has no counterpart"));
    let defaults = defaults.iter().map(|(name, value)| ((*name).to_owned(), *value));
    let renamed = options(&case["kwargs"]).into_iter().map(|(name, value)| match &*name {
        "lr" => ("learning_rate".to_owned(), value),
        "rescale" => ("rescale_grad".to_owned(), value),
        _ => (name, value),
    });
    Optimizer::from_options(name, &defaults.chain(renamed).collect::<Vec<_>>())
        .expect("a valid optimizer")
}

//! Recorded runs of `MXNet` 1.9.1, compared with the formulas and with stores: twenty updates with
//! many settings of every optimizer, and schedules around their edges.

use kvstore::{DType, Device, Optimizer, array, create};
use kvstore_tests::arrays::from_array;
use kvstore_tests::json::{floats, list, options, text};
use kvstore_tests::optimizer::Naive;
use kvstore_tests::optimizer_run::{NaiveKey, Setup};
use kvstore_tests::schedule::{Kind, Stateful, WarmingUp};
use kvstore_tests::value::{Number, Spec, Value};
use serde_json::Value as Json;

/// The tolerance, relative to the recorded weight. `MXNet` computes some powers in f32.
const TOLERANCE: f64 = 1e-4;

fn file() -> Json {
    serde_json::from_str(include_str!("../../data/mxnet_runs.json")).expect("valid JSON")
}

fn value(numbers: &[f64]) -> Value {
    let numbers: Vec<_> = numbers.iter().map(|number| Number::Float(*number)).collect();
    Value::new(Spec::new(&[numbers.len()], DType::F32), &numbers)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.numbers.iter().map(|number| number.to_f64()).collect()
}

/// Returns the weights after each gradient, by the formulas.
fn by_formula(case: &Json, start: &Value, gradients: &[Value]) -> Vec<Vec<f64>> {
    let with = |naive: Naive, (name, value): (String, f64)| naive.with(&name, value);
    let naive =
        options(&case["kwargs"]).into_iter().fold(Naive::new(text(&case["optimizer"])), with);
    let setup = Setup::new(naive);
    let mut key = NaiveKey::new(&setup, "w", start);
    let after = |gradient: &Value| {
        key.push(&setup, std::slice::from_ref(gradient));
        key.weights.iter().map(|weight| weight.value).collect()
    };
    gradients.iter().map(after).collect()
}

/// Returns the weights after each gradient, by a store.
fn by_store(case: &Json, start: &Value, gradients: &[Value]) -> Vec<Vec<f64>> {
    let store = create("local").expect("a store of this machine");
    let kwargs = options(&case["kwargs"]);
    let optimizer = Optimizer::from_options(text(&case["optimizer"]), &kwargs);
    store.set_optimizer(optimizer.expect("a valid optimizer")).expect("any can be set");
    let array_of = |value: &Value| {
        let numbers: Vec<f32> = value.numbers.iter().map(|number| number.to_f32()).collect();
        array(&numbers, [numbers.len()], Device::cpu(0)).expect("numbers")
    };
    store.init("w", &array_of(start)).expect("a new key");
    let after = |gradient: &Value| {
        store.push("w", &array_of(gradient)).expect("a gradient of this shape");
        numbers(&from_array(&store.pull_new("w").expect("a known key")[0]))
    };
    gradients.iter().map(after).collect()
}

#[test]
fn runs_agree_with_mxnet() {
    let file = file();
    let start = value(&floats(&file["weight"]));
    let gradients: Vec<_> =
        list(&file["gradients"]).iter().map(|numbers| value(&floats(numbers))).collect();
    let mut failures = Vec::new();
    for case in list(&file["optimizers"]) {
        let expected = floats(&case["weights"]);
        for (who, run) in [
            ("formula", by_formula(case, &start, &gradients)),
            ("store", by_store(case, &start, &gradients)),
        ] {
            let found: Vec<_> = run.into_iter().skip(4).step_by(5).flatten().collect();
            assert_eq!(expected.len(), found.len());
            let mut pairs = expected.iter().zip(&found);
            if !pairs.all(|(a, b)| (a - b).abs() <= TOLERANCE * (a.abs() + 0.1)) {
                let what = format!("{} {}", case["optimizer"], case["kwargs"]);
                failures.push(format!("{who}, {what}:\n  {expected:?}\n  {found:?}"));
            }
        }
    }
    println!("{} runs", list(&file["optimizers"]).len());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn schedules_agree_with_mxnet() {
    let file = file();
    for case in list(&file["schedules"]) {
        let expected = floats(&case["learning_rates"]);
        let mut stateful = stateful(case);
        let scheduler = stateful.scheduler().expect("a valid schedule");
        let base = case["kwargs"]["base_lr"].as_f64().expect("a number");
        for (n, expected) in (1..).zip(expected) {
            let found = [stateful.learning_rate(n), scheduler.learning_rate(base, n)];
            let is_close = |found: &f64| (found - expected).abs() <= 1e-10 * expected + 1e-12;
            assert!(found.iter().all(is_close), "{case}, update {n}: {found:?}, not {expected}");
        }
    }
    println!("{} schedules", list(&file["schedules"]).len());
}

fn stateful(case: &Json) -> Stateful {
    let kwargs = &case["kwargs"];
    let number = |name: &str, default| kwargs[name].as_f64().unwrap_or(default);
    let count = |json: &Json| json.as_u64().expect("a count");
    let kind = match text(&case["scheduler"]) {
        "FactorScheduler" => Kind::Factor {
            step: count(&kwargs["step"]),
            factor: number("factor", 1.0),
            stop_factor_lr: number("stop_factor_lr", 1e-8),
        },
        "MultiFactorScheduler" => Kind::MultiFactor {
            steps: list(&kwargs["step"]).iter().map(count).collect(),
            factor: number("factor", 1.0),
        },
        "PolyScheduler" => Kind::Poly {
            max_update: count(&kwargs["max_update"]),
            power: number("pwr", 2.0),
            final_lr: number("final_lr", 0.0),
        },
        "CosineScheduler" => Kind::Cosine {
            max_update: count(&kwargs["max_update"]),
            final_lr: number("final_lr", 0.0),
        },
        other => panic!("schedule `{other}`"),
    };
    let warmup = kwargs["warmup_steps"].as_u64().map(|steps| WarmingUp {
        steps,
        begin_lr: number("warmup_begin_lr", 0.0),
        is_linear: text(&kwargs["warmup_mode"]) == "linear",
    });
    Stateful::new(kind, warmup, number("base_lr", 0.01))
}

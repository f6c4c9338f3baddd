//! Layer-wise optimizers against kept runs of `MXNet` 1.9.1, and the keys that LARS exempts.

use kvstore::{Device, NDArray, Optimizer, Store, array, create};
use kvstore_tests::json::{floats, list, options, text};
use serde_json::Value as Json;

/// Relative to the recorded weight. `MXNet` computes norms and powers in f32, which costs some digits.
const TOLERANCE: f64 = 1e-5;

fn file() -> Json {
    serde_json::from_str(include_str!("../../data/mxnet_layerwise.json")).expect("valid JSON")
}

#[expect(clippy::cast_possible_truncation, reason = "the numbers are those of f32")]
fn to_arrays(file: &Json, values: &Json) -> Vec<NDArray> {
    let shapes = list(&file["shapes"]).iter().map(floats);
    let arrays = list(values).iter().zip(shapes).map(|(numbers, dims)| {
        let numbers: Vec<f32> = floats(numbers).iter().map(|number| *number as f32).collect();
        #[expect(clippy::cast_sign_loss, reason = "lengths")]
        let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
        array(&numbers, dims, Device::cpu(0)).expect("numbers of this shape")
    });
    arrays.collect()
}

fn optimizer(case: &Json) -> Optimizer {
    let optimizer = Optimizer::from_options(text(&case["optimizer"]), &options(&case["kwargs"]));
    let optimizer = optimizer.expect("a valid optimizer");
    let schedule = &case["scheduler"];
    if schedule.is_null() {
        return optimizer;
    }
    let step = schedule["step"].as_u64().expect("a count");
    let factor = schedule["factor"].as_f64().expect("a number");
    optimizer.with_scheduler(kvstore::LrScheduler::factor(step, factor).expect("a schedule"))
}

fn keys(file: &Json) -> Vec<String> {
    list(&file["keys"]).iter().map(|key| text(key).to_owned()).collect()
}

/// Pushes all keys together, or each alone.
fn push(store: &Store, keys: &[String], gradients: &[NDArray], is_together: bool) {
    if is_together {
        store.push(keys, gradients).expect("gradients of these shapes");
        return;
    }
    for (key, gradient) in keys.iter().zip(gradients) {
        store.push(key, gradient).expect("a gradient of this shape");
    }
}

fn difference(expected: &Json, store: &Store, keys: &[String]) -> Option<String> {
    let pulled = store.pull_new(keys).expect("known keys");
    for ((key, pulled), expected) in keys.iter().zip(pulled).zip(list(expected)) {
        let found = pulled.to_vec::<f32>().expect("numbers");
        for (index, (found, expected)) in found.iter().zip(floats(expected)).enumerate() {
            let found = f64::from(*found);
            if (found - expected).abs() > TOLERANCE * (expected.abs() + 0.1) {
                return Some(format!("{key}, element {index}: expected {expected}, found {found}"));
            }
        }
    }
    None
}

#[test]
fn runs_of_mxnet() {
    let file = file();
    let keys = keys(&file);
    let gradients: Vec<_> =
        list(&file["gradients"]).iter().map(|step| to_arrays(&file, step)).collect();
    let mut failures = Vec::new();
    for case in list(&file["optimizers"]) {
        for (name, is_together) in [("local", true), ("local", false), ("device", true)] {
            let store = create(name).expect("a store of this machine");
            store.set_optimizer(optimizer(case)).expect("any can be set");
            store.init(&*keys, &*to_arrays(&file, &file["weights"])).expect("new keys");
            for (update, gradients) in (1_usize..).zip(&gradients) {
                push(&store, &keys, gradients, is_together);
                if update % 4 == 0 {
                    let expected = &list(&case["weights"])[update / 4 - 1];
                    let what = format!("{} {} {}", case["optimizer"], case["form"], case["kwargs"]);
                    let wrong = difference(expected, &store, &keys);
                    failures.extend(wrong.map(|it| format!("{name}, {what}, {update}: {it}")));
                }
            }
        }
    }
    println!("{} runs", list(&file["optimizers"]).len());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Keys of biases and of normalisations are stepped as `sgd` does it.
#[test]
fn lars_exempts_keys_by_the_ends_of_their_names() {
    let value = |x: f32| array(&[x, -x], [2], Device::cpu(0)).expect("numbers");
    for (momentum, name) in
        [(0.0, "fc_bias"), (0.9, "bn_gamma"), (0.9, "bn_beta"), (0.9, "fc_weight")]
    {
        let with = |optimizer: &str| {
            let optimizer = Optimizer::new(optimizer).expect("a known name");
            let optimizer = optimizer.with("momentum", momentum).and_then(|it| it.with("wd", 0.1));
            let store = create("local").expect("a store of this machine");
            store.set_optimizer(optimizer.expect("hyper-parameters")).expect("any can be set");
            store.init(name, &value(3.0)).expect("a new key");
            for gradient in [1.0, -0.5] {
                store.push(name, &value(gradient)).expect("a gradient");
            }
            store.pull_new(name).expect("a known key")[0].to_vec::<f32>().expect("numbers")
        };
        assert_eq!(with("lars") == with("sgd"), name != "fc_weight", "{name}");
    }
}

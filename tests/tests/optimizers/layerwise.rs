//! Layer-wise and row-wise optimizers, compared with recorded runs of `MXNet` 1.9.1, and the keys
//! that LARS exempts.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers are those of f32, lengths and indices"
)]

use kvstore::{DType, Device, Key, NDArray, Optimizer, RowSparse, Store, Tensor, array, create};
use kvstore_core::{Backends, CpuBackend, TensorSpec};
use kvstore_tests::json::{floats, list, options, text};
use kvstore_tests::samples::tame;
use kvstore_tests::value::Spec;
use serde_json::Value as Json;

/// The tolerance, relative to the recorded weight. `MXNet` computes norms and powers in f32.
const TOLERANCE: f64 = 1e-5;

fn file() -> Json {
    serde_json::from_str(include_str!("../../data/mxnet_layerwise.json")).expect("valid JSON")
}

fn to_arrays(file: &Json, values: &Json) -> Vec<NDArray> {
    let shapes = list(&file["shapes"]).iter().map(floats);
    let arrays = list(values).iter().zip(shapes).map(|(numbers, dims)| {
        let numbers: Vec<f32> = floats(numbers).iter().map(|number| *number as f32).collect();
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

/// Pushes all keys in one call, or each in its own call.
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
fn runs_agree_with_mxnet() {
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

/// LARS steps biases and parameters of normalisation layers like `sgd`.
#[test]
fn lars_exempts_keys_by_suffix() {
    let value = |x: f32| array(&[x, -x], [2], Device::cpu(0)).expect("numbers");
    for (momentum, name) in
        [(0.0, "fc_bias"), (0.9, "bn_gamma"), (0.9, "bn_beta"), (0.9, "fc_weight")]
    {
        let with = |optimizer: &str| {
            let optimizer = Optimizer::new(optimizer).expect("a known name");
            let optimizer = optimizer
                .with("momentum", momentum)
                .and_then(|optimizer| optimizer.with("wd", 0.1));
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

/// The momentum correction multiplies by the learning rate. If the rate is 0, the weight stays and
/// the momentum becomes 0, as in `MXNet`.
#[test]
fn lars_forgets_its_momentum_at_learning_rate_0() {
    let value = |x: f32| array(&[x, -x], [2], Device::cpu(0)).expect("numbers");
    let store = create("local").expect("a store of this machine");
    let optimizer = Optimizer::new("lars").and_then(|lars| lars.with("momentum", 0.9));
    store.set_optimizer(optimizer.expect("hyper-parameters")).expect("any can be set");
    store.init("w", &value(3.0)).expect("a new key");
    let pulled = || store.pull_new("w").expect("a known key")[0].to_vec::<f32>().expect("numbers");
    let push = |rate: f64| {
        store.set_hyper_parameters(&[("learning_rate", rate)]).expect("a rate");
        store.push("w", &value(1.0)).expect("a gradient");
        pulled()
    };
    let trained = push(0.5);
    assert_ne!(trained, [3.0, -3.0]);
    assert_eq!(push(0.0), trained);
    // With the old momentum, this step would be about twice as long.
    let first = 3.0 - trained[0];
    let second = trained[0] - push(0.5)[0];
    assert!((second / first - 1.0).abs() < 0.01, "{first} {second}");
}

/// A NaN in a weight makes the norm NaN, and the step then makes every element NaN.
#[test]
fn lamb_propagates_nan() {
    for bound in [0.0, 10.0] {
        let store = create("local").expect("a store of this machine");
        let optimizer = Optimizer::new("lamb").and_then(|lamb| lamb.with("upper_bound", bound));
        store.set_optimizer(optimizer.expect("hyper-parameters")).expect("any can be set");
        let value = |numbers: [f32; 3]| array(&numbers, [3], Device::cpu(0)).expect("numbers");
        store.init("w", &value([1.0, f32::NAN, 2.0])).expect("a new key");
        store.push("w", &value([1.0, 1.0, 1.0])).expect("a gradient");
        let found = store.pull_new("w").expect("a known key")[0].to_vec::<f32>();
        assert!(found.expect("numbers").iter().all(|number| number.is_nan()), "{bound}");
    }
}

/// Returns the gradient of an update, dense or row-sparse.
fn gradient(file: &Json, form: &str, update: usize) -> kvstore::Value {
    let shape = floats(&file["shape"]);
    let dims = |dims: &[f64]| -> Vec<usize> { dims.iter().map(|dim| *dim as usize).collect() };
    let value = |numbers: &[f64], dims: Vec<usize>| {
        let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
        array(&numbers, dims, Device::cpu(0)).expect("numbers of this shape").tensor()
    };
    if form == "dense" {
        return value(&floats(&list(&file["dense"])[update]), dims(&shape)).into();
    }
    let rows = &list(&file["rows"])[update];
    let indices: Vec<i64> = floats(&rows["indices"]).iter().map(|index| *index as i64).collect();
    let numbers: Vec<f64> = list(&rows["rows"]).iter().flat_map(floats).collect();
    let rows = value(&numbers, vec![indices.len(), shape[1] as usize]);
    RowSparse::new(dims(&shape), indices, rows).expect("rows of this shape").into()
}

#[test]
fn row_sparse_runs_agree_with_mxnet() {
    let file: Json =
        serde_json::from_str(include_str!("../../data/mxnet_groups.json")).expect("valid JSON");
    for case in list(&file["optimizers"]) {
        let form = text(&case["form"]);
        let optimizer =
            Optimizer::from_options(text(&case["optimizer"]), &options(&case["kwargs"]));
        let optimizer = optimizer.expect("a valid optimizer");
        let key = Key::new("w").expect("a key");
        let store = create("local").expect("a store of this machine");
        let weight: Vec<f32> = floats(&file["weight"]).iter().map(|it| *it as f32).collect();
        let weight = array(&weight, [6, 3], Device::cpu(0)).expect("18 numbers");
        store.init("w", &weight).expect("a new key");
        store.set_optimizer(optimizer).expect("any can be set");
        for update in 0..6 {
            let gradient = gradient(&file, form, update);
            store.push_values(std::slice::from_ref(&key), &[gradient], 0).expect("a gradient");
            if update % 2 == 1 {
                let found = store.pull_new("w").expect("a known key")[0].to_vec::<f32>();
                let expected = &list(&case["weights"])[update / 2];
                check(&found.expect("numbers"), &floats(expected), &format!("{case}, {update}"));
            }
        }
        let snapshot = store.snapshot().expect("a snapshot");
        let state =
            snapshot.optimizer_state(&key).expect("it can be read").expect("the state of a key");
        let history = state.tensors()[0].to_vec::<f32>().expect("numbers");
        assert_eq!(state.tensors()[0].shape().dims(), [6, 1]);
        check(&history, &floats(&case["history"]), &format!("{case}, history"));
    }
}

fn check(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    let mut pairs = found.iter().zip(expected);
    let are_close = pairs.all(|(found, expected)| {
        (f64::from(*found) - expected).abs() <= 1e-5 * (expected.abs() + 0.1)
    });
    assert!(are_close, "{what}: expected {expected:?}, found {found:?}");
}

/// Dense gradients and row-sparse ones give the same bits, on one thread and on several, with rows
/// longer than a block of sums, and with half-precision weights.
#[test]
fn steps_of_rows_have_the_same_bits() {
    for (dtype, row_len) in
        [(DType::F32, 1), (DType::F32, 4229), (DType::F64, 129), (DType::Bf16, 700)]
    {
        let run = |num_threads: usize, is_rows: bool| {
            let backends = Backends::new(vec![CpuBackend::with_threads(num_threads)]);
            let num_rows = 200;
            let value = |seed: u64| {
                let spec = Spec::new(&[num_rows, row_len], dtype);
                let bytes = tame(spec, seed).to_bytes();
                let spec = TensorSpec::new([num_rows, row_len], dtype);
                Tensor::from_bytes(&backends, Device::cpu(0), spec, &bytes).expect("numbers")
            };
            let optimizer = Optimizer::new("groupadagrad").expect("a known name");
            let (key, mut weight) = (Key::new("w").expect("a key"), value(1));
            let mut state = optimizer.create_state(&weight).expect("floats");
            for seed in 2..5 {
                if is_rows {
                    let indices: Vec<i64> = (0..200).collect();
                    let rows = RowSparse::new([num_rows, row_len], indices, value(seed));
                    let rows = rows.expect("all rows");
                    optimizer.update_rows(&key, &mut weight, &rows, &mut state).expect("a step");
                } else {
                    let gradients = [value(seed)];
                    optimizer.update(&key, &mut weight, &gradients, &mut state).expect("a step");
                }
            }
            let states = state.tensors().iter().map(|tensor| tensor.to_bytes().expect("bytes"));
            std::iter::once(weight.to_bytes().expect("bytes")).chain(states).collect::<Vec<_>>()
        };
        let expected = run(1, false);
        for (num_threads, is_rows) in [(1, true), (2, false), (7, true)] {
            assert!(
                run(num_threads, is_rows) == expected,
                "{dtype} {row_len} {num_threads} {is_rows}"
            );
        }
    }
}

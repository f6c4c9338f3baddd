//! Lazy steps: recorded row-sparse pushes of `MXNet` 1.9.1 on the stores, and the formulas with
//! lazy steps.

use kvstore::{Device, Key, Optimizer, RowSparse, array, create};
use kvstore_core::optimizer::{Rule, RuleVisitor};
use kvstore_tests::json::{floats, list, options, text};
use serde_json::Value as Json;

/// The tolerance, relative to the recorded weight. `MXNet` computes some powers in f32.
const TOLERANCE: f64 = 1e-4;

fn rows(shape: [usize; 2], json: &Json) -> RowSparse {
    let indices: Vec<i64> =
        list(&json["indices"]).iter().map(|index| index.as_i64().expect("a row index")).collect();
    let numbers = singles(&json["rows"]);
    let rows = array(&numbers, [indices.len(), shape[1]], Device::cpu(0)).expect("complete rows");
    RowSparse::new(shape, indices, rows.tensor()).expect("ascending rows")
}

#[expect(clippy::cast_possible_truncation, reason = "recorded from f32")]
fn singles(json: &Json) -> Vec<f32> {
    floats(json).into_iter().map(|number| number as f32).collect()
}

/// Keys that were initialised with dense and with row-sparse values step alike. Rows that no
/// gradient contains stay unchanged.
#[test]
fn lazy_updates_agree_with_mxnet() {
    let file: Json =
        serde_json::from_str(include_str!("../../data/mxnet_lazy.json")).expect("valid JSON");
    let [num_rows, num_columns] =
        [0, 1].map(|axis| file["shape"][axis].as_u64().expect("a length"));
    let shape = [num_rows, num_columns].map(|length| usize::try_from(length).expect("short"));
    let weight =
        array(&singles(&file["weight"]), shape, Device::cpu(0)).expect("a complete weight");
    let all: Vec<i64> = (0..i64::try_from(num_rows).expect("short")).collect();
    for case in list(&file["optimizers"]) {
        for name in ["local", "device"] {
            let store = create(name).expect("a store of this machine");
            let optimizer =
                Optimizer::from_options(text(&case["optimizer"]), &options(&case["kwargs"]));
            store.set_optimizer(optimizer.expect("a valid optimizer")).expect("any can be set");
            store.init("dense", &weight).expect("a new key");
            let start = RowSparse::new(shape, all.clone(), weight.tensor()).expect("all rows");
            store.init("rows", &start).expect("a new key");
            for (values, expected) in list(&file["pushes"]).iter().zip(list(&case["weights"])) {
                let values: Vec<_> = list(values).iter().map(|json| rows(shape, json)).collect();
                store.push(["dense", "rows"], vec![values.clone(), values]).expect("gradients");
                for found in store.pull_new(["dense", "rows"]).expect("known keys") {
                    let found: Vec<f32> = found.to_vec().expect("f32");
                    let is_close = |(expected, found): (f64, f32)| {
                        (expected - f64::from(found)).abs() <= TOLERANCE * (expected.abs() + 0.1)
                    };
                    let expected = floats(expected);
                    let mut pairs = expected.iter().copied().zip(found.iter().copied());
                    assert!(pairs.all(is_close), "{case}:\n{expected:?}\n{found:?}");
                }
            }
        }
    }
    println!("{} runs", list(&file["optimizers"]).len());
}

/// Every formula of an optimizer with `lazy_update` has a step for rows.
#[test]
fn every_lazy_optimizer_has_a_step_for_rows() {
    struct HasStep;
    impl RuleVisitor for HasStep {
        type Output = ();

        fn visit<R: Rule<N>, const N: usize>(self) {}
    }
    let mut lazy = Vec::new();
    for name in Optimizer::names() {
        let optimizer = Optimizer::new(name).expect("a known name");
        let variants = [optimizer.clone().with("momentum", 0.9).ok(), Some(optimizer)];
        for optimizer in variants.into_iter().flatten().filter(Optimizer::is_lazy) {
            let rule = optimizer.rule(&Key::default(), 1, &mut 1.0);
            assert!(rule.visit_lazy(HasStep).is_some() || rule.is_rowwise(), "{name}: {rule:?}");
            lazy.push(rule.formula());
        }
    }
    assert_eq!(lazy, ["SgdMomentum", "Sgd", "Adam", "AdaGrad", "Ftrl", "GroupAdaGrad"]);
}

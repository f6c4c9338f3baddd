//! Recorded pulls of rows, on every store.

use kvstore::{Device, RowSparse, array, create};
use kvstore_tests::json::{floats, list};
use kvstore_tests::{STORE_NAMES, recorded};
use serde_json::Value as Json;

fn integers(json: &Json) -> Vec<i64> {
    list(json).iter().map(|number| number.as_i64().expect("a row index")).collect()
}

#[test]
fn recorded_pulls_of_rows() {
    let file = recorded::load_file();
    let cases = list(&file["row_sparse_pull"]);
    for case in cases {
        let stored = floats(&case["stored"]);
        let shape = [list(&case["stored"]).len(), floats(&case["stored"][0]).len()];
        let ids = integers(&case["row_ids"]);
        for name in STORE_NAMES {
            let store = create(name).expect("a store of this machine");
            let dense = array(&stored, shape, Device::cpu(0)).expect("as many numbers");
            let all = i64::try_from(shape[0]).expect("a few rows");
            let rows = RowSparse::new(shape, (0..all).collect::<Vec<_>>(), dense.tensor());
            // Initialised with a row-sparse value, which MXNet requires, or with a dense one.
            store.init("rows", &rows.expect("all rows")).expect("a new key");
            store.init("dense", &dense).expect("a new key");
            for pulled in store.pull_rows(["rows", "dense"], &[&ids[..], &ids]).expect("rows") {
                assert_eq!(pulled.indices(), integers(&case["indices"]), "{name}: {case}");
                let dense = pulled.to_dense().expect("enough memory");
                let found: Vec<f64> = dense.to_vec().expect("f64");
                assert_eq!(found, floats(&case["dense"]), "{name}: {case}");
            }
        }
    }
    println!("{} pulls", cases.len());
    assert!(!cases.is_empty());
}

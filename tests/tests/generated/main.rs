//! Files that are generated from the Rust code. A test fails if a file differs from what its source
//! gives; with `KVSTORE_GENERATE=1` it writes the file instead.

mod clojure;
mod formulas;
mod java;
mod manual;
mod optimizers;
mod python;

use kvstore_tests::sources::root;
use optimizers::Optimizer;

/// The environment variable that makes the tests write the files.
const GENERATE: &str = "KVSTORE_GENERATE";

fn check(file: &str, expected: &str) {
    let path = root().join(file);
    if std::env::var_os(GENERATE).is_some() {
        std::fs::write(&path, expected).expect("a file that can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    let line = 1 + line.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
    assert!(found == expected, "{file}, line {line}: differs from its source: run `make kernels`");
}

#[test]
fn the_formulas_of_kernels_are_those_of_the_host() {
    check("kvstore-cuda/kernels/formulas.h", &formulas::header());
}

#[test]
fn the_constructors_and_the_manual_say_what_core_says() {
    let optimizers = Optimizer::all();
    check("kvstore-python/python/mxkv/_optimizers.py", &python::module(&optimizers));
    let java = "clojure/src/main/java/dev/kvstore";
    check(&format!("{java}/OptimizerOptions.java"), &java::options(&optimizers));
    check(&format!("{java}/OptimizerFactories.java"), &java::factories(&optimizers));
    check(
        "clojure/src/main/clojure/dev/kvstore/impl/optimizers.clj",
        &clojure::namespace(&optimizers),
    );
    check("docs/optimizers.md", &manual::page(&optimizers, &formulas::formulas()));
}

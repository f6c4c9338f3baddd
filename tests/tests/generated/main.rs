//! Files that are generated from the Rust code. A test fails if a file differs from the generated
//! text. With `KVSTORE_GENERATE=1`, it writes the file instead.

mod clojure;
mod formulas;
mod java;
mod manual;
mod optimizers;
mod python;

use std::collections::BTreeSet;
use std::path::PathBuf;

use kvstore_tests::sources::root;
use optimizers::Optimizer;

/// The environment variable that makes the tests write the files.
const GENERATE: &str = "KVSTORE_GENERATE";

fn check(file: &str, expected: &str) {
    let path = root().join(file);
    if std::env::var_os(GENERATE).is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, expected).expect("a file that can be written");
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    let line = 1 + line.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
    assert!(found == expected, "{file}, line {line}: differs from its source: run `make kernels`");
}

#[test]
fn kernel_formulas_match_the_host() {
    check("kvstore-cuda/kernels/formulas.h", &formulas::header());
}

#[test]
fn constructors_and_manual_match_the_definitions() {
    let optimizers = Optimizer::all();
    let package = "kvstore-python/python/mxkv/_optimizers";
    let modules = python::modules(&optimizers);
    for (name, content) in &modules {
        check(&format!("{package}/{name}.py"), content);
    }
    let files = std::fs::read_dir(root().join(package)).expect("the package of the optimizers");
    let files = files.map(|file| file.expect("a file").path());
    let is_module = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "py");
    let expected = modules.iter().map(|(name, _)| root().join(package).join(format!("{name}.py")));
    assert_eq!(
        files.filter(is_module).collect::<BTreeSet<_>>(),
        expected.collect::<BTreeSet<_>>(),
        "{package} has other files: delete them"
    );
    let java = "clojure/src/main/java/dev/kvstore";
    check(&format!("{java}/OptimizerOptions.java"), &java::options(&optimizers));
    check(&format!("{java}/OptimizerFactories.java"), &java::factories(&optimizers));
    check(
        "clojure/src/main/clojure/dev/kvstore/impl/optimizers.clj",
        &clojure::namespace(&optimizers),
    );
    check("docs/reference/optimizers.md", &manual::page(&optimizers, &formulas::formulas()));
}

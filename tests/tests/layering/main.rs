//! Checks the borders between the parts, with the sources and cargo's metadata.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kvstore_tests::sources::{files, lines, lock_file, metadata, root};
use modules::{Modules, folder, outer_paths};

/// Words that the core must not contain, because it does not know kinds of devices or languages.
const FORBIDDEN_IN_CORE: [&str; 10] =
    ["cuda", "cudarc", "gpu", "nvidia", "jni", "java", "clojure", "python", "dlpack", "mpi"];

/// The file that may name kinds of devices, because users write these names.
const MAY_NAME_DEVICES: &str = "kvstore-core/src/types/device.rs";

/// The folders and files of each crate's `src`. Each may import only those before it in the list.
const ORDERS: [(&str, &[&str]); 6] = [
    (
        "kvstore-core",
        &[
            "types",
            "fallible",
            "process",
            "noise",
            "staleness",
            "norm",
            "codec",
            "rule",
            "backend",
            "cpu",
            "tensor",
            "rows",
            "compression",
            "file",
            "ndarray",
            "optimizer",
            "store",
            "checkpoint",
        ],
    ),
    ("kvstore-cuda", &["args", "compiled", "driver", "backend"]),
    ("kvstore-dist", &["transport", "local", "mpi", "launched", "store"]),
    (
        "kvstore-net",
        &[
            "faults",
            "files",
            "quiet",
            "random",
            "accounts",
            "trace",
            "rules",
            "proto",
            "same_process",
            "same_machine",
            "http2",
            "wire",
            "journal",
            "runtime",
            "certificates",
            "etcd",
            "coordinator",
            "endpoint",
            "server",
            "replay",
            "client",
            "simulation",
            "attacks",
            "fuzzing",
            "versions",
            "draining",
        ],
    ),
    (
        "kvstore-jni",
        &[
            "error",
            "codes",
            "handle",
            "critical",
            "convert",
            "buffer",
            "callback",
            "updater",
            "checkpoint",
            "file",
            "ndarray",
            "optimizer",
            "random",
            "row_sparse",
            "runtime",
            "snapshot",
            "store",
            "group",
            "server",
        ],
    ),
    (
        "kvstore-python",
        &["interpreter", "runtime", "numpy", "convert", "interop", "array", "arguments", "store"],
    ),
];

/// The largest number of files of a folder that import each other in a cycle.
const MOST_IN_A_CYCLE: usize = 3;

/// The same for `types`, where an error contains keys, devices and shapes, and each of them reports
/// errors.
const MOST_IN_A_CYCLE_OF_TYPES: usize = 5;

/// The folders of Rust code.
const RUST: [&str; 10] = [
    "kvstore-core",
    "kvstore-cuda",
    "kvstore-dist",
    "kvstore-net",
    "kvstore",
    "kvstore-cli",
    "kvstore-jni",
    "kvstore-python",
    "tests",
    "fuzz",
];

/// The folders without Rust code.
const NO_RUST: [&str; 3] = ["clojure", "examples", "scripts"];

/// The extensions of files that people write; scripts may have none. Generated files are listed in
/// `.gitattributes`.
const LANGUAGES: [&str; 17] = [
    "rs", "java", "clj", "edn", "py", "pyi", "c", "cpp", "cu", "cuh", "h", "hpp", "sh", "", "toml",
    "xml", "proto",
];

/// The largest number of lines of a file, including documentation and blank lines. A longer file
/// has more than one purpose.
const MOST_LINES: usize = 600;

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).expect("a file of the workspace").display().to_string()
}

/// Splits `CpuBackend::new_jni` into `cpu backend new jni`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in line.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if letter.is_alphabetic() {
            words.last_mut().expect("there is always one").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words
}

#[test]
fn core_knows_no_device_and_no_language() {
    let mut found = Vec::new();
    for path in files("kvstore-core", &["rs", "toml"]) {
        if relative(&path) == MAY_NAME_DEVICES {
            continue;
        }
        for (number, line) in lines(&path) {
            let words = words(&line);
            if FORBIDDEN_IN_CORE.iter().any(|forbidden| words.iter().any(|word| word == forbidden))
            {
                found.push(format!("{}:{number}: {line}", relative(&path)));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_are_short() {
    let sources = RUST.iter().chain(&NO_RUST).flat_map(|folder| files(folder, &LANGUAGES));
    let long: Vec<_> = sources
        .map(|path| (lines(&path).len(), relative(&path)))
        .filter(|(length, _)| *length > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:?}");
}

#[test]
fn no_code_is_unfinished() {
    // Assembled from two parts, so that the check does not find this file.
    let marks = [["todo", "!("], ["unimplemented", "!("], ["#[ign", "ore"], ["dbg", "!("]]
        .map(|parts| parts.concat());
    let mut found = Vec::new();
    for path in RUST.iter().flat_map(|folder| files(folder, &["rs"])) {
        for (number, line) in lines(&path) {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{}:{number}: {line}", relative(&path)));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn core_has_no_features() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let core = packages
        .iter()
        .find(|package| package["name"] == "kvstore-core")
        .expect("the core is there");
    assert_eq!(core["features"].as_object().map(serde_json::Map::len), Some(0));
}

/// The paths of other crates that the rules of a group may use. They have no I/O, threads, locks or
/// clocks, so that tests can try every order of events.
const IN_RULES: [&[&str]; 6] = [
    &["kvstore_core"],
    &["std", "collections"],
    &["std", "hash"],
    &["std", "mem"],
    &["std", "ops"],
    &["std", "time", "Duration"],
];

/// Macros that the rules may not use, because they have I/O.
const NOT_IN_RULES: [&str; 6] =
    ["print!", "println!", "eprint!", "eprintln!", "include_str!", "include_bytes!"];

/// Returns the paths in the code of a rule that it may not use.
fn impure(code: &str) -> Vec<String> {
    let is_impure = |path: &Vec<String>| match &path[..] {
        [name] if name.ends_with('!') => NOT_IN_RULES.contains(&name.as_str()),
        path => !IN_RULES.iter().any(|allowed| {
            path.len() >= allowed.len() && path.iter().zip(*allowed).all(|(a, b)| a == b)
        }),
    };
    outer_paths(code).into_iter().filter(is_impure).map(|path| path.join("::")).collect()
}

#[test]
fn the_rules_of_a_group_have_no_io_threads_or_clocks() {
    for path in files("kvstore-net/src/rules", &["rs"]) {
        let code = std::fs::read_to_string(&path).expect("the file can be read");
        let found = impure(&code);
        assert!(found.is_empty(), "{}: {found:?}", relative(&path));
    }
    for (line, name) in [
        ("use tokio::sync::Notify;", "tokio::sync::Notify"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("fn f() { let _ = std::time::SystemTime::now(); }", "std::time::SystemTime::now"),
        ("use std::{collections::HashMap, net as other};", "std::net"),
        ("fn f() { std::thread::yield_now(); }", "std::thread::yield_now"),
        ("use ::std::fs::File;", "std::fs::File"),
        ("struct A { b: std::sync::Mutex<u8> }", "std::sync::Mutex"),
        ("fn f() { assert!(std::env::args().len() > 1); }", "std::env::args"),
        ("use std::time::*;", "std::time::*"),
        ("use std as other;", "std"),
        ("fn f() { println!(); }", "println!"),
    ] {
        assert_eq!(impure(line), [name], "{line}");
    }
    let allowed = "use std::time::Duration; fn f() -> crate::faults::Fault { Some(self::a()) }";
    assert!(impure(allowed).is_empty());
}

#[test]
fn folders_import_downwards() {
    for (krate, order) in ORDERS {
        let modules = Modules::of(krate);
        let place = |folder: &str| {
            let place = order.iter().position(|other| *other == folder);
            place.unwrap_or_else(|| panic!("{krate}/src/{folder} has no place in the order"))
        };
        let upward: Vec<_> = modules
            .edges()
            .filter(|(from, to)| place(folder(from)) < place(folder(to)))
            .map(|(from, to)| format!("{from} imports {to}"))
            .collect();
        assert!(upward.is_empty(), "{krate}: \n{}", upward.join("\n"));
        let edges = modules.of_folders().len();
        let largest = modules.cycles().first().map_or(0, BTreeSet::len);
        println!("{krate}: {edges} imports between folders, {largest} files in the largest cycle");
    }
}

#[test]
fn cycles_are_small() {
    for (krate, _) in ORDERS {
        for cycle in Modules::of(krate).cycles() {
            let is_of_types = cycle.iter().all(|file| folder(file) == "types");
            let most = if is_of_types { MOST_IN_A_CYCLE_OF_TYPES } else { MOST_IN_A_CYCLE };
            assert!(
                cycle.len() <= most,
                "{krate}: {} files import each other: {cycle:?}",
                cycle.len()
            );
        }
    }
}

/// The check of folders cannot see the target of a path through the root.
#[test]
fn no_file_imports_through_the_root_of_its_crate() {
    for (krate, _) in ORDERS {
        let found = Modules::of(krate).of_root;
        assert!(found.is_empty(), "{krate}: {found:?}");
    }
}

/// The crates of the workspace that each crate may use outside tests and benches.
const MAY_USE: [(&str, &[&str]); 14] = [
    ("kvstore-core", &[]),
    ("kvstore-cuda", &["kvstore-core"]),
    ("kvstore-dist", &["kvstore-core"]),
    ("kvstore-net", &["kvstore-core"]),
    ("kvstore", &["kvstore-core", "kvstore-cuda", "kvstore-dist", "kvstore-net"]),
    ("kvstore-cli", &["kvstore"]),
    ("kvstore-jni", &["kvstore"]),
    ("kvstore-python", &["kvstore"]),
    ("kvstore-tests", &["kvstore", "kvstore-core"]),
    ("kvstore-emulator", &[]),
    ("kvstore-allocators", &[]),
    ("kvstore-failing-malloc", &[]),
    ("kvstore-gpu-bench", &["kvstore", "kvstore-core"]),
    ("kvstore-peers", &["kvstore"]),
];

/// Further crates that the tests of a crate use: the suites, and the stores that they take.
const IN_TESTS: [(&str, &str); 14] = [
    ("kvstore-core", "kvstore-allocators"),
    ("kvstore-cuda", "kvstore-emulator"),
    ("kvstore-cuda", "kvstore-allocators"),
    ("kvstore", "kvstore-allocators"),
    ("kvstore-jni", "kvstore-allocators"),
    ("kvstore-dist", "kvstore"),
    ("kvstore-dist", "kvstore-allocators"),
    ("kvstore-dist", "kvstore-tests"),
    ("kvstore-net", "kvstore"),
    ("kvstore-net", "kvstore-allocators"),
    ("kvstore-net", "kvstore-tests"),
    ("kvstore-cli", "kvstore-core"),
    ("kvstore-cli", "kvstore-tests"),
    ("kvstore-tests", "kvstore-allocators"),
];

#[test]
fn crates_depend_downwards() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().expect("cargo lists packages") {
        let name = package["name"].as_str().expect("a package has a name");
        let allowed = MAY_USE.iter().find(|(user, _)| *user == name).map(|(_, used)| *used);
        let allowed = allowed.unwrap_or_else(|| panic!("`{name}` has no place in the layers"));
        let dependencies = package["dependencies"].as_array().expect("cargo lists dependencies");
        for dependency in dependencies {
            let used = dependency["name"].as_str().expect("a dependency has a name");
            let is_of_tests = dependency["kind"] == "dev" && IN_TESTS.contains(&(name, used));
            assert!(
                !used.starts_with("kvstore") || allowed.contains(&used) || is_of_tests,
                "`{name}` uses `{used}`"
            );
        }
    }
}

#[test]
fn language_and_driver_crates_have_one_user() {
    let users: BTreeMap<String, BTreeSet<String>> = lock_file();
    for (border, only_user) in
        [("jni", "kvstore-jni"), ("cudarc", "kvstore-cuda"), ("pyo3", "kvstore-python")]
    {
        let users = users.get(border).into_iter().flatten();
        assert!(users.clone().all(|user| user == only_user), "`{border}` is used by {users:?}");
    }
}

#[test]
fn error_codes_have_the_same_names_and_order_in_python() {
    let path = root().join("kvstore-python/python/mxkv/errors.py");
    let code = lines(&path).into_iter().map(|(_, line)| line.trim().to_owned());
    let table = code.skip_while(|line| !line.starts_with("CLASSES = {")).skip(1);
    let names = table.map_while(|line| line.split('"').nth(1).map(str::to_owned));
    let python: Vec<String> = names.filter(|name| name != "Type").collect();
    assert_eq!(python, kvstore::ErrorCode::ALL.map(|code| code.as_str().to_owned()));
}

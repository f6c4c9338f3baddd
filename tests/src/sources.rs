//! Reads the project's own files, for tests that check them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace holds this crate")
        .to_owned()
}

/// Returns the files under a folder of the workspace with one of these extensions, sorted, without
/// build outputs and hidden folders.
pub fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(&root().join(folder), extensions, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_output =
            ["target", "corpus", "artifacts"].contains(&&*name) || name.starts_with('.');
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !is_output {
            collect(&path, extensions, found);
        } else if path.is_file() && extensions.contains(&extension.as_ref()) {
            found.push(path);
        }
    }
}

/// Returns the lines of a file with their numbers.
pub fn lines(path: &Path) -> Vec<(usize, String)> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

/// Returns cargo's metadata of the packages of this workspace, without network access.
pub fn metadata() -> Json {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Returns, for every package in `Cargo.lock`, the packages that use it. The file covers all
/// features and platforms, which no single resolution does.
pub fn lock_file() -> BTreeMap<String, BTreeSet<String>> {
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut package = String::new();
    for (_, line) in lines(&root().join("Cargo.lock")) {
        let quoted = line.split('"').nth(1).unwrap_or_default();
        if line.starts_with("name = ") {
            quoted.clone_into(&mut package);
        } else if line.starts_with(" \"") {
            // A dependency may carry its version: `"jni 0.22.4",`.
            let used = quoted.split(' ').next().unwrap_or_default();
            users.entry(used.to_owned()).or_default().insert(package.clone());
        }
    }
    assert!(users.contains_key("kvstore-core"), "Cargo.lock is not read as it is written");
    users
}

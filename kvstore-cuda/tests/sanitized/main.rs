//! The kernels under the sanitizers of a C++ compiler: no access beyond a range, and no undefined
//! behaviour.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn random_batches_stay_within_their_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let (crate_folder, fuzz) = (Path::new(env!("CARGO_MANIFEST_DIR")), folder.path().join("fuzz"));
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let output = Command::new(&compiler)
        .args([
            "-std=c++17",
            "-O0", // the compiler takes longer at -O1 than the program saves
            "-g1",
            "-ffp-contract=off",
            "-DKV_EMULATED",
            "-Wno-unknown-pragmas",
        ])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"])
        .arg(crate_folder.join("kernels"))
        .arg("-I")
        .arg(kvstore_emulator::sources())
        .arg(crate_folder.join("tests/sanitized/fuzz.cpp"))
        .arg("-o")
        .arg(&fuzz)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for seed in ["1", "2"] {
        let output = Command::new(&fuzz).args([seed, "2"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {text}");
        println!("seed {seed}: {}", String::from_utf8_lossy(&output.stdout).trim());
    }
}

//! Detection of real and fake drivers. A fake driver is a library with the functions that `probe`
//! calls.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::env;
use std::path::Path;
use std::process::Command;

use kvstore_cuda::probe;

/// Makes this test call `probe` itself, in a process that runs only this test.
const ALONE: &str = "KVSTORE_TEST_PROBE";

/// Calls `probe` in a new process with this library path, and returns its result as a string.
fn found_in(folder: &Path) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "every_absence_has_a_message", "--nocapture"])
        .env(ALONE, "1")
        .env("LD_LIBRARY_PATH", folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("found: "));
    line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

/// Builds a fake driver with this version, this result of `cuInit`, and this number of devices.
fn make_driver(folder: &Path, version: i32, init: i32, num_devices: i32) {
    let source = format!(
        "int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}
         int cuInit(unsigned flags) {{ return flags == 0 ? {init} : 1; }}
         int cuDeviceGetCount(int *count) {{ *count = {num_devices}; return 0; }}
         int cuGetErrorName(int error, const char **name) {{ *name = \"SOME_ERROR\"; return 0; }}"
    );
    std::fs::write(folder.join("driver.c"), source).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "libcuda.so", "driver.c"])
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn every_absence_has_a_message() {
    if env::var_os(ALONE).is_some() {
        match probe() {
            Ok(driver) => println!("found: {driver}"),
            Err(absence) => println!("found: {absence}"),
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let real = found_in(folder.path());
    println!("on this machine: {real}");
    for (version, init, num_devices, expected) in [
        (11_040, 0, 1, "expected CUDA 12.0 (driver R525) or newer, found CUDA 11.4"),
        (12_000, 100, 0, "finds no device"),
        (12_040, 0, 0, "finds no device"),
        (12_040, 999, 1, "failed in cuInit: SOME_ERROR"),
        (13_000, 0, 2, "CUDA 13.0, devices: 2"),
    ] {
        make_driver(folder.path(), version, init, num_devices);
        let found = found_in(folder.path());
        assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
    }
    // A file with the name of the library that is not a library.
    std::fs::write(folder.path().join("libcuda.so"), "none").unwrap();
    assert_eq!(found_in(folder.path()), real);
}

//! A driver with two devices on any machine, for tests: `emulator/`, with our kernels compiled as C++.
//!
//! It does work late, in any order that streams and events allow, so that a wait that is missing shows as wrong bits.
//! Its environment: `KV_EMULATED_DEVICES` (how many; 2), `KV_EMULATED_MEMORY` (bytes of each; 1 GiB),
//! `KV_EMULATED_PEERS` (0 if none may use another's memory), `KV_EMULATED_SEED` (the time) and `KV_EMULATED_FAIL`
//! (what [`fail`] gets).

#![expect(unsafe_code, reason = "loads a library, and calls two functions of it")]

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libloading::Library;

/// Builds the driver, where its sources have changed, and loads it for the rest of the process. Whoever looks for a
/// driver after that finds it; nobody may have done so before.
///
/// # Errors
/// What the compiler or the loader says.
pub fn load() -> Result<(), String> {
    library().map(|_| ())
}

/// Begins the random choices of the order of work anew: the same calls get the same order.
///
/// # Errors
/// As [`load`].
pub fn seed(seed: u64) -> Result<(), String> {
    let name = b"kv_emulated_seed";
    // SAFETY: the library has a function of this name and type.
    let function = unsafe { library()?.get::<unsafe extern "C" fn(u64)>(name) };
    let function = function.map_err(|error| error.to_string())?;
    // SAFETY: it takes any number, at any time.
    unsafe { function(seed) };
    Ok(())
}

/// Lets a function of the driver fail: `cuMemAlloc_v2:3` is the call of it after three more that succeed, and
/// `cuMemAlloc_v2:3+` all calls after them. An empty text ends all that.
///
/// # Errors
/// As [`load`].
pub fn fail(what: &str) -> Result<(), String> {
    let text = CString::new(what).map_err(|error| error.to_string())?;
    let name = b"kv_emulated_fail";
    // SAFETY: the library has a function of this name and type.
    let function = unsafe { library()?.get::<unsafe extern "C" fn(*const c_char)>(name) };
    let function = function.map_err(|error| error.to_string())?;
    // SAFETY: it reads a text that ends with 0, and keeps nothing of it.
    unsafe { function(text.as_ptr()) };
    Ok(())
}

/// Returns the folder where the driver is, as `LD_LIBRARY_PATH` of another process needs it.
///
/// # Errors
/// What the compiler says.
pub fn folder() -> Result<&'static Path, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(build).as_deref().map_err(Clone::clone)
}

fn build() -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/emulator.sh");
    let output = Command::new(script).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{script}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let load = || {
        let path = folder()?.join("libcuda.so");
        // SAFETY: it was made of our sources; what runs when it is loaded and at the end uses nothing else.
        unsafe { Library::new(path) }.map_err(|error| error.to_string())
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

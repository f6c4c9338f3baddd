//! An emulated NVIDIA driver with two devices, for tests on machines without a GPU. Its C++ sources
//! are in `driver/`. `build.sh` compiles them together with the kernels.
//!
//! It executes queued work late, in any order that streams and events allow, so that a missing wait
//! shows as wrong bits. Environment variables:
//!
//! - `KV_EMULATED_DEVICES`: the number of devices (2)
//! - `KV_EMULATED_CAPABILITY`: their compute capability, without the point (90)
//! - `KV_EMULATED_PTX`: the newest version of PTX, without the point (84)
//! - `KV_EMULATED_MEMORY`: bytes of each device (1 GiB)
//! - `KV_EMULATED_PEERS`: 0 forbids access to the memory of other devices
//! - `KV_EMULATED_SEED`: the seed of the order of work (the time)
//! - `KV_EMULATED_FAIL`: calls that fail, in the format of [`fail`]

#![expect(unsafe_code, reason = "loads a library and calls some of its functions")]

pub mod null;

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libloading::Library;

/// Builds the driver if its sources have changed, and loads it for the rest of the process. Call
/// this before any code of the process looks for a driver.
///
/// # Errors
/// - The message of the compiler or the loader.
pub fn load() -> Result<(), String> {
    library().map(|_| ())
}

/// Sets the seed of the order of work. With the same seed, the same calls run in the same order.
///
/// # Errors
/// - The errors of [`load`].
pub fn seed(seed: u64) -> Result<(), String> {
    let name = b"kv_emulated_seed";
    // SAFETY: the library has a function of this name and type.
    let function = unsafe { library()?.get::<unsafe extern "C" fn(u64)>(name) };
    let function = function.map_err(|error| error.to_string())?;
    // SAFETY: the function accepts any number at any time.
    unsafe { function(seed) };
    Ok(())
}

/// Makes calls of a driver function fail. `cuMemAlloc_v2:3` is the fourth call from now on,
/// `cuMemAlloc_v2:3+` the fourth and all later ones. `=` and the number of an error may follow;
/// otherwise the error is unknown. An empty string ends all failures.
///
/// # Errors
/// - The errors of [`load`].
pub fn fail(what: &str) -> Result<(), String> {
    let text = CString::new(what).map_err(|error| error.to_string())?;
    let name = b"kv_emulated_fail";
    // SAFETY: the library has a function of this name and type.
    let function = unsafe { library()?.get::<unsafe extern "C" fn(*const c_char)>(name) };
    let function = function.map_err(|error| error.to_string())?;
    // SAFETY: the function reads a string that ends with 0, and keeps no reference to it.
    unsafe { function(text.as_ptr()) };
    Ok(())
}

/// Returns the folder of the driver, for the `LD_LIBRARY_PATH` of another process.
///
/// # Errors
/// - The message of the compiler.
pub fn folder() -> Result<&'static Path, String> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(build).as_deref().map_err(Clone::clone)
}

/// Returns the folder of the C++ sources. The kernels include one of its headers.
pub fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/driver"))
}

fn build() -> Result<PathBuf, String> {
    run(concat!(env!("CARGO_MANIFEST_DIR"), "/build.sh"))
}

/// Runs a script that builds a driver and prints its folder.
fn run(script: &str) -> Result<PathBuf, String> {
    let output = Command::new(script).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{script}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Loads the driver in a folder.
fn open(folder: &Path) -> Result<Library, String> {
    // SAFETY: the library is built from the sources of this crate; its constructors and destructors
    // use only its own memory.
    unsafe { Library::new(folder.join("libcuda.so")) }.map_err(|error| error.to_string())
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| open(folder()?)).as_ref().map_err(Clone::clone)
}

//! A driver that does nothing. Every call succeeds at once and is counted, for tests and benchmarks
//! of the work that the host does for a GPU. Its C++ source is in `null/`.
//!
//! Memory of its device has no bytes, so results are meaningless. A process can load either this
//! driver or the emulated one. With `KV_NULL_COUNTS=1`, the driver prints all counts when the
//! process ends.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::{Library, Symbol};

/// Builds the driver if its source has changed, and returns its folder, for the `LD_LIBRARY_PATH`
/// of another process.
///
/// # Errors
/// - The message of the compiler.
pub fn folder() -> Result<PathBuf, String> {
    crate::run(concat!(env!("CARGO_MANIFEST_DIR"), "/null/build.sh"))
}

/// Builds the driver if its source has changed, and loads it for the rest of the process. Call this
/// before any code of the process looks for a driver.
///
/// # Errors
/// - The message of the compiler or the loader.
pub fn load() -> Result<(), String> {
    library().map(|_| ())
}

/// Sets whether work is complete only after a wait, as on a busy GPU. Otherwise all work is
/// complete when it is queued.
///
/// # Errors
/// - The errors of [`load`].
pub fn be_lazy(is_lazy: bool) -> Result<(), String> {
    let function = function::<unsafe extern "C" fn(c_int)>(b"kv_null_be_lazy")?;
    // SAFETY: the function accepts any number at any time.
    unsafe { function(is_lazy.into()) };
    Ok(())
}

/// Returns the number of calls of each function of the driver so far, and of bytes: `bytes_in` and
/// `bytes_out` were copied to and from the device, `bytes_pinned` and `bytes_allocated` were
/// allocated on the host and on the device.
///
/// # Errors
/// - The errors of [`load`].
pub fn counts() -> Result<BTreeMap<String, u64>, String> {
    let name = function::<unsafe extern "C" fn(usize) -> *const c_char>(b"kv_null_name")?;
    let count = function::<unsafe extern "C" fn(*const c_char) -> u64>(b"kv_null_count")?;
    let mut counts = BTreeMap::new();
    for position in 0.. {
        // SAFETY: the function accepts any number.
        let text = unsafe { name(position) };
        if text.is_null() {
            break;
        }
        // SAFETY: the driver returns static strings that end with 0.
        let text = unsafe { CStr::from_ptr(text) };
        // SAFETY: as above, and the function only reads the string.
        let number = unsafe { count(CString::from(text).as_ptr()) };
        counts.insert(text.to_string_lossy().into_owned(), number);
    }
    Ok(counts)
}

fn function<T>(name: &[u8]) -> Result<Symbol<'static, T>, String> {
    // SAFETY: each use gives the type that the function has in `null/driver.cpp`.
    unsafe { library()?.get(name) }.map_err(|error| error.to_string())
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| crate::open(&folder()?)).as_ref().map_err(Clone::clone)
}

//! Finds and opens an MPI library.

#![expect(unsafe_code, reason = "opens libraries, whose constructors run")]

use std::fmt::Write as _;

use kvstore_core::{Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::abi::{Abi, version_of};
use super::functions::{Mpi, bind};
use super::launcher::{Family, Launcher};

/// File names of libraries by interface. A number in the name identifies a stable interface. The
/// interface is checked again after the library has been opened.
const OPEN_MPI: &[&str] = &["libmpi.so.40", "libmpi.40.dylib"];
const MPICH: &[&str] = &["libmpich.so.12", "libmpi.so.12", "libmpi.12.dylib"];
const STANDARD: &[&str] =
    &["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so", "libmpi_abi.1.dylib"];
/// File names without a number. They may have any interface.
const ANY: &[&str] = &["libmpi.so", "libmpich.so", "libmpi.dylib"];

/// The `dlopen` flag that finds a library only if it is already open.
#[cfg(target_os = "macos")]
const RTLD_NOLOAD: i32 = 0x10;
#[cfg(not(target_os = "macos"))]
const RTLD_NOLOAD: i32 = 4;

/// An MPI library that stays open until the process ends.
#[derive(Clone, Debug)]
pub(super) struct OpenLibrary {
    pub(super) mpi: &'static dyn Mpi,
    pub(super) name: String,
    /// The beginning of the library's version string.
    pub(super) version: String,
}

/// Returns a library that the program has already opened. Otherwise opens one: the launcher's if
/// possible, else any other.
///
/// # Errors
/// - [`Error::Unsupported`] if no library can be used. The message names the libraries that were
///   tried, and packages to install.
pub(super) fn find(names: &[String], launcher: Launcher) -> Result<OpenLibrary> {
    let names: Vec<&str> = match names {
        [] => usual_names(launcher.family),
        names => names.iter().map(String::as_str).collect(),
    };
    // If a library is already open, the program uses it.
    if let Some(found) = names.iter().find_map(|name| open(name, RTLD_NOLOAD).ok()) {
        return Ok(found);
    }
    launcher.prepare();
    let (mut missing, mut rejected) = (Vec::new(), String::new());
    for name in names {
        match open(name, 0) {
            Ok(found) => return Ok(found),
            Err(OpenError::Missing) => missing.push(name),
            Err(OpenError::Other(reason)) => {
                // Writing to a string cannot fail.
                let _ = write!(rejected, "; {name}: {reason}");
            }
        }
    }
    let missing = missing.join(", ");
    Err(Error::Unsupported(format!(
        "no MPI is installed that could be used: on Debian, install `openmpi-bin` or `mpich`, \
         and start the program with its `mpirun` (not found: {missing}{rejected})"
    )))
}

fn usual_names(family: Option<Family>) -> Vec<&'static str> {
    let names = match family {
        Some(Family::OpenMpi) | None => [OPEN_MPI, STANDARD, MPICH, ANY],
        Some(Family::Mpich) => [MPICH, STANDARD, OPEN_MPI, ANY],
    };
    let mut names: Vec<_> = names.into_iter().flatten().copied().collect();
    names.retain(|name| name.contains(".dylib") == cfg!(target_os = "macos"));
    names
}

/// The reason why a library cannot be used.
enum OpenError {
    Missing,
    Other(String),
}

/// Opens a library with additional `dlopen` flags.
fn open(name: &str, flags: i32) -> Result<OpenLibrary, OpenError> {
    // RTLD_GLOBAL, because plug-ins of the library need its symbols.
    // SAFETY: The initialisers of an MPI library are designed to run when the library is opened.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | flags) };
    let library = library.map_err(|error| rejection_of(name, &error))?;
    let reject = |reason: String| Err(OpenError::Other(reason));
    let Some(version) = version_of(&library) else {
        return reject("it is not a library of MPI 3 or newer".to_owned());
    };
    let Some(abi) = Abi::of(&library, &version) else {
        return reject(format!("the binary interface of `{version}` is not known"));
    };
    // The library is never closed, because its threads and handlers keep running.
    let library = Box::leak(Box::new(library));
    let mpi = bind(library, abi).map_err(|error| rejection_of(name, &error))?;
    Ok(OpenLibrary { mpi, name: name.to_owned(), version })
}

/// Converts an error of the dynamic loader. Keeps the loader's message, without the text of the
/// `libloading` crate.
///
/// Only the message distinguishes a missing library from one that cannot be loaded: it begins with
/// the name of the missing library, which may be a dependency.
fn rejection_of(name: &str, error: &libloading::Error) -> OpenError {
    let text = match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => {
            source.to_string()
        }
        error => error.to_string(),
    };
    if text.starts_with(name) && text.ends_with("No such file or directory") {
        return OpenError::Missing;
    }
    OpenError::Other(text)
}

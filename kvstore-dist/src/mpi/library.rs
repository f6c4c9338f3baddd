//! Finds and opens a library of MPI.

#![expect(unsafe_code, reason = "opens libraries, whose constructors run")]

use std::fmt::Write as _;

use kvstore_core::{Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::abi::{Abi, version_of};
use super::functions::{Mpi, bind};
use super::launcher::{Family, Launcher};

/// Names of libraries. Those with a number keep their interface; the version that they turn out to be is checked afterwards.
const OPEN_MPI: &[&str] = &["libmpi.so.40", "libmpi.40.dylib"];
const MPICH: &[&str] = &["libmpich.so.12", "libmpi.so.12", "libmpi.12.dylib"];
const STANDARD: &[&str] =
    &["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so", "libmpi_abi.1.dylib"];
/// Whichever is there under a name without number.
const ANY: &[&str] = &["libmpi.so", "libmpich.so", "libmpi.dylib"];

/// `dlopen` is to find what is open already, and to open nothing.
#[cfg(target_os = "macos")]
const RTLD_NOLOAD: i32 = 0x10;
#[cfg(not(target_os = "macos"))]
const RTLD_NOLOAD: i32 = 4;

/// A library of MPI that is open for the rest of the process.
#[derive(Clone, Debug)]
pub(super) struct OpenLibrary {
    pub(super) mpi: &'static dyn Mpi,
    pub(super) name: String,
    /// What it calls itself.
    pub(super) version: String,
}

/// Opens a library: the one that the program has opened before, else that of the launcher, else any.
///
/// # Errors
/// [`Error::Unsupported`] where there is none, with what was tried and which packages have one.
pub(super) fn find(names: &[String], launcher: Launcher) -> Result<OpenLibrary> {
    let names: Vec<&str> = match names {
        [] => usual_names(launcher.family),
        names => names.iter().map(String::as_str).collect(),
    };
    // What is open already is a library that the program uses.
    if let Some(found) = names.iter().find_map(|name| open(name, RTLD_NOLOAD).ok()) {
        return Ok(found);
    }
    launcher.prepare();
    let (mut missing, mut refused) = (Vec::new(), String::new());
    for name in names {
        match open(name, 0) {
            Ok(found) => return Ok(found),
            Err(OpenError::Missing) => missing.push(name),
            Err(OpenError::Other(reason)) => {
                // Writing to a text cannot fail.
                let _ = write!(refused, "; {name}: {reason}");
            }
        }
    }
    let missing = missing.join(", ");
    Err(Error::Unsupported(format!(
        "no MPI is installed that could be used: on Debian, install `openmpi-bin` or `mpich`, \
         and start the program with its `mpirun` (not found: {missing}{refused})"
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

/// Why a library is not used.
enum OpenError {
    Missing,
    Other(String),
}

/// Opens a library, or says why not.
fn open(name: &str, flags: i32) -> Result<OpenLibrary, OpenError> {
    // SAFETY: what runs when a library of MPI is opened is meant for it. Its plug-ins need its symbols (RTLD_GLOBAL).
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | flags) };
    let library = library.map_err(|error| refusal_of(name, &error))?;
    let refuse = |reason: String| Err(OpenError::Other(reason));
    let Some(version) = version_of(&library) else {
        return refuse("it is no library of MPI 3 or newer".to_owned());
    };
    let Some(abi) = Abi::of(&library, &version) else {
        return refuse(format!("the binary interface of `{version}` is not known"));
    };
    // Its threads and handlers stay, so it is never closed.
    let library = Box::leak(Box::new(library));
    let mpi = bind(library, abi).map_err(|error| refusal_of(name, &error))?;
    Ok(OpenLibrary { mpi, name: name.to_owned(), version })
}

/// Takes the loader's words, without those of the crate around them. Only the words tell a library that is not there
/// from one that cannot be loaded: they begin with its name, or with that of another one which it needs.
fn refusal_of(name: &str, error: &libloading::Error) -> OpenError {
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

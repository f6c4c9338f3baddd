//! Finds and opens a library of MPI.

#![expect(unsafe_code, reason = "opens libraries, whose constructors run")]

use std::fmt::Write as _;

use kvstore_core::{Error, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::abi::{Abi, version_of};
use super::functions::{Mpi, bind};
use super::launcher::{Family, Launcher};

/// Names of libraries. Those with a number keep their interface; what they turn out to be is asked afterwards.
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
pub(super) struct Found {
    pub(super) mpi: &'static dyn Mpi,
    pub(super) name: String,
    /// What it calls itself.
    pub(super) version: String,
}

/// Opens a library: the one that the program has opened before, else that of the launcher, else any.
///
/// # Errors
/// [`Error::Unsupported`] where there is none, with what was tried and which packages have one.
pub(super) fn find(names: &[String], launcher: Launcher) -> Result<Found> {
    let names: Vec<&str> = match names {
        [] => usual_names(launcher.family),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut tried = String::new();
    if let Some(found) = names.iter().find_map(|name| open(name, RTLD_NOLOAD, &mut tried)) {
        return Ok(found);
    }
    launcher.prepare();
    tried.clear();
    let found = names.iter().find_map(|name| open(name, 0, &mut tried));
    found.ok_or_else(|| {
        Error::Unsupported(format!(
            "no MPI is installed that could be used: on Debian, install `openmpi-bin libopenmpi3` or `mpich \
             libmpich12`, and start the program with its `mpirun` ({})",
            tried.trim_end_matches("; ")
        ))
    })
}

fn usual_names(family: Option<Family>) -> Vec<&'static str> {
    let names = match family {
        Some(Family::OpenMpi) | None => [OPEN_MPI, STANDARD, MPICH, ANY],
        Some(Family::Mpich) => [MPICH, STANDARD, OPEN_MPI, ANY],
    };
    names.concat()
}

/// Opens a library, or says why not.
fn open(name: &str, flags: i32, tried: &mut String) -> Option<Found> {
    let refuse = |tried: &mut String, reason: &dyn std::fmt::Display| {
        // Writing to a text cannot fail.
        let _ = write!(tried, "{name}: {reason}; ");
    };
    // SAFETY: what runs when a library of MPI is opened is meant for it. Its plug-ins need its symbols (RTLD_GLOBAL).
    let library = match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL | flags) } {
        Ok(library) => library,
        Err(error) => {
            refuse(tried, &reason_of(&error));
            return None;
        }
    };
    let Some(version) = version_of(&library) else {
        refuse(tried, &"it is no library of MPI 3 or newer");
        return None;
    };
    let Some(abi) = Abi::of(&library, &version) else {
        refuse(tried, &format_args!("the binary interface of `{version}` is not known"));
        return None;
    };
    // Its threads and handlers stay, so it is never closed.
    let library = Box::leak(Box::new(library));
    match bind(library, abi) {
        Ok(mpi) => Some(Found { mpi, name: name.to_owned(), version }),
        Err(error) => {
            refuse(tried, &reason_of(&error));
            None
        }
    }
}

/// Returns the loader's own words, without those of the crate around them.
fn reason_of(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } | libloading::Error::DlSym { source } => {
            source.to_string()
        }
        error => error.to_string(),
    }
}

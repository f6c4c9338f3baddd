//! A program that initialises MPI before it opens the collective.

#![expect(unsafe_code, reason = "calls MPI beside the crate")]

use std::env;
use std::ffi::{c_char, c_int};
use std::ptr;

use kvstore_core::ErrorCode;
use kvstore_dist::{Collective, MpiCollective};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::collective_suite;
use crate::jobs::open;

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalized = unsafe extern "C" fn(*mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// `MPI_THREAD_SERIALIZED` of Open MPI and MPICH.
const SERIALIZED: c_int = 2;

/// Initialises MPI, uses it through the crate, and finalises it.
pub(crate) fn initialises_mpi() {
    let is_open_mpi = env::var_os("OMPI_COMM_WORLD_RANK").is_some();
    let name = if is_open_mpi { "libmpi.so.40" } else { "libmpich.so.12" };
    // SAFETY: the initialisers of an MPI library have no preconditions.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
    // SAFETY: `Init` is the type of the function in the MPI standard.
    let init = unsafe { library.get::<Init>("MPI_Init_thread") }.unwrap();
    // SAFETY: `Finalized` is the type of the function in the MPI standard.
    let finalized = unsafe { library.get::<Finalized>("MPI_Finalized") }.unwrap();
    // SAFETY: `Finalize` is the type of the function in the MPI standard.
    let finalize = unsafe { library.get::<Finalize>("MPI_Finalize") }.unwrap();
    let (mut provided, mut is_finalized) = (0, 0);
    // SAFETY: MPI is not initialised yet, MPI allows null for the program arguments, and `provided`
    // is a writable integer.
    let code = unsafe { init(ptr::null_mut(), ptr::null_mut(), SERIALIZED, &raw mut provided) };
    assert_eq!(code, 0);

    let member = open();
    assert_eq!(member.size(), 2);
    collective_suite::all(&member);
    // The crate finalises only its own communicator. MPI itself belongs to the program.
    MpiCollective::finalize(&collective_suite::wait()).unwrap();
    assert_eq!(member.barrier(&collective_suite::wait()).unwrap_err().code(), ErrorCode::Closed);

    // SAFETY: `is_finalized` is a writable integer.
    let code = unsafe { finalized(&raw mut is_finalized) };
    assert_eq!((code, is_finalized), (0, 0), "it is the program's");
    // SAFETY: MPI is initialised, and no communication is in progress.
    let code = unsafe { finalize() };
    assert_eq!(code, 0);
    // Never unload the library, because MPI may leave threads or handlers behind.
    Box::leak(Box::new(library));
}

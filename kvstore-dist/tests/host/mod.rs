//! A program that has begun MPI itself.

#![expect(unsafe_code, reason = "calls MPI beside the crate")]

use std::env;
use std::ffi::{c_char, c_int};
use std::ptr;

use kvstore_core::ErrorCode;
use kvstore_dist::{Collective, MpiCollective};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::jobs::open;
use crate::suite;

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalized = unsafe extern "C" fn(*mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// `MPI_THREAD_SERIALIZED` of Open MPI and MPICH.
const SERIALIZED: c_int = 2;

/// Initialises MPI, uses it by the crate, and finalises it.
pub(crate) fn initialises_mpi() {
    let is_open_mpi = env::var_os("OMPI_COMM_WORLD_RANK").is_some();
    let name = if is_open_mpi { "libmpi.so.40" } else { "libmpich.so.12" };
    // SAFETY: the library may be opened.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.unwrap();
    // SAFETY: it has the type of the function.
    let init = unsafe { library.get::<Init>("MPI_Init_thread") }.unwrap();
    // SAFETY: as above.
    let finalized = unsafe { library.get::<Finalized>("MPI_Finalized") }.unwrap();
    // SAFETY: as above.
    let finalize = unsafe { library.get::<Finalize>("MPI_Finalize") }.unwrap();
    let (mut provided, mut is_finalized) = (0, 0);
    // SAFETY: nobody has initialised it, and arguments may be missing.
    let code = unsafe { init(ptr::null_mut(), ptr::null_mut(), SERIALIZED, &raw mut provided) };
    assert_eq!(code, 0);

    let member = open();
    assert_eq!(member.size(), 2);
    suite::all(&member);
    // Errors go to the crate's own communicator, and the program's is as it was.
    MpiCollective::finalize(&suite::wait()).unwrap();
    assert_eq!(member.barrier(&suite::wait()).unwrap_err().code(), ErrorCode::Closed);

    // SAFETY: a local integer is written.
    let code = unsafe { finalized(&raw mut is_finalized) };
    assert_eq!((code, is_finalized), (0, 0), "it is the program's");
    // SAFETY: nothing is on its way.
    let code = unsafe { finalize() };
    assert_eq!(code, 0);
    // What MPI leaves behind is not unloaded.
    Box::leak(Box::new(library));
}

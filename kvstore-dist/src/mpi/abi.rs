//! What the binary interfaces of MPI differ in: what a handle is, and which values constants have. Everything that
//! depends on the library that was found stands here; the rest of the binding calls functions that all of them have.
//!
//! | | Open MPI 4, 5 | MPICH 4, 5 and its relatives | MPI 5 |
//! |---|---|---|---|
//! | read in | `mpi.h` of 4.1.4 and 5.0.11 | `mpi.h` of 4.0.2 and 5.0.2 | `mpi_abi.h` of MPICH 5.0.2 |
//! | a handle is | a pointer to an object | an integer | a small integer as a pointer |
//! | told by | `ompi_mpi_comm_world` | what the library calls itself | `MPI_Abi_get_version` |

#![expect(unsafe_code, reason = "looks symbols up in a library, and handles are pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

use libloading::os::unix::Library;

/// A handle of a library: a communicator, a request, a type.
pub(super) trait Handle: Copy + fmt::Debug + Send + Sync + 'static {
    /// Returns it as a number, for what does not know which interface there is.
    fn to_number(self) -> usize;

    /// Returns the handle of a number.
    fn of_number(number: usize) -> Self;
}

impl Handle for c_int {
    fn to_number(self) -> usize {
        self.cast_unsigned() as usize
    }

    #[expect(clippy::cast_possible_truncation, reason = "it was an integer before")]
    fn of_number(number: usize) -> Self {
        (number as u32).cast_signed()
    }
}

/// A handle that is a pointer.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Pointer(*mut c_void);

impl Handle for Pointer {
    fn to_number(self) -> usize {
        self.0.expose_provenance()
    }

    fn of_number(number: usize) -> Self {
        Self(ptr::with_exposed_provenance_mut(number))
    }
}

// SAFETY: the pointer is a name that only the library follows, and it may be given to it by any thread.
unsafe impl Send for Pointer {}
// SAFETY: the same.
unsafe impl Sync for Pointer {}

/// The constants of `mpi.h`.
#[derive(Debug)]
pub(super) struct Constants<H> {
    pub(super) comm_world: H,
    pub(super) byte: H,
    pub(super) errors_return: H,
    pub(super) request_null: H,
    /// `MPI_THREAD_SERIALIZED`. Levels are ordered everywhere.
    pub(super) thread_serialized: c_int,
    pub(super) any_tag: c_int,
    /// Where the tag stands in an `MPI_Status`, counted in integers.
    pub(super) tag_in_status: usize,
}

/// An `MPI_Status`, which has 24 bytes in Open MPI, 20 in MPICH and 32 in MPI 5.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Status(pub(super) [c_int; 16]);

/// Room for `MPI_MAX_LIBRARY_VERSION_STRING` (256 or 8192) and `MPI_MAX_ERROR_STRING` (256 or 512).
pub(super) const MAX_TEXT: usize = 8192;

/// The interface of a library, with its constants.
#[derive(Debug)]
pub(super) enum Abi {
    OpenMpi(Constants<Pointer>),
    Mpich(Constants<c_int>),
    Standard(Constants<Pointer>),
}

impl Abi {
    /// Finds out which interface a library has, if it is one that is known here.
    ///
    /// MPICH 5 has the functions of MPI 5 in its own interface too, and a library of MPI 5 may find symbols of Open MPI
    /// in what it needs itself: so that there is a function says nothing before it has been asked.
    pub(super) fn of(library: &Library, version: &str) -> Option<Self> {
        if has_standard_abi(library) {
            return Some(Self::Standard(standard()));
        }
        if let Some(constants) = open_mpi(library) {
            return Some(Self::OpenMpi(constants));
        }
        // They have agreed on one interface (the MPICH ABI compatibility initiative), which MPICH 4 and 5 keep.
        let relatives = ["MPICH", "Intel(R) MPI", "MVAPICH"];
        let is_relative = relatives.iter().any(|name| version.contains(name));
        is_relative.then(|| Self::Mpich(mpich()))
    }
}

/// Handles are the addresses of objects in the library.
fn open_mpi(library: &Library) -> Option<Constants<Pointer>> {
    let object = |name| address(library, name).map(Pointer);
    Some(Constants {
        comm_world: object(c"ompi_mpi_comm_world")?,
        byte: object(c"ompi_mpi_byte")?,
        errors_return: object(c"ompi_mpi_errors_return")?,
        request_null: object(c"ompi_request_null")?,
        thread_serialized: 2,
        any_tag: -1,
        tag_in_status: 1,
    })
}

fn mpich() -> Constants<c_int> {
    Constants {
        comm_world: 0x4400_0000,
        byte: 0x4c00_010d,
        errors_return: 0x5400_0001,
        request_null: 0x2c00_0000,
        thread_serialized: 2,
        any_tag: -1,
        tag_in_status: 3,
    }
}

fn standard() -> Constants<Pointer> {
    let handle = |number| Pointer(ptr::without_provenance_mut(number));
    Constants {
        comm_world: handle(0x101),
        byte: handle(0x247),
        errors_return: handle(0x143),
        request_null: handle(0x180),
        thread_serialized: 2048,
        any_tag: -2,
        tag_in_status: 1,
    }
}

/// Asks a library whether it has the interface of MPI 5; others that have the function answer -1.
fn has_standard_abi(library: &Library) -> bool {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: `int MPI_Abi_get_version(int *, int *)`, in every library that has it.
    let Ok(get_version) = (unsafe { library.get::<GetVersion>(c"MPI_Abi_get_version") }) else {
        return false;
    };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: it may be called before MPI is initialised, and writes two local integers.
    let code = unsafe { get_version(&raw mut major, &raw mut minor) };
    code == 0 && major == 1
}

/// Returns what a library calls itself, if it is one of MPI: the beginning of a long text.
pub(super) fn version_of(library: &Library) -> Option<String> {
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: `int MPI_Get_library_version(char *, int *)`, in every library that has it.
    let get_version = unsafe { library.get::<GetVersion>(c"MPI_Get_library_version") }.ok()?;
    let version = text(|text, len| {
        // SAFETY: it may be called before MPI is initialised, and the text has room for its longest answer.
        unsafe { get_version(text, len) }
    })?;
    let beginning = version.split([',', '\n']).next().unwrap_or_default();
    Some(beginning.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the text that a function writes.
pub(super) fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    let mut bytes = [0_u8; MAX_TEXT + 1];
    let mut len = 0;
    if write(bytes.as_mut_ptr().cast(), &raw mut len) != 0 {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy();
    Some(text.trim().to_owned())
}

fn address(library: &Library, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: nothing is read there; the address alone is wanted.
    let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    Some(symbol.as_raw_ptr())
}

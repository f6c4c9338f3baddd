//! [`Abi`]: the differences between the binary interfaces of MPI libraries. These are the type of
//! handles and the values of constants. The other modules call functions that all libraries have.
//!
//! | | Open MPI 4, 5 | MPICH 4, 5 and derivatives | MPI 5 |
//! |---|---|---|---|
//! | source | `mpi.h` 4.1.4, 5.0.11 | `mpi.h` 4.0.2, 5.0.2 | `mpi_abi.h` of MPICH 5.0.2 |
//! | handle | pointer to an object | integer | small integer as a pointer |
//! | detected by | `ompi_mpi_comm_world` | version string | `MPI_Abi_get_version` |

#![expect(unsafe_code, reason = "looks up symbols in a library, and handles are pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

use libloading::os::unix::Library;

/// A handle of a library: a communicator, a request or a type.
pub(super) trait Handle: Copy + fmt::Debug + Send + Sync + 'static {
    /// Converts the handle to a number, for code that does not depend on the interface.
    fn to_number(self) -> usize;

    /// Converts a number from [`Handle::to_number`] back to the handle.
    fn of_number(number: usize) -> Self;
}

impl Handle for c_int {
    fn to_number(self) -> usize {
        self.cast_unsigned() as usize
    }

    #[expect(clippy::cast_possible_truncation, reason = "`to_number` returned a `c_int`")]
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

// SAFETY: The pointer is opaque. Only the library dereferences it, and any thread may pass it to
// the library.
unsafe impl Send for Pointer {}
// SAFETY: As for `Send`. The pointer is not dereferenced here.
unsafe impl Sync for Pointer {}

/// The constants of `mpi.h`.
#[derive(Debug)]
pub(super) struct Constants<H> {
    pub(super) comm_world: H,
    pub(super) byte: H,
    pub(super) errors_return: H,
    pub(super) request_null: H,
    /// `MPI_THREAD_SERIALIZED`. In every interface, higher thread levels have higher numbers.
    pub(super) thread_serialized: c_int,
    pub(super) any_tag: c_int,
    /// The position of the tag in an `MPI_Status`, in units of `c_int`.
    pub(super) tag_in_status: usize,
}

/// Memory for an `MPI_Status`. It has 24 bytes in Open MPI, 20 in MPICH and 32 in MPI 5.
#[derive(Debug)]
#[repr(C, align(16))]
pub(super) struct Status(pub(super) [c_int; 16]);

/// The maximum length of a string from the library: `MPI_MAX_LIBRARY_VERSION_STRING` (256 or 8192)
/// or `MPI_MAX_ERROR_STRING` (256 or 512).
pub(super) const MAX_TEXT: usize = 8192;

/// The interface of a library, with its constants.
#[derive(Debug)]
pub(super) enum Abi {
    OpenMpi(Constants<Pointer>),
    Mpich(Constants<c_int>),
    Standard(Constants<Pointer>),
}

impl Abi {
    /// Detects the interface of a library. Returns `None` if it is unknown.
    pub(super) fn of(library: &Library, version: &str) -> Option<Self> {
        // Finding a symbol is not sufficient. MPICH 5 also has `MPI_Abi_get_version` in its own
        // interface, and looking up an Open MPI symbol in an MPI 5 library may find it in one of
        // the library's dependencies. So this calls the function, before it looks for symbols of
        // Open MPI.
        if has_standard_abi(library) {
            return Some(Self::Standard(standard()));
        }
        if let Some(constants) = open_mpi(library) {
            return Some(Self::OpenMpi(constants));
        }
        // These share one interface (the MPICH ABI compatibility initiative), also in MPICH 4 and
        // 5.
        let relatives = ["MPICH", "Intel(R) MPI", "MVAPICH"];
        let is_relative = relatives.iter().any(|name| version.contains(name));
        is_relative.then(|| Self::Mpich(mpich()))
    }
}

/// Returns the constants of Open MPI. Its handles are the addresses of objects in the library.
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

/// Returns whether a library has the interface of MPI 5. In other libraries, `MPI_Abi_get_version`
/// returns version -1 or does not exist.
fn has_standard_abi(library: &Library) -> bool {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: In every library that has it, the function is
    // `int MPI_Abi_get_version(int *, int *)`.
    let Ok(get_version) = (unsafe { library.get::<GetVersion>(c"MPI_Abi_get_version") }) else {
        return false;
    };
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: The function may be called before MPI is initialised, and writes two local integers.
    let code = unsafe { get_version(&raw mut major, &raw mut minor) };
    code == 0 && major == 1
}

/// Returns the beginning of a library's version string, or `None` if it is not an MPI library.
pub(super) fn version_of(library: &Library) -> Option<String> {
    type GetVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: In every library that has it, the function is
    // `int MPI_Get_library_version(char *, int *)`.
    let get_version = unsafe { library.get::<GetVersion>(c"MPI_Get_library_version") }.ok()?;
    let version = text(|text, len| {
        // SAFETY: The function may be called before MPI is initialised, and the buffer has room for
        // the longest string.
        unsafe { get_version(text, len) }
    })?;
    let beginning = version.split([',', '\n']).next().unwrap_or_default();
    Some(beginning.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Calls `write` with a buffer and returns the string that it writes. Returns `None` if it fails.
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
    // SAFETY: Only the address of the symbol is used. It is not dereferenced.
    let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
    Some(symbol.as_raw_ptr())
}

//! [`Mpi`]: the functions of MPI, independent of the library's binary interface.

#![expect(unsafe_code, reason = "calls functions of a library that is opened at run time")]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::os::unix::Library;

use super::abi::{Abi, Constants, Handle, Status, text};

/// The error of an MPI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) function: &'static str,
    /// The message of the library.
    pub(super) reason: String,
}

/// A nonblocking operation that MPI has started.
#[derive(Debug)]
pub(super) struct Request(usize);

#[cfg(test)]
impl Request {
    /// Returns a request that no library has started.
    pub(super) fn for_tests() -> Self {
        Self(0)
    }
}

/// The status of a completed operation. For a received message, the tag and the length.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageStatus {
    pub(super) tag: c_int,
    pub(super) num_bytes: c_int,
}

/// An MPI library. Only one thread may call it at a time. All methods except `is_initialized`,
/// `is_finalized` and `init` may only be called between [`Mpi::init`] and [`Mpi::finalize`].
pub(super) trait Mpi: fmt::Debug + Send + Sync {
    /// Returns whether MPI has been initialised, by this crate or by the program.
    fn is_initialized(&self) -> Result<bool, Failure>;

    /// Returns whether MPI has been finalised. It cannot be initialised again.
    fn is_finalized(&self) -> Result<bool, Failure>;

    /// Initialises MPI with `MPI_THREAD_SERIALIZED`: several threads may call it, one at a time.
    /// Makes MPI return errors instead of ending the process.
    fn init(&self) -> Result<(), Failure>;

    /// Returns whether MPI was initialised with at least `MPI_THREAD_SERIALIZED`.
    fn allows_turns(&self) -> Result<bool, Failure>;

    fn finalize(&self) -> Result<(), Failure>;

    /// Ends this process, and asks the launcher to end the others. Returns only if this fails.
    fn abort(&self, status: c_int) -> Failure;

    /// Returns the rank of this process and the number of processes.
    fn rank_and_size(&self) -> Result<(c_int, c_int), Failure>;

    /// Starts to create a separate communicator, so that the program never receives messages of
    /// this crate.
    fn begin_own(&self) -> Result<Request, Failure>;

    /// Makes the new communicator return errors. The request of [`Mpi::begin_own`] must be done.
    fn adopt_own(&self) -> Result<(), Failure>;

    /// Starts to send bytes.
    ///
    /// # Safety
    /// Until [`Mpi::test`] has returned a status for the request:
    ///
    /// - The bytes must stay valid at their address.
    /// - No code may write to them.
    unsafe fn send(
        &self,
        bytes: *const u8,
        num_bytes: c_int,
        peer: c_int,
        tag: c_int,
    ) -> Result<Request, Failure>;

    /// Starts to receive up to `num_bytes` bytes from a peer, with any tag.
    ///
    /// # Safety
    /// Until [`Mpi::test`] has returned a status for the request:
    ///
    /// - The bytes must stay valid at their address.
    /// - No code may read or write them.
    unsafe fn receive(
        &self,
        bytes: *mut u8,
        num_bytes: c_int,
        peer: c_int,
    ) -> Result<Request, Failure>;

    /// Lets the library make progress. Returns the status of the request if it is done, or `None`.
    ///
    /// # Errors
    /// - The failure and the tag of the message, for example if the message is too long. The tag is
    ///   -1 if it is not known.
    fn test(&self, request: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)>;
}

/// Looks up the functions of a library. The library must stay open until the process ends.
///
/// # Errors
/// - The error of the dynamic loader, if a function is missing.
pub(super) fn bind(library: &Library, abi: Abi) -> Result<&'static dyn Mpi, libloading::Error> {
    Ok(match abi {
        Abi::OpenMpi(constants) | Abi::Standard(constants) => leaked(library, constants)?,
        Abi::Mpich(constants) => leaked(library, constants)?,
    })
}

fn leaked<H: Handle>(
    library: &Library,
    constants: Constants<H>,
) -> Result<&'static dyn Mpi, libloading::Error> {
    // Leaked, because MPI may write the communicator at any time until the process ends.
    let own = AtomicPtr::new(Box::leak(Box::new(constants.comm_world)));
    Ok(Box::leak(Box::new(Bound { functions: Functions::load(library)?, constants, own })))
}

/// Defines the struct `Functions` with one field per MPI function, and its method `load`, which
/// looks up the functions. Usage: `functions! { Name(*mut c_int), .. }`.
macro_rules! functions {
    ($($name:ident($($argument:ty),*),)*) => {
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "the names of MPI")]
        struct Functions<H> {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            fn load(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: The function of this name has this type in every version of MPI
                        // since 3.0, and the library is never closed.
                        $name: *unsafe { library.get(stringify!($name)) }?,
                    )*
                })
            }
        }
    };
}

functions! {
    MPI_Initialized(*mut c_int),
    MPI_Finalized(*mut c_int),
    MPI_Init_thread(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int),
    MPI_Query_thread(*mut c_int),
    MPI_Finalize(),
    MPI_Abort(H, c_int),
    MPI_Comm_rank(H, *mut c_int),
    MPI_Comm_size(H, *mut c_int),
    MPI_Comm_idup(H, *mut H, *mut H),
    MPI_Comm_set_errhandler(H, H),
    MPI_Isend(*const c_void, c_int, H, c_int, c_int, H, *mut H),
    MPI_Irecv(*mut c_void, c_int, H, c_int, c_int, H, *mut H),
    MPI_Test(*mut H, *mut c_int, *mut Status),
    MPI_Get_count(*const Status, H, *mut c_int),
    MPI_Error_string(c_int, *mut c_char, *mut c_int),
}

#[derive(Debug)]
struct Bound<H> {
    functions: Functions<H>,
    constants: Constants<H>,
    /// The memory of the separate communicator, which is never freed.
    own: AtomicPtr<H>,
}

/// Calls a function: `call!(self, MPI_Function(arguments))`. At each use, a comment explains why
/// the call and its arguments are valid.
macro_rules! call {
    ($self:ident, $function:ident($($argument:expr),*)) => {{
        // SAFETY: The function has this type. The comment at the use explains the rest.
        let code = unsafe { ($self.functions.$function)($($argument),*) };
        $self.check(stringify!($function), code)
    }};
}

impl<H: Handle> Bound<H> {
    /// Converts the return code of a function to a result.
    fn check(&self, function: &'static str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let text = text(|text, len| {
            // SAFETY: `MPI_Error_string` may be called at any time, and the buffer has room for the
            // longest string.
            unsafe { (self.functions.MPI_Error_string)(code, text, len) }
        });
        let reason = text.unwrap_or_else(|| format!("error {code}"));
        Err(Failure { function, reason })
    }

    /// Returns the separate communicator.
    fn own(&self) -> H {
        // SAFETY: The memory is never freed. MPI has written the communicator, because callers use
        // it only after the request of `begin_own` is done.
        unsafe { *self.own.load(Ordering::Relaxed) }
    }
}

impl<H: Handle> Mpi for Bound<H> {
    fn is_initialized(&self) -> Result<bool, Failure> {
        let mut flag = 0;
        // `MPI_Initialized` may be called at any time. The pointer is to a local integer.
        call!(self, MPI_Initialized(&raw mut flag))?;
        Ok(flag != 0)
    }

    fn is_finalized(&self) -> Result<bool, Failure> {
        let mut flag = 0;
        // `MPI_Finalized` may be called at any time. The pointer is to a local integer.
        call!(self, MPI_Finalized(&raw mut flag))?;
        Ok(flag != 0)
    }

    fn init(&self) -> Result<(), Failure> {
        let (level, mut provided) = (self.constants.thread_serialized, 0);
        // MPI is not initialised yet. It accepts null pointers instead of program arguments.
        call!(self, MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), level, &raw mut provided))?;
        let (world, errors_return) = (self.constants.comm_world, self.constants.errors_return);
        // Errors without a communicator go to the handler of `MPI_COMM_WORLD`. Both arguments are
        // handles of this library.
        call!(self, MPI_Comm_set_errhandler(world, errors_return))
    }

    fn allows_turns(&self) -> Result<bool, Failure> {
        let mut provided = 0;
        // MPI is initialised. The pointer is to a local integer.
        call!(self, MPI_Query_thread(&raw mut provided))?;
        Ok(provided >= self.constants.thread_serialized)
    }

    fn finalize(&self) -> Result<(), Failure> {
        // The caller guarantees that no message is in progress.
        call!(self, MPI_Finalize())
    }

    fn abort(&self, status: c_int) -> Failure {
        // MPI is initialised. The communicator is a handle of this library.
        let result = call!(self, MPI_Abort(self.constants.comm_world, status));
        let reason = "it has returned".to_owned();
        result.err().unwrap_or(Failure { function: "MPI_Abort", reason })
    }

    fn rank_and_size(&self) -> Result<(c_int, c_int), Failure> {
        let (mut rank, mut size) = (0, 0);
        // MPI is initialised. The pointers are to local integers.
        call!(self, MPI_Comm_rank(self.constants.comm_world, &raw mut rank))?;
        call!(self, MPI_Comm_size(self.constants.comm_world, &raw mut size))?;
        Ok((rank, size))
    }

    fn begin_own(&self) -> Result<Request, Failure> {
        let mut request = self.constants.request_null;
        let (world, own) = (self.constants.comm_world, self.own.load(Ordering::Relaxed));
        // MPI writes the new communicator later, to memory that is never freed.
        call!(self, MPI_Comm_idup(world, own, &raw mut request))?;
        Ok(Request(request.to_number()))
    }

    fn adopt_own(&self) -> Result<(), Failure> {
        // Both arguments are handles of this library.
        call!(self, MPI_Comm_set_errhandler(self.own(), self.constants.errors_return))
    }

    unsafe fn send(
        &self,
        bytes: *const u8,
        num_bytes: c_int,
        peer: c_int,
        tag: c_int,
    ) -> Result<Request, Failure> {
        let (byte, own, mut request) =
            (self.constants.byte, self.own(), self.constants.request_null);
        // The contract of `send` keeps the bytes valid.
        call!(self, MPI_Isend(bytes.cast(), num_bytes, byte, peer, tag, own, &raw mut request))?;
        Ok(Request(request.to_number()))
    }

    unsafe fn receive(
        &self,
        bytes: *mut u8,
        num_bytes: c_int,
        peer: c_int,
    ) -> Result<Request, Failure> {
        let (byte, own, mut request) =
            (self.constants.byte, self.own(), self.constants.request_null);
        let tag = self.constants.any_tag;
        // The contract of `receive` keeps the bytes valid.
        call!(self, MPI_Irecv(bytes.cast(), num_bytes, byte, peer, tag, own, &raw mut request))?;
        Ok(Request(request.to_number()))
    }

    fn test(&self, request: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)> {
        const NO_TAG: c_int = -1;
        let (mut handle, mut flag) = (H::of_number(request.0), 0);
        let mut status = Status([NO_TAG; 16]);
        // The request is a handle of this library, or null if it is done. The pointers are to local
        // values.
        let result = call!(self, MPI_Test(&raw mut handle, &raw mut flag, &raw mut status));
        request.0 = handle.to_number();
        let tag = status.0.get(self.constants.tag_in_status).copied().unwrap_or(NO_TAG);
        result.map_err(|failure| (failure, tag))?;
        if flag == 0 {
            return Ok(None);
        }
        let mut num_bytes = 0;
        // The library has written the status, and the message consists of bytes.
        call!(self, MPI_Get_count(&raw const status, self.constants.byte, &raw mut num_bytes))
            .map_err(|failure| (failure, tag))?;
        Ok(Some(MessageStatus { tag, num_bytes }))
    }
}

//! [`Mpi`]: the functions of MPI that are used, for whichever library was found.

#![expect(unsafe_code, reason = "calls functions of a library that was opened at run time")]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::os::unix::Library;

use super::abi::{Abi, Constants, Handle, Status, text};

/// What a function of MPI has answered instead of success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) function: &'static str,
    /// MPI's own text.
    pub(super) reason: String,
}

/// A transfer that MPI has begun.
#[derive(Debug)]
pub(super) struct Request(usize);

#[cfg(test)]
impl Request {
    /// Returns one that no library has begun.
    pub(super) fn for_tests() -> Self {
        Self(0)
    }
}

/// What has come, as far as the library says.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageStatus {
    pub(super) tag: c_int,
    pub(super) num_bytes: c_int,
}

/// A library of MPI. Its functions are called by one thread at a time, and, but for those of its state, between
/// [`Mpi::init`] and [`Mpi::finalize`] only.
pub(super) trait Mpi: fmt::Debug + Send + Sync {
    /// Returns whether MPI is initialised, by whomever.
    fn is_initialized(&self) -> Result<bool, Failure>;

    /// Returns whether MPI has been finalised; then it never comes back.
    fn is_finalized(&self) -> Result<bool, Failure>;

    /// Initialises MPI for threads that call it one at a time. Errors are returned, not fatal.
    fn init(&self) -> Result<(), Failure>;

    /// Returns whether threads may call it one at a time.
    fn allows_turns(&self) -> Result<bool, Failure>;

    fn finalize(&self) -> Result<(), Failure>;

    /// Ends this process and asks the launcher to end the others. Returns only if that fails.
    fn abort(&self, status: c_int) -> Failure;

    /// Returns the rank of this process, and how many there are.
    fn rank_and_size(&self) -> Result<(c_int, c_int), Failure>;

    /// Begins to make a communicator of our own, so that nobody takes our messages for theirs.
    fn begin_own(&self) -> Result<Request, Failure>;

    /// Has errors of that communicator returned, once it is there.
    fn adopt_own(&self) -> Result<(), Failure>;

    /// Begins to send bytes.
    ///
    /// # Safety
    /// They stay where they are, and nobody writes there, until [`Mpi::test`] has told that they were sent.
    unsafe fn send(
        &self,
        bytes: *const u8,
        num_bytes: c_int,
        peer: c_int,
        tag: c_int,
    ) -> Result<Request, Failure>;

    /// Begins to receive so many bytes at most, from a peer, with any tag.
    ///
    /// # Safety
    /// They stay where they are, and nobody uses them, until [`Mpi::test`] has told that they were received.
    unsafe fn receive(
        &self,
        bytes: *mut u8,
        num_bytes: c_int,
        peer: c_int,
    ) -> Result<Request, Failure>;

    /// Lets the library work, and returns what has come when the transfer is done. What a message that is too long
    /// carried is told beside the error.
    fn test(&self, request: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)>;
}

/// Returns the functions of a library that stays open for ever.
///
/// # Errors
/// The loader's answer, where one is missing.
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
    // It is for the whole process, and MPI writes the communicator when it likes.
    let own = AtomicPtr::new(Box::leak(Box::new(constants.comm_world)));
    Ok(Box::leak(Box::new(Bound { functions: Functions::load(library)?, constants, own })))
}

/// `functions! { Name(*mut c_int), .. }` makes a struct with a function of MPI in each field, and `load`, which looks
/// them up.
macro_rules! functions {
    ($($name:ident($($argument:ty),*),)*) => {
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "they are called so")]
        struct Functions<H> {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<H: Handle> Functions<H> {
            fn load(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the function of this name has this type in every version of MPI from 3.0 on, and the
                        // library is never closed.
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
    /// Where our communicator is, or will be; never freed.
    own: AtomicPtr<H>,
}

/// `call!(self, MPI_Function(arguments))` calls a function. What is true of the arguments, so that it may be called, is
/// said where this is used.
macro_rules! call {
    ($self:ident, $function:ident($($argument:expr),*)) => {{
        // SAFETY: the function has this type, and the use says the rest.
        let code = unsafe { ($self.functions.$function)($($argument),*) };
        $self.check(stringify!($function), code)
    }};
}

impl<H: Handle> Bound<H> {
    fn check(&self, function: &'static str, code: c_int) -> Result<(), Failure> {
        if code == 0 {
            return Ok(());
        }
        let text = text(|text, len| {
            // SAFETY: it may be called at any time, and the text has room for its longest answer.
            unsafe { (self.functions.MPI_Error_string)(code, text, len) }
        });
        let reason = text.unwrap_or_else(|| format!("error {code}"));
        Err(Failure { function, reason })
    }

    fn own(&self) -> H {
        // SAFETY: the memory is never freed, and MPI has written it before there is a message.
        unsafe { *self.own.load(Ordering::Relaxed) }
    }
}

impl<H: Handle> Mpi for Bound<H> {
    fn is_initialized(&self) -> Result<bool, Failure> {
        let mut flag = 0;
        // It may be called at any time; a pointer to a local integer may be written.
        call!(self, MPI_Initialized(&raw mut flag))?;
        Ok(flag != 0)
    }

    fn is_finalized(&self) -> Result<bool, Failure> {
        let mut flag = 0;
        // It may be called at any time; a pointer to a local integer may be written.
        call!(self, MPI_Finalized(&raw mut flag))?;
        Ok(flag != 0)
    }

    fn init(&self) -> Result<(), Failure> {
        let (level, mut provided) = (self.constants.thread_serialized, 0);
        // It is not initialised yet, and there may be no arguments of a program.
        call!(self, MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), level, &raw mut provided))?;
        let (world, errors_return) = (self.constants.comm_world, self.constants.errors_return);
        // Errors that belong to no communicator go to the handler of this one.
        call!(self, MPI_Comm_set_errhandler(world, errors_return))
    }

    fn allows_turns(&self) -> Result<bool, Failure> {
        let mut provided = 0;
        // It is initialised; a pointer to a local integer may be written.
        call!(self, MPI_Query_thread(&raw mut provided))?;
        Ok(provided >= self.constants.thread_serialized)
    }

    fn finalize(&self) -> Result<(), Failure> {
        // The caller has seen to it that nothing is on its way.
        call!(self, MPI_Finalize())
    }

    fn abort(&self, status: c_int) -> Failure {
        // MPI is initialised; the communicator is a handle of this library.
        let result = call!(self, MPI_Abort(self.constants.comm_world, status));
        let reason = "it has returned".to_owned();
        result.err().unwrap_or(Failure { function: "MPI_Abort", reason })
    }

    fn rank_and_size(&self) -> Result<(c_int, c_int), Failure> {
        let (mut rank, mut size) = (0, 0);
        // Pointers to local integers may be written.
        call!(self, MPI_Comm_rank(self.constants.comm_world, &raw mut rank))?;
        call!(self, MPI_Comm_size(self.constants.comm_world, &raw mut size))?;
        Ok((rank, size))
    }

    fn begin_own(&self) -> Result<Request, Failure> {
        let mut request = self.constants.request_null;
        let (world, own) = (self.constants.comm_world, self.own.load(Ordering::Relaxed));
        // The communicator is written where it may stay for ever.
        call!(self, MPI_Comm_idup(world, own, &raw mut request))?;
        Ok(Request(request.to_number()))
    }

    fn adopt_own(&self) -> Result<(), Failure> {
        // Both are handles of this library.
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
        // The caller keeps the bytes.
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
        // The caller keeps the bytes.
        call!(self, MPI_Irecv(bytes.cast(), num_bytes, byte, peer, tag, own, &raw mut request))?;
        Ok(Request(request.to_number()))
    }

    fn test(&self, request: &mut Request) -> Result<Option<MessageStatus>, (Failure, c_int)> {
        const NO_TAG: c_int = -1;
        let (mut handle, mut flag) = (H::of_number(request.0), 0);
        let mut status = Status([NO_TAG; 16]);
        // The request is one of this library, or null once it is done; the rest are local values.
        let result = call!(self, MPI_Test(&raw mut handle, &raw mut flag, &raw mut status));
        request.0 = handle.to_number();
        let tag = status.0.get(self.constants.tag_in_status).copied().unwrap_or(NO_TAG);
        result.map_err(|failure| (failure, tag))?;
        if flag == 0 {
            return Ok(None);
        }
        let mut num_bytes = 0;
        // The library has written the status, and bytes are what was sent.
        call!(self, MPI_Get_count(&raw const status, self.constants.byte, &raw mut num_bytes))
            .map_err(|failure| (failure, tag))?;
        Ok(Some(MessageStatus { tag, num_bytes }))
    }
}

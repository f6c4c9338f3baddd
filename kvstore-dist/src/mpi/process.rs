//! [`Process`]: the MPI of this process, from initialisation to finalisation. A process has only
//! one, because MPI can be initialised only once.

#![expect(unsafe_code, reason = "declares C functions for exit handlers")]

use std::ffi::{c_int, c_void};
use std::io::{self, Write};
use std::panic;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

use kvstore_core::process::Origin;
use kvstore_core::{Error, Result};

use super::functions::{Failure, Mpi};
use super::launcher::Launcher;
use super::library::{OpenLibrary, find};
use super::transfers::Transfers;
use super::{MpiOptions, collectives};
use crate::transport::{CallGuard, CallOrder, DEFAULT_TIMEOUT, Fault, LastCalls, Verb, Wait};

/// The MPI of this process. The lock is not held while MPI initialises, because MPI then waits for
/// other processes.
static PROCESS: SharedProcess =
    SharedProcess { state: Mutex::new(State::Unopened), changed: Condvar::new() };

struct SharedProcess {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    Unopened,
    Opening,
    /// MPI was initialised but cannot be used, for this reason. It cannot be initialised again.
    Useless(String),
    Open(Arc<Process>),
}

/// The name of the closed object in errors.
const WHAT: &str = "the MPI of this process";

/// The MPI of this process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) mpi: &'static dyn Mpi,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) max_message: usize,
    pub(super) calls: CallOrder,
    /// The calls to make before MPI ends. The lock is not held during the calls.
    last: Mutex<Vec<Weak<dyn LastCalls>>>,
    /// Whether this crate initialised MPI. If so, it also finalises MPI.
    is_ours: bool,
    /// The id of the process that initialised MPI. A forked child has a copy of this struct, and
    /// must not finalise MPI.
    id: u32,
    /// The library and its version.
    pub(super) name: String,
}

unsafe extern "C" {
    /// Registers a function to call when the process ends, by `exit` or by the end of `main`.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    safe fn atexit(function: extern "C" fn()) -> c_int;
    /// Like `atexit`, but passes the exit status and this argument.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    safe fn on_exit(
        function: extern "C" fn(c_int, Option<&'static c_void>),
        argument: Option<&'static c_void>,
    ) -> c_int;
    /// Flushes a stream, or all streams for `None`.
    safe fn fflush(stream: Option<&'static c_void>) -> c_int;
    /// Terminates the process without calling exit handlers.
    safe fn _exit(status: c_int) -> !;
}

/// Registers [`finalize_at_exit`] as an exit handler.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register() {
    extern "C" fn at_exit(status: c_int, _: Option<&'static c_void>) {
        finalize_at_exit(status);
    }
    on_exit(at_exit, None);
}

/// Registers [`finalize_at_exit`] as an exit handler, on systems that do not pass the exit status.
/// Assumes status 0.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn register() {
    extern "C" fn at_exit() {
        finalize_at_exit(0);
    }
    atexit(at_exit);
}

impl SharedProcess {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread is opening MPI, and returns the state.
    fn settled(&self, wait: &Wait<'_>) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while matches!(*state, State::Opening) {
            let left = wait.left();
            if left.is_zero() {
                let text = format!("{}: MPI is not initialised", wait.subject());
                return Err(Error::Timeout(text));
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }
}

/// Returns the MPI of this process. The first call initialises it.
pub(super) fn open(options: &MpiOptions, wait: &Wait<'_>) -> Result<Arc<Process>> {
    let mut state = PROCESS.settled(wait)?;
    match &*state {
        State::Useless(reason) => return Err(Error::Unsupported(reason.clone())),
        State::Open(process) => {
            let fault = process.calls.fault();
            return fault.map_or_else(|| Ok(Arc::clone(process)), |fault| Err(fault.to_error()));
        }
        State::Unopened | State::Opening => *state = State::Opening,
    }
    drop(state);
    let launcher = Launcher::of_process();
    // If no library is found, a later call may try again.
    let found = find(&options.libraries, launcher).inspect_err(|_| PROCESS.set(State::Unopened))?;
    let process = Process::begin(&found, launcher, options.max_message, wait)
        .inspect_err(|error| PROCESS.set(State::Useless(error.chain())))?;
    let process = Arc::new(process);
    let made = process.make_own(wait);
    // Sets the state even if this has failed, because MPI is initialised and cannot start again.
    PROCESS.set(State::Open(Arc::clone(&process)));
    made?;
    if process.is_ours {
        let _ = FINALIZED_BY.set(Origin::current());
        // Ignores an error: C guarantees room for at least 32 exit handlers. Without the handler,
        // the launcher reports that the job has failed.
        register();
    }
    Ok(process)
}

/// Returns the MPI that this process has opened, or `None`, also in a forked child. The lock is
/// released, so that callers can wait for other ranks.
fn opened(wait: &Wait<'_>) -> Result<Option<Arc<Process>>> {
    Ok(match &*PROCESS.settled(wait)? {
        State::Open(process) => {
            Some(process).filter(|process| process.id == std::process::id()).cloned()
        }
        State::Unopened | State::Opening | State::Useless(_) => None,
    })
}

/// Makes the queued calls, and finalises the MPI of this process if this crate initialised it.
pub(super) fn finalize(wait: &Wait<'_>) -> Result<()> {
    let Some(process) = opened(wait)? else { return Ok(()) };
    process.make_last_calls(wait)?;
    let result = process.finalize(wait);
    // An earlier call or another thread may have ended MPI. This is not an error.
    if matches!(process.calls.fault(), Some(Fault::Closed(_))) { Ok(()) } else { result }
}

/// The process whose exit handler finalises MPI.
static FINALIZED_BY: OnceLock<Origin> = OnceLock::new();

/// Finalises MPI at exit, if the program has not. If that fails, the process exits with an error
/// status: MPICH's launcher treats status 0 as success, and then ends the other ranks.
fn finalize_at_exit(status: c_int) {
    // A forked child must not lock, because another thread may have held the lock at the fork.
    if FINALIZED_BY.get().is_none_or(|origin| origin.is_inherited()) {
        return;
    }
    let failed_status = if status == 0 { 1 } else { status };
    // Catches panics, because a panic must not unwind into the C library.
    let ends_well = panic::catch_unwind(|| {
        let Err(error) = end_of_process() else { return true };
        if status == 0 {
            let text = format!("kvstore: the process ends with status 1: {}\n", error.chain());
            // Ignores a closed stderr.
            let _ = io::stderr().write_all(text.as_bytes());
        }
        abort(failed_status);
        false
    });
    if status == 0 && !ends_well.unwrap_or_default() {
        fflush(None);
        _exit(failed_status);
    }
}

/// Makes the queued calls and finalises MPI. In a job of one process, a failure is only logged.
fn end_of_process() -> Result<()> {
    let wait = |timeout| Wait::new(&"the end of the process", timeout);
    let Some(process) = opened(&wait(DEFAULT_TIMEOUT))? else { return Ok(()) };
    // The queued calls have no common deadline. Each has its own.
    let made = process.make_last_calls(&wait(Duration::MAX));
    let Err(error) = made.and_then(|()| finalize(&wait(DEFAULT_TIMEOUT))) else { return Ok(()) };
    tracing::error!(error = error.chain(), "could not finalise MPI, so the job fails");
    if process.size == 1 { Ok(()) } else { Err(error) }
}

/// The versions of MPICH whose launcher can lose the exit status of a rank that exits without
/// `MPI_Finalize` (<https://github.com/pmodels/mpich/issues/7057>). The status of `MPI_Abort` is
/// not lost. With other versions, ranks do not abort, because the launcher of MPICH 4.0.2 can lose
/// the last output of a rank that aborts.
const LOSE_STATUS: [&str; 2] = ["MPICH Version: 4.2.0", "MPICH Version: 4.2.1"];

/// Aborts the job if the launcher could lose the status of this process. Returns if it cannot, or
/// if `MPI_Abort` fails.
fn abort(status: c_int) {
    // The watchdog ends the process after this time. MPI_Abort may wait forever for a lock of the
    // library that a thread stuck in MPI_Finalize holds.
    const PATIENCE: Duration = Duration::from_secs(10);
    let Ok(Some(process)) = opened(&Wait::new(&"MPI_Abort", PATIENCE)) else { return };
    if !LOSE_STATUS.iter().any(|version| process.name.contains(version)) {
        return;
    }
    let (_running, watched) = mpsc::channel::<()>();
    let watchdog = move || {
        if watched.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            _exit(status);
        }
    };
    if thread::Builder::new().name("kvstore-mpi-abort".to_owned()).spawn(watchdog).is_err() {
        return;
    }
    fflush(None);
    // Gives the launcher time to read the last output of this rank.
    let (_silent, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(Duration::from_millis(200));
    // The library calls `exit`, which runs the remaining exit handlers.
    let failure = process.mpi.abort(status);
    tracing::error!(
        function = failure.function,
        reason = failure.reason,
        "could not abort the job"
    );
}

/// Initialises MPI in a separate thread. Initialisation waits for all processes of the job without
/// a deadline. After the deadline of `wait`, the thread is left running.
fn init(mpi: &'static dyn Mpi, wait: &Wait<'_>) -> Result<Result<(), Failure>> {
    let (done, result) = mpsc::channel();
    let thread = thread::Builder::new().name("kvstore-mpi-init".to_owned());
    // Ignores a closed channel, because the caller may have given up at the deadline.
    let thread = thread.spawn(move || done.send(mpi.init()).unwrap_or_default());
    thread.map_err(|error| {
        Error::Internal(format!("cannot start a thread that initialises MPI: {error}"))
    })?;
    result.recv_timeout(wait.left()).map_err(|_| {
        let (subject, timeout) = (wait.subject(), wait.timeout());
        Error::Timeout(format!(
            "{subject}: MPI was not initialised within {timeout:?}: not every process of the job \
             has done so"
        ))
    })
}

impl Process {
    /// Initialises the library, unless the program has done so, and checks that it can be used.
    fn begin(
        found: &OpenLibrary,
        launcher: Launcher,
        max_message: usize,
        wait: &Wait<'_>,
    ) -> Result<Self> {
        let OpenLibrary { mpi, name, version } = found;
        let mpi = *mpi;
        let name = format!("`{name}` ({version})");
        let failed = |failure: Failure| Error::Transport {
            operation: format!("{name}, {}", failure.function),
            source: failure.reason.into(),
        };
        let reject = |reason: &str| Err(Error::Unsupported(format!("{name} {reason}")));
        if mpi.is_finalized().map_err(failed)? {
            return reject("was finalised by the program and cannot be initialised again");
        }
        let is_ours = !mpi.is_initialized().map_err(failed)?;
        if is_ours {
            init(mpi, wait)?.map_err(failed)?;
        }
        let (rank, size) = mpi.rank_and_size().map_err(failed)?;
        let useless = if !mpi.allows_turns().map_err(failed)? {
            Some("was initialised for a single thread: expected at least MPI_THREAD_SERIALIZED")
        } else if size == 1 && launcher.started_more() {
            // Otherwise each process would silently be a separate job.
            Some(
                "sees one process, but the launcher has started more: they belong to different \
                 MPIs (srun needs --mpi=pmix for \
                 Open MPI, --mpi=pmi2 for MPICH)",
            )
        } else {
            None
        };
        if let Some(reason) = useless {
            if is_ours {
                mpi.finalize().map_err(failed)?;
            }
            return reject(reason);
        }
        let [rank, size] = [rank, size].map(|number| usize::try_from(number).unwrap_or_default());
        tracing::info!(library = name, rank, size, "MPI is initialised");
        let (calls, last, id) = (CallOrder::default(), Mutex::default(), std::process::id());
        Ok(Self { mpi, rank, size, max_message, calls, last, is_ours, id, name })
    }

    /// Returns a fault if the program has finalised an MPI that it initialised itself. A call to
    /// MPI would then end the process.
    pub(super) fn check_alive(&self) -> Result<(), Fault> {
        if self.is_ours || !self.mpi.is_finalized().unwrap_or(true) {
            return Ok(());
        }
        Err(Fault::Closed(WHAT))
    }

    /// Creates the separate communicator, together with the other ranks.
    fn make_own(&self, wait: &Wait<'_>) -> Result<()> {
        let guard = self.calls.begin(Verb::Open, (self.rank, self.size), wait)?;
        let mut transfers = Transfers::new(self.mpi, &guard, self.max_message);
        let made =
            transfers.join(self.mpi.begin_own()).and_then(|()| transfers.wait_all().map(drop));
        let made = made.and_then(|()| {
            self.mpi.adopt_own().map_err(|failure| Fault::Failed {
                operation: format!("{}, {}", guard.place, failure.function),
                reason: failure.reason,
            })
        });
        guard.end(made)
    }

    fn last(&self) -> MutexGuard<'_, Vec<Weak<dyn LastCalls>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers calls to make before MPI ends.
    pub(super) fn before_end(&self, last: Weak<dyn LastCalls>) {
        let mut all = self.last();
        all.retain(|calls| calls.strong_count() > 0);
        all.push(last);
    }

    /// Makes the queued calls. If a rank finalised MPI between two of them, it would be in another
    /// call than the other ranks.
    fn make_last_calls(&self, wait: &Wait<'_>) -> Result<()> {
        let all: Vec<_> = self.last().iter().filter_map(Weak::upgrade).collect();
        all.iter().try_for_each(|calls| calls.make(wait)).inspect_err(|error| match error {
            Error::InvalidArgument(_) => {}
            Error::Timeout(text) => self.calls.fail(Fault::Late(text.clone())),
            other => self.calls.fail(Fault::Failed {
                operation: wait.subject().to_string(),
                reason: other.chain(),
            }),
        })
    }

    /// Waits for all ranks and ends MPI.
    fn finalize(&self, wait: &Wait<'_>) -> Result<()> {
        let guard = self.calls.begin(Verb::Finalize, (self.rank, self.size), wait)?;
        if self.is_ours {
            let ended = (0..Self::ROUNDS).try_for_each(|_| collectives::barrier(self, &guard));
            if let Err(fault) = ended.and_then(|()| self.finalize_library(&guard)) {
                return guard.end(Err(fault));
            }
        }
        guard.close(WHAT);
        Ok(())
    }

    /// The number of barriers before MPI is finalised.
    ///
    /// A rank in `MPI_Finalize` moves no more bytes. MPICH 4.0.2 over TCP then waits forever if
    /// a connection is still being established. With one barrier, this happened in half of all
    /// short jobs, with two barriers in a sixth, with ten barriers in none.
    const ROUNDS: usize = 10;

    /// Calls `MPI_Finalize` in a separate thread, because it has no deadline.
    fn finalize_library(&self, guard: &CallGuard<'_>) -> Result<(), Fault> {
        let failed = |reason| {
            let operation = format!("{}, MPI_Finalize", guard.place);
            Fault::Failed { operation, reason }
        };
        let mpi = self.mpi;
        let (send, answer) = mpsc::channel();
        let finalize = move || {
            // Ignores a closed channel, because the caller may have given up at the deadline.
            let _ = send.send(mpi.finalize());
        };
        let thread = thread::Builder::new().name("kvstore-mpi-end".to_owned());
        thread.spawn(finalize).map_err(|error| failed(error.to_string()))?;
        let Ok(result) = answer.recv_timeout(guard.place.wait.left()) else {
            let (place, timeout) = (&guard.place, guard.place.wait.timeout());
            let text = format!("{place} after {timeout:?}, MPI_Finalize does not return");
            return Err(Fault::Late(text));
        };
        result.map_err(|failure| failed(failure.reason))
    }
}

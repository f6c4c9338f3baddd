//! [`MpiCollective`]: the transport between the ranks of an MPI job.
//!
//! - [`launcher`]: detects the launcher, and sets environment variables for MPI libraries.
//! - [`library`], [`abi`], [`functions`]: find a library, detect its binary interface, and call its
//!   functions.
//! - [`process`]: initialises and finalises MPI, once per process.
//! - [`transfers`], [`patience`]: messages in progress, and waiting for them.
//! - [`collectives`]: the verbs, built from messages.

mod abi;
mod collectives;
mod functions;
mod launcher;
mod library;
mod patience;
mod process;
mod transfers;

use std::sync::{Arc, Weak};

use kvstore_core::{Error, Result};

use crate::transport::{
    Buffer, CallGuard, Collective, Fault, LastCalls, SharedSlices, Slices, Verb, Wait,
    begin_all_to_all, check_len, check_root,
};
use process::Process;

/// Options of MPI. Only the options of the first collective of a process take effect.
#[derive(Clone, Debug)]
pub struct MpiOptions {
    /// The names or paths of libraries, in the order to try them. If the list is empty, the usual
    /// names are tried, first the names for the launcher's MPI.
    pub libraries: Vec<String>,
    /// The maximum length of a message in bytes, up to 2 147 483 647. Longer messages are sent in
    /// pieces. It must be the same on all ranks.
    pub max_message: usize,
}

impl Default for MpiOptions {
    fn default() -> Self {
        Self { libraries: Vec::new(), max_message: 1 << 30 }
    }
}

/// The group of all processes that one launcher has started (`mpirun -n 4 program`). Without a
/// launcher, the group consists of this process.
///
/// All collectives of a process share its MPI, and their calls run one after another.
///
/// If the program has not initialised MPI, [`MpiCollective::open`] does.
/// [`MpiCollective::finalize`] or the end of the process then makes the calls that stores have
/// queued, and finalises MPI. Dropping a collective does not finalise MPI, because MPI cannot be
/// initialised again.
///
/// If the program has initialised MPI itself, the collective uses that MPI:
///
/// - The program must call [`MpiCollective::finalize`] before it finalises MPI.
/// - If other threads of the program call MPI at the same time, the program must have initialised
///   it with `MPI_THREAD_MULTIPLE`.
#[derive(Clone, Debug)]
pub struct MpiCollective {
    process: Arc<Process>,
}

impl MpiCollective {
    /// Returns the collective of this process. The first call opens a library and initialises MPI.
    /// Every rank must call this, and waits for the others until the deadline.
    ///
    /// Before it opens a library, the first call sets some environment variables, unless they are
    /// already set:
    ///
    /// - `UCX_ERROR_SIGNALS` and `OMPI_MCA_opal_signal`, to an empty value. Otherwise MPI would
    ///   replace the signal handlers of a virtual machine.
    /// - `OMPI_MCA_ess_singleton_isolated`, to 1, if there is no launcher.
    ///
    /// C code in other threads must not read the environment at this moment. To avoid the change,
    /// set the variables with the launcher (`mpirun -x`, `-genv`).
    ///
    /// ```no_run
    /// use kvstore_dist::{Collective, DEFAULT_TIMEOUT, MpiCollective, MpiOptions, Wait};
    /// # fn main() -> kvstore_core::Result<()> {
    /// let wait = Wait::new(&"the start", DEFAULT_TIMEOUT);
    /// let member = MpiCollective::open(&MpiOptions::default(), &wait)?;
    /// println!("rank {} of {}", member.rank(), member.size());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Unsupported`](Error::Unsupported) if no library is found. The message names packages to
    ///   install.
    /// - [`Unsupported`](Error::Unsupported) if the library is not the launcher's.
    /// - [`Unsupported`](Error::Unsupported) if the program has initialised MPI for a single
    ///   thread, or has finalised it.
    /// - [`InvalidArgument`](Error::InvalidArgument) if [`MpiOptions::max_message`] is out of
    ///   range.
    /// - [`Timeout`](Error::Timeout) if other ranks do not call this before the deadline.
    /// - [`Closed`](Error::Closed) if [`MpiCollective::finalize`] has ended MPI.
    /// - [`Transport`](Error::Transport) if the library fails.
    pub fn open(options: &MpiOptions, wait: &Wait<'_>) -> Result<Self> {
        if options.max_message == 0 || i32::try_from(options.max_message).is_err() {
            let found = options.max_message;
            return Err(Error::invalid(format!(
                "bytes of a message: expected 1 to {}, found {found}",
                i32::MAX
            )));
        }
        process::open(options, wait).map(|process| Self { process })
    }

    /// Makes the calls that the stores of this process have queued, and closes the collective.
    /// Later calls fail. If [`MpiCollective::open`] initialised MPI, also waits for all ranks and
    /// finalises MPI.
    ///
    /// Does nothing if the process has no collective, or if it is already closed. A virtual machine
    /// calls this in its shutdown hook.
    ///
    /// If a rank does not call this in time, or an error has ended its collective, it does not
    /// finalise MPI. When such a rank exits, its launcher ends all other processes. Open MPI's
    /// launcher also reports that the job has failed, and MPICH's launcher reports the exit codes.
    /// For this reason, a rank with an error exits with status 1 instead of 0, if the job has
    /// several ranks and the rank does not call `_exit`.
    ///
    /// # Errors
    /// - Those that end a [`Collective`].
    /// - [`InvalidArgument`](Error::InvalidArgument) if an updater makes the call. Nothing ends
    ///   then: the thread that runs the updater also makes the queued calls.
    pub fn finalize(wait: &Wait<'_>) -> Result<()> {
        process::finalize(wait)
    }

    /// Returns the file name of the library and its version.
    pub fn library(&self) -> &str {
        &self.process.name
    }

    /// Runs `act` as a call. A fault ends the collective.
    fn call(
        &self,
        verb: Verb,
        wait: &Wait<'_>,
        act: impl FnOnce(&Process, &CallGuard<'_>) -> Result<(), Fault>,
    ) -> Result<()> {
        let process = &*self.process;
        let guard = process.calls.begin(verb, (process.rank, process.size), wait)?;
        let result = process.check_alive().and_then(|()| act(process, &guard));
        guard.end(result)
    }
}

impl Collective for MpiCollective {
    fn rank(&self) -> usize {
        self.process.rank
    }

    fn size(&self) -> usize {
        self.process.size
    }

    fn barrier(&self, wait: &Wait<'_>) -> Result<()> {
        self.call(Verb::Barrier, wait, collectives::barrier)
    }

    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()> {
        check_root(self.size(), root)?;
        self.call(Verb::Broadcast, wait, |process, guard| {
            collectives::broadcast(process, guard, root, bytes)
        })
    }

    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()> {
        begin_all_to_all((self.rank(), self.size()), sent, received)?;
        self.call(Verb::AllToAll, wait, |process, guard| {
            collectives::all_to_all(process, guard, sent, received)
        })
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        check_len("slices", self.size(), slices.iter().map(Slices::len))?;
        self.call(Verb::AllGather, wait, |process, guard| {
            collectives::all_gather(process, guard, slices)
        })
    }

    fn before_end(&self, last: Weak<dyn LastCalls>) {
        self.process.before_end(last);
    }
}

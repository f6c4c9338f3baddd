//! [`MpiCollective`]: the ranks of an MPI job.
//!
//! - [`launcher`]: who started the process, and what libraries are to find in the environment
//! - [`library`], [`abi`], [`functions`]: the library, what its binary interface is, the functions that are used
//! - [`process`]: MPI begins and ends once in a process
//! - [`transfers`], [`patience`]: messages on their way, and how they are waited for; [`exchange`]: the verbs made of them

mod abi;
mod exchange;
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

/// How MPI is used. The first collective of a process decides.
#[derive(Clone, Debug)]
pub struct MpiOptions {
    /// Libraries to try, in this order, as names or paths. When there are none the usual names are tried: those of the
    /// launcher's MPI first.
    pub libraries: Vec<String>,
    /// How many bytes one message has at most, the same on all ranks; more are sent in pieces. MPI counts to
    /// 2 147 483 647.
    pub max_message: usize,
}

impl Default for MpiOptions {
    fn default() -> Self {
        Self { libraries: Vec::new(), max_message: 1 << 30 }
    }
}

/// All processes that one launcher has started (`mpirun -n 4 program`); without a launcher, this one alone.
///
/// All collectives of a process are one: they share its MPI, and their calls are made one after the other. When the
/// program has initialised MPI itself, that is used, and left to it; where other threads of the program call it at the
/// same time, it has to be initialised with `MPI_THREAD_MULTIPLE`; before it finalises MPI it calls
/// [`MpiCollective::finalize`]. Else MPI is finalised by that function or when the process ends, not when a collective is
/// dropped, for it could not be begun again. Before, the calls that stores have queued are made.
#[derive(Clone, Debug)]
pub struct MpiCollective {
    process: Arc<Process>,
}

impl MpiCollective {
    /// Returns the collective of this process, and begins MPI when it is the first one. All ranks do that, and wait for
    /// each other; how long they take to start is the launcher's affair, the rest has the deadline.
    ///
    /// Before a library is opened, `UCX_ERROR_SIGNALS` and `OMPI_MCA_opal_signal` are set, to nothing, and without a
    /// launcher `OMPI_MCA_ess_singleton_isolated`, each unless it is set already: else MPI would take signals away from
    /// a virtual machine. C code of other threads must not read the environment in that moment; a launcher that sets
    /// them (`mpirun -x`, `-genv`) avoids it.
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
    /// - [`Unsupported`](Error::Unsupported): no library can be found, with the packages that have one; it is not that
    ///   of the launcher; or several threads may not call it one at a time.
    /// - [`Timeout`](Error::Timeout): other ranks have not opened it.
    /// - [`Closed`](Error::Closed): MPI has been finalised.
    /// - [`Transport`](Error::Transport): the library fails.
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

    /// Ends the MPI of this process, when the calls that its stores have queued are made and all ranks have come here: a
    /// virtual machine calls it in its shutdown hook. From then on every call is an error. Nothing is done when MPI has
    /// not begun here, or has ended before.
    ///
    /// A rank that does not get here in time, or whose collective has ended before by an error,
    /// does not finalise MPI: when it exits its launcher ends all other processes. Open MPI's also
    /// says that the job has failed; MPICH's reports the exit codes. So a rank of several that had
    /// an error exits with status 1 instead of 0, unless it calls `_exit`.
    ///
    /// # Errors
    /// What ends a collective. Inside an updater [`InvalidArgument`](Error::InvalidArgument), and nothing has ended: the
    /// thread that runs it makes the calls.
    pub fn finalize(wait: &Wait<'_>) -> Result<()> {
        process::finalize(wait)
    }

    /// Returns the library's name, and what it calls itself.
    pub fn library(&self) -> &str {
        &self.process.name
    }

    /// Makes a call, whose fault is the end of the collective.
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
        self.call(Verb::Barrier, wait, exchange::barrier)
    }

    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()> {
        check_root(self.size(), root)?;
        self.call(Verb::Broadcast, wait, |process, guard| {
            exchange::broadcast(process, guard, root, bytes)
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
            exchange::all_to_all(process, guard, sent, received)
        })
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        check_len("slices", self.size(), slices.iter().map(Slices::len))?;
        self.call(Verb::AllGather, wait, |process, guard| {
            exchange::all_gather(process, guard, slices)
        })
    }

    fn before_end(&self, last: Weak<dyn LastCalls>) {
        self.process.before_end(last);
    }
}

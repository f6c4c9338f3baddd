//! [`Collective`]: the operations that processes perform together. Every implementation must pass
//! the suite in `tests/`.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use kvstore_core::{Error, Result};

use super::buffer::{Buffer, SharedSlices, Slices};

/// The default deadline of a call.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The subject of a wait, for error messages, and its deadline.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    subject: &'a dyn fmt::Display,
    begun: Instant,
    timeout: Duration,
}

impl<'a> Wait<'a> {
    /// Returns a wait that begins now. The message of errors begins with the subject, for example
    /// ``push of `w1`, round 7``. The subject is formatted only for errors.
    pub fn new(subject: &'a dyn fmt::Display, timeout: Duration) -> Self {
        Self { subject, begun: Instant::now(), timeout }
    }

    /// Returns the remaining time, 0 after the deadline.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begun.elapsed())
    }

    /// Returns the subject.
    pub fn subject(&self) -> &dyn fmt::Display {
        self.subject
    }

    /// Returns the time from the start to the deadline.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait[{}, {:?}]", self.subject, self.timeout)
    }
}

/// A member of a group of processes or threads. All members must make the same calls in the same
/// order.
///
/// A collective moves bytes and does no arithmetic. Several threads of one member may make calls at
/// once. The calls then run one after another.
///
/// # Errors
/// Invalid arguments are rejected before anything is sent. The collective stays usable:
///
/// - [`InvalidArgument`](Error::InvalidArgument) if the root is not a member.
/// - [`LengthMismatch`](Error::LengthMismatch) if a list does not have one slice per rank, or if
///   lists that belong together differ in length.
///
/// Later errors leave the members in different calls, so they end the collective. Every later call
/// fails at once with the same error:
///
/// - [`Timeout`](Error::Timeout) if the deadline passes. The message names the ranks that are late.
/// - [`InvalidArgument`](Error::InvalidArgument) if another rank makes another call.
/// - [`LengthMismatch`](Error::LengthMismatch) if another rank sends another number of bytes.
/// - [`Transport`](Error::Transport) if the library fails, or if another member has left.
/// - [`Closed`](Error::Closed) if the collective has been closed.
///
/// After such an error, the buffers of the call may be empty, because the transport may still write
/// to their memory.
///
/// ```
/// use std::{slice::from_mut, time::Duration};
/// use kvstore_dist::{Collective, LocalCollective, Slices, Wait};
/// # fn main() -> kvstore_core::Result<()> {
/// // Each of the two ranks runs this. In this example, the ranks are threads.
/// let act = |member: &dyn Collective| {
///     let mut slices = Slices::zeroed(&[1, 2]);
///     slices.slice_mut(member.rank()).fill(7);
///     let wait = Wait::new(&"weights, round 3", Duration::from_secs(9));
///     member.all_gather(from_mut(&mut slices), &wait)?;
///     Ok::<_, kvstore_core::Error>(slices)
/// };
/// let group = LocalCollective::group(2);
/// let slices = std::thread::scope(|scope| {
///     scope.spawn(|| act(&group[1]));
///     act(&group[0])
/// })?;
/// assert_eq!(slices.bytes(), [7, 7, 7]);
/// # Ok(())
/// # }
/// ```
pub trait Collective: fmt::Debug + Send + Sync {
    /// Returns the rank of this member, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of members.
    fn size(&self) -> usize;

    /// Waits until all members have called this.
    fn barrier(&self, wait: &Wait<'_>) -> Result<()>;

    /// Sends the bytes of the member `root` to all members. The buffers of all members must have
    /// the same length.
    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()>;

    /// Exchanges slices between all members: sends slice `r` of each list in `sent` to rank `r`,
    /// and receives a slice from rank `r` into slice `r` of the same list in `received`. Copies the
    /// member's own slice.
    ///
    /// A slice must have the same length on the sending and the receiving rank. All members must
    /// pass the same number of lists. Several lists allow sending from, and receiving to, separate
    /// buffers in one call.
    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()>;

    /// Sends the slice of this rank to all members, and receives their slices. At the end, all
    /// members have the same bytes. The number of lists and the lengths of slices must be the same
    /// on all members.
    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()>;

    /// Registers work to flush before the collective shuts down at process exit. Implementations
    /// that are only ever dropped may ignore it; wrappers must forward it.
    fn before_end(&self, _last: Weak<dyn LastCalls>) {}
}

/// Queued calls to make before a collective ends.
pub trait LastCalls: fmt::Debug + Send + Sync {
    /// Makes the queued calls, and rejects later ones. Does nothing if no calls are queued.
    ///
    /// # Errors
    /// - [`Timeout`](Error::Timeout) if the deadline passes.
    /// - [`InvalidArgument`](Error::InvalidArgument) in the thread that makes the queued calls. The
    ///   collective does not end then.
    /// - The error that ended the collective in the meantime.
    fn make(&self, wait: &Wait<'_>) -> Result<()>;
}

/// Checks that the root of a broadcast is a member.
pub fn check_root(size: usize, root: usize) -> Result<()> {
    if root < size {
        return Ok(());
    }
    Err(Error::invalid(format!("broadcast: root is {root}, expected a rank below {size}")))
}

/// Checks that every list has one slice for each rank. `what` names the lists in the error.
pub fn check_len(what: &str, size: usize, mut lens: impl Iterator<Item = usize>) -> Result<()> {
    match lens.find(|len| *len != size) {
        Some(found) => Err(Error::LengthMismatch { what: what.to_owned(), expected: size, found }),
        None => Ok(()),
    }
}

/// Checks the arguments of [`Collective::all_to_all`], and copies the slices that this member sends
/// to itself.
pub fn begin_all_to_all(
    (rank, size): (usize, usize),
    sent: &[SharedSlices],
    received: &mut [Slices],
) -> Result<()> {
    check_len("slices to send", size, sent.iter().map(SharedSlices::len))?;
    check_len("slices to receive", size, received.iter().map(Slices::len))?;
    if sent.len() != received.len() {
        let what = "all_to_all: lists of slices to receive".to_owned();
        return Err(Error::LengthMismatch { what, expected: sent.len(), found: received.len() });
    }
    // Copied here, so that transports never send a message to the own rank.
    for (sent, received) in sent.iter().zip(received) {
        let (from, to) = (sent.slice(rank), received.slice_mut(rank));
        if from.len() != to.len() {
            let what = "all_to_all: bytes from this rank to itself".to_owned();
            return Err(Error::LengthMismatch { what, expected: to.len(), found: from.len() });
        }
        to.copy_from_slice(from);
    }
    Ok(())
}

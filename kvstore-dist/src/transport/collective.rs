//! [`Collective`]: the operations that processes perform together. Every implementation passes the
//! suite in `tests/`.

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
    /// Returns a wait that begins now. The error at the deadline begins with the subject, for
    /// example ``push of `w1`, round 7``. The subject is formatted only then.
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

/// A group of processes, or threads, that all call the same verbs in the same order; this is one of them.
///
/// Only bytes travel: nothing here adds numbers up. Threads of one member may call at once, and their calls are made
/// one after the other.
///
/// # Errors
/// An argument that does not fit the group ([`InvalidArgument`](Error::InvalidArgument),
/// [`LengthMismatch`](Error::LengthMismatch)) is refused before anything is sent. Whatever goes wrong later leaves the
/// members in different places, so it ends the collective: every later call fails at once, with the same reason.
/// - [`Timeout`](Error::Timeout): the deadline passed; the text says which ranks nothing came from.
/// - [`InvalidArgument`](Error::InvalidArgument): another rank does something else.
/// - [`LengthMismatch`](Error::LengthMismatch): another rank sends more or fewer bytes.
/// - [`Transport`](Error::Transport): the library fails, or another member is gone.
/// - [`Closed`](Error::Closed): it has been ended.
///
/// After such an error the buffers of the call may be empty: something may still write there.
///
/// ```
/// use std::{slice::from_mut, time::Duration};
/// use kvstore_dist::{Collective, LocalCollective, Slices, Wait};
/// # fn main() -> kvstore_core::Result<()> {
/// // Each of two ranks runs this; here they are threads.
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
    /// Returns which member this is, from 0.
    fn rank(&self) -> usize;

    /// Returns how many members there are.
    fn size(&self) -> usize;

    /// Returns when all members have called it.
    fn barrier(&self, wait: &Wait<'_>) -> Result<()>;

    /// Gives all members the bytes of one, `root`. All of them say how many: their buffers are of one length.
    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()>;

    /// Sends each member the slice of its rank, and receives one from each in the slice of that one's rank. What a rank
    /// sends is as long as what the other one receives; the member's own slice is copied. Of lists each member has as
    /// many: what lies in several places travels from there, and to there, at the same time.
    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()>;

    /// Sends all members the slice of this rank, and receives those of the others: then all have the same bytes. The
    /// lengths are the same on every rank, and so is the number of lists, which travel at the same time.
    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()>;

    /// Registers work to flush before the collective shuts down at process exit. Implementations that
    /// are only ever dropped may ignore it; wrappers must forward it.
    fn before_end(&self, _last: Weak<dyn LastCalls>) {}
}

/// Calls that have to be made before a collective ends.
pub trait LastCalls: fmt::Debug + Send + Sync {
    /// Makes the calls, and rejects later ones. Succeeds if there are none.
    ///
    /// # Errors
    /// - [`Timeout`](Error::Timeout) at the deadline.
    /// - [`InvalidArgument`](Error::InvalidArgument) in the thread that makes the calls. Nothing ends
    ///   then.
    /// - The error that ended the collective meanwhile.
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

/// Checks the arguments of [`Collective::all_to_all`], and copies the slice that this member sends to
/// itself.
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

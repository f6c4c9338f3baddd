//! [`Collective`]: what processes do together. Every implementation passes the suite in `tests/`.

use std::fmt;
use std::sync::Weak;
use std::time::{Duration, Instant};

use kvstore_core::{Error, Result};

use crate::buffer::{Buffer, SharedSlices, Slices};

/// How long a wait may last where nobody says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// What is waited for, in words for people, and for how long.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    subject: &'a dyn fmt::Display,
    begun: Instant,
    timeout: Duration,
}

impl<'a> Wait<'a> {
    /// Returns a wait that begins now. The subject is what the error at the deadline begins with, such as
    /// ``push of `w1`, round 7``; it is formatted only then.
    pub fn new(subject: &'a dyn fmt::Display, timeout: Duration) -> Self {
        Self { subject, begun: Instant::now(), timeout }
    }

    /// Returns how much time is left: nothing after the deadline.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begun.elapsed())
    }

    pub(crate) fn subject(&self) -> &dyn fmt::Display {
        self.subject
    }

    pub(crate) fn timeout(&self) -> Duration {
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
/// assert_eq!(slices.whole(), [7, 7, 7]);
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

    /// Has calls made that are still to come when the collective ends with its process. One that ends in no other way
    /// than by being dropped makes none; one that wraps another hands them on.
    fn before_end(&self, _last: Weak<dyn LastCalls>) {}
}

/// Calls that somebody still has to make when a collective ends.
pub trait LastCalls: fmt::Debug + Send + Sync {
    /// Makes them, and refuses later ones. What was over before is no error.
    ///
    /// # Errors
    /// - [`Timeout`](Error::Timeout): they are not made in time.
    /// - [`InvalidArgument`](Error::InvalidArgument): this is the thread that would make them. Nothing has ended.
    /// - What has ended the collective meanwhile.
    fn make(&self, wait: &Wait<'_>) -> Result<()>;
}

/// Refuses a root that is no member.
pub(crate) fn check_root(size: usize, root: usize) -> Result<()> {
    if root < size {
        return Ok(());
    }
    Err(Error::invalid(format!("broadcast: root is {root}, expected a rank below {size}")))
}

/// Refuses slices of which there is not one for each rank.
pub(crate) fn check_len(
    what: &str,
    size: usize,
    mut lens: impl Iterator<Item = usize>,
) -> Result<()> {
    match lens.find(|len| *len != size) {
        Some(found) => Err(Error::LengthMismatch { what: what.to_owned(), expected: size, found }),
        None => Ok(()),
    }
}

/// Refuses what does not fit, and copies what a member sends to itself.
pub(crate) fn begin_all_to_all(
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

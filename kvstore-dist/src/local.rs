//! [`LocalCollective`]: a collective of threads in one process, for tests and as the reference.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Result, fallible};

use crate::transport::{
    Buffer, Call, CallGuard, CallOrder, Collective, Fault, Place, SharedSlices, Slices, Verb, Wait,
    begin_all_to_all, check_len, check_root,
};

/// A member of a group within one process. After it is dropped, calls of other members that wait
/// for it fail.
///
/// ```
/// use std::{thread, time::Duration};
/// use kvstore_dist::{Collective, LocalCollective, Wait};
/// thread::scope(|scope| {
///     for member in LocalCollective::group(3) {
///         scope.spawn(move || member.barrier(&Wait::new(&"the start", Duration::from_secs(9))));
///     }
/// });
/// ```
pub struct LocalCollective {
    rank: usize,
    group: Arc<Group>,
    calls: CallOrder,
}

/// The state that the members share.
struct Group {
    size: usize,
    mailboxes: Mutex<Mailboxes>,
    changed: Condvar,
}

struct Mailboxes {
    /// The messages that a member has sent and another has not received yet, at the index
    /// `from * size + to`.
    boxes: Vec<VecDeque<Message>>,
    /// For each member that has left, the reason.
    gone: Vec<Option<String>>,
}

struct Message {
    call: Call,
    bytes: Vec<u8>,
}

impl LocalCollective {
    /// Returns the members of a new group, in the order of their ranks.
    pub fn group(size: usize) -> Vec<Self> {
        let boxes = (0..size * size).map(|_| VecDeque::new()).collect();
        let mailboxes = Mutex::new(Mailboxes { boxes, gone: (0..size).map(|_| None).collect() });
        let group = Arc::new(Group { size, mailboxes, changed: Condvar::new() });
        let member = |rank| Self { rank, group: Arc::clone(&group), calls: CallOrder::default() };
        (0..size).map(member).collect()
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.rank, self.group.size);
        (0..size).filter(move |other| *other != rank)
    }

    /// Runs `act` as a call. A fault ends the collective.
    fn call(
        &self,
        verb: Verb,
        wait: &Wait<'_>,
        act: impl FnOnce(&CallGuard<'_>) -> Result<(), Fault>,
    ) -> Result<()> {
        let guard = self.calls.begin(verb, (self.rank, self.group.size), wait)?;
        let result = act(&guard);
        if let Err(fault) = &result {
            let reason = fault.to_error().chain();
            self.leave(&format!("rank {} has given up: {reason}", self.rank));
        }
        guard.end(result)
    }

    /// Tells the other members that this one sends nothing more.
    fn leave(&self, reason: &str) {
        let mut mailboxes = self.group.mailboxes();
        mailboxes.gone[self.rank].get_or_insert_with(|| reason.to_owned());
        self.group.changed.notify_all();
    }

    fn send(&self, place: &Place<'_>, peer: usize, bytes: &[u8]) -> Result<(), Fault> {
        let copy = fallible::copied(bytes);
        let bytes = copy.map_err(|error| Fault::Failed {
            operation: place.to_string(),
            reason: error.to_string(),
        })?;
        let message = Message { call: place.call, bytes };
        self.group.mailboxes().boxes[self.rank * self.group.size + peer].push_back(message);
        self.group.changed.notify_all();
        Ok(())
    }

    /// Receives the slices of the other ranks, one list after another.
    fn receive_all(&self, place: &Place<'_>, all: &mut [Slices]) -> Result<(), Fault> {
        all.iter_mut().try_for_each(|slices| {
            let slices = slices.iter_mut().enumerate();
            self.receive(place, slices.filter(|(peer, _)| *peer != self.rank))
        })
    }

    /// Receives a message from each of these ranks into its slice. Lengths must match.
    fn receive<'a>(
        &self,
        place: &Place<'_>,
        peers: impl Iterator<Item = (usize, &'a mut [u8])>,
    ) -> Result<(), Fault> {
        let mut peers: Vec<_> = peers.collect();
        let mut mailboxes = self.group.mailboxes();
        loop {
            // Takes all messages that have arrived, in the order of ranks.
            let mut silent = Vec::new();
            for (peer, bytes) in peers {
                match mailboxes.boxes[peer * self.group.size + self.rank].pop_front() {
                    Some(message) => {
                        let lengths = (bytes.len(), message.bytes.len());
                        place.check(peer, Some(message.call), lengths)?;
                        bytes.copy_from_slice(&message.bytes);
                    }
                    None => silent.push((peer, bytes)),
                }
            }
            let silent_ranks: Vec<usize> = silent.iter().map(|(peer, _)| *peer).collect();
            if silent_ranks.is_empty() {
                return Ok(());
            }
            if let Some(reason) =
                silent_ranks.iter().find_map(|peer| mailboxes.gone[*peer].as_ref())
            {
                return Err(Fault::Failed { operation: place.to_string(), reason: reason.clone() });
            }
            let left = place.wait.left();
            if left.is_zero() {
                return Err(Fault::late(place, &silent_ranks, &[]));
            }
            peers = silent;
            let changed = &self.group.changed;
            mailboxes =
                changed.wait_timeout(mailboxes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Group {
    fn mailboxes(&self) -> MutexGuard<'_, Mailboxes> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collective for LocalCollective {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.size
    }

    fn barrier(&self, wait: &Wait<'_>) -> Result<()> {
        self.call(Verb::Barrier, wait, |guard| {
            self.others().try_for_each(|peer| self.send(&guard.place, peer, &[]))?;
            self.receive(&guard.place, self.others().map(|peer| (peer, &mut [][..])))
        })
    }

    fn broadcast(&self, root: usize, bytes: &mut Buffer, wait: &Wait<'_>) -> Result<()> {
        check_root(self.group.size, root)?;
        self.call(Verb::Broadcast, wait, |guard| {
            if root != self.rank {
                return self.receive(&guard.place, [(root, &mut **bytes)].into_iter());
            }
            self.others().try_for_each(|peer| self.send(&guard.place, peer, bytes))
        })
    }

    fn all_to_all(
        &self,
        sent: &[SharedSlices],
        received: &mut [Slices],
        wait: &Wait<'_>,
    ) -> Result<()> {
        begin_all_to_all((self.rank, self.group.size), sent, received)?;
        self.call(Verb::AllToAll, wait, |guard| {
            for sent in sent {
                let deliver = |peer| self.send(&guard.place, peer, sent.slice(peer));
                self.others().try_for_each(deliver)?;
            }
            self.receive_all(&guard.place, received)
        })
    }

    fn all_gather(&self, slices: &mut [Slices], wait: &Wait<'_>) -> Result<()> {
        check_len("slices", self.group.size, slices.iter().map(Slices::len))?;
        self.call(Verb::AllGather, wait, |guard| {
            for slices in &*slices {
                let own = slices.slice(self.rank);
                self.others().try_for_each(|peer| self.send(&guard.place, peer, own))?;
            }
            self.receive_all(&guard.place, slices)
        })
    }
}

impl Drop for LocalCollective {
    fn drop(&mut self) {
        self.leave(&format!("rank {} has left", self.rank));
    }
}

impl fmt::Debug for LocalCollective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalCollective[{} of {}]", self.rank, self.group.size)
    }
}

//! [`Unanswered`]: the numbers of the calls of a process at a server.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The numbers of calls.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) next: u64,
    pub(super) open: BTreeSet<u64>,
    /// The newest history in which a call was answered.
    #[cfg(test)]
    pub(super) history: u64,
}

impl Unanswered {
    pub(super) fn new() -> Self {
        Self {
            next: 1,
            open: BTreeSet::new(),
            #[cfg(test)]
            history: 0,
        }
    }

    pub(super) fn begin(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.open.insert(sequence);
        sequence
    }

    /// All calls below the number have been answered, except these.
    pub(super) fn answered(&self) -> (u64, Vec<u64>) {
        (self.next, self.open.iter().copied().collect())
    }
}

/// A call whose number is in use until this is dropped.
pub(super) struct Open<'a> {
    pub(super) calls: &'a Mutex<Unanswered>,
    pub(super) sequence: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.sequence);
    }
}

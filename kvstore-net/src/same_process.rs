//! The error objects of updaters, for members and servers in the same process.
//!
//! A message contains the text of an error. If the member is in the process of the server, the
//! message also has the number of the error object, so that a push returns the object itself.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use kvstore_core::BoxError;

use crate::random::random_number;

/// The numbers of the processes, as in the protocol, of the members in this process.
static MEMBERS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// The errors that wait for their members, the oldest first.
static ERRORS: Mutex<VecDeque<KeptError>> = Mutex::new(VecDeque::new());

/// The largest number of kept errors. A member whose call has timed out never takes its error.
const MOST_ERRORS: usize = 64;

/// An error for a member.
struct KeptError {
    number: u64,
    /// The process of the member in the protocol.
    process: u64,
    error: BoxError,
}

/// A member of this process. Dropping it also drops its errors.
#[derive(Debug)]
pub(crate) struct LocalMember(u64);

impl LocalMember {
    pub(crate) fn new(process: u64) -> Self {
        MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).insert(process);
        Self(process)
    }

    /// Returns whether a member is in this process.
    pub(crate) fn exists(process: u64) -> bool {
        MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).contains(&process)
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        MEMBERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
        let own: VecDeque<KeptError> = {
            let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
            let (own, others) = errors.drain(..).partition(|kept| kept.process == self.0);
            *errors = others;
            own
        };
        // After unlocking, because dropping an error may run the program's code.
        drop(own);
    }
}

/// Keeps an error for a member of this process. Returns its number, which is not 0.
pub(crate) fn keep_error(process: u64, error: BoxError) -> u64 {
    // Random, so that a number of another process finds nothing here.
    let number = random_number();
    let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    errors.push_back(KeptError { number, process, error });
    let oldest = if errors.len() > MOST_ERRORS { errors.pop_front() } else { None };
    drop(errors);
    // After unlocking, because dropping an error may run the program's code.
    drop(oldest);
    number
}

/// Removes and returns the error with this number.
pub(crate) fn take_error(number: u64) -> Option<BoxError> {
    let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
    let place = errors.iter().position(|kept| kept.number == number)?;
    errors.remove(place).map(|kept| kept.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_kept_until_their_member_is_dropped() {
        let member = LocalMember::new(u64::MAX - 1);
        let number = keep_error(u64::MAX - 1, "taken".into());
        let left = keep_error(u64::MAX - 1, "left".into());
        assert_eq!(take_error(number).map(|error| error.to_string()).as_deref(), Some("taken"));
        assert!(take_error(number).is_none());
        drop(member);
        assert!(take_error(left).is_none());
    }

    #[test]
    fn a_member_exists_until_it_is_dropped() {
        let member = LocalMember::new(u64::MAX);
        assert!(LocalMember::exists(u64::MAX));
        drop(member);
        assert!(!LocalMember::exists(u64::MAX));
    }
}

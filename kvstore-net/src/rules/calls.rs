//! [`Calls`]: recognises repeated calls of a member, so that each takes effect once.

use std::collections::BTreeMap;

/// What to do with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun<T> {
    /// Make it, then call [`Calls::finish`].
    New,
    /// It is running. Wait for its outcome.
    Running,
    /// It was made. Answer with this outcome.
    Done(T),
    /// It was made, and the member has said that it has the reply.
    Answered,
    /// The member has too many calls whose replies it has not confirmed.
    TooMany,
    /// It has not been made, and no new calls are accepted.
    Refused,
}

/// The calls of one incarnation of a member. A member numbers its calls from 1.
///
/// A member that loses its connection repeats the calls that have no reply. The outcome of a call
/// is kept until the member confirms the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calls<T> {
    answered_below: u64,
    /// The outcomes of the other calls, or `None` for a call that is running.
    outcomes: BTreeMap<u64, Option<T>>,
    most: usize,
}

impl<T: Clone> Calls<T> {
    /// Returns the calls of a new incarnation, which may have up to `most` unconfirmed calls.
    pub fn new(most: usize) -> Self {
        Self { answered_below: 1, outcomes: BTreeMap::new(), most }
    }

    /// Begins call number `sequence`, which is at least 1. `accepts` states whether new calls are
    /// accepted.
    pub fn begin(&mut self, sequence: u64, accepts: bool) -> Begun<T> {
        if sequence < self.answered_below {
            return Begun::Answered;
        }
        #[cfg(test)]
        if crate::faults::Fault::ForgetCall.is_planted() {
            self.outcomes.retain(|_, outcome| outcome.is_none());
        }
        match self.outcomes.get(&sequence) {
            Some(Some(outcome)) => Begun::Done(outcome.clone()),
            Some(None) => Begun::Running,
            None if !accepts => Begun::Refused,
            None if self.outcomes.len() >= self.most => Begun::TooMany,
            None => {
                self.outcomes.insert(sequence, None);
                Begun::New
            }
        }
    }

    /// Records the outcome of a call that has begun.
    pub fn finish(&mut self, sequence: u64, outcome: T) {
        #[cfg(test)]
        if crate::faults::Fault::DropOutcome.is_planted() {
            return;
        }
        if let Some(kept) = self.outcomes.get_mut(&sequence) {
            *kept = Some(outcome);
        }
    }

    /// Records that the member has the replies of all calls below this number.
    pub fn confirm(&mut self, answered_below: u64) {
        if answered_below > self.answered_below {
            self.answered_below = answered_below;
            // A running call stays, because its thread will record its outcome.
            self.outcomes
                .retain(|sequence, outcome| *sequence >= answered_below || outcome.is_none());
        }
    }

    /// Returns the number of calls that are running or unconfirmed.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Returns whether no call is running or unconfirmed.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }
}

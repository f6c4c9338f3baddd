//! [`Calls`]: recognises repeated calls of a member, so that each takes effect once.

use std::collections::{BTreeMap, BTreeSet};

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
    answered: AnsweredCalls,
    /// The outcomes of the other calls, or `None` for a call that is running.
    outcomes: BTreeMap<u64, Option<T>>,
    /// The outcomes of running calls that have taken effect.
    effective: BTreeMap<u64, T>,
    most: usize,
}

/// The calls whose replies a member has: all below a number, with some exceptions, for example a
/// call that waits at a barrier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnsweredCalls {
    below: u64,
    except: BTreeSet<u64>,
}

impl AnsweredCalls {
    fn contains(&self, sequence: u64) -> bool {
        sequence < self.below && !self.except.contains(&sequence)
    }

    /// Adds what a message reports. Messages may arrive in another order than they were sent.
    fn add(&mut self, below: u64, except: &[u64]) {
        if below > self.below {
            // The member sent this message after all those that have arrived.
            *self = Self { below, except: except.iter().copied().collect() };
        } else if below == self.below && except.len() < self.except.len() {
            let except: BTreeSet<u64> = except.iter().copied().collect();
            self.except.retain(|sequence| except.contains(sequence));
        }
    }
}

/// The calls of a member as a server saves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCalls<T> {
    /// The member has the replies of all calls below this number.
    pub answered_below: u64,
    /// Except these.
    pub unanswered: Vec<u64>,
    /// The outcomes of calls that have taken effect, and whose replies the member may not have.
    pub outcomes: Vec<(u64, T)>,
}

impl<T: Clone> Calls<T> {
    /// Returns the calls that have taken effect.
    pub fn saved(&self) -> SavedCalls<T> {
        let outcomes = self.outcomes.iter();
        let outcomes = outcomes.filter_map(|(call, outcome)| {
            let outcome = outcome.as_ref().or_else(|| self.effective.get(call));
            Some((*call, outcome?.clone()))
        });
        SavedCalls {
            answered_below: self.answered.below,
            unanswered: self.answered.except.iter().copied().collect(),
            outcomes: outcomes.collect(),
        }
    }

    /// Returns calls that an earlier run of the server has saved.
    pub fn restored(saved: SavedCalls<T>, most: usize) -> Self {
        let except = saved.unanswered.into_iter().collect();
        let answered = AnsweredCalls { below: saved.answered_below.max(1), except };
        let outcomes = saved.outcomes.into_iter();
        let outcomes = outcomes.map(|(call, outcome)| (call, Some(outcome))).collect();
        Self { answered, outcomes, effective: BTreeMap::new(), most }
    }

    /// Returns the calls of a new incarnation, which may have up to `most` unconfirmed calls.
    pub fn new(most: usize) -> Self {
        let answered = AnsweredCalls { below: 1, except: BTreeSet::new() };
        Self { answered, outcomes: BTreeMap::new(), effective: BTreeMap::new(), most }
    }

    /// Begins call number `sequence`, which is at least 1. `accepts` states whether new calls are
    /// accepted.
    pub fn begin(&mut self, sequence: u64, accepts: bool) -> Begun<T> {
        if self.answered.contains(sequence) {
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

    /// Records that a call has taken effect, which is running until [`Self::finish`]. If the
    /// server is killed before, its next run knows this outcome.
    pub fn take_effect(&mut self, sequence: u64, outcome: T) {
        if let Some(None) = self.outcomes.get(&sequence) {
            self.effective.insert(sequence, outcome);
        }
    }

    /// Records the outcome of a call that has begun.
    pub fn finish(&mut self, sequence: u64, outcome: T) {
        self.effective.remove(&sequence);
        #[cfg(test)]
        if crate::faults::Fault::DropOutcome.is_planted() {
            return;
        }
        if let Some(kept) = self.outcomes.get_mut(&sequence) {
            *kept = Some(outcome);
        }
    }

    /// Records that the member has the replies of all calls below this number, except these.
    pub fn confirm(&mut self, below: u64, except: &[u64]) {
        self.answered.add(below, except);
        // A running call stays, because its thread will record its outcome.
        let answered = &self.answered;
        self.outcomes
            .retain(|sequence, outcome| outcome.is_none() || !answered.contains(*sequence));
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

//! [`Followed`]: the rounds in which a server follows the first one.

use std::collections::HashMap;
use std::hash::Hash;

/// The lists of rounds that a follower has received, of the pushes `P`.
///
/// The follower sums the parts of the newest list. Then it waits for the leader, which commits the
/// list or replaces it. Until the leader has decided, no part in a complete sum may go, because the
/// leader counts on the sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed<P>(HashMap<u64, List<P>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct List<P> {
    attempt: u64,
    pushes: Vec<P>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No task sums the parts yet.
    Listed,
    /// The parts are being summed.
    Folding,
    /// A part has gone, so this list will be replaced.
    Broken,
    /// The sum is complete.
    Prepared,
    /// The leader has committed the list.
    Committed,
}

impl<P> Default for Followed<P> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<P: Clone + Eq + Hash> Followed<P> {
    /// Replaces the list of a round. `is_here` states whether the part of a push is here. Returns
    /// whether the round is a new one.
    pub fn list(
        &mut self,
        round: u64,
        (attempt, pushes): (u64, Vec<P>),
        is_here: impl Fn(&P) -> bool,
    ) -> bool {
        let stage = if pushes.iter().all(is_here) { Stage::Listed } else { Stage::Broken };
        self.0.insert(round, List { attempt, pushes, stage }).is_none()
    }

    /// Begins to sum the list of a round, if it is a new one. Returns it with its number.
    pub fn take(&mut self, round: u64) -> Option<(u64, &[P])> {
        let list = self.0.get_mut(&round).filter(|list| list.stage == Stage::Listed)?;
        list.stage = Stage::Folding;
        Some((list.attempt, &list.pushes))
    }

    /// Returns whether the list of this attempt is still being summed.
    pub fn is_folding(&self, round: u64, attempt: u64) -> bool {
        self.is_in(Stage::Folding, round, attempt)
    }

    /// Records that the sum of a list is complete. Returns whether the list is the current one.
    pub fn prepare(&mut self, round: u64, attempt: u64) -> bool {
        let is_current = self.is_folding(round, attempt);
        if is_current && let Some(list) = self.0.get_mut(&round) {
            list.stage = Stage::Prepared;
        }
        is_current
    }

    /// Returns whether the sum of this list is complete and waits for the leader.
    pub fn is_prepared(&self, round: u64, attempt: u64) -> bool {
        self.is_in(Stage::Prepared, round, attempt)
    }

    /// Commits a list. Returns whether its sum is complete. The leader commits no other list.
    pub fn commit(&mut self, round: u64, attempt: u64) -> bool {
        let is_prepared = self.is_prepared(round, attempt);
        if is_prepared && let Some(list) = self.0.get_mut(&round) {
            list.stage = Stage::Committed;
        }
        is_prepared
    }

    /// Returns whether the leader has committed this list.
    pub fn is_committed(&self, round: u64, attempt: u64) -> bool {
        self.is_in(Stage::Committed, round, attempt)
    }

    fn is_in(&self, stage: Stage, round: u64, attempt: u64) -> bool {
        let list = self.0.get(&round);
        list.is_some_and(|list| list.attempt == attempt && list.stage == stage)
    }

    /// Ends a list, if it is that of this attempt. Returns its pushes.
    pub fn end(&mut self, round: u64, attempt: u64) -> Vec<P> {
        match self.0.get(&round) {
            Some(list) if list.attempt == attempt => {
                self.0.remove(&round).map_or_else(Vec::new, |list| list.pushes)
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether the part of a push may go now: it is in no list whose sum is complete. A
    /// list whose sum is not complete never will be.
    pub fn withdraw(&mut self, push: &P) -> bool {
        let list = self.0.values_mut().find(|list| list.pushes.contains(push));
        let Some(list) = list else { return true };
        match list.stage {
            Stage::Listed | Stage::Folding | Stage::Broken => list.stage = Stage::Broken,
            Stage::Prepared | Stage::Committed => return false,
        }
        true
    }

    /// Returns whether a push is in a list whose sum is complete.
    pub fn is_fixed(&self, push: &P) -> bool {
        let is_complete =
            |list: &&List<P>| matches!(list.stage, Stage::Prepared | Stage::Committed);
        self.0.values().filter(is_complete).any(|list| list.pushes.contains(push))
    }

    /// Forgets all lists, because the leader was restarted. Lists that it has committed are
    /// applied.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether a push is in a list that the leader has committed.
    pub fn is_in_committed(&self, push: &P) -> bool {
        let is_committed = |list: &&List<P>| list.stage == Stage::Committed;
        self.0.values().filter(is_committed).any(|list| list.pushes.contains(push))
    }

    /// Returns the list of a round with its number.
    pub fn newest(&self, round: u64) -> Option<(u64, &[P])> {
        self.0.get(&round).map(|list| (list.attempt, &*list.pushes))
    }

    /// Returns whether there is a list of this round.
    pub fn has(&self, round: u64) -> bool {
        self.0.contains_key(&round)
    }

    /// Returns the number of rounds with lists.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no round has a list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

//! [`Round`]: which members take part in a round of pushes.

use std::collections::BTreeSet;
use std::time::Duration;

/// When a round closes: as soon as all live workers have pushed, or when at least `min` members
/// have pushed and the grace period is over, which begins with the push of the last of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    /// The least number of members, at least 1.
    pub min: usize,
    /// How long the round waits for further members.
    pub grace: Duration,
}

/// A round of pushes to the same keys by the members `M`.
///
/// Members push until the round closes, which fixes the list of its members. Then their values are
/// folded in the order of this list. If a listed member fails meanwhile, the round continues with
/// a shorter list, which is another *attempt*, or opens again if too few members are left. When the
/// values are complete, the round is committed. Then the members that have pushed since it closed
/// belong to the next round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round<M> {
    quorum: Quorum,
    members: BTreeSet<M>,
    /// Since when there are enough members.
    enough_since: Option<Duration>,
    stage: Stage,
    /// How many lists this round and those before it had.
    attempt: u64,
    /// The members that have pushed since the round closed.
    next: BTreeSet<M>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Members may push.
    Open,
    /// The values of this list are being folded.
    Closed,
    /// The sums are complete, and become the values of the store.
    Committing,
}

impl<M: Clone + Ord> Round<M> {
    /// Returns an open round without members.
    pub fn new(quorum: Quorum) -> Self {
        let (members, next) = (BTreeSet::new(), BTreeSet::new());
        Self { quorum, members, enough_since: None, stage: Stage::Open, attempt: 0, next }
    }

    /// Changes the quorum of a round without members.
    pub fn set_quorum(&mut self, quorum: Quorum) {
        self.quorum = quorum;
    }

    /// Adds a member to the round, or to the next one if the round has closed. The member must not
    /// have a push in one of them.
    pub fn push(&mut self, now: Duration, member: M) {
        if self.is_closed() {
            self.next.insert(member);
        } else {
            self.members.insert(member);
            self.count(now);
        }
    }

    /// Removes the push of a member. Returns whether it could be removed: the push of a member in
    /// the list of a round that is being committed cannot.
    pub fn withdraw(&mut self, now: Duration, member: &M) -> bool {
        if self.next.remove(member) || !self.members.contains(member) {
            return true;
        }
        if self.stage == Stage::Committing {
            return false;
        }
        self.members.remove(member);
        if self.stage == Stage::Closed {
            self.attempt += 1;
            if self.members.len() < self.quorum.min {
                self.stage = Stage::Open;
                self.members.append(&mut self.next);
            }
        }
        if self.stage == Stage::Open {
            self.count(now);
        }
        true
    }

    /// Records since when there are enough members.
    fn count(&mut self, now: Duration) {
        if self.members.len() < self.quorum.min.max(1) {
            self.enough_since = None;
        } else {
            self.enough_since.get_or_insert(now);
        }
    }

    /// Returns when the round closes if nothing happens, or `None` if it waits for members.
    /// `is_complete` states whether all live workers have pushed.
    pub fn closes_at(&self, is_complete: bool) -> Option<Duration> {
        let since = self.enough_since.filter(|_| !self.is_closed())?;
        Some(if is_complete { since } else { since.saturating_add(self.quorum.grace) })
    }

    /// Closes the round, if it is open.
    pub fn close(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Closed;
            self.attempt += 1;
        }
    }

    /// Returns the number of the list of a closed round.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns whether the list of this attempt is still being folded.
    pub fn is_folding(&self, attempt: u64) -> bool {
        self.stage == Stage::Closed && self.attempt == attempt
    }

    /// Returns whether the sums of the list become the values of the store.
    pub fn is_committing(&self) -> bool {
        self.stage == Stage::Committing
    }

    /// Begins the commit of an attempt. Returns whether it is still the current one.
    pub fn begin_commit(&mut self, attempt: u64) -> bool {
        let is_current = self.is_folding(attempt);
        if is_current {
            self.stage = Stage::Committing;
        }
        is_current
    }

    /// Ends the round. The members that have pushed since it closed become those of the next round.
    pub fn finish(&mut self, now: Duration) {
        self.members = std::mem::take(&mut self.next);
        self.stage = Stage::Open;
        self.enough_since = None;
        self.count(now);
    }

    /// Returns the members in their order: those who have pushed if the round is open, otherwise
    /// its list.
    pub fn members(&self) -> impl Iterator<Item = &M> {
        self.members.iter()
    }

    /// Returns whether a member has a push in the round or in the next one.
    pub fn contains(&self, member: &M) -> bool {
        self.members.contains(member) || self.next.contains(member)
    }

    /// Returns whether the list of members is fixed.
    pub fn is_closed(&self) -> bool {
        self.stage != Stage::Open
    }

    /// Returns whether no member has a push in the round or in the next one.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.next.is_empty()
    }
}

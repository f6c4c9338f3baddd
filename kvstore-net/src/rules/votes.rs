//! [`Votes`]: what the servers of a round have done with its list.

use std::collections::BTreeSet;

/// What the followers of a round have done with its current list. The leader commits a list when
/// all of them have its sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Votes<S> {
    followers: BTreeSet<S>,
    attempt: u64,
    prepared: BTreeSet<S>,
    applied: BTreeSet<S>,
}

impl<S: Copy + Ord> Votes<S> {
    /// Returns the votes of these followers, for no list.
    pub fn new(followers: impl IntoIterator<Item = S>) -> Self {
        let followers = followers.into_iter().collect();
        Self { followers, attempt: 0, prepared: BTreeSet::new(), applied: BTreeSet::new() }
    }

    /// Begins the votes for a list.
    pub fn begin(&mut self, attempt: u64) {
        let followers = std::mem::take(&mut self.followers);
        *self = Self { attempt, ..Self::new(followers) };
    }

    /// Records that a follower has the sum of a list. One of an earlier list has no effect.
    pub fn prepare(&mut self, follower: S, attempt: u64) {
        if attempt == self.attempt && self.followers.contains(&follower) {
            self.prepared.insert(follower);
        }
    }

    /// Records that a follower has applied a list, or cannot do so any more.
    pub fn apply(&mut self, follower: S, attempt: u64) {
        if attempt == self.attempt && self.followers.contains(&follower) {
            self.applied.insert(follower);
        }
    }

    /// Records that a follower has lost the sum of the list, because it was restarted.
    pub fn lose(&mut self, follower: S) {
        self.prepared.remove(&follower);
    }

    /// Returns the followers without the sum of the current list.
    pub fn unprepared(&self) -> impl Iterator<Item = S> {
        self.followers.difference(&self.prepared).copied()
    }

    /// Returns the followers that have not applied the current list.
    pub fn unapplied(&self) -> impl Iterator<Item = S> {
        self.followers.difference(&self.applied).copied()
    }

    /// Returns the followers of the round.
    pub fn followers(&self) -> impl Iterator<Item = S> {
        self.followers.iter().copied()
    }
}

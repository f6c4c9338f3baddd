//! [`Entrant`]: the push of a member to a round, and the rounds that have pushes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use kvstore_core::{Error, Key, Result};

use super::caller::Caller;
use super::peers::{ByPush, PushId};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::rules::{Followed, Quorum, Round, Votes};

/// When a round closes, and what it does with its pushes. All its members have the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundRule {
    pub(crate) quorum: Quorum,
    /// Whether a late push belongs to the next round. Otherwise, it fails.
    pub(crate) keeps_late: bool,
    /// Whether the sum is divided by the sum of the weights.
    pub(crate) is_weighted: bool,
}

/// What became of a push to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    /// It has had no effect, because its member must ask for the layouts or the compression again.
    OutOfDate,
}

/// Which part of a push to a round a server has.
#[derive(Clone, Debug)]
pub(crate) enum PushPart {
    /// The group has one server.
    Complete,
    /// The part of the first server. These followers have the others.
    OfLeader(PushId, Vec<usize>),
    OfFollower(PushId),
}

/// The push of a member to a round.
#[derive(Debug)]
pub(crate) struct Entrant {
    pub(crate) caller: Caller,
    /// The keys, ascending, which identify the round.
    pub(crate) keys: Arc<[Key]>,
    /// Those of the keys that this server has.
    pub(crate) held: Arc<[Key]>,
    pub(crate) rule: RoundRule,
    /// The push without its data.
    pub(crate) push: proto::Push,
    pub(crate) part: PushPart,
    pub(super) outcome: OnceLock<Result<Fate>>,
    /// Set if other servers know the outcome, because it is that of a list.
    pub(super) is_told: OnceLock<()>,
}

impl Entrant {
    pub(crate) fn new(
        caller: Caller,
        (keys, held): (Arc<[Key]>, Arc<[Key]>),
        rule: RoundRule,
        (push, part): (proto::Push, PushPart),
    ) -> Self {
        Self {
            caller,
            keys,
            held,
            rule,
            push,
            part,
            outcome: OnceLock::new(),
            is_told: OnceLock::new(),
        }
    }

    /// Returns the followers that have parts of the push.
    pub(super) fn followers(&self) -> &[usize] {
        match &self.part {
            PushPart::OfLeader(_, followers) => followers,
            PushPart::Complete | PushPart::OfFollower(_) => &[],
        }
    }

    /// Returns the name of the push at all servers, if the group has several.
    pub(super) fn id(&self) -> Option<&PushId> {
        match &self.part {
            PushPart::OfLeader(id, _) | PushPart::OfFollower(id) => Some(id),
            PushPart::Complete => None,
        }
    }

    /// Returns each key with the version that the member has pulled last, if it has pulled it.
    pub(super) fn pulled(&self) -> impl Iterator<Item = (&Key, Option<u64>)> {
        self.held.iter().zip(self.push.values.iter().map(|value| value.version))
    }

    pub(super) fn outcome(&self) -> Option<Result<Fate>> {
        let copy = |outcome: &Result<Fate>| outcome.as_ref().copied().map_err(Error::duplicate);
        self.outcome.get().map(copy)
    }

    pub(super) fn decide(&self, outcome: Result<Fate>) {
        let _ = self.outcome.set(outcome);
    }
}

/// The rounds that have pushes.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) open: HashMap<Arc<[Key]>, OpenRound>,
    /// The round that a key belongs to.
    pub(super) keys: HashMap<Key, Arc<[Key]>>,
    /// The version of each key after the last round that a member took part in.
    pub(super) last: HashMap<Key, HashMap<String, u64>>,
    pub(super) counts: RoundCounts,
    /// The pushes that wait here, if the group has several servers.
    pub(super) by_push: ByPush<Arc<Entrant>>,
    /// The lists of the leader, if this server follows one.
    pub(super) lists: Followed<PushId>,
    /// The number of the last round. Those of a later run of the server are larger.
    pub(super) last_round: u64,
}

/// How many rounds and late pushes there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundCounts {
    pub(crate) committed: u64,
    /// Rounds that have pushes at the moment.
    pub(crate) open: u64,
    /// Late pushes that were rejected.
    pub(crate) late: u64,
}

#[derive(Debug)]
pub(super) struct OpenRound {
    /// Identifies the round among those of this run of the server.
    pub(super) number: u64,
    pub(super) round: Round<String>,
    pub(super) rule: RoundRule,
    pub(super) entrants: HashMap<String, Arc<Entrant>>,
    /// What other servers have done with the list.
    pub(super) votes: Votes<usize>,
    /// The list that other servers have.
    pub(super) listed: Option<u64>,
    /// Why another server has not applied the list.
    pub(super) failure: Option<Error>,
}

/// The list of a round that has closed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u64,
    /// In the order of their names.
    pub(crate) members: Vec<Arc<Entrant>>,
}

impl Rounds {
    /// Returns the rounds of a server whose rounds have larger numbers than this.
    pub(super) fn new(floor: u64) -> Self {
        Self { last_round: floor, ..Self::default() }
    }

    /// Forgets a member that has left.
    pub(super) fn remove_member(&mut self, name: &str) {
        for last in self.last.values_mut() {
            last.remove(name);
        }
    }

    /// Forgets a key that was removed.
    pub(super) fn remove_key(&mut self, key: &Key) {
        self.last.remove(key);
    }

    pub(super) fn remove(&mut self, keys: &Arc<[Key]>) {
        self.open.remove(keys);
        for key in keys.iter() {
            self.keys.remove(key);
        }
    }
}

impl OpenRound {
    /// Closes the round, and returns its list.
    pub(super) fn closed(&mut self) -> Attempt {
        self.round.close();
        let members = self.round.members().filter_map(|name| self.entrants.get(name)).cloned();
        let members: Vec<_> = members.collect();
        #[cfg(test)]
        let members = if Fault::FoldReversed.is_planted() {
            members.into_iter().rev().collect()
        } else {
            members
        };
        Attempt { number: self.round.attempt(), members }
    }
}

impl RoundRule {
    /// Checks the rule of another member.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if it differs.
    pub(super) fn check(&self, other: &Self) -> Result<()> {
        if self == other {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "quorum: expected {self}, as other members have, found {other}"
        )))
    }
}

impl std::fmt::Display for RoundRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { quorum: Quorum { min, grace }, keeps_late, is_weighted } = self;
        let late = if *keeps_late { "next" } else { "reject" };
        let grace = grace.as_secs_f64();
        write!(f, "quorum {min}, grace {grace} s, late `{late}`, weights {is_weighted}")
    }
}

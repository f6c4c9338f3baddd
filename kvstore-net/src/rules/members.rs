//! [`Members`]: the members of a group, with their leases and incarnations.

use std::collections::BTreeMap;
use std::time::Duration;

/// Whether a member changes the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It pushes. Bounded pulls of others wait for it.
    Worker,
    /// It never pushes.
    Reader,
}

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rank, from 0. A name keeps it until it leaves.
    pub rank: u64,
    /// The number of the process that has this name. A later process has a larger one.
    pub incarnation: u64,
    /// Whether it pushes.
    pub role: Role,
    /// The end of the lease, or `None` if the connection is lost or the lease has ended.
    lease_end: Option<Duration>,
}

impl Member {
    /// Returns whether the member has a lease.
    pub fn is_live(&self) -> bool {
        self.lease_end.is_some()
    }
}

/// An accepted join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The incarnation that the member uses from now on.
    pub incarnation: u64,
    /// The rank of the member.
    pub rank: u64,
    /// Whether an earlier incarnation was replaced or the name is new. Otherwise the same
    /// incarnation continues.
    pub is_new: bool,
}

/// The reason why a join or a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another live process has this name.
    NameInUse,
    /// A later process has this name, or the server does not know the member.
    Fenced,
}

/// The members of a group.
///
/// A member is *live* while it has a lease. If its connection is lost or its lease ends, it is
/// *dead*, but known: the same process may continue it, or a new process may take its name, which
/// fences the old one. A member that leaves is forgotten.
#[derive(Clone, Debug)]
pub struct Members {
    lease: Duration,
    last_incarnation: u64,
    known: BTreeMap<String, Member>,
}

impl Members {
    /// Returns an empty group. Leases have this length. Incarnations are larger than `floor`.
    ///
    /// The floor of a restarted server must be larger than its earlier incarnations, so that it
    /// does not mistake an earlier process for a later one.
    pub fn new(lease: Duration, floor: u64) -> Self {
        Self { lease, last_incarnation: floor, known: BTreeMap::new() }
    }

    /// Adds a member, or continues one. `incarnation` is that of an earlier [`Joined`], or 0 for a
    /// new process.
    ///
    /// # Errors
    /// - [`Refusal::NameInUse`] if another live process has this name.
    /// - [`Refusal::Fenced`] if the incarnation is not the current one of this name.
    pub fn join(
        &mut self,
        now: Duration,
        name: &str,
        incarnation: u64,
        role: Role,
    ) -> Result<Joined, Refusal> {
        self.end_leases(now);
        let lease_end = Some(now + self.lease);
        if incarnation != 0 {
            let member = self.known.get_mut(name).ok_or(Refusal::Fenced)?;
            if member.incarnation != incarnation {
                return Err(Refusal::Fenced);
            }
            member.lease_end = lease_end;
            return Ok(Joined { incarnation, rank: member.rank, is_new: false });
        }
        let rank = match self.known.get(name) {
            Some(earlier) if earlier.is_live() => return Err(Refusal::NameInUse),
            Some(earlier) => earlier.rank,
            None => self.free_rank(),
        };
        self.last_incarnation += 1;
        let incarnation = self.last_incarnation;
        let member = Member { rank, incarnation, role, lease_end };
        self.known.insert(name.to_owned(), member);
        Ok(Joined { incarnation, rank, is_new: true })
    }

    /// Returns the smallest rank that no member has.
    fn free_rank(&self) -> u64 {
        let mut used: Vec<u64> = self.known.values().map(|member| member.rank).collect();
        used.sort_unstable();
        (0..)
            .zip(&used)
            .find(|(rank, used)| rank != *used)
            .map_or(used.len() as u64, |(rank, _)| rank)
    }

    /// Checks that a call comes from the current incarnation of a member, and renews its lease,
    /// because it is alive.
    ///
    /// # Errors
    /// - [`Refusal::Fenced`] if it does not.
    pub fn renew(&mut self, now: Duration, name: &str, incarnation: u64) -> Result<(), Refusal> {
        self.end_leases(now);
        let lease_end = now + self.lease;
        let member = self.current(name, incarnation).ok_or(Refusal::Fenced)?;
        member.lease_end = Some(lease_end);
        Ok(())
    }

    /// Records that the connection of a member is lost. Does nothing for an earlier incarnation.
    pub fn lose(&mut self, name: &str, incarnation: u64) {
        if let Some(member) = self.current(name, incarnation) {
            member.lease_end = None;
        }
    }

    /// Removes a member. Does nothing for an earlier incarnation.
    pub fn leave(&mut self, name: &str, incarnation: u64) {
        if self.current(name, incarnation).is_some() {
            self.known.remove(name);
        }
    }

    fn current(&mut self, name: &str, incarnation: u64) -> Option<&mut Member> {
        self.known.get_mut(name).filter(|member| member.incarnation == incarnation)
    }

    /// Ends the leases that are over. Returns whether any was.
    pub fn end_leases(&mut self, now: Duration) -> bool {
        let mut has_ended = false;
        for member in self.known.values_mut() {
            if member.lease_end.is_some_and(|end| end <= now) {
                member.lease_end = None;
                has_ended = true;
            }
        }
        has_ended
    }

    /// Returns when the next lease ends, or `None` if there is no lease.
    pub fn next_end(&self) -> Option<Duration> {
        self.known.values().filter_map(|member| member.lease_end).min()
    }

    /// Returns a known member, live or dead.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.known.get(name)
    }

    /// Returns the live members with their names, in the order of their ranks.
    pub fn live(&self) -> Vec<(&str, &Member)> {
        let live = self.known.iter().filter(|(_, member)| member.is_live());
        let mut live: Vec<_> = live.map(|(name, member)| (name.as_str(), member)).collect();
        live.sort_unstable_by_key(|(_, member)| member.rank);
        live
    }

    /// Returns the number of dead members.
    pub fn num_dead(&self) -> usize {
        self.known.values().filter(|member| !member.is_live()).count()
    }
}

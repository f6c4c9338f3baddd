//! [`Members`]: the members of a group, with their leases and incarnations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a dead member is remembered.
const MEMORY: Duration = Duration::from_secs(3600);

/// How many dead members are remembered, and how many names of replaced processes. More than
/// programs have, so that a peer that joins under many names does not fill the memory.
const MOST_DEAD: usize = 1024;

/// How many replaced processes are remembered for each name.
const MOST_REPLACED: usize = 16;

/// For how many runs of a server it is remembered which members have joined too late to be saved.
const MOST_RUNS: usize = 1024;

/// Whether a member changes the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It pushes. Bounded pulls and barriers wait for it.
    Worker,
    /// It never pushes.
    Reader,
}

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The rank among the members of the same role, from 0. A name keeps it until it leaves.
    pub rank: u64,
    /// The number of the process that has this name. A later process has a larger one.
    pub incarnation: u64,
    /// Whether it pushes.
    pub role: Role,
    /// A random number that identifies the process.
    process: u64,
    /// The number of the connection that keeps the member live.
    connection: u64,
    presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Presence {
    /// Until this time.
    Lease(Duration),
    /// Since this time.
    Dead(Duration),
}

impl Member {
    /// Returns whether the member has a lease.
    pub fn is_live(&self) -> bool {
        matches!(self.presence, Presence::Lease(_))
    }

    /// Returns the random number of the process.
    pub(crate) fn process(&self) -> u64 {
        self.process
    }
}

/// A member as a server saves it, so that its next run knows the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedMember {
    /// The name.
    pub name: String,
    /// As in [`Member`].
    pub rank: u64,
    /// As in [`Member`].
    pub incarnation: u64,
    /// As in [`Member`].
    pub role: Role,
    /// The random number of the process.
    pub process: u64,
    /// The processes that had the name before.
    pub replaced: Vec<u64>,
}

/// An accepted join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The incarnation that the member uses from now on.
    pub incarnation: u64,
    /// The rank of the member.
    pub rank: u64,
    /// The number of the connection, for [`Members::lose`].
    pub connection: u64,
    /// Whether the process is new. Otherwise it continues its incarnation.
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
/// *dead*, but remembered for an hour: the same process may continue, or a new process may take its
/// name. Then the old process is refused from that moment on, also after the new one has left. A
/// member that leaves is forgotten at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    lease: Duration,
    floor: u64,
    last_number: u64,
    /// If this run continues from earlier ones: for each, the last number when the members were
    /// saved, and the floor of the next run. Members with numbers in between have joined later.
    lost: Vec<(u64, u64)>,
    /// The names whose processes are known, but not the incarnations that they had.
    unnumbered: BTreeSet<String>,
    known: BTreeMap<String, Member>,
    replaced: BTreeMap<String, Replaced>,
    num_changes: u64,
}

/// The earlier processes of a name. One may wake up and join again, but must never get the name
/// back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replaced {
    processes: Vec<u64>,
    /// Since when no member has the name.
    unused: Option<Duration>,
}

impl Members {
    /// Returns an empty group. Leases have this length. Incarnations are larger than `floor`.
    ///
    /// The floor of a restarted server must be larger than its earlier incarnations, so that it
    /// does not mistake an earlier process for a later one.
    pub fn new(lease: Duration, floor: u64) -> Self {
        let (known, replaced) = (BTreeMap::new(), BTreeMap::new());
        Self {
            lease,
            floor,
            last_number: floor,
            lost: Vec::new(),
            unnumbered: BTreeSet::new(),
            known,
            replaced,
            num_changes: 0,
        }
    }

    /// Returns the largest number of all incarnations and connections.
    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns all known members, live or dead.
    pub fn saved(&self) -> impl Iterator<Item = SavedMember> {
        self.known.iter().map(|(name, member)| {
            let replaced = self.replaced.get(name);
            SavedMember {
                name: name.clone(),
                rank: member.rank,
                incarnation: member.incarnation,
                role: member.role,
                process: member.process,
                replaced: replaced.map(|replaced| replaced.processes.clone()).unwrap_or_default(),
            }
        })
    }

    /// Continues with the members that an earlier run of the server has saved. They get a lease, so
    /// that they have time to connect again. `last_number` and `lost` are those of the earlier run.
    /// Where [`Self::restore_name`] knows a later process of a name, that one stays.
    pub fn restore(
        &mut self,
        now: Duration,
        (last_number, lost): (u64, Vec<(u64, u64)>),
        saved: impl IntoIterator<Item = SavedMember>,
    ) {
        self.lost = lost;
        self.lost.push((last_number, self.floor));
        self.lost.drain(..self.lost.len().saturating_sub(MOST_RUNS));
        let presence = Presence::Lease(now.saturating_add(self.lease));
        for saved in saved {
            let SavedMember { name, rank, incarnation, role, process, replaced } = saved;
            if let Some(known) = self.known.get_mut(&name) {
                if known.process == process {
                    known.incarnation = incarnation;
                    self.unnumbered.remove(&name);
                }
                continue;
            }
            if !replaced.is_empty() {
                let replaced = Replaced { processes: replaced, unused: None };
                self.replaced.insert(name.clone(), replaced);
            }
            let member = Member { rank, incarnation, role, process, connection: 0, presence };
            self.known.insert(name, member);
            self.num_changes += 1;
        }
    }

    /// Returns whether this incarnation may be one of an earlier run from which this one continues.
    pub fn is_of_earlier_run(&self, incarnation: u64) -> bool {
        !self.lost.is_empty() && (1..=self.floor).contains(&incarnation)
    }

    /// Returns the numbers that belong to members who have joined after the members of their run
    /// were saved: those above the first and up to the second of each pair.
    pub fn lost(&self) -> &[(u64, u64)] {
        &self.lost
    }

    /// Adds a member that had an incarnation before it lost its connection, or 0.
    ///
    /// If this run continues from an earlier one, the member may have joined after the members were
    /// saved. Then it takes the name from a saved process that had it before, and keeps its
    /// incarnation, because none of its calls is known.
    ///
    /// # Errors
    /// - The errors of [`Self::join`].
    pub fn join_again(
        &mut self,
        now: Duration,
        name: &str,
        (process, incarnation): (u64, u64),
        role: Role,
    ) -> Result<Joined, Refusal> {
        if !self.is_of_earlier_run(incarnation) {
            return self.join(now, name, process, role);
        }
        if let Some(member) = self.known.get_mut(name).filter(|member| member.process != process) {
            if member.incarnation > incarnation {
                return Err(Refusal::Fenced);
            }
            if member.is_live() {
                member.presence = Presence::Dead(now);
                self.num_changes += 1;
            }
        }
        let is_unnumbered = self.unnumbered.contains(name);
        let mut joined = self.join(now, name, process, role)?;
        // The saved membership of the process was over, because it had left, when it joined anew.
        joined.is_new |= !is_unnumbered && joined.incarnation < incarnation;
        let is_lost = |(after, up_to): &(u64, u64)| incarnation > *after && incarnation <= *up_to;
        if (joined.is_new || is_unnumbered)
            && self.lost.iter().any(is_lost)
            && let Some(member) = self.known.get_mut(name)
        {
            (member.incarnation, joined.incarnation) = (incarnation, incarnation);
        }
        Ok(joined)
    }

    /// Adds a member, or continues the one of the same process. `process` is a random number that
    /// the process keeps as long as it runs.
    ///
    /// # Errors
    /// - [`Refusal::NameInUse`] if another live process has this name.
    /// - [`Refusal::Fenced`] if a later process has taken the name from this one.
    pub fn join(
        &mut self,
        now: Duration,
        name: &str,
        process: u64,
        role: Role,
    ) -> Result<Joined, Refusal> {
        self.expire(now);
        self.last_number += 1;
        let number = self.last_number;
        let lease = Presence::Lease(now.saturating_add(self.lease));
        self.num_changes += 1;
        self.unnumbered.remove(name);
        if let Some(member) = self.known.get_mut(name).filter(|member| member.process == process) {
            (member.presence, member.connection) = (lease, number);
            let (incarnation, rank) = (member.incarnation, member.rank);
            return Ok(Joined { incarnation, rank, connection: number, is_new: false });
        }
        let is_replaced = |replaced: &Replaced| replaced.processes.contains(&process);
        if self.replaced.get(name).is_some_and(is_replaced) {
            return Err(Refusal::Fenced);
        }
        let mut rank = None;
        if let Some(earlier) = self.known.get(name) {
            if earlier.is_live() {
                return Err(Refusal::NameInUse);
            }
            let replaced = &mut self.replaced.entry(name.to_owned()).or_default().processes;
            replaced.push(earlier.process);
            replaced.drain(..replaced.len().saturating_sub(MOST_REPLACED));
            rank = (earlier.role == role).then_some(earlier.rank);
        }
        let rank = rank.unwrap_or_else(|| self.free_rank(name, role));
        let member = Member {
            rank,
            incarnation: number,
            role,
            process,
            connection: number,
            presence: lease,
        };
        self.known.insert(name.to_owned(), member);
        Ok(Joined { incarnation: number, rank, connection: number, is_new: true })
    }

    /// Adds a member of an earlier run of the server, which lives for a lease. `replaced` are the
    /// earlier processes of its name. Its process has to join again, and gets another incarnation
    /// than in the earlier run, unless [`Self::restore`] knows that.
    pub fn restore_name(
        &mut self,
        now: Duration,
        name: &str,
        (rank, role): (u64, Role),
        (process, replaced): (u64, Vec<u64>),
    ) {
        self.last_number += 1;
        self.num_changes += 1;
        let (incarnation, connection) = (self.last_number, self.last_number);
        let presence = Presence::Lease(now.saturating_add(self.lease));
        let member = Member { rank, incarnation, role, process, connection, presence };
        self.known.insert(name.to_owned(), member);
        self.unnumbered.insert(name.to_owned());
        if !replaced.is_empty() {
            let replaced = Replaced { processes: replaced, unused: None };
            self.replaced.insert(name.to_owned(), replaced);
        }
    }

    /// Returns the earlier processes of a name, for [`Members::restore_name`].
    pub fn replaced(&self, name: &str) -> &[u64] {
        self.replaced.get(name).map_or(&[], |replaced| &replaced.processes)
    }

    /// Returns the smallest rank that no other member of this role has.
    fn free_rank(&self, name: &str, role: Role) -> u64 {
        let others =
            self.known.iter().filter(|(other, member)| *other != name && member.role == role);
        let mut used: Vec<u64> = others.map(|(_, member)| member.rank).collect();
        used.sort_unstable();
        let free = (0..).zip(&used).find(|(rank, used)| rank != *used);
        free.map_or(used.len() as u64, |(rank, _)| rank)
    }

    /// Checks that a call comes from the current incarnation of a member, and renews its lease,
    /// because it is alive. Returns whether the member was dead.
    ///
    /// # Errors
    /// - [`Refusal::Fenced`] if it does not.
    pub fn renew(&mut self, now: Duration, name: &str, incarnation: u64) -> Result<bool, Refusal> {
        self.expire(now);
        let lease = Presence::Lease(now.saturating_add(self.lease));
        let member = self.current(name, incarnation).ok_or(Refusal::Fenced)?;
        let was_dead = !member.is_live();
        member.presence = lease;
        self.num_changes += u64::from(was_dead);
        Ok(was_dead)
    }

    /// Records that a connection is lost. Does nothing if the member has a later one.
    pub fn lose(&mut self, now: Duration, name: &str, connection: u64) {
        let member = self.known.get_mut(name);
        if let Some(member) = member.filter(|member| member.connection == connection)
            && member.is_live()
        {
            member.presence = Presence::Dead(now);
            self.num_changes += 1;
        }
    }

    /// Ends the lease of a member that leaves soon, so that another process may take its name.
    pub fn end_lease(&mut self, now: Duration, name: &str, incarnation: u64) {
        if let Some(member) = self.current(name, incarnation).filter(|member| member.is_live()) {
            member.presence = Presence::Dead(now);
            self.num_changes += 1;
        }
    }

    /// Removes a member if this is its current incarnation. Returns whether it was removed.
    pub fn leave(&mut self, name: &str, incarnation: u64) -> bool {
        let is_current = self.current(name, incarnation).is_some();
        if is_current {
            self.known.remove(name);
            #[cfg(test)]
            if crate::faults::Fault::ReturnName.is_planted() {
                self.replaced.remove(name);
            }
            self.num_changes += 1;
        }
        is_current
    }

    fn current(&mut self, name: &str, incarnation: u64) -> Option<&mut Member> {
        let is_current = |member: &&mut Member| member.incarnation == incarnation;
        #[cfg(test)]
        let is_current = |member: &&mut Member| {
            is_current(member) || crate::faults::Fault::SkipFence.is_planted()
        };
        self.known.get_mut(name).filter(is_current)
    }

    /// Ends the leases that are over.
    fn expire(&mut self, now: Duration) {
        #[cfg(test)]
        if crate::faults::Fault::KeepLease.is_planted() {
            return;
        }
        for member in self.known.values_mut() {
            if let Presence::Lease(end) = member.presence
                && end <= now
            {
                member.presence = Presence::Dead(now);
                self.num_changes += 1;
            }
        }
    }

    /// Ends the leases that are over, and forgets members that have been dead for an hour, and the
    /// replaced processes of names that have been unused for an hour. Returns the names of the
    /// forgotten members.
    pub fn end_leases(&mut self, now: Duration) -> Vec<String> {
        self.expire(now);
        let is_forgotten = |member: &Member| match member.presence {
            Presence::Dead(since) => since.saturating_add(MEMORY) <= now,
            Presence::Lease(_) => false,
        };
        let dead = self.known.iter().filter(|(_, member)| is_forgotten(member));
        let mut forgotten: Vec<String> = dead.map(|(name, _)| name.clone()).collect();
        forgotten.extend(self.dead_above(MOST_DEAD));
        for name in &forgotten {
            self.known.remove(name);
        }
        let known = &self.known;
        self.replaced.retain(|name, replaced| {
            if known.contains_key(name) {
                replaced.unused = None;
                return true;
            }
            replaced.unused.get_or_insert(now).saturating_add(MEMORY) > now
        });
        let excess = self.replaced.len().saturating_sub(MOST_DEAD);
        let unused = self.replaced.iter().filter_map(|(name, replaced)| {
            let since = replaced.unused?;
            Some((since, name.clone()))
        });
        let mut unused: Vec<(Duration, String)> = unused.collect();
        unused.sort_unstable();
        for (_, name) in unused.into_iter().take(excess) {
            self.replaced.remove(&name);
        }
        forgotten
    }

    /// Returns the names of the members that have been dead for the longest, if more than `most`
    /// are dead.
    fn dead_above(&self, most: usize) -> Vec<String> {
        let dead = self.known.iter().filter_map(|(name, member)| match member.presence {
            Presence::Dead(since) => Some((since, name)),
            Presence::Lease(_) => None,
        });
        let mut dead: Vec<_> = dead.collect();
        let excess = dead.len().saturating_sub(most);
        if excess > 0 {
            dead.sort_unstable();
        }
        dead.into_iter().take(excess).map(|(_, name)| name.clone()).collect()
    }

    /// Returns when the next lease ends, or `None` if there is no lease.
    pub fn next_end(&self) -> Option<Duration> {
        let ends = self.known.values().filter_map(|member| match member.presence {
            Presence::Lease(end) => Some(end),
            Presence::Dead(_) => None,
        });
        ends.min()
    }

    /// Returns a number that grows with every change of the live members.
    pub fn num_changes(&self) -> u64 {
        self.num_changes
    }

    /// Returns a known member, live or dead.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.known.get(name)
    }

    /// Returns how long a process has been dead, or `None` if it is live. That is forever if a
    /// later process has its name. A process that is not known may have joined an earlier run of
    /// the server, so it counts as dead since the start of this one.
    pub fn dead_for(&self, now: Duration, name: &str, process: u64) -> Option<Duration> {
        let member = self.known.get(name).filter(|member| member.process == process);
        match member.map(|member| member.presence) {
            Some(Presence::Lease(_)) => None,
            Some(Presence::Dead(since)) => Some(now.saturating_sub(since)),
            None if self.replaced(name).contains(&process) => Some(Duration::MAX),
            None => Some(now),
        }
    }

    /// Returns whether an incarnation is that of a live member.
    pub fn is_live(&self, incarnation: u64) -> bool {
        self.known.values().any(|member| member.incarnation == incarnation && member.is_live())
    }

    /// Returns the incarnations of the members that are live, or died less than a lease ago.
    pub fn remembered(&self, now: Duration) -> impl Iterator<Item = u64> {
        let is_remembered = move |member: &&Member| match member.presence {
            Presence::Lease(_) => true,
            Presence::Dead(since) => since.saturating_add(self.lease) > now,
        };
        self.known.values().filter(is_remembered).map(|member| member.incarnation)
    }

    /// Returns the live members with their names: workers first, each role in the order of ranks.
    pub fn live(&self) -> Vec<(&str, &Member)> {
        let live = self.known.iter().filter(|(_, member)| member.is_live());
        let mut live: Vec<_> = live.map(|(name, member)| (name.as_str(), member)).collect();
        live.sort_unstable_by_key(|(_, member)| (member.role == Role::Reader, member.rank));
        live
    }

    /// Returns the number of dead workers.
    pub fn num_dead(&self) -> usize {
        let dead = |member: &&Member| !member.is_live() && member.role == Role::Worker;
        self.known.values().filter(dead).count()
    }
}

//! [`SavedGroup`]: the state of a group in a recovery point, from which the next run of the server
//! continues.

use std::collections::HashMap;

use kvstore_core::{Error, Key, Result, fallible};
use prost::Message;

use super::{Group, MOST_CALLS, State};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::rules::{Calls, Member, Role, SavedCalls, SavedMember, Versions};
use crate::server::access::Identity;

/// The members, the calls that have taken effect, and the versions of the keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SavedGroup {
    /// The largest incarnation.
    #[prost(uint64, tag = "1")]
    pub(crate) last_incarnation: u64,
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<MemberState>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) keys: Vec<KeyState>,
    /// The highest version of all keys that were removed.
    #[prost(uint64, tag = "4")]
    pub(crate) version_floor: u64,
    /// The number of barriers that the group has passed.
    #[prost(uint64, tag = "5")]
    pub(crate) barriers: u64,
    /// The number of rounds that were committed.
    #[prost(uint64, tag = "6")]
    pub(crate) rounds: u64,
    /// As in [`Members::lost`](crate::rules::Members::lost): the first number of each pair, and
    /// then the second ones.
    #[prost(uint64, repeated, tag = "7")]
    pub(crate) lost: Vec<u64>,
}

/// A member.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberState {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) rank: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) incarnation: u64,
    #[prost(bool, tag = "4")]
    pub(crate) is_reader: bool,
    #[prost(uint64, tag = "5")]
    pub(crate) process: u64,
    /// The processes that had the name before.
    #[prost(uint64, repeated, tag = "6")]
    pub(crate) replaced: Vec<u64>,
    /// The public key of its certificate.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) public_key: Option<Vec<u8>>,
    /// It has the replies of all calls below this number.
    #[prost(uint64, tag = "8")]
    pub(crate) answered_below: u64,
    /// Except these.
    #[prost(uint64, repeated, tag = "9")]
    pub(crate) unanswered: Vec<u64>,
    /// The other calls that have taken effect.
    #[prost(message, repeated, tag = "10")]
    pub(crate) outcomes: Vec<CallState>,
    /// The number of barriers that the group had passed when the process joined.
    #[prost(uint64, tag = "11")]
    pub(crate) first_barrier: u64,
}

/// A call that has taken effect.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CallState {
    #[prost(uint64, tag = "1")]
    pub(crate) sequence: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) failure: Option<proto::Failure>,
}

/// The versions of a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyState {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    /// The version before the first push, and now. Absent before the first push.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) first: Option<u64>,
    #[prost(uint64, tag = "3")]
    pub(crate) now: u64,
    /// The clocks of the members, in their order.
    #[prost(uint64, repeated, tag = "4")]
    pub(crate) clocks: Vec<u64>,
    /// For each member, in their order, the version after its last round, or 0.
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) last_rounds: Vec<u64>,
}

impl Group {
    /// Returns the state of the group. The caller keeps calls from taking effect meanwhile.
    pub(crate) fn saved(&self) -> Result<SavedGroup> {
        self.state().saved()
    }

    /// Continues with the state of an earlier run of the server, before members join.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if a key is not valid.
    pub(crate) fn restore(&self, saved: SavedGroup) -> Result<()> {
        let (now, keeps_names) = (self.now(), self.leader.is_some());
        self.change(|state| {
            let names: Vec<String> = saved.members.iter().map(|one| one.name.clone()).collect();
            let mut versions = Vec::new();
            for key in saved.keys {
                let name = Key::new(&key.key)?;
                for (member, clock) in names.iter().zip(key.clocks) {
                    state.clocks.set(name.clone(), member.clone(), clock);
                }
                let last = names.iter().cloned().zip(key.last_rounds);
                let last: HashMap<_, _> = last.filter(|(_, version)| *version > 0).collect();
                if !last.is_empty() {
                    state.rounds.last.insert(name.clone(), last);
                }
                if let Some(first) = key.first {
                    fallible::push(&mut versions, (name, (first, key.now)))?;
                }
            }
            state.versions = Versions::restored(saved.version_floor, versions);
            state.raise_barriers(saved.barriers);
            state.rounds.counts.committed = saved.rounds;
            let mut members = Vec::new();
            for member in saved.members {
                let known = state.members.get(&member.name).map(Member::process);
                // If the group has a coordinator, it knows who has left, and who has a name.
                let is_outdated = known.map_or(keeps_names, |process| process != member.process);
                if is_outdated {
                    continue;
                }
                state.restored.remove(&member.name);
                let outcomes = member.outcomes.into_iter();
                let calls = SavedCalls {
                    answered_below: member.answered_below,
                    unanswered: member.unanswered,
                    outcomes: outcomes.map(|call| (call.sequence, call.failure)).collect(),
                };
                #[cfg(test)]
                let calls = if Fault::ForgetSavedCalls.is_planted() {
                    SavedCalls { outcomes: Vec::new(), ..calls }
                } else {
                    calls
                };
                let name = member.name;
                state.calls.insert(name.clone(), Calls::restored(calls, MOST_CALLS));
                state.identities.set(&name, &Identity::of_public_key(member.public_key));
                state.barrier.first_rounds.insert(name.clone(), member.first_barrier);
                members.push(SavedMember {
                    name,
                    rank: member.rank,
                    incarnation: member.incarnation,
                    role: if member.is_reader { Role::Reader } else { Role::Worker },
                    process: member.process,
                    replaced: member.replaced,
                });
            }
            let (after, up_to) = saved.lost.split_at(saved.lost.len() / 2);
            let lost = after.iter().copied().zip(up_to.iter().copied()).collect();
            state.members.restore(now, (saved.last_incarnation, lost), members);
            Ok::<(), Error>(())
        })
    }
}

impl State {
    fn saved(&self) -> Result<SavedGroup> {
        let members: Vec<SavedMember> = self.members.saved().collect();
        let names = || members.iter().map(|member| &member.name);
        let versions: HashMap<&Key, (u64, u64)> = self.versions.saved().collect();
        let mut keys: Vec<&Key> = versions.keys().copied().collect();
        keys.extend(self.clocks.keys().filter(|key| !versions.contains_key(key)));
        // The same state always has the same bytes, so that one without changes is recognised.
        keys.sort_unstable();
        let keys = keys.into_iter().map(|key| {
            let last = self.rounds.last.get(key);
            let last = |name| last.and_then(|last| last.get(name)).copied().unwrap_or_default();
            let version = versions.get(key);
            KeyState {
                key: key.as_str().to_owned(),
                first: version.map(|(first, _)| *first),
                now: version.map_or(0, |(_, now)| *now),
                clocks: names().map(|name| self.clocks.clock(key, name)).collect(),
                last_rounds: names().map(last).collect(),
            }
        });
        let lost = self.members.lost().iter();
        Ok(SavedGroup {
            last_incarnation: self.members.last_number(),
            keys: fallible::gather(keys)?,
            members: members.iter().map(|member| self.saved_member(member)).collect(),
            version_floor: self.versions.floor(),
            barriers: self.barrier.round,
            rounds: self.rounds.counts.committed,
            lost: lost.clone().map(|pair| pair.0).chain(lost.map(|pair| pair.1)).collect(),
        })
    }

    fn saved_member(&self, member: &SavedMember) -> MemberState {
        let calls = self.calls.get(&member.name).map(Calls::saved);
        let calls = calls.unwrap_or_else(|| Calls::new(0).saved());
        let outcomes = calls.outcomes.into_iter();
        let first_barrier = self.barrier.first_rounds.get(&member.name);
        MemberState {
            name: member.name.clone(),
            rank: member.rank,
            incarnation: member.incarnation,
            is_reader: member.role == Role::Reader,
            process: member.process,
            replaced: member.replaced.clone(),
            public_key: self.identities.public_key(&member.name),
            answered_below: calls.answered_below,
            unanswered: calls.unanswered,
            outcomes: outcomes.map(|(sequence, failure)| CallState { sequence, failure }).collect(),
            first_barrier: first_barrier.copied().unwrap_or_default(),
        }
    }
}

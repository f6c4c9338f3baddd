//! [`Peers`]: what a server knows of the other servers of its group.

use std::collections::{BTreeMap, VecDeque};

use crate::proto::{self, follower_message, leader_message};
use crate::rules::Link;

/// What a follower does after a message of the leader.
#[derive(Clone, Debug)]
pub(crate) enum Followup {
    /// Sums the lists of a round.
    Round(u64),
    /// Lets no more calls take effect.
    Close(u64),
    /// Takes its state, and writes it when all servers have theirs.
    Take(proto::Cut),
    Rewind(proto::Rewind),
}

/// The most pushes of a member that a server remembers for another server. A member has fewer
/// pushes to rounds at the same time.
const MOST_PUSHES: usize = 1024;

/// The push of a member to a round, at all servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PushId {
    pub(crate) name: String,
    pub(crate) process: u64,
    pub(crate) number: u64,
}

impl PushId {
    pub(super) fn message(&self) -> proto::RoundMember {
        let Self { name, process, number } = self.clone();
        proto::RoundMember { name, process, number }
    }

    pub(super) fn of(message: Option<proto::RoundMember>) -> Self {
        let proto::RoundMember { name, process, number } = message.unwrap_or_default();
        Self { name, process, number }
    }
}

/// What the leader has decided about a list whose sum is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Commit,
    /// There is another list, or none.
    Replaced,
}

/// The part of a push at a follower.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Here(proto::PartArrived),
    /// The push must fail.
    Rejected(proto::Failure),
}

/// Values by push. Of each member, the newest are kept.
#[derive(Debug)]
pub(super) struct ByPush<T>(BTreeMap<String, VecDeque<(PushId, T)>>);

impl<T> Default for ByPush<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByPush<T> {
    pub(super) fn insert(&mut self, push: PushId, value: T) {
        self.remove(&push);
        let values = self.0.entry(push.name.clone()).or_default();
        if values.len() >= MOST_PUSHES {
            values.pop_front();
        }
        values.push_back((push, value));
    }

    pub(super) fn get(&self, push: &PushId) -> Option<&T> {
        let values = self.0.get(&push.name)?;
        values.iter().find(|(other, _)| other == push).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, push: &PushId) -> Option<T> {
        let values = self.0.get_mut(&push.name)?;
        let index = values.iter().position(|(other, _)| other == push)?;
        let (_, value) = values.remove(index)?;
        if values.is_empty() {
            self.0.remove(&push.name);
        }
        Some(value)
    }

    pub(super) fn remove_member(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values().flatten().map(|(_, value)| value)
    }
}

/// A server that this one leads.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) address: String,
    /// The run of the follower that has sent these parts.
    pub(super) run: Option<u64>,
    pub(super) link: Link<leader_message::Content>,
    /// The number of the present connection, or `None` if there is none.
    pub(super) connection: Option<u64>,
    pub(super) parts: ByPush<Part>,
    /// Whether it has lost what it had since this server leads it.
    pub(super) is_restarted: bool,
    /// The last round that had begun when it was restarted.
    pub(super) last_round: u64,
    /// The recovery points that it certainly has.
    pub(super) points: Vec<u64>,
    /// The largest number of a point that it has, has had or writes.
    pub(super) newest_point: u64,
    /// The point that it was told to write, until it says what became of it.
    pub(super) writes: Option<u64>,
    /// The last rewind that it has followed, or 0.
    pub(super) rewound_by: u64,
}

impl Follower {
    pub(super) fn new(address: String) -> Self {
        Self {
            address,
            run: None,
            link: Link::default(),
            connection: None,
            parts: ByPush::default(),
            is_restarted: false,
            last_round: 0,
            points: Vec::new(),
            newest_point: 0,
            writes: None,
            rewound_by: 0,
        }
    }

    pub(super) fn has(&self, push: &PushId) -> bool {
        matches!(self.parts.get(push), Some(Part::Here(_)))
    }
}

/// The first server, which this one follows.
#[derive(Debug, Default)]
pub(super) struct Leader {
    /// The newest run of the leader.
    pub(super) run: Option<u64>,
    pub(super) link: Link<follower_message::Content>,
    /// The number of the present connection, or `None` if there is none.
    pub(super) connection: Option<u64>,
    /// Whether this server and the leader have followed different rewinds. Then they have other
    /// values.
    pub(super) is_elsewhere: bool,
    /// The outcomes of pushes whose parts have not arrived.
    pub(super) ends: ByPush<proto::Failure>,
}

/// The other servers of a group, which are followers of this one or their leader.
#[derive(Debug, Default)]
pub(super) struct Peers {
    pub(super) followers: Vec<Follower>,
    pub(super) leader: Leader,
    /// The pushes that this follower has rejected, also while it had an earlier leader.
    pub(super) rejected: ByPush<proto::PushEnd>,
    /// The number of connections so far.
    pub(super) num_connections: u64,
}

impl Peers {
    /// Returns the number of a new connection.
    pub(super) fn connect(&mut self) -> u64 {
        self.num_connections += 1;
        self.num_connections
    }

    /// Returns a follower. The numbers of followers begin with 1, as they do in lists of servers.
    pub(super) fn follower(&mut self, number: usize) -> Option<&mut Follower> {
        self.followers.get_mut(number.checked_sub(1)?)
    }

    /// Sends a message to a follower.
    pub(super) fn tell(&mut self, follower: usize, message: leader_message::Content) {
        if let Some(follower) = self.follower(follower) {
            follower.link.send(message);
        }
    }

    /// Sends a message to the leader.
    pub(super) fn report(&mut self, message: follower_message::Content) {
        self.leader.link.send(message);
    }

    /// Tells the leader that a push must fail. Later leaders are told, too, because the member may
    /// have the answer already.
    pub(super) fn report_rejected(&mut self, id: PushId, failure: proto::Failure) {
        let end = proto::PushEnd { member: Some(id.message()), failure: Some(failure) };
        self.rejected.insert(id, end.clone());
        self.report(follower_message::Content::Rejected(end));
    }

    /// Tells another run of the leader which pushes must fail.
    pub(super) fn report_all_rejected(&mut self) {
        for end in self.rejected.iter() {
            self.leader.link.send(follower_message::Content::Rejected(end.clone()));
        }
    }

    /// Returns whether the connected servers have received all messages.
    pub(super) fn are_informed(&self) -> bool {
        let is_informed =
            |follower: &Follower| follower.connection.is_none() || follower.link.is_idle();
        let leader = &self.leader;
        self.followers.iter().all(is_informed)
            && (leader.connection.is_none() || leader.link.is_idle())
    }

    /// Forgets a member that has left.
    pub(super) fn remove_member(&mut self, name: &str) {
        self.followers.iter_mut().for_each(|follower| follower.parts.remove_member(name));
        self.leader.ends.remove_member(name);
        self.rejected.remove_member(name);
    }
}

//! The rules by which several servers commit the same rounds, under random sequences of events:
//! parts come and go, connections are lost with the messages on their way, and lists change.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, reason = "a check fails by panicking")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kvstore_net::rules::{Followed, Link, Quorum, Round, Votes};
use proptest::prelude::*;

const NUM_FOLLOWERS: usize = 2;
const NUM_PUSHES: u8 = 6;

/// The number of the only round.
const ROUND: u64 = 7;

#[derive(Clone, Debug)]
enum ToFollower {
    List(u64, Vec<u8>),
    Commit(u64),
    Reopen(u64),
    End(u64),
}

#[derive(Clone, Debug)]
enum ToLeader {
    Arrived(u8),
    Gone(u8),
    Prepared(u64),
    Applied(u64),
}

/// A message on its way, with its number.
type Sent<T> = VecDeque<(u64, T)>;

/// One end of a connection: its messages, and the number of the last one on the connection.
#[derive(Debug)]
struct End<T> {
    link: Link<T>,
    sent: u64,
    on_the_way: Sent<T>,
}

impl<T: Clone> End<T> {
    fn new() -> Self {
        Self { link: Link::default(), sent: 0, on_the_way: VecDeque::new() }
    }

    /// Puts the next message on its way. Returns whether there is one.
    fn transmit(&mut self) -> bool {
        let Some(message) = self.link.message(self.sent + 1).cloned() else { return false };
        self.sent += 1;
        self.on_the_way.push_back((self.sent, message));
        true
    }

    /// Loses the messages on their way. The next connection begins after those that the other end
    /// has received.
    fn cut(&mut self, received: u64) {
        self.on_the_way.clear();
        self.link.acknowledge(received);
        self.sent = received;
    }
}

#[derive(Debug)]
struct Follower {
    lists: Followed<u8>,
    parts: BTreeSet<u8>,
    /// The pushes that their members have given up, although a complete sum has them.
    leaving: BTreeSet<u8>,
    to_leader: End<ToLeader>,
    /// The list that is being summed.
    folding: Option<(u64, Vec<u8>)>,
    /// The list whose sum is complete.
    prepared: Option<(u64, Vec<u8>)>,
    applied: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Servers {
    now: Duration,
    round: Round<u8>,
    votes: Votes<usize>,
    listed: Option<u64>,
    parts: Vec<BTreeSet<u8>>,
    /// The pushes whose members wait, and have not been in a committed list.
    waiting: BTreeSet<u8>,
    to_followers: Vec<End<ToFollower>>,
    followers: Vec<Follower>,
    /// Whether the leader has the sum of this list.
    summed: Option<u64>,
    committed: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize, u8),
    /// The member of a push is dead for a follower, or gives up there.
    Leave(usize, u8),
    /// The member of a push gives up at the leader.
    Withdraw(u8),
    /// Time passes, so that the round may close.
    Wait,
    /// A message is sent and another one arrives.
    ToFollower(usize),
    ToLeader(usize),
    Cut(usize),
    SumOfLeader,
    SumOfFollower(usize),
    Apply(usize),
    Finish,
}

fn event() -> impl Strategy<Value = Event> {
    let follower = 0..NUM_FOLLOWERS;
    let pushes = 0..NUM_PUSHES;
    prop_oneof![
        6 => (follower.clone(), pushes.clone()).prop_map(|(at, push)| Event::Arrive(at, push)),
        1 => (follower.clone(), pushes.clone()).prop_map(|(at, push)| Event::Leave(at, push)),
        1 => pushes.prop_map(Event::Withdraw),
        2 => Just(Event::Wait),
        8 => follower.clone().prop_map(Event::ToFollower),
        8 => follower.clone().prop_map(Event::ToLeader),
        1 => follower.clone().prop_map(Event::Cut),
        3 => Just(Event::SumOfLeader),
        5 => follower.clone().prop_map(Event::SumOfFollower),
        3 => follower.prop_map(Event::Apply),
        2 => Just(Event::Finish),
    ]
}

impl Servers {
    fn new(min: usize) -> Self {
        let follower = |_| Follower {
            lists: Followed::default(),
            parts: BTreeSet::new(),
            leaving: BTreeSet::new(),
            to_leader: End::new(),
            folding: None,
            prepared: None,
            applied: Vec::new(),
        };
        Self {
            now: Duration::ZERO,
            round: Round::new(Quorum { min, grace: Duration::from_millis(3) }),
            votes: Votes::new(0..NUM_FOLLOWERS),
            listed: None,
            parts: vec![BTreeSet::new(); NUM_FOLLOWERS],
            waiting: (0..NUM_PUSHES).collect(),
            to_followers: (0..NUM_FOLLOWERS).map(|_| End::new()).collect(),
            followers: (0..NUM_FOLLOWERS).map(follower).collect(),
            summed: None,
            committed: Vec::new(),
        }
    }

    fn tell(&mut self, message: &ToFollower) {
        self.to_followers.iter_mut().for_each(|end| end.link.send(message.clone()));
    }

    fn is_committing(&self) -> bool {
        self.round.is_committing()
    }

    /// The pushes enter and leave the round as their parts come and go.
    fn settle(&mut self) {
        for push in self.waiting.clone() {
            let is_complete = self.parts.iter().all(|parts| parts.contains(&push));
            if is_complete && !self.round.contains(&push) {
                self.round.push(self.now, push);
            } else if !is_complete && self.round.contains(&push) {
                self.withdraw(push);
            }
        }
        let is_due = self.round.closes_at(false).is_some_and(|at| at <= self.now);
        let is_replaced = self.round.is_closed()
            && !self.is_committing()
            && self.listed != Some(self.round.attempt());
        if is_due || is_replaced {
            self.round.close();
            let list = self.round.members().copied().collect();
            let attempt = self.round.attempt();
            self.votes.begin(attempt);
            self.listed = Some(attempt);
            self.summed = None;
            self.tell(&ToFollower::List(attempt, list));
        }
        let attempt = self.round.attempt();
        let is_prepared = self.summed == Some(attempt) && self.votes.unprepared().next().is_none();
        if is_prepared && self.round.begin_commit(attempt) {
            self.committed.push((attempt, self.round.members().copied().collect()));
            self.tell(&ToFollower::Commit(attempt));
        }
    }

    /// Returns whether the leader could remove a push from the round.
    fn withdraw(&mut self, push: u8) -> bool {
        let is_removed = self.round.withdraw(self.now, &push);
        if !self.round.is_closed()
            && let Some(attempt) = self.listed.take()
        {
            self.tell(&ToFollower::Reopen(attempt));
        }
        is_removed
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(at, push) => {
                let follower = &mut self.followers[at];
                if self.waiting.contains(&push) && follower.parts.insert(push) {
                    follower.to_leader.link.send(ToLeader::Arrived(push));
                }
            }
            Event::Leave(at, push) => self.followers[at].leave(push),
            Event::Withdraw(push) => {
                if self.withdraw(push) && self.waiting.remove(&push) {
                    for follower in &mut self.followers {
                        follower.leave(push);
                    }
                }
            }
            Event::Wait => self.now += Duration::from_millis(2),
            Event::ToFollower(at) => {
                self.to_followers[at].transmit();
                if let Some((number, message)) = self.to_followers[at].on_the_way.pop_front() {
                    let follower = &mut self.followers[at];
                    assert!(follower.to_leader.link.receive(number));
                    follower.receive(message);
                }
            }
            Event::ToLeader(at) => {
                self.followers[at].to_leader.transmit();
                let message = self.followers[at].to_leader.on_the_way.pop_front();
                if let Some((number, message)) = message {
                    assert!(self.to_followers[at].link.receive(number));
                    match message {
                        ToLeader::Arrived(push) => {
                            self.parts[at].insert(push);
                        }
                        ToLeader::Gone(push) => {
                            self.parts[at].remove(&push);
                        }
                        ToLeader::Prepared(attempt) => self.votes.prepare(at, attempt),
                        ToLeader::Applied(attempt) => self.votes.apply(at, attempt),
                    }
                }
            }
            Event::Cut(at) => {
                let follower = &mut self.followers[at];
                let received = follower.to_leader.link.received();
                follower.to_leader.cut(self.to_followers[at].link.received());
                self.to_followers[at].cut(received);
            }
            Event::SumOfLeader => {
                self.summed = self.listed.filter(|_| self.round.is_closed());
            }
            Event::SumOfFollower(at) => self.followers[at].sum(),
            Event::Apply(at) => self.followers[at].apply(),
            Event::Finish => {
                if self.is_committing() && self.votes.unapplied().next().is_none() {
                    let (attempt, list) = self.committed.last().cloned().unwrap();
                    for push in list {
                        self.waiting.remove(&push);
                        for parts in &mut self.parts {
                            parts.remove(&push);
                        }
                    }
                    self.listed = None;
                    self.tell(&ToFollower::End(attempt));
                    self.round.finish(self.now);
                }
            }
        }
        self.settle();
    }

    /// Checks that followers have applied nothing but what the leader has committed, once.
    fn check(&self) {
        let committed: BTreeMap<_, _> = self.committed.iter().cloned().collect();
        assert_eq!(committed.len(), self.committed.len());
        for follower in &self.followers {
            let mut seen = BTreeSet::new();
            for (attempt, list) in &follower.applied {
                assert_eq!(Some(list), committed.get(attempt), "list {attempt}");
                assert!(seen.insert(attempt), "list {attempt} was applied twice");
            }
        }
        let pushes: Vec<u8> = self.committed.iter().flat_map(|(_, list)| list.clone()).collect();
        let distinct: BTreeSet<u8> = pushes.iter().copied().collect();
        assert_eq!(distinct.len(), pushes.len(), "a push is in two committed lists");
    }
}

impl Follower {
    fn leave(&mut self, push: u8) {
        if !self.parts.contains(&push) {
            return;
        }
        self.to_leader.link.send(ToLeader::Gone(push));
        if self.lists.withdraw(&push) {
            self.parts.remove(&push);
            self.leaving.remove(&push);
        } else {
            self.leaving.insert(push);
        }
    }

    /// The pushes that waited for the decision of the leader go, unless it has committed them.
    fn release(&mut self) {
        for push in self.leaving.clone() {
            if !self.lists.is_fixed(&push) {
                self.leave(push);
            }
        }
    }

    fn receive(&mut self, message: ToFollower) {
        match message {
            ToFollower::List(attempt, list) => {
                let parts = &self.parts;
                self.lists.list(ROUND, (attempt, list), |push| parts.contains(push));
            }
            ToFollower::Commit(attempt) => {
                assert!(self.lists.commit(ROUND, attempt), "the sum of {attempt} is not complete");
            }
            ToFollower::Reopen(attempt) => drop(self.lists.end(ROUND, attempt)),
            ToFollower::End(attempt) => {
                for push in self.lists.end(ROUND, attempt) {
                    assert!(self.parts.remove(&push), "a part has gone before the end");
                    self.leaving.remove(&push);
                }
            }
        }
        self.release();
    }

    fn sum(&mut self) {
        if let Some((attempt, list)) = self.folding.take()
            && self.lists.prepare(ROUND, attempt)
        {
            self.prepared = Some((attempt, list));
            self.to_leader.link.send(ToLeader::Prepared(attempt));
        }
        self.folding = self.lists.take(ROUND).map(|(attempt, list)| (attempt, list.to_vec()));
    }

    fn apply(&mut self) {
        if let Some((attempt, list)) = self.prepared.clone()
            && self.lists.is_committed(ROUND, attempt)
        {
            self.prepared = None;
            self.to_leader.link.send(ToLeader::Applied(attempt));
            self.applied.push((attempt, list));
        }
    }
}

proptest! {
    #[test]
    fn all_servers_apply_the_lists_that_the_leader_commits(
        min in 1..4_usize,
        events in proptest::collection::vec(event(), 1..400),
    ) {
        let mut servers = Servers::new(min);
        for event in events {
            servers.happen(event);
            servers.check();
        }
        // Then everything arrives.
        for _ in 0..60 {
            for push in 0..NUM_PUSHES {
                (0..NUM_FOLLOWERS).for_each(|at| servers.happen(Event::Arrive(at, push)));
            }
            servers.happen(Event::Wait);
            servers.happen(Event::SumOfLeader);
            for at in 0..NUM_FOLLOWERS {
                (0..8).for_each(|_| servers.happen(Event::ToFollower(at)));
                servers.happen(Event::SumOfFollower(at));
                servers.happen(Event::SumOfFollower(at));
                servers.happen(Event::Apply(at));
                (0..8).for_each(|_| servers.happen(Event::ToLeader(at)));
            }
            servers.happen(Event::Finish);
            servers.check();
        }
        for follower in &servers.followers {
            prop_assert_eq!(&follower.applied, &servers.committed);
        }
        // Fewer pushes than a round needs are left.
        prop_assert!(servers.waiting.len() < min, "{:?}", servers);
    }

    /// Each message arrives once, in order, whatever is lost.
    #[test]
    fn a_link_delivers_each_message_once(
        events in proptest::collection::vec(0..4_u8, 1..200),
    ) {
        let (mut from, mut to) = (End::new(), Link::<()>::default());
        let (mut count, mut arrived) = (0_u32, Vec::new());
        let mut deliver = |from: &mut End<u32>, to: &mut Link<()>| {
            if let Some((number, message)) = from.on_the_way.pop_front() {
                prop_assert!(to.receive(number));
                prop_assert!(!to.receive(number));
                arrived.push(message);
            }
            Ok(())
        };
        for event in events {
            match event {
                0 => {
                    from.link.send(count);
                    count += 1;
                }
                1 => {
                    from.transmit();
                }
                2 => deliver(&mut from, &mut to)?,
                _ => from.cut(to.received()),
            }
        }
        while from.transmit() || !from.on_the_way.is_empty() {
            deliver(&mut from, &mut to)?;
        }
        prop_assert_eq!(arrived, (0..count).collect::<Vec<_>>());
        from.link.acknowledge(to.received());
        prop_assert!(from.link.is_idle());
    }
}

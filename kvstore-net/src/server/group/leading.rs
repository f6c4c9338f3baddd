//! What the first server does in rounds over several servers: it decides which pushes a round has,
//! and commits their list when all servers have its sum.

use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Key, Result};

use super::entrants::{OpenRound, PushPart};
use super::peers::{Follower, Part, PushId};
use super::points::{CutStep, GoingBack};
use super::{Attempt, Entrant, Fate, Group, State};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto::follower_message::Content as FromFollower;
use crate::proto::leader_message::Content as ToFollower;
use crate::proto::{self, LeaderMessage};
use crate::rules::Votes;
use crate::wire::{error_of, failure_of};

impl Group {
    /// Makes this server the leader of these followers, in the order of the list of servers.
    pub(crate) fn lead(&self, names: impl Iterator<Item = String>) {
        self.state().peers.followers = names.map(Follower::new).collect();
    }

    /// Returns the number of servers that this one leads.
    pub(crate) fn num_followers(&self) -> usize {
        self.state().peers.followers.len()
    }

    /// Returns the run of a follower, if it is known, and the number of its last message.
    pub(crate) fn known_follower(&self, number: usize) -> (u64, u64) {
        let mut state = self.state();
        let follower = state.peers.follower(number);
        follower.map_or((0, 0), |found| (found.run.unwrap_or_default(), found.link.received()))
    }

    /// Records a connection to a run of a follower, which has received the messages up to a number.
    /// Returns the number of the connection.
    pub(crate) fn connect_follower(
        &self,
        number: usize,
        start: &proto::FollowerStart,
        received: u64,
    ) -> u64 {
        self.change(|state| {
            let connection = state.peers.connect();
            let is_restarted = state.start_follower(number, start);
            let Some(follower) = state.peers.follower(number) else { return connection };
            follower.connection = Some(connection);
            follower.link.acknowledge(received);
            if is_restarted {
                state.lose_follower(number);
                state.lose_cut(number);
            }
            connection
        })
    }

    /// Records that a connection to a follower is lost.
    pub(crate) fn disconnect_follower(&self, number: usize, connection: u64) {
        self.change(|state| {
            let follower = state.peers.follower(number);
            if let Some(follower) = follower.filter(|found| found.connection == Some(connection)) {
                follower.connection = None;
                state.lose_cut(number);
            }
        });
    }

    /// Waits for a message to a follower. `sent` is the number of the last one on the connection,
    /// and `acknowledged` that of the last message of the follower which it knows to be received.
    pub(crate) async fn message_to_follower(
        &self,
        number: usize,
        (sent, acknowledged): (u64, u64),
    ) -> LeaderMessage {
        self.wait(|state| {
            let link = &state.peers.follower(number)?.link;
            let received = link.received();
            let content = link.message(sent + 1).cloned();
            let number = content.as_ref().map_or(0, |_| sent + 1);
            (content.is_some() || received != acknowledged).then_some(LeaderMessage {
                number,
                received,
                content,
            })
        })
        .await
    }

    /// Takes up a message of a follower. Returns whether it is the next one.
    pub(crate) fn receive_from_follower(
        &self,
        number: usize,
        message: proto::FollowerMessage,
    ) -> bool {
        let now = self.now();
        self.change(|state| {
            let Some(follower) = state.peers.follower(number) else { return false };
            follower.link.acknowledge(message.received);
            if message.number == 0 {
                return true;
            }
            let is_next = follower.link.receive(message.number);
            if is_next && let Some(content) = message.content {
                state.take_up(now, number, content);
            }
            is_next
        })
    }

    /// Waits until all followers have the sum of the list of a round.
    ///
    /// # Errors
    /// - The error of a follower that cannot have it.
    pub(crate) async fn prepared(&self, keys: &Arc<[Key]>, attempt: u64) -> Result<()> {
        self.wait(|state| {
            let open = state.rounds.open.get_mut(keys);
            let Some(open) = open.filter(|open| open.round.is_folding(attempt)) else {
                return Some(Ok(()));
            };
            if let Some(error) = open.failure.take() {
                return Some(Err(error));
            }
            #[cfg(test)]
            if Fault::CommitEarly.is_planted() {
                return Some(Ok(()));
            }
            open.votes.unprepared().next().is_none().then_some(Ok(()))
        })
        .await
    }

    /// Waits until all followers have applied the list of a round that is being committed.
    pub(crate) async fn applied(&self, keys: &Arc<[Key]>) {
        self.wait(|state| {
            let open = state.rounds.open.get(keys);
            open.is_none_or(|open| open.votes.unapplied().next().is_none()).then_some(())
        })
        .await;
    }

    /// Adds a push whose parts several servers have. It may have been decided before.
    pub(super) fn begin_push(&self, entrant: &Arc<Entrant>) {
        let Some(id) = entrant.id() else { return };
        self.change(|state| {
            state.rounds.by_push.insert(id.clone(), Arc::clone(entrant));
            let followers = entrant.followers().iter();
            let rejected = followers.filter_map(|number| {
                let follower = state.peers.followers.get(number.checked_sub(1)?)?;
                match follower.parts.get(id)? {
                    Part::Rejected(failure) => Some(fate_of(failure.clone(), &follower.address)),
                    Part::Here(_) => None,
                }
            });
            if let Some(outcome) = rejected.into_iter().next() {
                entrant.decide(outcome);
            }
        });
    }

    /// Ends a push whose parts several servers have, and tells the others what became of it.
    pub(super) fn end_push(&self, entrant: &Entrant, result: &Result<Fate>) {
        let Some(id) = entrant.id() else { return };
        self.change(|state| {
            state.rounds.by_push.remove(id);
            match entrant.part {
                PushPart::OfLeader(..) => {
                    for number in entrant.followers() {
                        let Some(follower) = state.peers.follower(*number) else { continue };
                        let part = follower.parts.remove(id);
                        if let Some(failure) = failure_in(result)
                            && !matches!(part, Some(Part::Rejected(_)))
                            && entrant.is_told.get().is_none()
                        {
                            let end = push_end(id, failure);
                            follower.link.send(ToFollower::PushEnd(end));
                        }
                    }
                }
                // The leader knows that the part has gone.
                PushPart::OfFollower(_) | PushPart::Complete => {}
            }
        });
    }

    /// Rejects a push before it waits for a round, at all servers.
    pub(crate) fn reject_push(&self, (part, name): (&PushPart, &str), result: &Result<Fate>) {
        if let Some(failure) = failure_in(result) {
            tracing::debug!(member = name, "a push to a round is rejected");
            self.end_part(part, failure);
        }
    }

    /// Tells the other servers that a push has failed.
    pub(crate) fn end_part(&self, part: &PushPart, failure: proto::Failure) {
        self.change(|state| match part {
            PushPart::Complete => {}
            PushPart::OfLeader(id, followers) => {
                for number in followers {
                    let Some(follower) = state.peers.follower(*number) else { continue };
                    if !matches!(follower.parts.remove(id), Some(Part::Rejected(_))) {
                        let end = push_end(id, failure.clone());
                        follower.link.send(ToFollower::PushEnd(end));
                    }
                }
            }
            PushPart::OfFollower(id) => {
                if state.peers.leader.ends.remove(id).is_none() {
                    state.peers.report_rejected(id.clone(), failure);
                }
            }
        });
    }
}

fn push_end(id: &PushId, failure: proto::Failure) -> proto::PushEnd {
    proto::PushEnd { member: Some(id.message()), failure: Some(failure) }
}

/// Returns the message for what became of a push, unless it was committed.
pub(super) fn failure_in(result: &Result<Fate>) -> Option<proto::Failure> {
    match result {
        Ok(Fate::Committed) => None,
        Ok(Fate::OutOfDate) => Some(proto::Failure { out_of_date: true, ..Default::default() }),
        Err(error) => Some(failure_of(error)),
    }
}

/// Returns what became of a push, according to another server.
pub(super) fn fate_of(failure: proto::Failure, server: &str) -> Result<Fate> {
    if failure.out_of_date {
        return Ok(Fate::OutOfDate);
    }
    Err(error_of(failure, server))
}

impl State {
    /// Takes up a message of a follower.
    fn take_up(&mut self, now: Duration, number: usize, content: FromFollower) {
        match content {
            FromFollower::Start(_) => {}
            FromFollower::Arrived(arrived) => {
                let id = PushId::of(arrived.member.clone());
                if let Some(follower) = self.peers.follower(number) {
                    follower.parts.insert(id, Part::Here(arrived));
                }
            }
            FromFollower::Gone(member) => {
                let id = PushId::of(Some(member));
                if let Some(follower) = self.peers.follower(number) {
                    follower.parts.remove(&id);
                }
                // At once: if the part comes again before its push has seen this, the follower
                // still needs another list.
                if let Some(entrant) = self.rounds.by_push.get(&id).cloned() {
                    self.withdraw(now, &entrant);
                }
            }
            FromFollower::Rejected(end) => self.reject(now, number, end),
            FromFollower::Prepared(proto::RoundAttempt { round, attempt }) => {
                if let Some(open) = self.round_mut(round) {
                    open.votes.prepare(number, attempt);
                }
            }
            FromFollower::Failed(end) => self.fail_list(number, end),
            FromFollower::CutClosed(closed) => self.close_follower(number, &closed),
            FromFollower::CutTaken(end) => self.follower_reached(number, (CutStep::Taken, end)),
            FromFollower::CutKept(end) => self.follower_reached(number, (CutStep::Kept, end)),
            FromFollower::PointRequest(_) => self.wants_point = true,
            FromFollower::Applied(end) => {
                if let Some(open) = self.round_mut(end.round) {
                    open.votes.apply(number, end.attempt);
                }
                if end.failure.is_some() {
                    self.fail_list(number, end);
                }
            }
        }
    }

    fn round_mut(&mut self, number: u64) -> Option<&mut OpenRound> {
        self.rounds.open.values_mut().find(|open| open.number == number)
    }

    fn fail_list(&mut self, number: usize, end: proto::RoundEnd) {
        let address = self.address(number);
        if let Some(open) = self.round_mut(end.round)
            && open.listed == Some(end.attempt)
        {
            let failure = end.failure.unwrap_or_default();
            open.failure.get_or_insert(error_of(failure, &address));
        }
    }

    pub(super) fn address(&self, number: usize) -> String {
        let follower = number.checked_sub(1).and_then(|index| self.peers.followers.get(index));
        follower.map_or_else(String::new, |follower| follower.address.clone())
    }

    /// Ends a push whose part a follower has rejected.
    fn reject(&mut self, now: Duration, number: usize, end: proto::PushEnd) {
        let (id, failure) = (PushId::of(end.member), end.failure.unwrap_or_default());
        let outcome = fate_of(failure.clone(), &self.address(number));
        if let Some(follower) = self.peers.follower(number) {
            follower.parts.insert(id.clone(), Part::Rejected(failure));
        }
        let Some(entrant) = self.rounds.by_push.get(&id).cloned() else { return };
        if self.withdraw(now, &entrant).is_some() {
            entrant.decide(outcome);
        }
    }

    /// A follower was restarted, so it has no parts and sums any more.
    pub(super) fn lose_follower(&mut self, number: usize) {
        if self.going_back != GoingBack::Never {
            return;
        }
        let address = self.address(number);
        let last_round = self.peers.follower(number).map_or(0, |follower| follower.last_round);
        for open in self.rounds.open.values_mut().filter(|open| open.number <= last_round) {
            open.votes.lose(number);
            let Some(attempt) = open.listed else { continue };
            let is_waited_for = open.votes.unapplied().any(|other| other == number);
            if is_waited_for && open.round.is_committing() {
                open.votes.apply(number, attempt);
                open.failure.get_or_insert_with(|| Error::Transport {
                    operation: "push to a round".to_owned(),
                    source: format!("server `{address}` was restarted during the commit").into(),
                });
            }
        }
    }

    /// Lets members repeat the pushes with parts at a follower. It may have answered them before it
    /// was restarted, and then they do not repeat those parts.
    pub(super) fn repeat_pushes(&mut self, now: Duration, number: usize) {
        let has_part = |entrant: &&Arc<Entrant>| entrant.followers().contains(&number);
        let entrants: Vec<_> = self.rounds.by_push.iter().filter(has_part).cloned().collect();
        for entrant in entrants {
            if entrant.outcome().is_none() && self.withdraw(now, &entrant).is_some() {
                entrant.decide(Ok(Fate::OutOfDate));
            }
        }
    }

    /// Returns whether all servers have their parts of a push.
    pub(super) fn has_all_parts(&self, entrant: &Entrant) -> bool {
        let PushPart::OfLeader(id, followers) = &entrant.part else { return true };
        followers.iter().all(|number| {
            let follower = number.checked_sub(1).and_then(|at| self.peers.followers.get(at));
            follower.is_some_and(|follower| follower.has(id))
        })
    }

    /// Returns whether a push must enter its round, or leave it, because its parts at other servers
    /// have come or gone.
    pub(super) fn has_other_parts(&self, entrant: &Arc<Entrant>) -> bool {
        matches!(entrant.part, PushPart::OfLeader(..))
            && self.has_all_parts(entrant) != self.is_in_round(entrant)
    }

    /// Describes which servers do not have their part of a push.
    pub(super) fn missing_parts(&self, entrant: &Entrant) -> String {
        let PushPart::OfLeader(id, followers) = &entrant.part else { return String::new() };
        let missing = followers.iter().filter_map(|number| {
            let follower = self.peers.followers.get(number.checked_sub(1)?)?;
            (!follower.has(id)).then(|| described(follower))
        });
        let missing: Vec<String> = missing.collect();
        let key = entrant.keys.first().map_or("", Key::as_str);
        format!(
            "push of `{key}` to a round: waiting until other servers have their parts: {}",
            missing.join(", ")
        )
    }

    /// Describes the servers without the sum of a list.
    pub(super) fn unprepared(&self, keys: &Arc<[Key]>) -> String {
        let open = self.rounds.open.get(keys).filter(|open| open.listed.is_some());
        let Some(open) = open else { return String::new() };
        let missing = open
            .votes
            .unprepared()
            .filter_map(|number| self.peers.followers.get(number.checked_sub(1)?).map(described));
        let missing: Vec<String> = missing.collect();
        if missing.is_empty() {
            return String::new();
        }
        format!(", waiting for the sums of other servers: {}", missing.join(", "))
    }

    /// Returns the first key at a follower for which a push is late, because its round has closed,
    /// with the version that the push is based on and the newest one.
    pub(super) fn late_at_followers(&self, entrant: &Entrant) -> Option<(Key, u64, u64)> {
        let PushPart::OfLeader(id, followers) = &entrant.part else { return None };
        #[cfg(test)]
        if Fault::AcceptLate.is_planted() {
            return None;
        }
        if entrant.rule.keeps_late || !self.is_closed(entrant) {
            return None;
        }
        followers.iter().find_map(|number| {
            let follower = self.peers.followers.get(number.checked_sub(1)?)?;
            match follower.parts.get(id)? {
                Part::Here(part) => Some((Key::new(&part.key).ok()?, part.based_on, part.newest)),
                Part::Rejected(_) => None,
            }
        })
    }

    /// Ends pushes of the same keys that are at other servers than this one. A key has been
    /// replaced since, so their members must ask for its layout again.
    pub(super) fn replace_outdated(&mut self, now: Duration, entrant: &Entrant) {
        let Some(open) = self.rounds.open.get(&entrant.keys) else { return };
        let is_outdated = |other: &&Arc<Entrant>| other.followers() != entrant.followers();
        let outdated: Vec<_> = open.entrants.values().filter(is_outdated).cloned().collect();
        for other in outdated {
            if self.withdraw(now, &other).is_some() {
                other.decide(Ok(Fate::OutOfDate));
            }
        }
    }

    /// Sends a list to the followers that have parts of its pushes.
    pub(super) fn list_on_followers(&mut self, keys: &Arc<[Key]>, list: &Attempt) {
        let followers = list.members.first().map_or(&[][..], |member| member.followers());
        if followers.is_empty() {
            return;
        }
        let is_other = self.rounds.open.get(keys).is_some_and(|open| {
            open.listed.is_some() && !open.votes.followers().eq(followers.iter().copied())
        });
        if is_other {
            self.release_followers(keys);
        }
        let Some(open) = self.rounds.open.get_mut(keys) else { return };
        open.votes = Votes::new(followers.iter().copied());
        open.votes.begin(list.number);
        open.listed = Some(list.number);
        open.failure = None;
        let members = list.members.iter().filter_map(|member| member.id().map(PushId::message));
        let members: Vec<_> = members.collect();
        for number in followers {
            let (round, attempt, members) = (open.number, list.number, members.clone());
            let list = proto::RoundList { round, attempt, members };
            self.peers.tell(*number, ToFollower::List(list));
        }
    }

    /// Tells the followers to apply a list. Returns whether there are any.
    pub(super) fn commit_on_followers(&mut self, keys: &Arc<[Key]>) -> bool {
        let Some((open, attempt)) = listed(self.rounds.open.get_mut(keys)) else { return false };
        for number in open.votes.followers() {
            let commit = proto::RoundAttempt { round: open.number, attempt };
            self.peers.tell(number, ToFollower::Commit(commit));
        }
        true
    }

    /// Tells the followers that a list which they may have is not needed, if its round is open
    /// again.
    pub(super) fn reopen_on_followers(&mut self, keys: &Arc<[Key]>) {
        if self.rounds.open.get(keys).is_some_and(|open| !open.round.is_closed()) {
            self.release_followers(keys);
        }
    }

    fn release_followers(&mut self, keys: &Arc<[Key]>) {
        let Some((open, attempt)) = listed(self.rounds.open.get_mut(keys)) else { return };
        open.listed = None;
        for number in open.votes.followers() {
            let reopen = proto::RoundAttempt { round: open.number, attempt };
            self.peers.tell(number, ToFollower::Reopen(reopen));
        }
    }

    /// Tells the followers what became of a list.
    pub(super) fn end_on_followers(&mut self, keys: &Arc<[Key]>, error: Option<&Error>) {
        let Some((open, attempt)) = listed(self.rounds.open.get_mut(keys)) else { return };
        open.listed = None;
        for member in open.round.members().filter_map(|name| open.entrants.get(name)) {
            let _ = member.is_told.set(());
        }
        for number in open.votes.followers() {
            let failure = error.map(failure_of);
            let end = proto::RoundEnd { round: open.number, attempt, failure };
            self.peers.tell(number, ToFollower::End(end));
        }
    }
}

fn listed(open: Option<&mut OpenRound>) -> Option<(&mut OpenRound, u64)> {
    let open = open?;
    let attempt = open.listed?;
    Some((open, attempt))
}

fn described(follower: &Follower) -> String {
    let address = &follower.address;
    match follower.connection {
        Some(_) => format!("`{address}`"),
        None => format!("`{address}` (not connected)"),
    }
}

//! What a server does in rounds over several servers if it is not the first one: it reports the
//! parts of pushes, sums those in a list of the leader, and applies the sum when the leader commits
//! the list.

use std::sync::Arc;

use kvstore_core::{Error, Key, Result};

use super::entrants::PushPart;
use super::leading::{failure_in, fate_of};
use super::peers::{Decision, Followup, Leader, PushId};
use super::points::GoingBack;
use super::{Attempt, Entrant, Fate, Group, State};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto::follower_message::Content as ToLeader;
use crate::proto::leader_message::Content as FromLeader;
use crate::proto::{self, FollowerMessage};
use crate::wire::failure_of;

impl Group {
    /// Records a connection of a run of the leader, which has received messages of the run
    /// `follower_run` of this server up to a number. Returns the number of the connection, and that
    /// of the last message that was received, or `None` if there is a later run of the leader.
    pub(crate) fn connect_leader(
        &self,
        (own_run, rewound_by): (u64, u64),
        start: &proto::LeaderStart,
        received: u64,
    ) -> Option<(u64, u64)> {
        self.change(|state| {
            let known = state.peers.leader.run;
            if known.is_some_and(|known| known > start.run) {
                return None;
            }
            if known.is_some_and(|known| known != start.run) {
                state.lose_leader(start.goes_back);
            }
            // The leader has given the cut up when it lost the earlier connection.
            state.cancel_cut(None);
            let connection = state.peers.connect();
            let leader = &mut state.peers.leader;
            leader.run = Some(start.run);
            leader.is_elsewhere = start.rewound_by != rewound_by;
            leader.connection = Some(connection);
            if start.follower_run == own_run {
                leader.link.acknowledge(received);
            }
            Some((connection, leader.link.received()))
        })
    }

    /// Records that a connection of the leader is lost.
    pub(crate) fn disconnect_leader(&self, connection: u64) {
        self.change(|state| {
            let leader = &mut state.peers.leader;
            if leader.connection == Some(connection) {
                leader.connection = None;
                state.cancel_cut(None);
            }
        });
    }

    /// Waits for a message to the leader: see [`Group::message_to_follower`]. Returns `None` if
    /// there is another connection.
    pub(crate) async fn message_to_leader(
        &self,
        connection: u64,
        (sent, acknowledged): (u64, u64),
    ) -> Option<FollowerMessage> {
        self.wait(|state| {
            let leader = &state.peers.leader;
            if leader.connection != Some(connection) {
                return Some(None);
            }
            let received = leader.link.received();
            let content = leader.link.message(sent + 1).cloned();
            let number = content.as_ref().map_or(0, |_| sent + 1);
            let message = FollowerMessage { number, received, content };
            (message.content.is_some() || received != acknowledged).then_some(Some(message))
        })
        .await
    }

    /// Takes up a message of the leader. Returns whether it is the next one, and what this server
    /// does now.
    pub(crate) fn receive_from_leader(
        &self,
        connection: u64,
        message: proto::LeaderMessage,
    ) -> (bool, Option<Followup>) {
        self.change(|state| {
            let leader = &mut state.peers.leader;
            if leader.connection != Some(connection) {
                return (false, None);
            }
            leader.link.acknowledge(message.received);
            if message.number == 0 {
                return (true, None);
            }
            let is_next = leader.link.receive(message.number);
            let content = message.content.filter(|_| is_next);
            (is_next, content.and_then(|content| state.follow(content)))
        })
    }

    /// Waits for a list of a round. Returns `None` if the round has ended.
    pub(crate) async fn followed_list(&self, round: u64) -> Option<Attempt> {
        self.wait(|state| {
            if !state.rounds.lists.has(round) {
                return Some(None);
            }
            let (number, pushes) = state.rounds.lists.take(round)?;
            let members = pushes.iter().map(|push| state.rounds.by_push.get(push).cloned());
            let members = members.collect::<Option<_>>()?;
            Some(Some(Attempt { number, members }))
        })
        .await
    }

    /// Waits until a list need not be summed any more.
    pub(crate) async fn replaced_list(&self, round: u64, attempt: u64) {
        self.wait(|state| (!state.rounds.lists.is_folding(round, attempt)).then_some(())).await;
    }

    /// Fails the push of a member whose data are wrong, at all servers.
    pub(crate) fn fail_part(&self, entrant: &Arc<Entrant>, outcome: Result<Fate>) {
        self.change(|state| state.reject_part(entrant, outcome));
    }

    /// Tells the leader that there is no sum of a list.
    pub(crate) fn fail_list(&self, round: u64, attempt: u64, error: &Error) {
        self.change(|state| {
            if state.rounds.lists.prepare(round, attempt) {
                let failure = Some(failure_of(error));
                let end = proto::RoundEnd { round, attempt, failure };
                state.peers.report(ToLeader::Failed(end));
            }
        });
    }

    /// Tells the leader that the sum of a list is complete. Waits for its decision.
    pub(crate) async fn decision(&self, round: u64, attempt: u64) -> Decision {
        let prepared = |state: &mut State| {
            let is_current = state.rounds.lists.prepare(round, attempt);
            if is_current {
                let prepared = proto::RoundAttempt { round, attempt };
                state.peers.report(ToLeader::Prepared(prepared));
            }
            is_current
        };
        if !self.change(prepared) {
            return Decision::Replaced;
        }
        #[cfg(test)]
        if Fault::ApplyEarly.is_planted() {
            return Decision::Commit;
        }
        self.wait(|state| {
            if state.rounds.lists.is_committed(round, attempt) {
                return Some(Decision::Commit);
            }
            let waits = state.rounds.lists.is_prepared(round, attempt);
            (!waits).then_some(Decision::Replaced)
        })
        .await
    }

    /// Records that a list was applied, and tells the leader. Pushes that are late now are rejected
    /// before.
    pub(crate) fn finish_list(
        &self,
        (round, attempt): (u64, u64),
        members: &[Arc<Entrant>],
        outcome: &Result<()>,
    ) {
        self.change(|state| {
            if outcome.is_ok() {
                state.rounds.counts.committed += 1;
                state.reject_late(members);
            }
            let failure = outcome.as_ref().err().map(failure_of);
            let is_committed = state.rounds.lists.is_committed(round, attempt);
            #[cfg(test)]
            let is_committed = is_committed || Fault::ApplyEarly.is_planted();
            if is_committed {
                let end = proto::RoundEnd { round, attempt, failure };
                state.peers.report(ToLeader::Applied(end));
            }
        });
    }

    /// Fails a round whose task has panicked.
    pub(crate) fn abandon_list(&self, round: u64, error: &Error) {
        self.change(|state| {
            let Some((attempt, _)) = state.rounds.lists.newest(round) else { return };
            let failure = Some(failure_of(error));
            let end = proto::RoundEnd { round, attempt, failure };
            state.peers.report(ToLeader::Applied(end));
        });
    }
}

impl State {
    /// Takes up a message of the leader. Returns what this server does now.
    fn follow(&mut self, content: FromLeader) -> Option<Followup> {
        match content {
            FromLeader::Start(_) => {}
            FromLeader::List(_)
            | FromLeader::Commit(_)
            | FromLeader::Reopen(_)
            | FromLeader::End(_)
            | FromLeader::PushEnd(_)
                if self.peers.leader.is_elsewhere => {}
            FromLeader::List(proto::RoundList { round, attempt, members }) => {
                let pushes: Vec<_> =
                    members.into_iter().map(|member| PushId::of(Some(member))).collect();
                let by_push = &self.rounds.by_push;
                let is_here = |push: &PushId| {
                    by_push.get(push).is_some_and(|entrant| entrant.outcome().is_none())
                };
                #[cfg(test)]
                let pushes = match self.rounds.lists.newest(round) {
                    Some((_, old))
                        if Fault::KeepOldList.is_planted() && old.iter().all(is_here) =>
                    {
                        Vec::from(old)
                    }
                    _ => pushes,
                };
                let is_new = self.rounds.lists.list(round, (attempt, pushes), is_here);
                return is_new.then_some(Followup::Round(round));
            }
            FromLeader::Commit(proto::RoundAttempt { round, attempt }) => {
                if !self.rounds.lists.commit(round, attempt) {
                    tracing::error!(round, attempt, "the leader commits a list without its sum");
                }
            }
            FromLeader::Reopen(proto::RoundAttempt { round, attempt }) => {
                self.rounds.lists.end(round, attempt);
            }
            FromLeader::End(proto::RoundEnd { round, attempt, failure }) => {
                for push in self.rounds.lists.end(round, attempt) {
                    let Some(entrant) = self.rounds.by_push.get(&push) else { continue };
                    entrant.decide(match &failure {
                        None => Ok(Fate::Committed),
                        Some(failure) => fate_of(failure.clone(), "the first server"),
                    });
                }
            }
            FromLeader::PushEnd(end) => {
                let (id, failure) = (PushId::of(end.member), end.failure.unwrap_or_default());
                match self.rounds.by_push.get(&id).cloned() {
                    Some(entrant) => {
                        entrant.decide(fate_of(failure, "the first server"));
                        // Its part may have arrived after the leader has decided.
                        self.peers.report(ToLeader::Gone(id.message()));
                    }
                    None => self.peers.leader.ends.insert(id, failure),
                }
            }
            FromLeader::CutStart(proto::CutStart { number }) if self.peers.leader.is_elsewhere => {
                let source = "the server goes back to a recovery point".into();
                let operation = "a snapshot or recovery point".to_owned();
                let failure = failure_of(&Error::Transport { operation, source });
                let end = proto::CutEnd { number, failure: Some(failure) };
                self.peers.report(ToLeader::CutTaken(end));
            }
            FromLeader::CutStart(proto::CutStart { number }) => {
                self.follow_cut(number);
                return Some(Followup::Close(number));
            }
            FromLeader::Cut(cut) => {
                if self.follow_joint_calls(&cut) {
                    return Some(Followup::Take(cut));
                }
            }
            FromLeader::CutComplete(complete) => self.follow_complete_cut(complete),
            FromLeader::CutCancelled(proto::CutCancelled { number }) => {
                self.cancel_cut(Some(number));
            }
            FromLeader::Rewind(rewind) => return Some(Followup::Rewind(rewind)),
        }
        None
    }

    /// The leader was restarted. It knows none of the pushes, so their members repeat them. If all
    /// servers go back to a recovery point, or have just done so, this server reports the pushes
    /// again, and those that it has committed wait until the servers go back. After a restart of a
    /// leader that has lost its points, they do not: then `goes_back` is false.
    fn lose_leader(&mut self, goes_back: bool) {
        self.peers.leader = Leader::default();
        self.peers.report_all_rejected();
        let restarted = || Error::Transport {
            operation: "push to a round".to_owned(),
            source: "the first server was restarted during the commit".into(),
        };
        let entrants: Vec<_> = self.rounds.by_push.iter().cloned().collect();
        let is_committed = |entrant: &&Arc<Entrant>| {
            entrant.id().is_some_and(|id| self.rounds.lists.is_in_committed(id))
        };
        let (committed, others): (Vec<_>, Vec<_>) = entrants.iter().partition(is_committed);
        self.rounds.lists.clear();
        if goes_back && self.going_back != GoingBack::Never {
            for entrant in others.into_iter().filter(|entrant| entrant.outcome().is_none()) {
                self.report_part(entrant);
            }
            return;
        }
        for entrant in committed {
            entrant.decide(Err(restarted()));
        }
        for entrant in &entrants {
            self.reject_part(entrant, Ok(Fate::OutOfDate));
        }
    }

    /// Adds a part of a push, and reports it to the leader.
    pub(super) fn report_part(&mut self, entrant: &Arc<Entrant>) {
        let Some(id) = entrant.id().cloned() else { return };
        if let Some(failure) = self.peers.leader.ends.remove(&id) {
            entrant.decide(fate_of(failure, "the first server"));
        }
        if entrant.outcome().is_some() {
            return;
        }
        if let Some((key, based_on)) = self.late(entrant) {
            let newest = self.versions.version(&key);
            let error = self.late_push(entrant, (key, based_on, newest));
            self.reject_part(entrant, Err(error));
            return;
        }
        let mut arrived = proto::PartArrived { member: Some(id.message()), ..Default::default() };
        if let Some((key, based_on)) = self.based_on(entrant).next() {
            key.as_str().clone_into(&mut arrived.key);
            (arrived.based_on, arrived.newest) = (based_on, self.versions.version(key));
        }
        self.rounds.by_push.insert(id, Arc::clone(entrant));
        self.peers.report(ToLeader::Arrived(arrived));
    }

    /// Returns whether a push that could not be withdrawn before can be now.
    pub(super) fn may_withdraw(&self, entrant: &Entrant) -> bool {
        match &entrant.part {
            PushPart::OfFollower(id) => !self.rounds.lists.is_fixed(id),
            PushPart::OfLeader(..) | PushPart::Complete => false,
        }
    }

    /// Removes the part of a push. Returns a description of what it waited for, or `None` if it is
    /// in a list whose sum is complete. Then the leader decides.
    pub(super) fn withdraw_part(&mut self, entrant: &Entrant) -> Option<String> {
        let id = entrant.id()?;
        self.peers.report(ToLeader::Gone(id.message()));
        if !self.rounds.lists.withdraw(id) {
            return None;
        }
        self.rounds.by_push.remove(id);
        let key = entrant.keys.first().map_or("", Key::as_str);
        let state = match self.peers.leader.connection {
            Some(_) => "",
            None => ", which is not connected to this one",
        };
        Some(format!("push of `{key}` to a round: waiting for the first server{state}"))
    }

    /// Ends a push, and tells the leader.
    fn reject_part(&mut self, entrant: &Arc<Entrant>, outcome: Result<Fate>) {
        let Some(id) = entrant.id() else { return };
        if entrant.outcome().is_some() || !self.rounds.lists.withdraw(id) {
            return;
        }
        if let Some(failure) = failure_in(&outcome) {
            self.peers.report_rejected(id.clone(), failure);
        }
        entrant.decide(outcome);
    }

    /// Rejects the pushes that are not based on the values after a round of these members.
    fn reject_late(&mut self, members: &[Arc<Entrant>]) {
        let Some(first) = members.first() else { return };
        let is_other = |other: &&Arc<Entrant>| {
            let is_member = members.iter().any(|member| Arc::ptr_eq(member, other));
            !is_member && first.held.iter().any(|key| other.held.contains(key))
        };
        let others: Vec<_> = self.rounds.by_push.iter().filter(is_other).cloned().collect();
        for other in others {
            if let Some((key, based_on)) = self.late(&other) {
                let newest = self.versions.version(&key);
                let error = self.late_push(&other, (key, based_on, newest));
                self.reject_part(&other, Err(error));
            }
        }
    }
}

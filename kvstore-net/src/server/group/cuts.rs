//! [`Cut`]: when the states of all servers of a group are taken, so that together they are one
//! consistent cut.
//!
//! The first server leads. It commits no rounds meanwhile. No call takes effect between the moment
//! when all servers have closed and that when a server takes its state, except those of operations
//! that another server has in its state.

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;
use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::time::Instant;

use super::peers::Follower;
use super::points::{
    Admission, Closed, ClosedState, Cut, CutStep, GoingBack, absent, cancelled, lost, restarted,
};
use super::{Caller, Group, State};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto::follower_message::Content as ToLeader;
use crate::proto::leader_message::Content as ToFollower;
use crate::proto::{self, CutStart, JointCall, JointOperation};
use crate::rules::{JointId, JointServers, Member, made_elsewhere};
use crate::wire::{error_of, failure_of};

/// How long a member may be absent during a joint operation until the servers make recovery points
/// with a part of it. Until then, they make none.
const LONGEST_ABSENCE: Duration = Duration::from_secs(60);

/// Cancels a cut when it is dropped, for example by a panic.
pub(crate) struct CancelCut<'a> {
    group: &'a Group,
    number: u64,
}

impl Drop for CancelCut<'_> {
    fn drop(&mut self) {
        self.group.end_cut(self.number, true);
    }
}

fn id_of(message: &JointOperation) -> JointId {
    let JointOperation { name, process, number, .. } = message;
    JointId { name: name.clone(), process: *process, number: *number }
}

fn message_of(JointId { name, process, number }: JointId, servers: JointServers) -> JointOperation {
    JointOperation { name, process, number, servers: servers.into_iter().collect() }
}

impl Group {
    /// Returns whether a call may take effect now.
    ///
    /// # Errors
    /// - [`Error::Transport`] if it is too late for a joint call.
    /// - [`Error::Closed`] if the process of a joint call is not a member any more.
    pub(crate) fn admits(&self, caller: &Caller, joint: Option<&JointCall>) -> Result<Admission> {
        let state = self.state();
        let id = state.joint_id(caller, joint)?;
        if id.as_ref().is_some_and(|id| state.joint.is_given_up(id)) {
            return Err(Error::Transport {
                operation: "a call for several servers".to_owned(),
                source: "the process was not connected for so long that the servers continued \
                         with a part of it"
                    .into(),
            });
        }
        Ok(if state.admits(caller, joint) { Admission::Now(id) } else { Admission::Later })
    }

    /// Waits until a call may take effect.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long.
    pub(crate) async fn admitted(
        &self,
        caller: &Caller,
        joint: Option<&JointCall>,
        deadline: Instant,
    ) -> Result<()> {
        let admitted = self.find(deadline, |state| state.admits(caller, joint).then_some(()));
        let late = || {
            let text = "waiting for a recovery point of all servers, or for the end of an earlier \
                        push of this process to several servers";
            Error::Timeout(text.to_owned())
        };
        admitted.await.ok_or_else(late)
    }

    /// Records that a call of a joint operation was made, unless its process is not known any more.
    pub(crate) fn make_joint(&self, id: JointId, joint: &JointCall) {
        let servers = joint.servers.iter().copied().collect();
        self.change(|state| {
            let Some(member) = state.members.get(&id.name) else { return };
            let is_replaced = || state.members.replaced(&id.name).contains(&id.process);
            // Other servers may still wait for the call of a process whose name was taken here.
            if member.process() == id.process || is_replaced() && !state.joint.has_other(&id) {
                state.joint.make(id, joint.ended_below, servers);
            }
        });
    }

    /// Records that the operations of a member below a number have ended.
    pub(crate) fn end_joint(&self, (name, incarnation): (&str, u64), ended_below: u64) {
        let has_room = {
            let mut state = self.state();
            let member = state.members.get(name);
            // Another process may have taken the name.
            let member = member.filter(|member| member.incarnation == incarnation);
            let process = member.map(Member::process);
            process.is_some_and(|process| state.joint.end(name, process, ended_below))
        };
        if has_room {
            // Wakes the calls that wait for it.
            self.change(|_| ());
        }
    }

    /// Returns what this server has made, for [`CutStep::Closed`].
    fn made(&self) -> BTreeMap<JointId, JointServers> {
        let state = self.state();
        state.joint.made().map(|(id, servers)| (id, servers.clone())).collect()
    }

    /// Waits until no other cut is being made. None is until the result is dropped.
    pub(crate) async fn one_cut(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.cutting.lock().await
    }

    /// Begins a cut for a snapshot. This server leads it: from now on, it commits no rounds and
    /// lets no call take effect. `newest` is the largest number of a point of this server. Returns
    /// the number of the cut, which no other one and no point has.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a follower is not connected, or was restarted, so that all servers
    ///   go back to a recovery point.
    pub(crate) fn begin_snapshot(&self, newest: u64) -> Result<u64> {
        self.change(|state| {
            let goes_back = state.going_back != GoingBack::Never;
            state.check_followers(|follower| goes_back && follower.is_restarted)?;
            Ok(state.begin_cut(newest))
        })
    }

    /// Like [`Group::begin_snapshot`], for a recovery point.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a follower is not connected, was restarted, or has not followed
    ///   the rewind `rewound_by` of this server.
    /// - [`Error::Timeout`] if a follower still writes its last point.
    pub(crate) fn begin_point(&self, newest: u64, rewound_by: u64) -> Result<u64> {
        self.change(|state| {
            let is_other =
                |follower: &Follower| follower.is_restarted || follower.rewound_by != rewound_by;
            state.check_followers(is_other)?;
            if state.may_learn_of_points() {
                let text = "a recovery point of all servers: one still writes the last one";
                return Err(Error::Timeout(text.to_owned()));
            }
            Ok(state.begin_cut(newest))
        })
    }

    /// Returns whether a follower may have a point that this server does not know of yet.
    pub(crate) fn may_learn_of_points(&self) -> bool {
        self.state().may_learn_of_points()
    }

    /// Waits until this server knows all points of its followers, or one is not connected.
    pub(crate) async fn points_known(&self) {
        self.wait(|state| {
            let is_lost = state.peers.followers.iter().any(|one| one.connection.is_none());
            (is_lost || !state.may_learn_of_points()).then_some(())
        })
        .await;
    }

    /// Waits until no round is being committed. Then the followers let no call take effect.
    pub(crate) async fn start_cut(&self, number: u64) {
        self.wait(|state| {
            let mut rounds = state.rounds.open.values();
            (!rounds.any(|open| open.round.is_committing())).then_some(())
        })
        .await;
        self.change(|state| state.tell_all(&ToFollower::CutStart(CutStart { number })));
    }

    /// Waits until all followers have made a step of a cut.
    ///
    /// # Errors
    /// - The error of a follower.
    pub(crate) async fn cut_reached(&self, number: u64, step: CutStep) -> Result<()> {
        self.wait(|state| {
            let num_followers = state.peers.followers.len();
            let cut = state.cut.as_mut().filter(|cut| cut.number == number);
            let Some(cut) = cut else { return Some(Err(cancelled())) };
            let num_done = match step {
                CutStep::Closed => cut.closed.len(),
                CutStep::Taken => cut.taken.len(),
                CutStep::Kept => cut.kept.len(),
            };
            if num_done == num_followers {
                return Some(Ok(()));
            }
            cut.failure.take().map(Err)
        })
        .await
    }

    /// Returns whether no server has changed since the point `common`, which all have. `own` is the
    /// state of this server.
    pub(crate) fn is_unchanged(&self, number: u64, common: u64, own: ClosedState) -> bool {
        let is_same = |state: ClosedState| state.same_as == common && !state.adds_keys;
        common != 0 && is_same(own) && self.all_closed(number, is_same)
    }

    /// Returns whether keys are being added at a follower.
    pub(crate) fn add_keys(&self, number: u64) -> bool {
        !self.all_closed(number, |state| !state.adds_keys)
    }

    fn all_closed(&self, number: u64, is_so: impl Fn(ClosedState) -> bool) -> bool {
        let state = self.state();
        let cut = state.cut.as_ref().filter(|cut| cut.number == number);
        cut.is_some_and(|cut| cut.closed.values().all(|closed| is_so(closed.state)))
    }

    /// Tells each server which joint calls it makes before it takes its state, and the rest of
    /// `message`.
    pub(crate) fn cut(&self, message: &proto::Cut) {
        let own = self.made();
        self.change(|state| {
            let number = message.number;
            let Some(cut) = state.cut.as_mut().filter(|cut| cut.number == number) else { return };
            let mut made = Vec::from([own]);
            made.extend(std::mem::take(&mut cut.closed).into_values().map(|closed| closed.made));
            let mut missing = made_elsewhere(&made).into_iter();
            cut.made_elsewhere = Some(missing.next().unwrap_or_default());
            #[cfg(test)]
            if Fault::CutJointCalls.is_planted() {
                cut.made_elsewhere = Some(BTreeSet::new());
                missing = missing.map(|_| BTreeSet::new()).collect::<Vec<_>>().into_iter();
            }
            for (follower, missing) in (1..).zip(missing) {
                let missing = missing.into_iter().map(|id| message_of(id, JointServers::new()));
                let made_elsewhere = missing.collect();
                let cut = proto::Cut { made_elsewhere, ..message.clone() };
                state.peers.tell(follower, ToFollower::Cut(cut));
            }
        });
    }

    /// Waits until this server has made the joint calls that others have made. Gives up those of
    /// members that have not been connected for long.
    ///
    /// # Errors
    /// - [`Error::Transport`] if such a member is not connected.
    /// - [`Error::Timeout`] if the cut was cancelled.
    pub(crate) async fn joint_calls_made(&self, number: u64) -> Result<()> {
        self.wait(|state| {
            let cut = state.cut.as_ref().filter(|cut| cut.number == number);
            let Some(cut) = cut else { return Some(Err(cancelled())) };
            let (now, mut gone, mut is_waiting) = (self.now(), Vec::new(), false);
            for id in cut.made_elsewhere.as_ref()? {
                if state.joint.is_made(id) || state.joint.is_given_up(id) {
                    continue;
                }
                let is_replaced = state.members.replaced(&id.name).contains(&id.process);
                let has_left =
                    |(name, process): &(String, u64)| (name, *process) == (&id.name, id.process);
                if is_replaced || state.left.iter().any(has_left) {
                    // Its calls are rejected. A process that has not joined yet is waited for.
                    continue;
                }
                match state.members.dead_for(now, &id.name, id.process) {
                    None => is_waiting = true,
                    Some(_) if state.is_leaving(&id.name, id.process) => is_waiting = true,
                    Some(since) if since >= LONGEST_ABSENCE => gone.push(id.clone()),
                    Some(_) => return Some(Err(absent(&id.name))),
                }
            }
            if is_waiting {
                return None;
            }
            for id in gone {
                tracing::warn!(member = id.name, "a call for several servers is given up here");
                state.joint.give_up(id);
            }
            Some(Ok(()))
        })
        .await
    }

    /// Lets calls take effect again, because this server has its state.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the cut was cancelled.
    pub(crate) fn take_cut(&self, number: u64) -> Result<()> {
        self.change(|state| {
            let cut = state.cut.as_mut().filter(|cut| cut.number == number);
            cut.map(|cut| cut.is_taken = true).ok_or_else(cancelled)
        })
    }

    /// Lets this server commit rounds again, because all servers have their states, and tells the
    /// others to write theirs. All have the point `common`, or it is 0.
    pub(crate) fn complete_cut(&self, number: u64, common: u64) {
        self.change(|state| {
            if let Some(cut) = state.cut.as_mut().filter(|cut| cut.number == number) {
                cut.complete = Some(common);
            }
            for follower in &mut state.peers.followers {
                // A follower keeps its newest one, too, but this server may not know it.
                follower.points.retain(|point| *point == common);
                follower.writes = Some(number);
            }
            state.tell_all(&ToFollower::CutComplete(proto::CutComplete { number, common }));
        });
    }

    /// Waits until all servers have their states. Returns the point that all have, or `None` if the
    /// cut has ended.
    pub(crate) async fn cut_complete(&self, number: u64) -> Option<u64> {
        self.wait(|state| match state.cut.as_ref().filter(|cut| cut.number == number) {
            Some(cut) => cut.complete.map(Some),
            None => Some(None),
        })
        .await
    }

    /// Ends a cut that this server has followed until it was complete. Returns whether it has not
    /// ended before.
    pub(crate) fn end_followed_cut(&self, number: u64) -> bool {
        self.change(|state| state.cut.take_if(|cut| cut.number == number).is_some())
    }

    /// Waits until a cut has ended.
    pub(crate) async fn cut_ended(&self, number: u64) {
        let is_over = |state: &State| state.cut.as_ref().is_none_or(|cut| cut.number != number);
        self.wait(|state| is_over(state).then_some(())).await;
    }

    /// Ends a cut that this server leads.
    pub(crate) fn end_cut(&self, number: u64, is_cancelled: bool) {
        self.change(|state| {
            if state.cut.take_if(|cut| cut.number == number).is_some() && is_cancelled {
                let cancelled = proto::CutCancelled { number };
                state.tell_all(&ToFollower::CutCancelled(cancelled));
            }
        });
    }

    /// Cancels a cut that this server leads when the result is dropped, if it has not ended before.
    pub(crate) fn cancel_at_end(&self, number: u64) -> CancelCut<'_> {
        CancelCut { group: self, number }
    }

    /// Tells the leader that no more calls take effect here.
    pub(crate) fn report_closed(&self, number: u64, unchanged: ClosedState) {
        let made = self.made().into_iter().map(|(id, servers)| message_of(id, servers)).collect();
        self.change(|state| {
            if state.cut.as_ref().is_some_and(|cut| cut.number == number) {
                let ClosedState { same_as, adds_keys } = unchanged;
                let closed = proto::CutClosed { number, made, same_as, adds_keys };
                state.peers.report(ToLeader::CutClosed(closed));
            }
        });
    }

    /// Tells the leader that this server has its state, or why not. Then calls take effect again.
    /// If the state `is_written` when all servers have theirs, this server follows the cut until
    /// then.
    pub(crate) fn report_taken(&self, number: u64, result: &Result<()>, is_written: bool) {
        let has_ended = result.is_err() || !is_written;
        self.change(|state| {
            state.cut.take_if(|cut| cut.number == number && has_ended);
            state.peers.report(ToLeader::CutTaken(cut_end(number, result)));
        });
    }

    /// Tells the leader that the recovery point is written, or why not.
    pub(crate) fn report_kept(&self, number: u64, result: &Result<()>) {
        self.change(|state| state.peers.report(ToLeader::CutKept(cut_end(number, result))));
    }

    /// Returns the incarnation of a member, if this process has the name.
    ///
    /// # Errors
    /// - [`Error::Transport`] otherwise.
    pub(crate) fn incarnation_of(&self, name: &str, process: u64) -> Result<u64> {
        let state = self.state();
        let member = state.members.get(name).filter(|member| member.process() == process);
        member.map(|member| member.incarnation).ok_or_else(|| Error::Transport {
            operation: "a snapshot of all servers".to_owned(),
            source: format!("member `{name}` is not connected to all servers").into(),
        })
    }

    /// Ends a cut that the leader does not end, unless this server has its state.
    pub(crate) fn give_up_closed_cut(&self, number: u64) {
        self.change(|state| state.cut.take_if(|cut| cut.number == number && !cut.is_taken));
    }

    /// Ends a cut that the leader does not end.
    pub(crate) fn give_up_cut(&self, number: u64) {
        self.change(|state| state.cancel_cut(Some(number)));
    }

    /// Asks the leader for a recovery point, if this server follows one. Returns whether it does.
    pub(crate) fn request_point(&self) -> bool {
        self.change(|state| {
            let is_led = state.peers.leader.run.is_some();
            if is_led {
                state.peers.report(ToLeader::PointRequest(proto::PointRequest {}));
            }
            is_led
        })
    }

    /// Returns whether this server follows another one.
    pub(crate) fn is_led(&self) -> bool {
        self.state().peers.leader.run.is_some()
    }

    /// Waits until a follower needs a recovery point.
    pub(crate) async fn point_requested(&self) {
        self.wait(|state| std::mem::take(&mut state.wants_point).then_some(())).await;
    }
}

impl State {
    /// # Errors
    /// - [`Error::Transport`] if a follower is not connected or `is_elsewhere`.
    fn check_followers(&self, is_elsewhere: impl Fn(&Follower) -> bool) -> Result<()> {
        for follower in &self.peers.followers {
            if follower.connection.is_none() {
                return Err(lost(&follower.address));
            }
            if is_elsewhere(follower) {
                return Err(restarted(&follower.address));
            }
        }
        Ok(())
    }

    /// Begins a cut, whose number is larger than `newest` and than those of all cuts and points.
    fn begin_cut(&mut self, newest: u64) -> u64 {
        let known = self.peers.followers.iter().map(|follower| follower.newest_point);
        self.last_cut = known.fold(self.last_cut.max(newest), u64::max) + 1;
        self.cut = Some(Cut::new(self.last_cut));
        self.last_cut
    }

    fn may_learn_of_points(&self) -> bool {
        self.peers.followers.iter().any(|follower| follower.writes.is_some())
    }

    /// Returns the operation of a joint call.
    ///
    /// # Errors
    /// - [`Error::Closed`] if its process is not a member any more. If another process has the
    ///   name, the call would otherwise count as a call of that process.
    fn joint_id(&self, caller: &Caller, joint: Option<&JointCall>) -> Result<Option<JointId>> {
        let Some(joint) = joint else { return Ok(None) };
        let is_current = |member: &&Member| member.incarnation == caller.incarnation;
        let member =
            self.members.get(&caller.name).filter(is_current).ok_or_else(|| Error::Closed {
                what: "the membership of this process".to_owned(),
            })?;
        let process = member.process();
        Ok(Some(JointId { name: caller.name.clone(), process, number: joint.number }))
    }

    /// Returns whether a call takes effect or is rejected now.
    fn admits(&self, caller: &Caller, joint: Option<&JointCall>) -> bool {
        let Ok(id) = self.joint_id(caller, joint) else { return true };
        let cut = self.cut.as_ref().filter(|cut| !cut.is_taken);
        if let Some(made_elsewhere) = cut.and_then(|cut| cut.made_elsewhere.as_ref())
            && id.as_ref().is_some_and(|id| made_elsewhere.contains(id))
        {
            // The cut waits for it.
            return true;
        }
        let joint = id.as_ref().zip(joint);
        cut.is_none() && joint.is_none_or(|(id, joint)| self.joint.has_room(id, joint.ended_below))
    }

    /// Returns whether this server must not commit rounds now.
    pub(super) fn holds_commits(&self) -> bool {
        self.going_back == GoingBack::Now
            || self.cut.as_ref().is_some_and(|cut| cut.complete.is_none())
    }

    pub(super) fn tell_all(&mut self, message: &ToFollower) {
        for follower in &mut self.peers.followers {
            follower.link.send(message.clone());
        }
    }

    /// Records a step of a follower.
    pub(super) fn close_follower(&mut self, follower: usize, closed: &proto::CutClosed) {
        if let Some(cut) = self.cut.as_mut().filter(|cut| cut.number == closed.number) {
            let made =
                closed.made.iter().map(|one| (id_of(one), one.servers.iter().copied().collect()));
            let made = made.collect();
            let state = ClosedState { same_as: closed.same_as, adds_keys: closed.adds_keys };
            cut.closed.insert(follower, Closed { made, state });
        }
    }

    /// Records a step of a follower.
    pub(super) fn follower_reached(
        &mut self,
        follower: usize,
        (step, end): (CutStep, proto::CutEnd),
    ) {
        let address = self.address(follower);
        if step == CutStep::Kept
            && let Some(follower) = self.peers.follower(follower)
            && follower.writes == Some(end.number)
        {
            // Also if this server, or an earlier run of it, has given up the cut.
            follower.writes = None;
            if end.failure.is_none() {
                follower.points.push(end.number);
                follower.newest_point = follower.newest_point.max(end.number);
            }
        }
        let Some(cut) = self.cut.as_mut().filter(|cut| cut.number == end.number) else { return };
        if let Some(failure) = end.failure {
            cut.failure.get_or_insert(error_of(failure, &address));
            return;
        }
        match step {
            CutStep::Closed => {}
            CutStep::Taken => drop(cut.taken.insert(follower)),
            CutStep::Kept => drop(cut.kept.insert(follower)),
        }
    }

    /// Fails the cut, because the connection to a follower is lost.
    pub(super) fn lose_cut(&mut self, follower: usize) {
        let address = self.address(follower);
        // A follower that has written its point has done its part.
        if let Some(cut) = self.cut.as_mut().filter(|cut| !cut.kept.contains(&follower)) {
            cut.failure.get_or_insert_with(|| lost(&address));
        }
    }

    /// Begins a cut of the leader.
    pub(super) fn follow_cut(&mut self, number: u64) {
        self.cut = Some(Cut::new(number));
    }

    /// Records which joint calls this server makes before it takes its state. Returns whether it
    /// follows this cut.
    pub(super) fn follow_joint_calls(&mut self, message: &proto::Cut) -> bool {
        let cut = self.cut.as_mut().filter(|cut| cut.number == message.number);
        let made_elsewhere = || message.made_elsewhere.iter().map(id_of).collect();
        cut.map(|cut| cut.made_elsewhere = Some(made_elsewhere())).is_some()
    }

    /// Records that all servers have their states.
    pub(super) fn follow_complete_cut(&mut self, message: proto::CutComplete) {
        let proto::CutComplete { number, common } = message;
        match self.cut.as_mut().filter(|cut| cut.number == number) {
            Some(cut) => cut.complete = Some(common),
            None => self.peers.report(ToLeader::CutKept(cut_end(number, &Err(cancelled())))),
        }
    }

    /// Ends a cut of the leader without a state.
    pub(super) fn cancel_cut(&mut self, number: Option<u64>) {
        self.cut.take_if(|cut| number.is_none_or(|number| cut.number == number));
    }
}

fn cut_end(number: u64, result: &Result<()>) -> proto::CutEnd {
    proto::CutEnd { number, failure: result.as_ref().err().map(failure_of) }
}

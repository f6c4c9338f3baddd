//! [`Group`]: the state of a group, shared by the calls of all members.

mod barrier;
mod caller;
mod cuts;
mod entrants;
mod following;
mod identities;
mod kept;
mod late;
mod leading;
mod peers;
mod points;
mod refusals;
mod rewinds;
mod rounds;
pub(crate) mod running;
mod saved;
#[cfg(test)]
pub(crate) mod seen;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::{Error, Key, Result};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use self::barrier::Barrier;
pub(crate) use self::caller::Caller;
use self::caller::RunningCalls;
use self::entrants::Rounds;
pub(crate) use self::entrants::{Attempt, Entrant, Fate, PushPart, RoundCounts, RoundRule};
use self::identities::Identities;
use self::peers::Peers;
pub(crate) use self::peers::{Decision, Followup, PushId};
pub(crate) use self::points::{Admission, ClosedState, CutStep, LONGEST_CUT};
use self::points::{Cut, GoingBack};
pub(crate) use self::refusals::fenced;
use self::refusals::{ending, left, refused};
pub(crate) use self::saved::SavedGroup;
use super::access::Identity;
use crate::coordinator::LeaderState;
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::rules::{Calls, Clocks, Joined, JointCalls, Member, Members, Role, Versions};

/// The most calls of a member whose replies it has not confirmed.
pub(crate) const MOST_CALLS: usize = 1 << 16;
/// How many processes that have left are remembered. A cut that begins as they leave may need them.
const MOST_LEFT: usize = 256;

/// The outcome of a call that changes the store: a failure, or nothing.
pub(crate) type Outcome = Option<proto::Failure>;

/// The state of a group, and who waits for a change of it.
#[derive(Debug)]
pub(crate) struct Group {
    start: Instant,
    state: Mutex<State>,
    /// Wakes the calls that wait for other members.
    changed: Notify,
    /// Wakes the streams of members after a change of the live members.
    members_changed: Notify,
    /// Keeps the state of the first server for its successor, if the group has a coordinator.
    leader: Option<Arc<LeaderState>>,
    /// Whether another run of the server begins, so that calls of this one do not count.
    is_over: AtomicBool,
    /// Locked while this server leads a cut.
    cutting: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    members: Members,
    /// The members of an earlier run that have not joined again.
    restored: HashSet<String>,
    identities: Identities,
    /// The calls of each member's current incarnation.
    calls: HashMap<String, Calls<Outcome>>,
    /// The calls of each name and incarnation that run, also of earlier incarnations.
    running: HashMap<(String, u64), RunningCalls>,
    /// The processes that left last.
    left: VecDeque<(String, u64)>,
    clocks: Clocks<Key, String>,
    versions: Versions<Key>,
    barrier: Barrier,
    rounds: Rounds,
    peers: Peers,
    joint: JointCalls,
    /// The cut that is being made.
    cut: Option<Cut>,
    /// The number of the last cut that this server has led.
    last_cut: u64,
    /// Whether a follower needs a recovery point.
    wants_point: bool,
    going_back: GoingBack,
    /// Whether the server accepts no further calls.
    is_draining: bool,
    /// How many repeated calls got the outcome of the first attempt.
    #[cfg(test)]
    num_repeated: usize,
}

/// What a process says about its membership before it lost the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Earlier {
    /// Its incarnation, or 0.
    pub(crate) incarnation: u64,
    /// The number of barriers that it knew that the group had passed.
    pub(crate) barriers: u64,
}

impl Group {
    pub(crate) fn new(lease: Duration, floor: u64) -> Self {
        let state = State {
            members: Members::new(lease, floor),
            restored: HashSet::new(),
            identities: Identities::default(),
            calls: HashMap::new(),
            running: HashMap::new(),
            left: VecDeque::new(),
            clocks: Clocks::default(),
            versions: Versions::default(),
            barrier: Barrier::default(),
            rounds: Rounds::new(floor),
            peers: Peers::default(),
            joint: JointCalls::default(),
            cut: None,
            last_cut: 0,
            wants_point: false,
            going_back: GoingBack::Never,
            is_draining: false,
            #[cfg(test)]
            num_repeated: 0,
        };
        Self {
            start: Instant::now(),
            state: Mutex::new(state),
            changed: Notify::new(),
            members_changed: Notify::new(),
            leader: None,
            cutting: tokio::sync::Mutex::new(()),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns the time since the start of the server.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the tasks that wait for a change.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, has_changed_members) = {
            let mut state = self.state();
            let before = state.members.num_changes();
            let result = change(&mut state);
            let has_changed_members = state.members.num_changes() != before;
            if has_changed_members {
                state.pass_barrier();
            }
            (result, has_changed_members)
        };
        self.changed.notify_waiters();
        if has_changed_members {
            self.members_changed.notify_waiters();
        }
        result
    }

    /// Waits until `found` returns something for the state.
    async fn wait<R>(&self, mut found: impl FnMut(&mut State) -> Option<R>) -> R {
        loop {
            // Enabled before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(result) = found(&mut self.state()) {
                return result;
            }
            changed.await;
        }
    }

    /// Waits until `found` returns something for the state, or until the deadline.
    async fn find<R>(
        &self,
        deadline: Instant,
        found: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        timeout_at(deadline, self.wait(found)).await.ok()
    }

    /// Admits a member. If it replaces an earlier process, waits until the calls of that process
    /// are done, so that they do not change the store later. The identity is that of the calls of
    /// the process.
    ///
    /// Also returns the number of barriers that the group had passed when the process first joined.
    pub(crate) async fn join(
        &self,
        name: &str,
        (process, identity): (u64, &Identity),
        (role, earlier): (Role, Earlier),
        deadline: Instant,
    ) -> std::result::Result<(Joined, u64), Status> {
        let now = self.now();
        let joined = self.change(|state| {
            if state.members.is_of_earlier_run(earlier.incarnation) {
                state.raise_barriers(earlier.barriers);
            }
            let is_same = |member: &Member| member.process() == process;
            if !state.restored.contains(name) && state.members.get(name).is_some_and(is_same) {
                state.identities.check(name, identity)?;
            }
            let process = (process, earlier.incarnation);
            let joined = state.members.join_again(now, name, process, role);
            let joined = joined.map_err(|refusal| refused(name, refusal))?;
            #[cfg(test)]
            let kept = state.calls.get(name).cloned().filter(|_| Fault::KeepCalls.is_planted());
            if state.restored.remove(name) || joined.is_new {
                state.identities.set(name, identity);
                state.calls.insert(name.to_owned(), Calls::new(MOST_CALLS));
                #[cfg(test)]
                state.calls.extend(kept.map(|kept| (name.to_owned(), kept)));
                state.barrier.arrived.remove(name);
                state.barrier.first_rounds.insert(name.to_owned(), state.barrier.reached);
            }
            // It may have left before.
            state.left.retain(|(other, left)| (other.as_str(), *left) != (name, process.0));
            if let Some(running) = state.running.get_mut(&(name.to_owned(), joined.incarnation)) {
                running.leaves = false;
            }
            state.raise_clocks(name, joined.is_new);
            let first_round = state.barrier.first_rounds.get(name).copied();
            Ok::<_, Status>((joined, first_round.unwrap_or_default()))
        })?;
        if let Err(status) = self.keep_member(name).await {
            self.lose(name, joined.0.connection);
            return Err(status);
        }
        if self.is_over() {
            // The next run does not know the rank of the member.
            self.forget_kept(name);
            return Err(Status::unavailable("the server goes back to a recovery point"));
        }
        // The member is live from now on, so no other process takes the name meanwhile. A process
        // that has lost its connection while it waits here waits again when it is back.
        let incarnation = joined.0.incarnation;
        let is_idle = |state: &mut State| (!state.runs_earlier(name, incarnation)).then_some(());
        if self.find(deadline, is_idle).await.is_none() {
            self.lose(name, joined.0.connection);
            return Err(Status::unavailable("a call of an earlier process is still running"));
        }
        Ok(joined)
    }

    /// Checks that a call comes from a member, which is a sign of life, and records the calls whose
    /// replies it has: all below a number, except some. Returns its role.
    pub(crate) fn authorise(
        &self,
        name: &str,
        (incarnation, identity): (u64, &Identity),
        (answered_below, unanswered): (u64, &[u64]),
    ) -> std::result::Result<Role, Status> {
        let now = self.now();
        let mut state = self.state();
        // A call of an earlier incarnation may have any identity: it is fenced.
        if state.members.get(name).is_some_and(|member| member.incarnation == incarnation) {
            state.identities.check(name, identity)?;
        }
        let before = state.members.num_changes();
        let renewed = state.members.renew(now, name, incarnation).map_err(|_| fenced());
        if let (Ok(_), Some(calls)) = (&renewed, state.calls.get_mut(name)) {
            calls.confirm(answered_below, unanswered);
        }
        if let Ok(true) = renewed {
            state.raise_clocks(name, false);
        }
        if state.members.num_changes() != before {
            state.pass_barrier();
            self.changed.notify_waiters();
            self.members_changed.notify_waiters();
        }
        renewed?;
        Ok(state.members.get(name).map_or(Role::Reader, |member| member.role))
    }

    pub(crate) fn lose(&self, name: &str, connection: u64) {
        let now = self.now();
        self.change(|state| state.members.lose(now, name, connection));
    }

    /// Removes a member, when its joint calls that have begun have ended: a member that leaves in
    /// one thread may push in another one. Until then, it counts as dead.
    pub(crate) fn leave(&self, name: &str, incarnation: u64) {
        let now = self.now();
        self.change(|state| {
            let running = state.running.get_mut(&(name.to_owned(), incarnation));
            if let Some(running) = running.filter(|running| running.num_joint > 0) {
                running.leaves = true;
                state.members.end_lease(now, name, incarnation);
            } else {
                self.remove(state, name, incarnation);
            }
        });
    }

    fn remove(&self, state: &mut State, name: &str, incarnation: u64) {
        let Some(process) = state.members.get(name).map(Member::process) else { return };
        if state.members.leave(name, incarnation) {
            state.left.truncate(MOST_LEFT - 1);
            state.left.push_front((name.to_owned(), process));
            state.forget(name);
            self.forget_kept(name);
        }
    }

    /// Ends the leases that are over. Returns how long until the next call.
    pub(crate) fn end_leases(&self) -> Duration {
        let now = self.now();
        let next = self.change(|state| {
            for name in state.members.end_leases(now) {
                state.forget(&name);
                self.forget_kept(&name);
            }
            state.members.next_end()
        });
        // At most a second, because a member may join meanwhile.
        let wait = next.map_or(Duration::MAX, |end| end.saturating_sub(now));
        wait.clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    /// Returns the incarnations of the members that are live, or died less than a lease ago.
    pub(crate) fn remembered(&self) -> HashSet<u64> {
        let now = self.now();
        self.state().members.remembered(now).collect()
    }

    /// Returns the live members, and the number of dead workers.
    pub(crate) fn members(&self) -> (proto::Members, usize) {
        let state = self.state();
        let message = |(name, member): (&str, &Member)| proto::Member {
            name: name.to_owned(),
            rank: member.rank,
            is_reader: member.role == Role::Reader,
        };
        let members = state.members.live().into_iter().map(message).collect();
        (proto::Members { members }, state.members.num_dead())
    }

    /// Returns the live members and the number of their changes, unless that number is `known`.
    pub(crate) fn members_since(&self, known: Option<u64>) -> Option<(u64, proto::Members)> {
        let num_changes = self.state().members.num_changes();
        (known != Some(num_changes)).then(|| (num_changes, self.members().0))
    }

    /// Returns the role of the member with a name, live or dead.
    pub(crate) fn role_of(&self, name: &str) -> Option<Role> {
        self.state().members.get(name).map(|member| member.role)
    }

    /// Returns whether an incarnation is that of a live member.
    pub(crate) fn is_live(&self, incarnation: u64) -> bool {
        self.state().members.is_live(incarnation)
    }

    /// Returns the number of the process of a caller, if the caller is still a member.
    pub(crate) fn process_of(&self, caller: &Caller) -> Option<u64> {
        let state = self.state();
        let member = state.members.get(&caller.name);
        member.filter(|member| member.incarnation == caller.incarnation).map(Member::process)
    }

    /// Returns whether the server accepts no further calls.
    pub(crate) fn is_draining(&self) -> bool {
        self.state().is_draining
    }

    /// Waits until the live members change.
    pub(crate) fn members_changed(&self) -> Notified<'_> {
        self.members_changed.notified()
    }

    pub(crate) fn remove_keys(&self, keys: &[Key]) {
        self.change(|state| {
            for key in keys {
                state.clocks.remove_key(key);
                state.versions.remove_key(key);
                state.rounds.remove_key(key);
            }
        });
    }

    /// Returns the versions of keys.
    pub(crate) fn versions(&self, keys: &[Key]) -> Vec<u64> {
        let state = self.state();
        keys.iter().map(|key| state.versions.version(key)).collect()
    }

    /// Returns how many pushes have changed each key since it had a version.
    pub(crate) fn pushes_since(&self, seen: Vec<(Key, u64)>) -> Vec<(Key, u64)> {
        let state = self.state();
        let num_pushes = |(key, seen)| {
            let num_pushes = state.versions.pushes_since(&key, seen);
            (key, num_pushes)
        };
        seen.into_iter().map(num_pushes).collect()
    }

    /// Waits until no live worker is more than `staleness` pushes behind the caller.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long. The message names the key and the worker.
    /// - [`Error::Closed`] if the server ends, or the caller is not a member any more.
    pub(crate) async fn wait_for_workers(
        &self,
        caller: &Caller,
        keys: &[Key],
        staleness: u64,
        deadline: Instant,
    ) -> Result<()> {
        #[cfg(test)]
        if Fault::IgnoreStaleness.is_planted() {
            return Ok(());
        }
        let mut awaited = None;
        let passed = self.find(deadline, |state| {
            if state.check(caller).is_err() {
                return Some(Err(left()));
            }
            let live = state.workers();
            awaited = keys.iter().find_map(|key| {
                let other = state.clocks.awaited(key, &caller.name, staleness, &live)?;
                Some((key.clone(), other.clone()))
            });
            match &awaited {
                None => Some(Ok(())),
                Some(_) if state.is_draining => Some(Err(ending())),
                Some(_) => None,
            }
        });
        if let Some(result) = passed.await {
            return result;
        }
        let (key, other) = awaited.map_or_else(Default::default, |(key, other)| (key, other));
        Err(Error::Timeout(format!(
            "pull of `{key}` with staleness {staleness}: waiting for pushes of `{other}`"
        )))
    }

    /// Refuses calls from now on, ends those that wait for other members, and waits until the
    /// others are done.
    pub(crate) async fn drain(&self, deadline: Instant) {
        self.change(|state| state.is_draining = true);
        let is_idle = |state: &State| state.running.is_empty() && state.peers.are_informed();
        let idle = self.find(deadline, |state| is_idle(state).then_some(()));
        if idle.await.is_none() {
            tracing::warn!("the server ends although calls are running");
        }
    }
}

impl State {
    fn check(&self, caller: &Caller) -> std::result::Result<(), Status> {
        let member = self.members.get(&caller.name);
        if member.is_some_and(|member| member.incarnation == caller.incarnation) {
            return Ok(());
        }
        #[cfg(test)]
        if Fault::SkipFence.is_planted() {
            return Ok(());
        }
        Err(fenced())
    }

    /// Raises the clocks of a worker that becomes live.
    fn raise_clocks(&mut self, name: &str, is_new: bool) {
        let name = name.to_owned();
        let mut others = self.workers();
        if !others.contains(&name) {
            return;
        }
        others.retain(|other| *other != name);
        self.clocks.raise(&name, &others, is_new);
    }

    fn forget(&mut self, name: &str) {
        self.restored.remove(name);
        self.identities.remove(name);
        self.calls.remove(name);
        self.clocks.remove_member(&name.to_owned());
        self.rounds.remove_member(name);
        self.peers.remove_member(name);
        self.joint.remove_member(name);
        self.barrier.arrived.remove(name);
        self.barrier.first_rounds.remove(name);
    }

    /// Returns the names of the live workers.
    fn workers(&self) -> Vec<String> {
        let live = self.members.live().into_iter();
        let workers = live.filter(|(_, member)| member.role == Role::Worker);
        workers.map(|(name, _)| name.to_owned()).collect()
    }
}

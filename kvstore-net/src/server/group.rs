//! [`Group`]: the state of a group, shared by the calls of all members.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvstore_core::{Error, Key, Result};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::timeout_at;
use tonic::Status;

use crate::proto;
use crate::rules::{Begun, Calls, Clocks, Joined, Members, Refusal, Role};

/// The most calls of a member whose replies it has not confirmed.
const MOST_CALLS: usize = 4096;

/// The outcome of a call that changes the store: a failure, or nothing.
pub(crate) type Outcome = Option<proto::Failure>;

/// The state of a group, and who waits for a change of it.
#[derive(Debug)]
pub(crate) struct Group {
    start: Instant,
    state: Mutex<State>,
    /// Wakes every task that waits for a change of the state.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    members: Members,
    /// The calls of each member's current incarnation.
    calls: HashMap<String, Calls<Outcome>>,
    clocks: Clocks<Key, String>,
    barrier: Barrier,
    /// Whether the server accepts no further calls.
    is_draining: bool,
    num_running: usize,
}

#[derive(Debug, Default)]
struct Barrier {
    round: u64,
    arrived: BTreeSet<String>,
}

/// Who makes a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

impl Group {
    pub(crate) fn new(lease: Duration, floor: u64) -> Self {
        let state = State {
            members: Members::new(lease, floor),
            calls: HashMap::new(),
            clocks: Clocks::default(),
            barrier: Barrier::default(),
            is_draining: false,
            num_running: 0,
        };
        Self { start: Instant::now(), state: Mutex::new(state), changed: Notify::new() }
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
        let result = change(&mut self.state());
        self.changed.notify_waiters();
        result
    }

    pub(crate) fn join(
        &self,
        name: &str,
        incarnation: u64,
        role: Role,
    ) -> std::result::Result<Joined, Refusal> {
        let now = self.now();
        self.change(|state| {
            let joined = state.members.join(now, name, incarnation, role)?;
            if joined.is_new {
                state.calls.insert(name.to_owned(), Calls::new(MOST_CALLS));
                let live = state.workers();
                state.clocks.start(name.to_owned(), &live);
            }
            Ok(joined)
        })
    }

    /// Records a sign of life of a member.
    pub(crate) fn renew(&self, name: &str, incarnation: u64) -> std::result::Result<(), Refusal> {
        let now = self.now();
        self.state().members.renew(now, name, incarnation)
    }

    pub(crate) fn lose(&self, name: &str, incarnation: u64) {
        self.change(|state| state.members.lose(name, incarnation));
    }

    pub(crate) fn leave(&self, name: &str, incarnation: u64) {
        self.change(|state| {
            let is_current =
                state.members.get(name).is_some_and(|member| member.incarnation == incarnation);
            if is_current {
                state.members.leave(name, incarnation);
                state.calls.remove(name);
                state.clocks.remove_member(&name.to_owned());
                state.barrier.arrived.remove(name);
            }
        });
    }

    /// Ends the leases that are over, until the server ends.
    pub(crate) async fn end_leases(&self) {
        loop {
            let now = self.now();
            let next = {
                let mut state = self.state();
                let has_ended = state.members.end_leases(now);
                let next = state.members.next_end();
                drop(state);
                if has_ended {
                    self.changed.notify_waiters();
                }
                next
            };
            let wait = next.map_or(Duration::from_secs(1), |end| end.saturating_sub(now));
            // Leases are renewed without a notification, so look again at the end of the next one.
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }

    /// Returns the live members, and the number of dead ones.
    pub(crate) fn members(&self) -> (proto::Members, usize) {
        let state = self.state();
        let members = state.members.live().into_iter().map(|(name, member)| proto::Member {
            name: name.to_owned(),
            rank: member.rank,
            is_reader: member.role == Role::Reader,
        });
        (proto::Members { members: members.collect() }, state.members.num_dead())
    }

    /// Waits until the state changes. The future is created before the state is read, so that no
    /// change is missed.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Begins a call that changes the store. Returns the outcome if it has been made before.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        deadline: tokio::time::Instant,
    ) -> std::result::Result<Option<Outcome>, Status> {
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if state.is_draining {
                    return Err(Status::aborted("the server is ending"));
                }
                state.check(caller)?;
                let calls = state.calls.get_mut(&caller.name).ok_or_else(fenced)?;
                match calls.begin(caller.sequence) {
                    Begun::New => {
                        state.num_running += 1;
                        return Ok(None);
                    }
                    Begun::Done(outcome) => return Ok(Some(outcome)),
                    Begun::Answered => {
                        let text = format!("call {} has been answered", caller.sequence);
                        return Err(Status::invalid_argument(text));
                    }
                    Begun::TooMany => {
                        let text = format!("more than {MOST_CALLS} calls without a reply");
                        return Err(Status::resource_exhausted(text));
                    }
                    Begun::Running => {}
                }
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Err(Status::deadline_exceeded("an earlier attempt is still running"));
            }
        }
    }

    /// Records the outcome of a call that has begun, and the pushes that it made.
    pub(crate) fn finish(&self, caller: &Caller, outcome: &Outcome, pushed: &[Key]) {
        self.change(|state| {
            state.num_running -= 1;
            if state.check(caller).is_err() {
                // A later process has this name. It has its own calls and clocks.
                return;
            }
            for key in pushed {
                state.clocks.advance(key, &caller.name);
            }
            if let Some(calls) = state.calls.get_mut(&caller.name) {
                calls.finish(caller.sequence, outcome.clone());
            }
        });
    }

    /// Records that a member has the replies of all calls below this number.
    pub(crate) fn confirm(&self, name: &str, answered_below: u64) {
        if let Some(calls) = self.state().calls.get_mut(name) {
            calls.confirm(answered_below);
        }
    }

    pub(crate) fn remove_keys(&self, keys: &[Key]) {
        self.change(|state| keys.iter().for_each(|key| state.clocks.remove_key(key)));
    }

    /// Waits until no live worker is more than `staleness` pushes behind the caller.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long. The message names the key and the worker.
    pub(crate) async fn wait_for_workers(
        &self,
        caller: &str,
        keys: &[Key],
        staleness: u64,
        deadline: tokio::time::Instant,
    ) -> Result<()> {
        let caller = caller.to_owned();
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let awaited = {
                let state = self.state();
                let live = state.workers();
                keys.iter().find_map(|key| {
                    let other = state.clocks.awaited(key, &caller, staleness, &live)?;
                    Some((key.clone(), other.clone()))
                })
            };
            let Some((key, other)) = awaited else { return Ok(()) };
            if timeout_at(deadline, changed).await.is_err() {
                return Err(Error::Timeout(format!(
                    "pull of `{key}` with staleness {staleness}: waiting for pushes of `{other}`"
                )));
            }
        }
    }

    /// Waits until every live member has arrived at the barrier.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long. The message names the missing members.
    pub(crate) async fn barrier(&self, caller: &str, deadline: tokio::time::Instant) -> Result<()> {
        let round = self.change(|state| {
            state.barrier.arrived.insert(caller.to_owned());
            state.pass_barrier();
            state.barrier.round
        });
        // Passed by the arrival of this member.
        if !self.state().barrier.arrived.contains(caller) {
            return Ok(());
        }
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let missing = {
                let mut state = self.state();
                state.pass_barrier();
                if state.barrier.round > round {
                    drop(state);
                    self.changed.notify_waiters();
                    return Ok(());
                }
                state.missing()
            };
            if timeout_at(deadline, changed).await.is_err() {
                self.change(|state| state.barrier.arrived.remove(caller));
                return Err(Error::Timeout(format!("barrier: waiting for {}", missing.join(", "))));
            }
        }
    }

    /// Refuses calls from now on, and waits until those that run are done.
    pub(crate) async fn drain(&self) {
        self.change(|state| state.is_draining = true);
        loop {
            let changed = self.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state().num_running == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn check(&self, caller: &Caller) -> std::result::Result<(), Status> {
        let member = self.members.get(&caller.name);
        if member.is_some_and(|member| member.incarnation == caller.incarnation) {
            return Ok(());
        }
        Err(fenced())
    }

    /// Returns the names of the live workers.
    fn workers(&self) -> Vec<String> {
        let live = self.members.live().into_iter();
        let workers = live.filter(|(_, member)| member.role == Role::Worker);
        workers.map(|(name, _)| name.to_owned()).collect()
    }

    /// Returns the live members that have not arrived at the barrier.
    fn missing(&self) -> Vec<String> {
        let live = self.members.live().into_iter().map(|(name, _)| name);
        let missing = live.filter(|name| !self.barrier.arrived.contains(*name));
        missing.map(|name| format!("`{name}`")).collect()
    }

    /// Begins the next round if every live member has arrived.
    fn pass_barrier(&mut self) {
        if !self.barrier.arrived.is_empty() && self.missing().is_empty() {
            self.barrier.arrived.clear();
            self.barrier.round += 1;
        }
    }
}

/// The status of a call of an earlier incarnation, or of a member that the server does not know.
pub(crate) fn fenced() -> Status {
    Status::failed_precondition("this process is not a member, or a later one has its name")
}

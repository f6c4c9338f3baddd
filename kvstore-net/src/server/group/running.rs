//! [`Running`]: a call that has begun and has no outcome yet.

use kvstore_core::{Error, Key};
use tokio::time::Instant;
use tonic::Status;

use super::{Caller, Group, MOST_CALLS, Outcome, State};
use crate::rules::Begun;

/// A call that has begun. If it is dropped without an outcome, it has failed.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    group: &'a Group,
    caller: Caller,
    is_joint: bool,
    is_done: bool,
}

impl Running<'_> {
    /// Records the outcome of the call, and the pushes that it made.
    pub(crate) fn finish(mut self, outcome: Outcome, pushed: &[Key]) {
        self.is_done = true;
        self.group.finish(&self, outcome, pushed, pushed);
    }

    /// Records the outcome of a push to a round. [`Group::apply_round`] has recorded its effects.
    pub(crate) fn finish_in_round(mut self, outcome: Outcome) {
        self.is_done = true;
        self.group.finish(&self, outcome, &[], &[]);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let error = Error::Internal("the call has panicked".to_owned());
            self.group.finish(self, Some(crate::wire::failure_of(&error)), &[], &[]);
        }
    }
}

impl Group {
    /// Begins a call that changes the store, which may be joint. The inner error is the outcome if
    /// it has been made before.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        is_joint: bool,
        deadline: Instant,
    ) -> std::result::Result<std::result::Result<Running<'_>, Outcome>, Status> {
        let begun = self.find(deadline, |state| {
            if let Err(status) = state.check(caller) {
                return Some(Err(status));
            }
            let is_draining = state.is_draining;
            let calls = state.calls.get_mut(&caller.name)?;
            match calls.begin(caller.sequence, !is_draining) {
                Begun::New => {
                    let running = state.running.entry(caller.process()).or_default();
                    running.num_calls += 1;
                    running.num_joint += usize::from(is_joint);
                    Some(Ok(Ok(())))
                }
                Begun::Done(outcome) => {
                    #[cfg(test)]
                    state.count_repeated();
                    Some(Ok(Err(outcome)))
                }
                Begun::Running => None,
                Begun::Refused => Some(Err(Status::aborted("the server is ending"))),
                Begun::Answered => {
                    let text = format!("call {} has been answered", caller.sequence);
                    Some(Err(Status::invalid_argument(text)))
                }
                Begun::TooMany => {
                    let text = format!("more than {MOST_CALLS} calls without a confirmed reply");
                    Some(Err(Status::aborted(text)))
                }
            }
        });
        let late = || Status::deadline_exceeded("an earlier attempt is still running");
        let begun = begun.await.unwrap_or_else(|| Err(late()))?;
        let running = || Running { group: self, caller: caller.clone(), is_joint, is_done: false };
        Ok(begun.map(|()| running()))
    }

    /// Records the outcome of a call of a member, and the keys that it has pushed. The versions of
    /// the keys in `changed` increase.
    fn finish(&self, call: &Running<'_>, outcome: Outcome, pushed: &[Key], changed: &[Key]) {
        let caller = &call.caller;
        self.change(|state| {
            let mut leaves = false;
            if let Some(running) = state.running.get_mut(&caller.process()) {
                running.num_calls -= 1;
                running.num_joint -= usize::from(call.is_joint);
                leaves = running.leaves && running.num_joint == 0;
                if running.num_calls == 0 {
                    state.running.remove(&caller.process());
                }
            }
            for key in changed {
                state.versions.advance(key);
            }
            if state.check(caller).is_err() {
                // A later process has this name. It has its own calls and clocks.
                return;
            }
            for key in pushed {
                state.clocks.advance(key, &caller.name);
            }
            if let Some(calls) = state.calls.get_mut(&caller.name) {
                calls.finish(caller.sequence, outcome);
            }
            if leaves && !self.is_over() {
                self.remove(state, &caller.name, caller.incarnation);
            }
        });
    }

    pub(crate) fn num_running(&self) -> usize {
        self.state().running.values().map(|running| running.num_calls).sum()
    }
}

impl State {
    /// Returns whether a process leaves when its joint calls have ended.
    pub(super) fn is_leaving(&self, name: &str, process: u64) -> bool {
        let member = self.members.get(name).filter(|member| member.process() == process);
        let running =
            member.and_then(|member| self.running.get(&(name.to_owned(), member.incarnation)));
        running.is_some_and(|running| running.leaves)
    }

    /// Returns whether a call of an earlier process of this name runs.
    pub(super) fn runs_earlier(&self, name: &str, incarnation: u64) -> bool {
        self.running.keys().any(|(other, earlier)| other == name && *earlier != incarnation)
    }
}

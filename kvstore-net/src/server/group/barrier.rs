//! [`Barrier`]: waits until all live workers have arrived.

use std::collections::{BTreeMap, HashMap};

use kvstore_core::{Error, Result};
use tokio::time::Instant;

use super::{Caller, Group, State, ending, left};
#[cfg(test)]
use crate::faults::Fault;

/// The barriers of a group.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// The number of barriers that the group has passed.
    pub(super) round: u64,
    /// The same, with those that are not kept yet, so that no member has passed them.
    pub(super) reached: u64,
    /// Whether a member may pass a barrier only when it is kept.
    pub(super) is_kept: bool,
    /// Who has arrived at the next one, with the incarnation.
    pub(super) arrived: BTreeMap<String, u64>,
    /// The round in which the current incarnation of each name joined.
    pub(super) first_rounds: HashMap<String, u64>,
}

impl Group {
    /// Returns the number of barriers that the group has passed.
    pub(crate) fn num_barriers(&self) -> u64 {
        self.state().barrier.round
    }

    /// Waits until the group has passed this number of barriers.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long. The message names the missing workers.
    /// - [`Error::Closed`] if the server ends, or a later process takes the name of the caller.
    pub(crate) async fn barrier(
        &self,
        caller: &Caller,
        round: u64,
        deadline: Instant,
    ) -> Result<()> {
        self.change(|state| {
            if state.barrier.reached < round && state.check(caller).is_ok() {
                state.barrier.arrived.insert(caller.name.clone(), caller.incarnation);
                state.pass_barrier();
            }
        });
        let passed = self.find(deadline, |state| {
            if state.barrier.round >= round {
                return Some(Ok(()));
            }
            #[cfg(test)]
            if Fault::HoldName.is_planted() {
                return None;
            }
            if state.check(caller).is_err() {
                // A later process has this name, and its join waits for this call to end.
                return Some(Err(left()));
            }
            if state.is_draining {
                state.barrier.arrived.remove(&caller.name);
                return Some(Err(ending()));
            }
            None
        });
        if let Some(result) = passed.await {
            return result;
        }
        // Another thread may have passed the barrier since the deadline.
        self.change(|state| {
            if state.barrier.round >= round {
                return Ok(());
            }
            if state.barrier.arrived.get(&caller.name) == Some(&caller.incarnation) {
                state.barrier.arrived.remove(&caller.name);
            }
            if state.barrier.reached >= round {
                return Err(Error::Timeout("barrier: waiting for the coordinator".to_owned()));
            }
            Err(Error::Timeout(format!("barrier: waiting for {}", state.missing().join(", "))))
        })
    }
}

impl State {
    /// Returns the live workers that have not arrived at the barrier.
    fn missing(&self) -> Vec<String> {
        #[cfg(test)]
        if Fault::CountDead.is_planted() && self.barrier.arrived.len() >= self.workers().len() {
            return Vec::new();
        }
        let workers = self.workers().into_iter();
        let missing = workers.filter(|name| !self.barrier.arrived.contains_key(name));
        missing.map(|name| format!("`{name}`")).collect()
    }

    /// Begins the next round if every live worker has arrived.
    pub(super) fn pass_barrier(&mut self) {
        if !self.barrier.arrived.is_empty() && self.missing().is_empty() {
            self.barrier.arrived.clear();
            self.barrier.reached += 1;
            if !self.barrier.is_kept {
                self.barrier.round = self.barrier.reached;
            }
        }
    }

    /// Records that the group has passed at least this number of barriers in an earlier run of the
    /// server. What is kept for a successor is exact.
    pub(super) fn raise_barriers(&mut self, passed: u64) {
        let barrier = &mut self.barrier;
        if !barrier.is_kept {
            barrier.round = barrier.round.max(passed);
            barrier.reached = barrier.reached.max(barrier.round);
        }
    }
}

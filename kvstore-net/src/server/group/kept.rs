//! What the first server of a group keeps for its successor, if the group has a coordinator.

use std::sync::Arc;

use tonic::Status;

use super::{Group, Member};
use crate::coordinator::{KeptGroup, LeaderState, MemberRecord};
use crate::server::coordinated::PAUSE;

impl Group {
    /// Returns the group of the first server, with what earlier ones have kept. Members keep their
    /// ranks, and live for a lease, in which they join again.
    pub(crate) fn with_leader(self, leader: Arc<LeaderState>, saved: KeptGroup) -> Self {
        let now = self.now();
        {
            let mut state = self.state();
            state.barrier.is_kept = true;
            (state.barrier.round, state.barrier.reached) = (saved.num_barriers, saved.num_barriers);
            for (name, record) in saved.members {
                let (rank, role) = (record.rank, record.role());
                let processes = (record.process, record.replaced);
                state.members.restore_name(now, &name, (rank, role), processes);
                state.restored.insert(name);
            }
        }
        Self { leader: Some(leader), ..self }
    }

    /// Returns what keeps the state of the first server, if the group has a coordinator.
    pub(crate) fn leader(&self) -> Option<&LeaderState> {
        self.leader.as_deref()
    }

    /// Returns the same, and what it has kept, for another run of this server.
    pub(crate) fn kept(&self) -> Option<(Arc<LeaderState>, KeptGroup)> {
        let leader = self.leader.as_ref()?;
        let num_barriers = self.state().barrier.round;
        Some((Arc::clone(leader), KeptGroup { num_barriers, members: leader.kept_members() }))
    }

    /// Keeps a member that has joined.
    pub(super) async fn keep_member(&self, name: &str) -> Result<(), Status> {
        let Some(leader) = &self.leader else { return Ok(()) };
        let record = {
            let state = self.state();
            let replaced = Vec::from(state.members.replaced(name));
            let record = |member: &Member| {
                MemberRecord::new(member.rank, member.role, member.process(), replaced)
            };
            state.members.get(name).map(record)
        };
        match record {
            Some(record) => Box::pin(leader.save_member(name, &record)).await,
            None => Ok(()),
        }
    }

    /// Forgets a member that was kept. The state of the group is locked, so that no other member
    /// has got its rank yet.
    pub(super) fn forget_kept(&self, name: &str) {
        if let Some(leader) = &self.leader {
            leader.forget_member(name);
        }
    }

    /// Keeps the number of barriers before members pass them, for as long as it is polled. Returns
    /// at once if this server keeps none.
    pub(crate) async fn keep_barriers(&self) {
        let Some(leader) = &self.leader else { return };
        loop {
            let reached = self.wait(|state| {
                let barrier = &state.barrier;
                (barrier.reached > barrier.round).then_some(barrier.reached)
            });
            let reached = reached.await;
            match leader.save_barriers(reached).await {
                Ok(()) => self.change(|state| state.barrier.round = reached),
                Err(status) => {
                    tracing::debug!(%status, "a barrier is not kept yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

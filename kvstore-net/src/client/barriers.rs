//! [`PassedBarriers`]: the barriers that this member has passed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::proto;

/// The barriers that this member has passed.
#[derive(Debug, Default)]
pub(super) struct PassedBarriers(Mutex<Barriers>);

/// The barriers that an incarnation has passed, counted over the whole group.
#[derive(Debug, Default)]
struct Barriers {
    incarnation: u64,
    round: u64,
    /// The run of the server, and the group if its barriers outlive the server.
    origin: (u64, u64),
}

impl Barriers {
    /// Continues after a new join. If the server was restarted and its group has kept the barriers,
    /// this member still waits at its last one.
    fn join(&mut self, joined: &proto::JoinReply) {
        if self.incarnation != joined.incarnation && !self.is_kept(joined) {
            self.round = joined.barrier_round;
        }
        self.incarnation = joined.incarnation;
        self.origin = (joined.server_run, joined.group);
    }

    /// Returns whether the server was restarted, and its group has kept the barriers.
    fn is_kept(&self, joined: &proto::JoinReply) -> bool {
        let (run, group) = self.origin;
        group != 0 && group == joined.group && run != joined.server_run
    }
}

impl PassedBarriers {
    fn lock(&self) -> MutexGuard<'_, Barriers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of barriers that the group has passed when this member passes its next
    /// one. A restarted server counts from 0, unless its group has a coordinator.
    pub(super) fn next(&self, joined: &proto::JoinReply) -> u64 {
        let mut barriers = self.lock();
        barriers.join(joined);
        barriers.round + 1
    }

    /// Returns whether a call at a barrier that was made at an earlier incarnation may be repeated,
    /// because the number of the barrier still shows whether the group has passed it.
    pub(super) fn may_repeat(&self, joined: &proto::JoinReply) -> bool {
        self.lock().is_kept(joined)
    }

    /// Returns the number of barriers that this incarnation has seen the group pass.
    pub(super) fn passed(&self, incarnation: u64) -> u64 {
        let barriers = self.lock();
        if barriers.incarnation == incarnation { barriers.round } else { 0 }
    }

    /// Records that this member has passed a barrier.
    pub(super) fn pass(&self, joined: &proto::JoinReply, round: u64) {
        let mut barriers = self.lock();
        if barriers.incarnation == joined.incarnation {
            barriers.round = barriers.round.max(round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(
        server_run: u64,
        incarnation: u64,
        barrier_round: u64,
        group: u64,
    ) -> proto::JoinReply {
        proto::JoinReply { server_run, incarnation, barrier_round, group, ..Default::default() }
    }

    #[test]
    fn a_member_waits_at_its_barrier_again_only_if_the_group_has_kept_them() {
        for (group, next) in [(0, 8), (5, 4)] {
            let barriers = PassedBarriers::default();
            let first = joined(1, 10, 2, group);
            assert_eq!(barriers.next(&first), 3);
            barriers.pass(&first, 3);
            assert_eq!(barriers.next(&first), 4);
            let is_kept = group != 0;
            assert_eq!(barriers.may_repeat(&joined(2, 20, 7, group)), is_kept);
            // The server was restarted, and the group has passed barriers meanwhile.
            assert_eq!(barriers.next(&joined(2, 20, 7, group)), next);
        }
        // Another group, or a server that has forgotten the member.
        for later in [joined(2, 20, 7, 6), joined(1, 20, 7, 5)] {
            let barriers = PassedBarriers::default();
            assert_eq!(barriers.next(&joined(1, 10, 2, 5)), 3);
            assert!(!barriers.may_repeat(&later));
            assert_eq!(barriers.next(&later), 8);
        }
    }
}

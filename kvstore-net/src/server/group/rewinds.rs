//! When all servers of a group go back to a recovery point, because one of them was restarted.

use std::sync::atomic::Ordering;

use super::peers::Follower;
use super::points::GoingBack;
use super::{Group, State, ending};
use crate::proto;
use crate::proto::leader_message::Content as ToFollower;

impl Group {
    /// Sets whether all servers go back to a recovery point when one of them is restarted. Then
    /// rounds that it interrupts do not fail, because their members repeat their pushes.
    pub(crate) fn set_goes_back(&self, goes_back: bool) {
        let mut state = self.state();
        if state.going_back != GoingBack::Now {
            state.going_back = if goes_back { GoingBack::AtRestart } else { GoingBack::Never };
        }
    }

    /// Waits until [`Group::needs_rewind`].
    pub(crate) async fn rewind_needed(&self, rewound_by: u64, awaits: bool) {
        self.wait(|state| state.needs_rewind(rewound_by, awaits).then_some(())).await;
    }

    /// Returns whether all servers must go back to a point, and are connected: this server `awaits`
    /// that, or a follower was restarted, or has not followed the rewind `rewound_by` of this
    /// server.
    pub(crate) fn needs_rewind(&self, rewound_by: u64, awaits: bool) -> bool {
        self.state().needs_rewind(rewound_by, awaits)
    }

    /// Returns the newest of this server's points `own` that all followers have, or 0.
    pub(crate) fn common_point(&self, own: &[u64]) -> u64 {
        let state = self.state();
        let followers = &state.peers.followers;
        let is_common = |point: &&u64| followers.iter().all(|one| one.points.contains(point));
        own.iter().filter(is_common).max().copied().unwrap_or_default()
    }

    /// Returns the newest rewind that a follower has followed, or 0.
    pub(crate) fn newest_rewind(&self) -> u64 {
        let state = self.state();
        state.peers.followers.iter().map(|one| one.rewound_by).max().unwrap_or_default()
    }

    /// Continues although a follower was restarted: there is no point that all servers have. The
    /// restarted follower begins empty, in the history of this server. So does one that has missed
    /// a rewind.
    pub(crate) fn give_up_rewind(&self, rewound_by: u64) {
        let now = self.now();
        self.change(|state| {
            let followers = (1..).zip(&state.peers.followers);
            let restarted: Vec<usize> =
                followers.filter(|(_, one)| one.is_restarted).map(|(number, _)| number).collect();
            if state.going_back == GoingBack::AtRestart {
                state.going_back = GoingBack::Never;
            }
            // Rounds that waited for it do not go back.
            for number in restarted {
                state.lose_follower(number);
                state.repeat_pushes(now, number);
            }
            for follower in &mut state.peers.followers {
                let is_of_other_history = follower.rewound_by != rewound_by;
                let waits = follower.is_restarted && !follower.points.is_empty();
                if waits || is_of_other_history {
                    let rewind = proto::Rewind { point: 0, by: rewound_by };
                    follower.link.send(ToFollower::Rewind(rewind));
                    follower.points.clear();
                }
                (follower.is_restarted, follower.rewound_by) = (false, rewound_by);
            }
        });
    }

    /// Tells all followers to go back to a point, and commits no more rounds. Waits until those
    /// that are connected know it.
    pub(crate) async fn rewind_followers(&self, rewind: proto::Rewind) {
        self.change(|state| {
            state.going_back = GoingBack::Now;
            state.tell_all(&ToFollower::Rewind(rewind));
        });
        self.wait(|state| state.peers.are_informed().then_some(())).await;
    }

    /// Ends this run of the server: the calls that wait end.
    pub(crate) fn end_run(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.change(|state| {
            state.is_draining = true;
            let open = state.rounds.open.values().flat_map(|open| open.entrants.values());
            open.chain(state.rounds.by_push.iter())
                .for_each(|entrant| entrant.decide(Err(ending())));
        });
    }

    /// Returns whether another run of the server begins, so that calls of this one do not count.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

impl State {
    fn needs_rewind(&self, rewound_by: u64, awaits: bool) -> bool {
        let followers = &self.peers.followers;
        let is_other = |one: &Follower| one.is_restarted || one.rewound_by != rewound_by;
        let is_needed = awaits || followers.iter().any(is_other);
        is_needed && followers.iter().all(|one| one.connection.is_some())
    }

    /// Records what a follower says when it connects. Returns whether it was restarted.
    pub(super) fn start_follower(&mut self, number: usize, start: &proto::FollowerStart) -> bool {
        let last_round =
            self.rounds.open.values().map(|open| open.number).max().unwrap_or_default();
        let Some(follower) = self.peers.follower(number) else { return false };
        let is_restarted = follower.run.is_some_and(|known| known != start.run);
        if is_restarted {
            *follower = Follower::new(std::mem::take(&mut follower.address));
            follower.is_restarted = true;
            follower.last_round = last_round;
        }
        follower.run = Some(start.run);
        follower.points.clone_from(&start.points);
        follower.newest_point = start.newest_point;
        follower.writes = Some(start.writes_point).filter(|point| *point > 0);
        follower.rewound_by = start.rewound_by;
        is_restarted
    }
}

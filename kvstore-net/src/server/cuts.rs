//! Snapshots that are taken on all servers at the same moment. `group::cuts` has the rules.

use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::time::{Instant, timeout, timeout_at};

use super::group::{Caller, ClosedState, CutStep, LONGEST_CUT};
use super::service::Service;
use crate::proto;
use crate::runtime::in_place;

/// How soon a snapshot is tried again: after an error, and after calls have waited for it in vain.
const AGAIN: Duration = Duration::from_millis(50);
const AFTER_TIMEOUT: Duration = Duration::from_secs(1);

impl Service {
    /// Lets no more calls take effect, because the leader begins a cut.
    pub(super) async fn close(&self, number: u64) {
        if let Some(recovery) = &self.recovery {
            // Before the leader can write its point: a later leader must not use the number.
            recovery.note_cut(number);
        }
        let begun = Instant::now();
        let closed = async {
            if let Some(recovery) = &self.recovery {
                // If the state cannot be taken, the next step says so.
                recovery.closed().await.unwrap_or_default()
            } else {
                // The calls that take effect have done so.
                drop(self.effects.write().await);
                ClosedState::default()
            }
        };
        // New calls wait for the lock after this task. So it stops waiting when the cut
        // has ended.
        let closed = tokio::select! {
            biased;
            () = self.group.cut_ended(number) => return,
            closed = timeout(LONGEST_CUT, closed) => closed,
        };
        let Ok(state) = closed else {
            return self.group.report_taken(number, &Err(late()), false);
        };
        self.group.report_closed(number, state);
        tokio::time::sleep_until(begun + LONGEST_CUT).await;
        self.group.give_up_closed_cut(number);
        tokio::time::sleep(LONGEST_CUT).await;
        self.group.give_up_cut(number);
    }

    /// Takes a snapshot in a cut of the leader.
    pub(super) async fn take_for_leader(&self, number: u64, snapshot: &proto::CutSnapshot) {
        let taken = tokio::select! {
            biased;
            () = self.group.cut_ended(number) => return,
            taken = timeout(LONGEST_CUT, self.take_in_cut(number, snapshot)) => taken,
        };
        self.group.report_taken(number, &taken.unwrap_or_else(|_| Err(late())), false);
    }

    async fn take_in_cut(&self, number: u64, snapshot: &proto::CutSnapshot) -> Result<()> {
        let incarnation = self.group.incarnation_of(&snapshot.name, snapshot.process)?;
        self.group.joint_calls_made(number).await?;
        let _between_calls = self.effects.write().await;
        let request = snapshot.request.clone().unwrap_or_default();
        in_place(|| self.holder.replace_snapshot(incarnation, &request))?;
        self.group.take_cut(number)
    }

    /// Takes a snapshot for a member on all servers, at the same moment. This server leads them.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a server or the member is not connected until the deadline.
    /// - [`Error::Timeout`] if a server is not ready until then.
    /// - The error of a server.
    pub(super) async fn take_on_all(
        &self,
        caller: &Caller,
        request: &proto::TakeSnapshot,
        deadline: Instant,
    ) -> Result<()> {
        let process = self.group.process_of(caller);
        let process = process.ok_or_else(|| Error::Closed { what: "the membership".to_owned() })?;
        loop {
            let name = caller.name.clone();
            let request = Some(request.clone());
            let snapshot = proto::CutSnapshot { name, process, request };
            let service = self.clone();
            // In a task of its own, because a cut must be ended even if the member goes away.
            let taken = async move { service.lead_snapshot(snapshot, deadline).await };
            let taken = tokio::spawn(taken).await;
            let panicked = |error| Error::Internal(format!("a snapshot has panicked: {error}"));
            let Err(error) = taken.map_err(panicked).flatten() else { return Ok(()) };
            let may_pass = matches!(error, Error::Transport { .. } | Error::Timeout(_));
            let is_timeout = matches!(error, Error::Timeout(_));
            let again = if is_timeout { AFTER_TIMEOUT } else { AGAIN };
            if !may_pass || self.group.is_over() || Instant::now() + again > deadline {
                return Err(error);
            }
            tokio::time::sleep(again).await;
        }
    }

    async fn lead_snapshot(&self, snapshot: proto::CutSnapshot, deadline: Instant) -> Result<()> {
        let _one = timeout_at(deadline, self.group.one_cut()).await.map_err(|_| {
            let text = "a snapshot of all servers: another one or a recovery point is being made";
            Error::Timeout(text.to_owned())
        })?;
        let newest = self.recovery.as_ref().map_or(0, |recovery| recovery.newest());
        let number = self.group.begin_snapshot(newest)?;
        if let Some(recovery) = &self.recovery {
            recovery.note_cut(number);
        }
        let _end = self.group.cancel_at_end(number);
        let cut = proto::Cut { number, snapshot: Some(snapshot), ..proto::Cut::default() };
        let taken = timeout(LONGEST_CUT, self.lead_snapshot_cut(cut)).await;
        let taken = taken.unwrap_or_else(|_| Err(late()));
        self.group.end_cut(number, taken.is_err());
        taken
    }

    async fn lead_snapshot_cut(&self, cut: proto::Cut) -> Result<()> {
        let number = cut.number;
        self.group.start_cut(number).await;
        drop(self.effects.write().await);
        self.group.cut_reached(number, CutStep::Closed).await?;
        self.group.cut(&cut);
        if let Some(snapshot) = &cut.snapshot {
            self.take_in_cut(number, snapshot).await?;
        }
        self.group.cut_reached(number, CutStep::Taken).await
    }
}

fn late() -> Error {
    let waited = LONGEST_CUT.as_secs();
    let text = "a snapshot or recovery point of all servers: not all were ready in";
    Error::Timeout(format!("{text} {waited} s"))
}

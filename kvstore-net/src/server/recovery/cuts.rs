//! Recovery points of several servers that are one consistent cut: the steps of the first server,
//! which leads, and of the others. `group::cuts` has the rules.

use std::time::Duration;

use kvstore_core::{Error, Result};
use tokio::time::timeout;

use super::{Point, Recovery};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::runtime::in_place;
use crate::server::group::{ClosedState, CutStep, LONGEST_CUT as LONGEST};

/// How long the first server waits until the others have written their points. Meanwhile, calls
/// take effect, but there is no further cut.
const LONGEST_WRITE: Duration = Duration::from_secs(600);

/// What this server has of a cut that it leads.
enum LedCut {
    /// Its point and the checksum of what it knows. All servers have their states.
    Taken(Box<Point>, u64),
    /// No server has changed since the last cut.
    Unchanged,
    /// Keys are being added at a server.
    AddsKeys,
}

impl Recovery {
    /// Makes a point of all servers, unless nothing has changed. Returns false while keys are being
    /// added.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a server is not connected.
    /// - [`Error::Timeout`] if a server is not ready in time.
    /// - The error of a server.
    pub(super) async fn save_together(&self) -> Result<bool> {
        let _one = self.group.one_cut().await;
        // The servers remove old points, so this server must know which points all of them have.
        timeout(LONGEST, self.group.points_known()).await.map_err(|_| {
            let text = "a recovery point of all servers: not all have written the last one";
            Error::Timeout(text.to_owned())
        })?;
        let number = self.group.begin_point(self.newest(), self.rewound_by)?;
        self.note_cut(number);
        let _end = self.group.cancel_at_end(number);
        let made = timeout(LONGEST, self.lead_cut(number)).await;
        let made = made.unwrap_or_else(|_| {
            let waited = LONGEST.as_secs();
            Err(Error::Timeout(format!(
                "a recovery point of all servers: not all were ready in {waited} s"
            )))
        });
        let kept = match made {
            Ok(LedCut::Taken(point, known)) => {
                let common = self.group.common_point(&self.cuts());
                self.group.complete_cut(number, common);
                let own = self.write_in_cut((*point, known), common, || true).await;
                let others = self.group.cut_reached(number, CutStep::Kept);
                let others = timeout(LONGEST_WRITE, others).await.unwrap_or_else(|_| {
                    let waited = LONGEST_WRITE.as_secs();
                    Err(Error::Timeout(format!(
                        "a recovery point of all servers: not all were written in {waited} s"
                    )))
                });
                own.and(others)
            }
            Ok(LedCut::Unchanged) => {
                self.last().state.error = None;
                self.group.end_cut(number, true);
                return Ok(true);
            }
            Ok(LedCut::AddsKeys) => {
                self.group.end_cut(number, true);
                return Ok(false);
            }
            Err(error) => Err(error),
        };
        self.group.end_cut(number, kept.is_err());
        kept.map(|()| true)
    }

    async fn lead_cut(&self, number: u64) -> Result<LedCut> {
        self.group.start_cut(number).await;
        let own = self.closed().await?;
        self.group.cut_reached(number, CutStep::Closed).await?;
        if own.adds_keys || self.group.add_keys(number) {
            return Ok(LedCut::AddsKeys);
        }
        let common = self.group.common_point(&self.cuts());
        if self.group.is_unchanged(number, common, own) {
            return Ok(LedCut::Unchanged);
        }
        self.group.cut(&proto::Cut { number, ..proto::Cut::default() });
        let point = self.taken(number).await?;
        self.group.cut_reached(number, CutStep::Taken).await?;
        let (point, known) = point;
        Ok(LedCut::Taken(Box::new(point), known))
    }

    /// Waits until the calls that take effect have done so, because a cut begins. Returns what has
    /// changed.
    pub(in crate::server) async fn closed(&self) -> Result<ClosedState> {
        let _between_calls = self.effects.write().await;
        let now = self.now()?;
        let last = self.last();
        let adds_keys = now.is_none();
        let is_same = last.known.is_some() && now.map(|(_, known)| known) == last.known;
        let same_as = if is_same { last.cuts.last().copied().unwrap_or_default() } else { 0 };
        Ok(ClosedState { same_as, adds_keys })
    }

    /// Returns the point of this server in a cut.
    async fn taken(&self, number: u64) -> Result<(Point, u64)> {
        self.group.joint_calls_made(number).await?;
        #[cfg(test)]
        if Fault::CutLate.is_planted() {
            self.group.take_cut(number)?;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let _between_calls = self.effects.write().await;
        let adding = || Error::Timeout("a recovery point: keys are being added".to_owned());
        let (mut point, known) = self.now()?.ok_or_else(adding)?;
        (point.state.number, point.state.is_cut) = (number, true);
        point.state.in_journal = in_place(|| self.holder.contents().mark_point());
        self.group.take_cut(number)?;
        Ok((point, known))
    }

    /// Takes the state of this server, and writes it when all servers have theirs.
    pub(in crate::server) async fn take(&self, number: u64) {
        let late = || Error::Timeout("a recovery point: joint calls were not made".to_owned());
        // New calls wait for the lock after this task. So it stops waiting when the cut
        // has ended.
        let taken = tokio::select! {
            biased;
            () = self.group.cut_ended(number) => return,
            taken = timeout(LONGEST, self.taken(number)) => taken,
        };
        let (point, result) = match taken.unwrap_or_else(|_| Err(late())) {
            Ok(point) => (Some(point), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.group.report_taken(number, &result, true);
        let Some(point) = point else { return };
        let given_up = || Error::Timeout("a recovery point: it was given up".to_owned());
        let Some(common) = self.group.cut_complete(number).await else {
            return self.group.report_kept(number, &Err(given_up()));
        };
        let has_ended = self.has_ended.lock().await;
        if *has_ended {
            return;
        }
        let is_present = || self.group.end_followed_cut(number);
        let kept = match self.write_in_cut(point, common, is_present).await {
            Ok(is_written) => is_written.then_some(()).ok_or_else(given_up),
            Err(error) => Err(error),
        };
        self.group.report_kept(number, &kept);
    }

    /// Records that a cut has begun, so that no other point gets its number.
    pub(in crate::server) fn note_cut(&self, number: u64) {
        let mut last = self.last();
        last.number = last.number.max(number);
    }

    /// Returns the largest number of a point so far.
    pub(in crate::server) fn newest(&self) -> u64 {
        self.last().number
    }

    /// Returns what a follower tells the leader of its points, all of the same moment.
    pub(in crate::server) fn follower_start(&self) -> proto::FollowerStart {
        let last = self.last();
        proto::FollowerStart {
            run: self.run,
            points: last.cuts.clone(),
            rewound_by: self.rewound_by,
            newest_point: last.number,
            writes_point: last.writes,
        }
    }

    /// Returns the numbers of the points that are one cut with those of other servers.
    pub(in crate::server) fn cuts(&self) -> Vec<u64> {
        self.last().cuts.clone()
    }
}

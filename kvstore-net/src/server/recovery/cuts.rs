//! Recovery points of several servers that are one consistent cut: the steps of the first server,
//! which leads, and of the others. `group::cuts` has the rules.

use kvstore_core::{Error, Result};
use tokio::time::timeout;

use super::{Point, Recovery};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::runtime::in_place;
use crate::server::group::{ClosedState, CutStep, LONGEST_CUT as LONGEST};

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
        let last = self.last().number.max(self.group.newest_point());
        let number = self.group.next_cut(last);
        self.last().number = number;
        self.group.begin_cut(number)?;
        let made = timeout(LONGEST, self.lead_cut(number)).await;
        let made = made.unwrap_or_else(|_| {
            let waited = LONGEST.as_secs();
            Err(Error::Timeout(format!(
                "a recovery point of all servers: not all were ready in {waited} s"
            )))
        });
        let kept = match made {
            Ok(LedCut::Taken(point, known)) => {
                self.group.complete_cut(number);
                let common = self.last().common;
                let own = self.write(*point, known, common);
                own.and(self.group.cut_reached(number, CutStep::Kept).await)
            }
            Ok(LedCut::Unchanged) => {
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
        kept?;
        self.last().common = number;
        Ok(true)
    }

    async fn lead_cut(&self, number: u64) -> Result<LedCut> {
        self.group.start_cut(number).await;
        let own = self.closed().await?;
        self.group.cut_reached(number, CutStep::Closed).await?;
        if own.adds_keys || self.group.add_keys(number) {
            return Ok(LedCut::AddsKeys);
        }
        let common = self.last().common;
        if self.group.is_unchanged(number, common, own) {
            return Ok(LedCut::Unchanged);
        }
        self.group.cut(&proto::Cut { number, common, ..proto::Cut::default() });
        let point = self.taken(number).await?;
        self.group.cut_reached(number, CutStep::Taken).await?;
        let (point, known) = point;
        Ok(LedCut::Taken(Box::new(point), known))
    }

    /// Waits until the calls that take effect have done so, because a cut begins. Returns what has
    /// changed.
    pub(in crate::server) async fn closed(&self) -> Result<ClosedState> {
        let _between_calls = self.effects.write().await;
        let now = in_place(|| self.now())?;
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
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
        let _between_calls = self.effects.write().await;
        let adding = || Error::Timeout("a recovery point: keys are being added".to_owned());
        let (mut point, known) = in_place(|| self.now())?.ok_or_else(adding)?;
        (point.state.number, point.state.is_cut) = (number, true);
        self.group.take_cut(number)?;
        Ok((point, known))
    }

    /// Takes the state of this server, and writes a point. All servers have the point `common`.
    pub(in crate::server) async fn take(&self, number: u64, common: u64) {
        let late = || Error::Timeout("a recovery point: joint calls were not made".to_owned());
        let taken = timeout(LONGEST, self.taken(number)).await;
        let (point, result) = match taken.unwrap_or_else(|_| Err(late())) {
            Ok(point) => (Some(point), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.group.report_taken(number, &result);
        if let Some((point, known)) = point {
            let has_ended = self.has_ended.lock().await;
            if !*has_ended {
                let kept = self.write(point, known, common);
                self.group.report_kept(number, &kept);
            }
        }
    }

    /// Returns the numbers of the points that are one cut with those of other servers.
    pub(in crate::server) fn cuts(&self) -> Vec<u64> {
        self.last().cuts.clone()
    }
}

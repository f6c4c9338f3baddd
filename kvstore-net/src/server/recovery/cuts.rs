//! Recovery points of several servers that are one consistent cut: the steps of the first server,
//! which leads, and of the others. `group::cuts` has the rules.

use kvstore_core::{Error, Result};
use tokio::time::timeout;

use super::{Point, Recovery};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::runtime::in_place;
use crate::server::group::{CutStep, LONGEST_CUT as LONGEST};

impl Recovery {
    /// Makes a point of all servers, unless nothing has changed.
    ///
    /// # Errors
    /// - [`Error::Transport`] if a server is not connected.
    /// - [`Error::Timeout`] if a server is not ready in time.
    /// - The error of a server.
    pub(super) async fn save_together(&self) -> Result<()> {
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
            Ok(Some((point, known))) => {
                self.group.complete_cut(number);
                let common = self.last().common;
                let own = self.write(point, known, common);
                own.and(self.group.cut_reached(number, CutStep::Kept).await)
            }
            Ok(None) => {
                self.group.end_cut(number, true);
                return Ok(());
            }
            Err(error) => Err(error),
        };
        self.group.end_cut(number, kept.is_err());
        kept?;
        self.last().common = number;
        Ok(())
    }

    /// Returns the point of this server in a cut that all servers have taken, or `None` if nothing
    /// has changed.
    async fn lead_cut(&self, number: u64) -> Result<Option<(Point, u64)>> {
        self.group.start_cut(number).await;
        let same_as = self.closed().await?;
        self.group.cut_reached(number, CutStep::Closed).await?;
        let common = self.last().common;
        if self.group.is_unchanged(number, (common, same_as)) {
            return Ok(None);
        }
        self.group.cut(&proto::Cut { number, common, ..proto::Cut::default() });
        let point = self.taken(number).await?;
        self.group.cut_reached(number, CutStep::Taken).await?;
        Ok(Some(point))
    }

    /// Waits until the calls that take effect have done so. Returns the newest point if the server
    /// has not changed since, or 0.
    pub(in crate::server) async fn closed(&self) -> Result<u64> {
        let _between_calls = self.effects.write().await;
        let now = in_place(|| self.now())?;
        let last = self.last();
        let is_same = last.known.is_some() && now.map(|(_, known)| known) == last.known;
        Ok(if is_same { last.cuts.last().copied().unwrap_or_default() } else { 0 })
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

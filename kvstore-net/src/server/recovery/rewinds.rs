//! How all servers of a group go back to the same recovery point, after one of them was restarted.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Recovery;
use crate::proto;
use crate::server::runs::Runs;

/// How soon a leader looks again for a point that all servers have.
const AGAIN: Duration = Duration::from_secs(1);

/// How long a leader waits until the followers know that they go back.
const TOLD: Duration = Duration::from_secs(10);

impl Recovery {
    /// Returns the message after which this run of the server has begun, or 0.
    pub(crate) fn rewound_by(&self) -> u64 {
        self.rewound_by
    }

    /// Returns whether this run waits until all servers go back to the same point.
    pub(in crate::server) fn awaits_others(&self) -> bool {
        self.awaits_others
    }

    /// Leads the servers back to the newest point that all have, when one of them was restarted.
    /// Returns when this run of the server ends.
    pub(in crate::server) async fn lead_back(
        self: Arc<Self>,
        runs: Arc<Runs>,
        end: CancellationToken,
    ) {
        loop {
            let needed = self.group.rewind_needed(self.rewound_by, self.awaits_others);
            // From here on, no cut is made, because its point would not be of the moment of those
            // of the others, and points that are chosen here must stay.
            let pause = async {
                needed.await;
                self.has_ended.lock().await
            };
            let mut has_ended = tokio::select! {
                biased;
                () = end.cancelled() => return,
                has_ended = pause => has_ended,
            };
            if *has_ended {
                return;
            }
            if !self.group.needs_rewind(self.rewound_by, self.awaits_others) {
                continue;
            }
            let point = self.group.common_point(&self.cuts());
            if point > 0 {
                let rewind = proto::Rewind { point, by: self.run };
                tracing::warn!(point, "all servers go back to a recovery point");
                *has_ended = true;
                drop(has_ended);
                let told = self.group.rewind_followers(rewind);
                // The next run tells those that do not know it.
                let _ = tokio::time::timeout(TOLD, told).await;
                drop(self);
                return runs.begin_again(rewind).await;
            }
            if self.group.may_learn_of_points() {
                drop(has_ended);
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let text = "a server was restarted, and there is no point that all servers have";
            let before = self.last().state.error.replace(text.to_owned());
            if before.is_none_or(|before| before != text) {
                tracing::error!("{text}");
            }
            if !self.awaits_others {
                let newest = self.group.newest_rewind();
                if newest > self.rewound_by {
                    // This server was restarted without its points. It remains empty, but the
                    // others know its calls only if all are of the same history.
                    *has_ended = true;
                    drop(has_ended);
                    drop(self);
                    return runs.begin_again(proto::Rewind { point: 0, by: newest }).await;
                }
                // Points are made again as soon as no server counts as restarted.
                self.group.give_up_rewind(self.rewound_by);
                continue;
            }
            drop(has_ended);
            tokio::time::sleep(AGAIN).await;
        }
    }
}

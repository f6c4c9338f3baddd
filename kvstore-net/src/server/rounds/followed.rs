//! Rounds in which this server follows the first one.

use kvstore_core::Error;

use super::Failed;
use crate::server::group::{Attempt, Decision};
use crate::server::service::Service;

impl Service {
    /// Sums the lists of a round, until it ends, and applies the one that the leader commits.
    pub(in crate::server) async fn follow_round(self, round: u64) {
        let service = self.clone();
        let run = tokio::spawn(async move {
            let follow = async {
                while let Some(list) = service.group.followed_list(round).await {
                    service.follow_list(round, list).await;
                }
            };
            service.until_rewind(follow).await;
        });
        if let Err(panic) = run.await {
            let error = Error::Internal(format!("a round has ended: {panic}"));
            self.group.abandon_list(round, &error);
        }
    }

    async fn follow_list(&self, round: u64, Attempt { number, members }: Attempt) {
        let folded = tokio::select! {
            biased;
            () = self.group.replaced_list(round, number) => return,
            folded = self.fold(&members) => folded,
        };
        let folded = match folded {
            Ok(folded) => folded,
            Err(Failed::Member(name, outcome)) => {
                let member = members.iter().find(|member| member.caller.name == name);
                if let Some(member) = member {
                    self.group.fail_part(member, outcome);
                }
                return;
            }
            Err(Failed::Round(error)) => return self.group.fail_list(round, number, &error),
        };
        if self.group.decision(round, number).await == Decision::Commit {
            let outcome = self.apply_sums(&members, folded).await;
            self.group.finish_list((round, number), &members, &outcome);
        }
    }
}

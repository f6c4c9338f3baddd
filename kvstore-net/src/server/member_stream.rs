//! [`MemberStream`]: the stream that keeps a member in the group.

use std::sync::Arc;

use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::access::Identity;
use super::service::Service;
use crate::accounts::MemberCount;
use crate::proto::{self, member_message, server_message};
use crate::rules::Joined;

/// The open stream of a member.
pub(super) struct MemberStream {
    pub(super) service: Service,
    pub(super) name: String,
    pub(super) joined: Joined,
    pub(super) identity: Identity,
    pub(super) sender: mpsc::Sender<Result<proto::ServerMessage, Status>>,
    /// Counts the member towards the limit of its peer.
    pub(super) _count: Option<MemberCount>,
}

impl MemberStream {
    /// Receives renewals and sends the members, until the member leaves or the connection is lost.
    pub(super) async fn run(self, mut messages: Streaming<proto::MemberMessage>) {
        let group = Arc::clone(&self.service.group);
        let mut known = None;
        let most = self.sender.max_capacity();
        loop {
            let changed = group.members_changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            // At most one list waits for each member, because each has all names.
            let is_read = self.sender.capacity() == most;
            let newer = group.members_since(known);
            let waits = newer.is_some() && !is_read;
            if let Some((number, members)) = newer.filter(|_| is_read) {
                match self.send(server_message::Content::Members(members)) {
                    SendOutcome::Yes => known = Some(number),
                    // The list is sent after the next message of the member.
                    SendOutcome::Full => {}
                    SendOutcome::Lost => break,
                }
            }
            tokio::select! {
                // Messages before changes: a busy group must not delay the renewal of a lease.
                biased;
                () = self.service.end.cancelled() => return,
                received = messages.message() => match received {
                    Ok(Some(message)) => {
                        if let Some(member_message::Content::Leave(_)) = message.content {
                            group.leave(&self.name, self.joined.incarnation);
                            return;
                        }
                        let process = (self.joined.incarnation, &self.identity);
                        let known = group.authorise(&self.name, process, (0, &[]));
                        if let Err(status) = known {
                            let _ = self.sender.try_send(Err(status));
                            return;
                        }
                        if let Some(member_message::Content::Renewal(renewal)) = message.content {
                            let member = (self.name.as_str(), self.joined.incarnation);
                            group.end_joint(member, renewal.ended_below);
                        }
                        let renewed =
                            server_message::Content::Renewed(proto::Renewal::default());
                        if let SendOutcome::Lost = self.send(renewed) {
                            break;
                        }
                    }
                    Ok(None) | Err(_) => break,
                },
                () = changed => {}
                () = async { drop(self.sender.reserve_many(most).await) }, if waits => {}
            }
        }
        group.lose(&self.name, self.joined.connection);
    }

    pub(super) fn send(&self, content: server_message::Content) -> SendOutcome {
        let message = proto::ServerMessage { content: Some(content) };
        match self.sender.try_send(Ok(message)) {
            Ok(()) => SendOutcome::Yes,
            Err(mpsc::error::TrySendError::Full(_)) => SendOutcome::Full,
            Err(mpsc::error::TrySendError::Closed(_)) => SendOutcome::Lost,
        }
    }
}

/// Whether a message was queued for a member.
pub(super) enum SendOutcome {
    Yes,
    Full,
    Lost,
}

//! The streams between the servers of a group. `group::leading` and `group::following` decide what
//! the servers tell each other.

pub(crate) mod lead;

use std::pin::Pin;
use std::sync::PoisonError;
use std::time::Duration;

use kvstore_core::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::access::Permission;
use super::group::Followup;
use super::service::Service;
use crate::proto;
use crate::proto::peers_server::Peers;
use crate::proto::{
    FollowerMessage, FollowerStart, LeaderMessage, LeaderStart, follower_message, leader_message,
};

/// The most messages that wait for a connection.
const MOST_WAITING: usize = 16;

/// How long the leader may take to send its first message.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

#[tonic::async_trait]
impl Peers for Service {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<FollowerMessage, Status>> + Send>>;

    async fn follow(
        &self,
        request: Request<Streaming<LeaderMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let access = self.access.of(request.extensions());
        access.permission.check(Permission::Serve, "leading rounds")?;
        let mut messages = request.into_inner();
        let first = timeout_at(Instant::now() + FIRST_MESSAGE, messages.message()).await;
        let late = |_| Status::deadline_exceeded("the first message did not arrive in time");
        let first = first.map_err(late)??.unwrap_or_default();
        let Some(leader_message::Content::Start(start)) = first.content else {
            return Err(Status::invalid_argument("the first message is not a LeaderStart"));
        };
        self.check_follows(&start)?;
        if self.end.is_cancelled() {
            // The leader would take what this run says for the state of the next one.
            return Err(Status::unavailable("the server begins another run, or ends"));
        }
        let rewound_by = self.recovery.as_ref().map_or(0, |recovery| recovery.rewound_by());
        let own = (self.run, rewound_by);
        let connected = self.group.connect_leader(own, &start, first.received);
        let (connection, received) = connected.ok_or_else(|| {
            Status::failed_precondition("a later run of the first server leads this one")
        })?;
        tracing::info!(run = start.run, "the first server leads this one");
        let (sender, outgoing) = mpsc::channel(MOST_WAITING);
        // What the leader has received of an earlier run of this server does not count.
        let sent = if start.follower_run == self.run { first.received } else { 0 };
        // After the connection, because then no earlier cut removes points any more.
        let without_points = || FollowerStart { run: self.run, ..FollowerStart::default() };
        let recovery = self.recovery.as_ref();
        let start = recovery.map_or_else(without_points, |recovery| recovery.follower_start());
        let start = follower_message::Content::Start(start);
        // The channel is empty, so there is room.
        let _ = sender.try_send(Ok(FollowerMessage { number: 0, received, content: Some(start) }));
        let stream = LeaderStream { service: self.clone(), connection, sender };
        tokio::spawn(stream.run(messages, (sent, received)));
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

/// The stream of the leader.
struct LeaderStream {
    service: Service,
    connection: u64,
    sender: mpsc::Sender<Result<FollowerMessage, Status>>,
}

impl LeaderStream {
    /// Exchanges messages until the connection is lost or another one replaces it.
    async fn run(self, mut messages: Streaming<LeaderMessage>, state: (u64, u64)) {
        let Self { service, connection, sender } = self;
        let group = &service.group;
        let (mut sent, mut acknowledged) = state;
        loop {
            tokio::select! {
                biased;
                () = service.end.cancelled() => break,
                message = messages.message() => {
                    let Ok(Some(message)) = message else { break };
                    let (is_next, followup) = group.receive_from_leader(connection, message);
                    if let Some(followup) = followup {
                        tokio::spawn(service.clone().follow_up(followup));
                    }
                    if !is_next {
                        break;
                    }
                }
                message = group.message_to_leader(connection, (sent, acknowledged)) => {
                    let Some(message) = message else { break };
                    (sent, acknowledged) = (sent.max(message.number), message.received);
                    if sender.send(Ok(message)).await.is_err() {
                        break;
                    }
                }
            }
        }
        group.disconnect_leader(connection);
    }
}

impl Service {
    /// Does what follows on a message of the leader.
    async fn follow_up(self, followup: Followup) {
        if let (Followup::Take(proto::Cut { number, .. }), Err(status)) =
            (&followup, self.check_together())
        {
            let operation = "a snapshot or recovery point".to_owned();
            let source = status.message().to_owned().into();
            let error = Error::Transport { operation, source };
            return self.group.report_taken(*number, &Err(error), false);
        }
        let number = match (followup, &self.recovery) {
            (Followup::Round(round), _) => return self.follow_round(round).await,
            (Followup::Rewind(rewind), _) => {
                self.rewinds.send_replace(Some(rewind));
                return;
            }
            (Followup::Close(number), _) => return self.close(number).await,
            (Followup::Take(proto::Cut { number, snapshot: Some(snapshot), .. }), _) => {
                return self.take_for_leader(number, &snapshot).await;
            }
            (Followup::Take(proto::Cut { number, .. }), Some(recovery)) => {
                return recovery.take(number).await;
            }
            (Followup::Take(proto::Cut { number, .. }), None) => number,
        };
        let text = "a recovery point of all servers: this server has no folder for them";
        self.group.report_taken(number, &Err(Error::Unsupported(text.to_owned())), false);
    }

    /// Checks that the leader has this server at the place that its members have told it.
    fn check_follows(&self, start: &LeaderStart) -> Result<(), Status> {
        if self.group.num_followers() > 0 {
            return Err(Status::failed_precondition(
                "followers: this server leads others, too, but only the first one may",
            ));
        }
        if start.coordinated != self.coordinated_group() {
            return Err(Status::failed_precondition(
                "followers: this server belongs to another group, whose state is elsewhere",
            ));
        }
        let place = self.registration.as_ref().map(|registration| registration.place());
        let place = place.or_else(|| *self.place.lock().unwrap_or_else(PoisonError::into_inner));
        let found = (start.server, start.num_servers);
        if start.server == 0 || place.is_some_and(|known| known != found) {
            return Err(Status::invalid_argument(format!(
                "followers: for the first server, this one is number {} of {}, which is not its \
                 place in the members' list of servers",
                start.server + 1,
                start.num_servers
            )));
        }
        Ok(())
    }
}

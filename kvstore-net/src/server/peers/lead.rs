//! The streams of the first server to the others.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::MOST_WAITING;
use crate::certificates::Security;
use crate::coordinator::Route;
use crate::endpoint::{CONNECT, channel};
use crate::proto::peers_client::PeersClient;
use crate::proto::{LeaderMessage, LeaderStart, follower_message, leader_message};
use crate::server::service::{MOST_PEER_MESSAGE, Service};

/// How long the leader waits before it connects again: at first, and at most.
const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(1);

/// A server that this one leads.
#[derive(Clone)]
pub(crate) struct Led {
    /// What errors call it.
    pub(crate) name: String,
    connect: Arc<dyn Fn() -> Result<Channel, Status> + Send + Sync>,
    /// Its address, if that may change.
    route: Option<Route>,
}

impl Led {
    pub(crate) fn new(name: String, channel: Channel) -> Self {
        Self { name, connect: Arc::new(move || Ok(channel.clone())), route: None }
    }

    /// Returns a server whose address changes. It is empty while the server has not started.
    pub(crate) fn at(name: String, route: Route, security: Security) -> Self {
        let known = route.clone();
        let connect = move || {
            let address = known.borrow().clone();
            if address.is_empty() {
                return Err(Status::unavailable("it has not started yet"));
            }
            channel(&address, &security, CONNECT)
                .map_err(|error| Status::failed_precondition(error.chain()))
        };
        Self { name, connect: Arc::new(connect), route: Some(route) }
    }

    /// Returns a future that is ready when the address is another one.
    fn moved(&self) -> impl Future<Output = Status> + use<> {
        let mut route = self.route.clone();
        // Only later changes count.
        route.iter_mut().for_each(Route::mark_unchanged);
        async move {
            if let Some(route) = &mut route
                && route.changed().await.is_ok()
            {
                return Status::unavailable("it is at another address");
            }
            std::future::pending().await
        }
    }
}

/// Leads a follower until this server ends. Connects again after a lost connection.
///
/// The followers are numbered from 1, as in the list of servers.
pub(crate) async fn lead(service: Service, (number, num_servers): (u32, u32), led: Led) {
    let leading = async {
        let (mut wait, mut reported) = (FIRST, String::new());
        loop {
            let mut has_connected = false;
            let place = (number, num_servers);
            let error = stream(&service, place, &led, &mut has_connected).await;
            if has_connected {
                wait = FIRST;
            }
            let reason = error.message();
            if has_connected || reported != reason {
                tracing::warn!(follower = led.name, reason, "a follower is not connected");
                reason.clone_into(&mut reported);
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(LONGEST);
        }
    };
    tokio::select! {
        () = leading => {}
        () = service.end.cancelled() => {}
    }
}

/// Exchanges messages with a follower until the connection is lost. Returns why.
async fn stream(
    service: &Service,
    place: (u32, u32),
    led: &Led,
    has_connected: &mut bool,
) -> Status {
    match exchange(service, place, led, has_connected).await {
        Ok(never) => match never {},
        Err(status) => status,
    }
}

async fn exchange(
    service: &Service,
    (number, num_servers): (u32, u32),
    led: &Led,
    has_connected: &mut bool,
) -> Result<Infallible, Status> {
    let mut moved = pin!(led.moved());
    let channel = (led.connect)()?;
    let group = &service.group;
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    let (sender, outgoing) = mpsc::channel(MOST_WAITING);
    let (follower_run, received) = group.known_follower(index);
    let rewound_by = service.recovery.as_ref().map_or(0, |recovery| recovery.rewound_by());
    let (run, server) = (service.run, number);
    let coordinated = service.coordinated_group();
    let goes_back = service.recovery.as_ref().is_some_and(|recovery| !recovery.cuts().is_empty());
    let start =
        LeaderStart { run, server, num_servers, follower_run, rewound_by, coordinated, goes_back };
    let content = Some(leader_message::Content::Start(start));
    // The channel is empty, so there is room.
    let _ = sender.try_send(LeaderMessage { number: 0, received, content });
    let mut client = PeersClient::new(channel).max_decoding_message_size(MOST_PEER_MESSAGE);
    let mut messages = tokio::select! {
        biased;
        status = &mut moved => return Err(status),
        messages = client.follow(ReceiverStream::new(outgoing)) => messages?.into_inner(),
    };
    let ended = || Status::unavailable("the stream has ended");
    let first = messages.message().await?.ok_or_else(ended)?;
    let Some(follower_message::Content::Start(start)) = first.content else {
        return Err(Status::invalid_argument("the first message is not a FollowerStart"));
    };
    let connection = group.connect_follower(index, &start, first.received);
    tracing::info!(follower = led.name, run = start.run, "a follower is connected");
    *has_connected = true;
    let (mut sent, mut acknowledged) = (first.received, group.known_follower(index).1);
    let exchanged = async {
        loop {
            tokio::select! {
                biased;
                status = &mut moved => return Err(status),
                message = messages.message() => {
                    let message = message?.ok_or_else(ended)?;
                    if !group.receive_from_follower(index, message) {
                        return Err(Status::data_loss("a message was lost"));
                    }
                }
                message = group.message_to_follower(index, (sent, acknowledged)) => {
                    (sent, acknowledged) = (sent.max(message.number), message.received);
                    sender.send(message).await.map_err(|_| ended())?;
                }
            }
        }
    };
    let result: Result<Infallible, Status> = exchanged.await;
    group.disconnect_follower(index, connection);
    result
}

//! [`Membership`]: keeps this process a member of the group of a server.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvstore_core::Rewound;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::barriers::PassedBarriers;
use super::connection::fraction;
use super::operations::Operations;
use super::streams::Streams;
use crate::certificates::{Security, refusal};
use crate::coordinator::Route;
use crate::endpoint::channels;
use crate::proto::store_client::StoreClient;
use crate::proto::{self, member_message, server_message};
use crate::rules::Backoff;
use crate::server::VERSION;

/// How long a store that is dropped waits until the server knows.
pub(super) const LEAVE: Duration = Duration::from_secs(1);

/// What a connection needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) server: String,
    /// The address of the server from now on, if its group has a coordinator.
    pub(crate) route: Option<Route>,
    /// The position of the server in the list of servers, and the length of the list.
    pub(crate) place: (u32, u32),
    pub(crate) name: String,
    /// A random number that identifies this store in this process.
    pub(crate) process: u64,
    pub(crate) is_reader: bool,
    pub(crate) timeout: Duration,
    /// The number of connections for calls.
    pub(crate) connections: NonZeroUsize,
    pub(crate) security: Security,
    /// The operations that change several servers of the list.
    pub(crate) operations: Arc<Operations>,
}

/// The state of the membership.
#[derive(Clone, Debug)]
pub(super) enum Session {
    /// There is no membership at the moment, for this reason.
    Absent(String),
    Joined(proto::JoinReply),
    /// There will be no membership, for this reason.
    Refused(Code, String),
    /// This process has left.
    Left,
}

/// The live members, as the server has sent them last.
#[derive(Default)]
pub(super) struct Members {
    pub(super) now: Vec<proto::Member>,
    /// Sends each new list to the thread that calls the user's function.
    pub(super) on_change: Option<std::sync::mpsc::Sender<Vec<proto::Member>>>,
    /// Sends the event to the thread that calls the user's function, when the server continues
    /// from a recovery point.
    pub(super) on_rewind: Option<std::sync::mpsc::Sender<Rewound>>,
}

/// Keeps this process a member.
pub(super) struct Membership {
    pub(super) target: Target,
    pub(super) client: StoreClient<Channel>,
    pub(super) streams: Arc<Streams>,
    pub(super) state: watch::Sender<Session>,
    pub(super) members: Arc<Mutex<Members>>,
    pub(super) barriers: Arc<PassedBarriers>,
    /// The last membership.
    pub(super) earlier: Option<proto::JoinReply>,
}

/// Returns the number of the newest message after which all servers went back to a recovery point.
pub(super) fn history_of(joined: &proto::JoinReply) -> u64 {
    joined.rewound.map_or(0, |rewound| rewound.by)
}

/// Waits until the server is in this history or a later one. Returns that, or 0 if this process is
/// not a member any more.
pub(super) async fn reached(mut session: watch::Receiver<Session>, history: u64) -> u64 {
    let there = session.wait_for(|session| match session {
        Session::Joined(joined) => history_of(joined) >= history,
        Session::Absent(_) => false,
        Session::Refused(..) | Session::Left => true,
    });
    match there.await.as_deref() {
        Ok(Session::Joined(joined)) => history_of(joined),
        _ => 0,
    }
}

impl Membership {
    /// Joins, renews the lease, and joins again after a lost connection, until `end` has a
    /// message or is closed.
    pub(super) async fn run(mut self, mut end: mpsc::Receiver<()>) {
        let start = Instant::now();
        let mut backoff = Backoff::new(Duration::MAX);
        loop {
            let ended = self.stay(&mut end).await;
            if matches!(*self.state.borrow(), Session::Joined(_)) {
                // The server was there: begin with short waits.
                backoff = Backoff::new(Duration::MAX);
            }
            match ended {
                Ended::Left => {
                    self.state.send_replace(Session::Left);
                    return;
                }
                Ended::Moved(server) => {
                    self.state.send_replace(Session::Absent(format!("it moves to `{server}`")));
                    if self.follow(server) {
                        backoff = Backoff::new(Duration::MAX);
                        continue;
                    }
                }
                Ended::Lost(reason) => {
                    self.state.send_replace(Session::Absent(reason));
                }
                Ended::Refused(status) => {
                    let reason = status.message().to_owned();
                    self.state.send_replace(Session::Refused(status.code(), reason));
                    return;
                }
            }
            let jitter = fraction(self.target.process);
            let wait = backoff.wait(start.elapsed(), jitter).unwrap_or_default();
            tokio::select! {
                biased;
                _ = end.recv() => {
                    self.state.send_replace(Session::Left);
                    return;
                }
                () = tokio::time::sleep(wait) => {}
                () = moved(&mut self.target.route) => {}
            }
        }
    }

    /// Uses another address of the server from now on. Returns whether it is valid.
    fn follow(&mut self, server: String) -> bool {
        let Target { security, timeout, connections, .. } = &self.target;
        let channels = match channels(&server, (security, *timeout), *connections) {
            Ok(channels) => channels,
            Err(error) => {
                tracing::error!(server, error = error.chain(), "a server cannot be reached");
                return false;
            }
        };
        if let Some(first) = channels.first() {
            self.client = StoreClient::new(first.clone());
        }
        self.streams.replace(&server, channels);
        self.target.server = server;
        true
    }
}

/// Waits until the address of a server has changed.
async fn moved(route: &mut Option<Route>) {
    let is_followed = match route {
        Some(route) => route.changed().await.is_ok(),
        None => false,
    };
    if !is_followed {
        std::future::pending::<()>().await;
    }
}

/// The end of a membership.
enum Ended {
    /// The connection failed, for this reason.
    Lost(String),
    Refused(Status),
    /// The server has another address now.
    Moved(String),
    /// This process has left.
    Left,
}

impl Ended {
    /// Returns the end for a status. `has_joined` is whether this process has been a member.
    fn of(status: Status, has_joined: bool) -> Self {
        match status.code() {
            Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unimplemented => Self::Refused(status),
            // A server that has been there may start again with another certificate.
            _ => match refusal(&status) {
                Some(text) if !has_joined => Self::Refused(Status::permission_denied(text)),
                Some(text) => Self::Lost(text),
                None => Self::Lost(reason_of(&status)),
            },
        }
    }
}

/// Returns the message of a status with the deepest cause, which is usually the system's.
pub(super) fn reason_of(status: &Status) -> String {
    let mut source = std::error::Error::source(status);
    let mut text = status.message().to_owned();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

impl Membership {
    /// Joins and renews the lease until the membership ends.
    async fn stay(&mut self, end: &mut mpsc::Receiver<()>) -> Ended {
        // An address that has changed before this moment is used already or now.
        if let Some(route) = &mut self.target.route {
            let server = route.borrow_and_update().clone();
            if server != self.target.server {
                return Ended::Moved(server);
            }
        }
        let (sender, receiver) = mpsc::channel(4);
        let earlier_incarnation = self.earlier.as_ref().map_or(0, |joined| joined.incarnation);
        let join = proto::JoinRequest {
            version: VERSION,
            name: self.target.name.clone(),
            process: self.target.process,
            is_reader: self.target.is_reader,
            server: self.target.place.0,
            num_servers: self.target.place.1,
            earlier_incarnation,
            passed_barriers: self.barriers.passed(earlier_incarnation),
        };
        // The channel is empty, so this does not wait.
        let _ = sender.try_send(to_server(member_message::Content::Join(join)));
        let mut client = self.client.clone();
        let joining = async {
            let mut messages = client.join(ReceiverStream::new(receiver)).await?.into_inner();
            let closed = || Status::unavailable("the server has closed the connection");
            let first = messages.message().await?.and_then(|message| message.content);
            let Some(server_message::Content::Joined(joined)) = first else {
                return Err(closed());
            };
            let second = messages.message().await?.and_then(|message| message.content);
            let Some(server_message::Content::Members(members)) = second else {
                return Err(closed());
            };
            Ok((joined, members, messages))
        };
        let mut route = self.target.route.clone();
        let address = |route: &Option<Route>| {
            Ended::Moved(route.as_ref().map_or_else(String::new, |route| route.borrow().clone()))
        };
        let (joined, members, mut messages) = tokio::select! {
            biased;
            _ = end.recv() => return Ended::Left,
            () = moved(&mut route) => return address(&route),
            joined = joining => match joined {
                Ok(joined) => joined,
                Err(status) => return Ended::of(status, self.earlier.is_some()),
            },
        };
        self.rewind(&joined);
        self.earlier = Some(joined.clone());
        self.note(&members.members);
        let lease = Duration::from_millis(joined.lease_ms.max(3));
        self.state.send_replace(Session::Joined(joined));
        let mut renewals = tokio::time::interval(lease / 3);
        let mut last_answer = Instant::now();
        loop {
            tokio::select! {
                // Messages before renewals: an answer that has arrived is a sign of life. The fixed
                // order also makes simulations repeatable.
                biased;
                _ = end.recv() => {
                    let left = member_message::Content::Leave(proto::Leave {});
                    let closed = async {
                        let _ = sender.send(to_server(left)).await;
                        // The server closes the stream when it has forgotten this member.
                        while let Ok(Some(_)) = messages.message().await {}
                    };
                    let _ = tokio::time::timeout(LEAVE, closed).await;
                    return Ended::Left;
                }
                message = messages.message() => match message {
                    Ok(Some(message)) => {
                        last_answer = Instant::now();
                        if let Some(server_message::Content::Members(members)) = message.content {
                            self.note(&members.members);
                        }
                    }
                    Ok(None) => {
                        return Ended::Lost("the server has closed the connection".to_owned());
                    }
                    Err(status) => return Ended::of(status, true),
                },
                () = moved(&mut route) => return address(&route),
                _ = renewals.tick() => {
                    if last_answer.elapsed() > lease {
                        return Ended::Lost(format!("no answer in {} s", lease.as_secs_f64()));
                    }
                    let ended_below = self.target.operations.ended_below();
                    let renewal = member_message::Content::Renewal(proto::Renewal { ended_below });
                    let _ = sender.try_send(to_server(renewal));
                }
            }
        }
    }

    /// Reports that the server has lost pushes, if it continues from a recovery point.
    fn rewind(&self, joined: &proto::JoinReply) {
        let is_other_run =
            self.earlier.as_ref().is_some_and(|earlier| earlier.server_run != joined.server_run);
        let Some(rewound) = joined.rewound.filter(|_| is_other_run) else { return };
        let version = rewound.version;
        let server = &self.target.server;
        tracing::warn!(server, version, "the server was rewound");
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(on_rewind) = &members.on_rewind {
            // Sending fails only if the thread has ended, and then no function is left to call.
            let _ = on_rewind.send(Rewound { server: server.clone(), version });
        }
    }

    fn note(&self, members: &[proto::Member]) {
        let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if known.now == members {
            return;
        }
        known.now.clear();
        known.now.extend(members.iter().cloned());
        if let Some(on_change) = &known.on_change {
            // Sending fails only if the thread has ended, and then no function is left to call.
            let _ = on_change.send(known.now.clone());
        }
    }
}

fn to_server(content: member_message::Content) -> proto::MemberMessage {
    proto::MemberMessage { content: Some(content) }
}

//! [`Connection`]: the membership of this process at one server, and its calls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvstore_core::{Backends, Error, Result, Value};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::proto::request::Verb;
use crate::proto::store_client::StoreClient;
use crate::proto::{self, member_message, server_message};
use crate::rules::Backoff;
use crate::server::{MOST_MESSAGE_BYTES, VERSION, WINDOW};
use crate::wire::{Elements, Receiver, error_of};

/// A function that is called with the members when they change.
pub(super) type OnMembers = dyn Fn(&[proto::Member]) + Send + Sync;

/// How often a connection is tested while a call waits, and how long a test may take. Otherwise a
/// call would not notice that the server's machine is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What a [`Connection`] needs to know.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) server: String,
    pub(super) name: String,
    pub(super) is_reader: bool,
    pub(super) timeout: Duration,
}

/// The membership of this process at one server.
pub(super) struct Connection {
    target: Target,
    client: StoreClient<Channel>,
    start: Instant,
    session: watch::Receiver<Session>,
    members: Arc<Mutex<Members>>,
    calls: Mutex<Unanswered>,
    /// Ends the membership when it is dropped or a message is sent.
    end: mpsc::Sender<()>,
    jitter: AtomicU64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("target", &self.target).finish_non_exhaustive()
    }
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

#[derive(Default)]
struct Members {
    now: Vec<proto::Member>,
    on_change: Option<Arc<OnMembers>>,
}

/// The numbers of calls.
#[derive(Debug)]
struct Unanswered {
    next: u64,
    open: BTreeSet<u64>,
}

impl Unanswered {
    fn begin(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.open.insert(sequence);
        sequence
    }

    /// All calls below this number have been answered.
    fn answered_below(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

/// A call: a request and its data.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) elements: Elements,
    /// Whether the call changes something, so that it must take effect once.
    pub(super) changes: bool,
    /// A description of the call for errors.
    pub(super) what: String,
}

/// The reply to a call, with its data.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) reply: proto::Reply,
    pub(super) values: Vec<Value>,
    pub(super) bytes: Vec<u8>,
}

/// The end of an attempt.
enum Attempt {
    Answered(Box<Result<Answer>>),
    /// The connection failed. The server may have made the call.
    Lost(Status),
    /// The server has not made the call.
    NotMade(Status),
    /// The server has not made the call, because it does not know this incarnation any more.
    Fenced,
}

impl Connection {
    /// Connects to a server and joins its group.
    pub(super) async fn open(target: Target) -> Result<Arc<Self>> {
        let failed = |source: tonic::transport::Error| Error::Transport {
            operation: format!("server `{}`", target.server),
            source: source.into(),
        };
        let endpoint = Endpoint::from_shared(format!("http://{}", target.server))
            .map_err(failed)?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .connect_timeout(target.timeout);
        let client = StoreClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MOST_MESSAGE_BYTES)
            .max_encoding_message_size(MOST_MESSAGE_BYTES);
        let (state, session) = watch::channel(Session::Absent("not connected yet".to_owned()));
        let (end, ending) = mpsc::channel(1);
        let members = Arc::<Mutex<Members>>::default();
        let membership = Membership {
            target: target.clone(),
            client: client.clone(),
            state,
            members: Arc::clone(&members),
        };
        tokio::spawn(membership.run(ending));
        let connection = Arc::new(Self {
            target,
            client,
            start: Instant::now(),
            session,
            members,
            calls: Mutex::new(Unanswered { next: 1, open: BTreeSet::new() }),
            end,
            jitter: AtomicU64::new(1),
        });
        let deadline = connection.start.elapsed() + connection.target.timeout;
        connection.joined(deadline).await?;
        Ok(connection)
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the newest list of live members, in the order of their ranks.
    pub(super) fn members(&self) -> Vec<proto::Member> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).now.clone()
    }

    pub(super) fn on_members(&self, on_change: Arc<OnMembers>) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).on_change = Some(on_change);
    }

    /// Ends the membership.
    pub(super) fn leave(&self) {
        let _ = self.end.try_send(());
    }

    /// Returns the membership, and waits for it until the deadline.
    pub(super) async fn joined(&self, deadline: Duration) -> Result<proto::JoinReply> {
        let mut session = self.session.clone();
        let left = deadline.saturating_sub(self.start.elapsed());
        let settled = session.wait_for(|session| !matches!(session, Session::Absent(_)));
        let settled = tokio::time::timeout(left, settled).await;
        let now = match settled {
            Ok(Ok(now)) => now.clone(),
            Ok(Err(_)) => return Err(Error::Closed { what: "the store".to_owned() }),
            Err(_) => self.session.borrow().clone(),
        };
        let server = &self.target.server;
        match now {
            Session::Joined(joined) => Ok(joined),
            Session::Absent(reason) => {
                let waited = self.target.timeout.as_secs_f64();
                Err(Error::Timeout(format!("server `{server}`: no answer in {waited} s: {reason}")))
            }
            Session::Left => Err(Error::Closed { what: "the store".to_owned() }),
            Session::Refused(Code::AlreadyExists, reason) => Err(Error::InvalidArgument(reason)),
            Session::Refused(Code::Unimplemented, reason) => {
                Err(Error::Unsupported(format!("server `{server}`: {reason}")))
            }
            Session::Refused(_, reason) => Err(Error::Transport {
                operation: format!("server `{server}`"),
                source: reason.into(),
            }),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Unanswered> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, and repeats it if the connection is lost.
    pub(super) async fn call(self: Arc<Self>, backends: Backends, call: Call) -> Result<Answer> {
        let sequence = if call.changes { self.calls().begin() } else { 0 };
        let result = self.attempts(&backends, &call, sequence).await;
        if sequence != 0 {
            self.calls().open.remove(&sequence);
        }
        result
    }

    async fn attempts(&self, backends: &Backends, call: &Call, sequence: u64) -> Result<Answer> {
        let deadline = self.start.elapsed() + self.target.timeout;
        let mut backoff = Backoff::new(deadline);
        // The incarnation for which the server may have made the call.
        let mut in_doubt = None;
        loop {
            let joined = self.joined(deadline).await?;
            if in_doubt.is_some_and(|earlier| earlier != joined.incarnation) && call.changes {
                return Err(Error::Transport {
                    operation: call.what.clone(),
                    source: "the connection was lost, and the server does not know this process \
                             any more: it is not known whether the call took effect"
                        .into(),
                });
            }
            let left = backoff.left(self.start.elapsed());
            let reason = match self.attempt(backends, call, sequence, &joined, left).await {
                Attempt::Answered(answer) => return *answer,
                Attempt::Fenced => {
                    self.changed(joined.incarnation, deadline).await;
                    "this process is not a member".to_owned()
                }
                Attempt::NotMade(status) => status.message().to_owned(),
                Attempt::Lost(status) => {
                    in_doubt = Some(joined.incarnation);
                    reason_of(&status)
                }
            };
            let Some(wait) = backoff.wait(self.start.elapsed(), self.jitter()) else {
                return Err(Error::Timeout(format!(
                    "{}: server `{}`: {reason}",
                    call.what, self.target.server
                )));
            };
            tracing::debug!(call = call.what, reason, ?wait, "a call is repeated");
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until the membership is another one.
    async fn changed(&self, incarnation: u64, deadline: Duration) {
        let mut session = self.session.clone();
        let other = session.wait_for(|session| match session {
            Session::Joined(joined) => joined.incarnation != incarnation,
            Session::Absent(_) => false,
            Session::Refused(..) | Session::Left => true,
        });
        let left = deadline.saturating_sub(self.start.elapsed());
        let _ = tokio::time::timeout(left, other).await;
    }

    /// Returns a number from 0 to 1 that differs from call to call.
    #[expect(clippy::cast_precision_loss, reason = "it only has to differ")]
    fn jitter(&self) -> f64 {
        // The golden ratio spreads successive numbers evenly.
        let step = self.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        (step >> 11) as f64 / (1u64 << 53) as f64
    }

    async fn attempt(
        &self,
        backends: &Backends,
        call: &Call,
        sequence: u64,
        joined: &proto::JoinReply,
        left: Duration,
    ) -> Attempt {
        let request = proto::Request {
            member: self.target.name.clone(),
            incarnation: joined.incarnation,
            sequence,
            answered_below: self.calls().answered_below(),
            timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1),
            verb: Some(call.verb.clone()),
        };
        let (mut request, mut elements) = (Some(request), call.elements.clone());
        let frames = std::iter::from_fn(move || {
            let (request, data) = (request.take(), elements.next_chunk());
            (request.is_some() || !data.is_empty()).then_some(proto::RequestFrame { request, data })
        });
        let mut client = self.client.clone();
        let answered = async {
            let replies = client.call(tokio_stream::iter(frames)).await?.into_inner();
            receive(backends, replies).await
        };
        // The server also has this time, so its own report of a timeout usually arrives.
        let answered = tokio::time::timeout(left + Duration::from_millis(100), answered).await;
        match answered {
            Ok(Ok(answer)) => Attempt::Answered(Box::new(answer)),
            Ok(Err(status)) => match status.code() {
                Code::FailedPrecondition => Attempt::Fenced,
                Code::Aborted => Attempt::NotMade(status),
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => {
                    Attempt::Lost(status)
                }
                Code::Unimplemented => failed(Error::Unsupported(format!(
                    "server `{}`: {}",
                    self.target.server,
                    status.message()
                ))),
                Code::DeadlineExceeded => failed(Error::Timeout(status.message().to_owned())),
                _ => failed(Error::Transport {
                    operation: call.what.clone(),
                    source: status.message().to_owned().into(),
                }),
            },
            Err(_) => Attempt::Lost(Status::deadline_exceeded("no answer")),
        }
    }
}

fn failed(error: Error) -> Attempt {
    Attempt::Answered(Box::new(Err(error)))
}

/// Receives the reply to a call. The inner error is one of the store or of this machine.
async fn receive(
    backends: &Backends,
    mut replies: Streaming<proto::ReplyFrame>,
) -> Result<Result<Answer>, Status> {
    let ended = || Status::unavailable("the reply ended early");
    let first = replies.message().await?.ok_or_else(ended)?;
    let mut reply = first.reply.ok_or_else(|| Status::internal("a reply without its head"))?;
    if let Some(failure) = reply.failure.take() {
        return Ok(Err(error_of(failure)));
    }
    if let Some(blob) = &reply.blob {
        let num_bytes = usize::try_from(blob.num_bytes).unwrap_or(usize::MAX);
        let mut bytes = Vec::from(first.data);
        while bytes.len() < num_bytes {
            let frame = replies.message().await?.ok_or_else(ended)?;
            if let Err(error) = kvstore_core::fallible::extend(&mut bytes, &frame.data) {
                return Ok(Err(error));
            }
        }
        return Ok(Ok(Answer { reply, bytes, ..Answer::default() }));
    }
    if !reply.has_elements {
        return Ok(Ok(Answer { reply, ..Answer::default() }));
    }
    let mut receiver = match Receiver::new(backends, &reply.values) {
        Ok(receiver) => receiver,
        Err(error) => return Ok(Err(error)),
    };
    let mut data = first.data;
    loop {
        if let Err(error) = receiver.take(&data) {
            return Ok(Err(error));
        }
        if !receiver.is_waiting() {
            let values = receiver.finish();
            return Ok(values.map(|values| Answer { reply, values, ..Answer::default() }));
        }
        data = replies.message().await?.ok_or_else(ended)?.data;
    }
}

/// Keeps this process a member.
struct Membership {
    target: Target,
    client: StoreClient<Channel>,
    state: watch::Sender<Session>,
    members: Arc<Mutex<Members>>,
}

impl Membership {
    /// Joins, renews the lease, and joins again after a lost connection, until `ending` has a
    /// message or is closed.
    async fn run(self, mut ending: mpsc::Receiver<()>) {
        let start = Instant::now();
        let mut incarnation = 0;
        let mut backoff = Backoff::new(Duration::MAX);
        loop {
            let ended = self.stay(&mut incarnation, &mut ending).await;
            if matches!(*self.state.borrow(), Session::Joined(_)) {
                // The server was there: begin with short waits.
                backoff = Backoff::new(Duration::MAX);
            }
            match ended {
                Ended::Left => {
                    self.state.send_replace(Session::Left);
                    return;
                }
                Ended::Lost(reason) => {
                    self.state.send_replace(Session::Absent(reason));
                }
                Ended::Refused(status) if status.code() == Code::FailedPrecondition => {
                    // The server has restarted or has forgotten this process: join as a new one.
                    incarnation = 0;
                    self.state.send_replace(Session::Absent(status.message().to_owned()));
                    continue;
                }
                Ended::Refused(status) => {
                    let reason = status.message().to_owned();
                    self.state.send_replace(Session::Refused(status.code(), reason));
                    return;
                }
            }
            let wait = backoff.wait(start.elapsed(), 0.5).unwrap_or_default();
            tokio::select! {
                _ = ending.recv() => {
                    self.state.send_replace(Session::Left);
                    return;
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// The end of a membership.
enum Ended {
    /// The connection failed, for this reason.
    Lost(String),
    Refused(Status),
    /// This process has left.
    Left,
}

impl Ended {
    fn of(status: Status) -> Self {
        match status.code() {
            Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => {
                Self::Lost(reason_of(&status))
            }
            _ => Self::Refused(status),
        }
    }
}

/// Returns the message of a status with the deepest cause, which is usually the system's.
fn reason_of(status: &Status) -> String {
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
    async fn stay(&self, incarnation: &mut u64, ending: &mut mpsc::Receiver<()>) -> Ended {
        let (sender, receiver) = mpsc::channel(4);
        let join = proto::JoinRequest {
            version: VERSION,
            name: self.target.name.clone(),
            incarnation: *incarnation,
            is_reader: self.target.is_reader,
        };
        // The channel is empty, so this does not wait.
        let _ = sender.try_send(to_server(member_message::Content::Join(join)));
        let mut client = self.client.clone();
        let joining = async {
            let mut messages = client.join(ReceiverStream::new(receiver)).await?.into_inner();
            match messages.message().await?.and_then(|message| message.content) {
                Some(server_message::Content::Joined(joined)) => Ok((joined, messages)),
                _ => Err(Status::unavailable("the server has closed the connection")),
            }
        };
        let (joined, mut messages) = tokio::select! {
            _ = ending.recv() => return Ended::Left,
            joined = joining => match joined {
                Ok(joined) => joined,
                Err(status) => return Ended::of(status),
            },
        };
        *incarnation = joined.incarnation;
        let lease = Duration::from_millis(joined.lease_ms.max(3));
        self.state.send_replace(Session::Joined(joined));
        let mut renewals = tokio::time::interval(lease / 3);
        let mut last_answer = tokio::time::Instant::now();
        loop {
            tokio::select! {
                _ = ending.recv() => {
                    let left = member_message::Content::Leave(proto::Leave {});
                    let _ = sender.send(to_server(left)).await;
                    // The server closes the stream when it has forgotten this member.
                    let closed = async { while let Ok(Some(_)) = messages.message().await {} };
                    let _ = tokio::time::timeout(lease, closed).await;
                    return Ended::Left;
                }
                _ = renewals.tick() => {
                    if last_answer.elapsed() > lease {
                        return Ended::Lost(format!("no answer in {} s", lease.as_secs_f64()));
                    }
                    let _ = sender.try_send(to_server(member_message::Content::Renewal(
                        proto::Renewal {},
                    )));
                }
                message = messages.message() => match message {
                    Ok(Some(message)) => {
                        last_answer = tokio::time::Instant::now();
                        if let Some(server_message::Content::Members(members)) = message.content {
                            self.note(&members.members);
                        }
                    }
                    Ok(None) => {
                        return Ended::Lost("the server has closed the connection".to_owned());
                    }
                    Err(status) => return Ended::of(status),
                }
            }
        }
    }

    fn note(&self, members: &[proto::Member]) {
        let on_change = {
            let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            known.now.clear();
            known.now.extend(members.iter().cloned());
            known.on_change.clone()
        };
        if let Some(on_change) = on_change {
            on_change(members);
        }
    }
}

fn to_server(content: member_message::Content) -> proto::MemberMessage {
    proto::MemberMessage { content: Some(content) }
}

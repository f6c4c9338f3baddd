//! [`Service`]: the gRPC methods. It only moves messages; `group.rs` and `verbs.rs` decide.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvstore_core::{Error, Key, KvStore, Result as StoreResult, panic_text, with_staleness};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::{BoxFuture, http};
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::{Request, Response, Status, Streaming};

use super::Commands;
use super::group::{Caller, Group, MOST_CALLS, Running};
use super::holder::Holder;
use super::replies::Replies;
use super::verbs::{self, Answer, FollowingPull, Payload};
use crate::proto::request::Verb;
use crate::proto::store_server::StoreServer;
use crate::proto::{self, member_message, server_message};
use crate::rules::{Joined, Role};
use crate::same_process::{LocalMember, keep_error};
use crate::wire::{CALL, Incoming, Outgoing, Receiver, compression_of, failure_of, parse_keys};

/// The version of the protocol.
pub(crate) const VERSION: u32 = 1;

/// How long a call waits if it does not say how long.
const WAIT: Duration = Duration::from_secs(3600);

/// The longest time that a call waits, so that deadlines do not overflow.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// The gRPC methods of a server.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) group: Arc<Group>,
    pub(crate) holder: Arc<Holder>,
    pub(crate) commands: Commands,
    /// The place of this server in the members' lists of servers, and the lengths of the lists.
    pub(crate) place: Arc<Mutex<Option<(u32, u32)>>>,
    /// Identifies this run of the server.
    pub(crate) run: u64,
    pub(crate) lease: Duration,
    /// Becomes true when the server ends.
    pub(crate) end: watch::Receiver<bool>,
    /// Limits the calls that block threads at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// The same for calls that only read.
    pub(crate) reads: Arc<Semaphore>,
    /// The permit of a status, which other calls must not hold up.
    pub(crate) statuses: Arc<Semaphore>,
    /// The permit of the short call.
    pub(crate) short: Arc<Semaphore>,
}

/// The services of a server: `tonic` serves members, and [`Replies`] serves calls.
#[derive(Clone)]
pub(crate) struct Methods {
    service: Service,
    members: StoreServer<Service>,
}

impl Methods {
    pub(crate) fn new(service: Service) -> Self {
        Self { members: StoreServer::new(service.clone()), service }
    }
}

impl tonic::codegen::Service<http::Request<Body>> for Methods {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != CALL {
            return self.members.call(request);
        }
        let requests = Incoming::requests(request.into_body());
        let replies = Outgoing::reply(Replies::new(self.service.clone(), requests));
        let mut response = http::Response::new(replies);
        response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
        Box::pin(async { Ok(response) })
    }
}

type ServerValues<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::store_server::Store for Service {
    type JoinStream = ServerValues<proto::ServerMessage>;

    async fn join(
        &self,
        request: Request<Streaming<proto::MemberMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let mut messages = request.into_inner();
        let first = messages.message().await?.and_then(|message| message.content);
        let Some(member_message::Content::Join(join)) = first else {
            return Err(Status::invalid_argument("the first message is not a JoinRequest"));
        };
        let (joined, barrier_round) = self.admit(&join).await?;
        let (sender, receiver) = mpsc::channel(16);
        let reply = proto::JoinReply {
            server_run: self.run,
            incarnation: joined.incarnation,
            rank: joined.rank,
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            store: self.holder.contents().store().name().to_owned(),
            barrier_round,
            compression: Some(compression_of(*self.holder.contents().compression())),
        };
        let stream = MemberStream { service: self.clone(), name: join.name, joined, sender };
        // The channel is empty, so there is room.
        let _ = stream.send(server_message::Content::Joined(reply));
        tokio::spawn(stream.run(messages));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Service {
    async fn admit(&self, join: &proto::JoinRequest) -> Result<(Joined, u64), Status> {
        if join.version != VERSION {
            return Err(Status::unimplemented(format!(
                "protocol version: expected {VERSION}, found {}",
                join.version
            )));
        }
        if join.name.is_empty() || join.process == 0 {
            return Err(Status::invalid_argument("name: expected at least one letter, found none"));
        }
        if *self.end.borrow() {
            return Err(Status::unavailable("the server is ending"));
        }
        self.check_place((join.server, join.num_servers))?;
        let role = if join.is_reader { Role::Reader } else { Role::Worker };
        let deadline = Instant::now() + self.lease.min(WAIT);
        let joined = self.group.join(&join.name, join.process, role, deadline).await?;
        // Another first member with another list may have joined at the same moment.
        if let Err(status) = self.check_place((join.server, join.num_servers)) {
            self.group.leave(&join.name, joined.0.incarnation);
            return Err(status);
        }
        Ok(joined)
    }

    /// Checks that all members have this server at the same place of their lists of servers.
    fn check_place(&self, (server, num_servers): (u32, u32)) -> Result<(), Status> {
        if server >= num_servers {
            let text = format!("server {server} of {num_servers}: expected a smaller number");
            return Err(Status::invalid_argument(text));
        }
        let mut known = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        // Without members and keys, nothing depends on the place.
        let keys = self.holder.contents().store().keys();
        if self.group.members().0.members.is_empty() && keys.is_ok_and(|keys| keys.is_empty()) {
            *known = None;
        }
        let expected = known.get_or_insert((server, num_servers));
        if *expected != (server, num_servers) {
            return Err(Status::invalid_argument(format!(
                "servers: for other members, this server is number {} of {}, for this one it \
                 is number {} of {}: all members need the same list in the same order",
                expected.0 + 1,
                expected.1,
                server + 1,
                num_servers
            )));
        }
        self.holder.use_layouts(num_servers > 1);
        Ok(())
    }

    /// Makes a call. Errors of the store are part of the answer.
    pub(super) async fn answer(
        &self,
        mut request: proto::Request,
        first: &[u8],
        frames: &mut Incoming<proto::RequestFrame>,
    ) -> Result<Answer, Status> {
        let verb = request.verb.take();
        let verb = verb.ok_or_else(|| Status::unimplemented("a verb of a later version"))?;
        let wait = if request.timeout_ms == 0 {
            WAIT
        } else {
            Duration::from_millis(request.timeout_ms).min(LONGEST)
        };
        let deadline = Instant::now() + wait;
        if let Verb::Status(_) = verb {
            let status = self.blocking(&self.statuses, || self.status()).await;
            return Ok(status.unwrap_or_else(|error| failed(&error)));
        }
        let caller = Caller {
            name: std::mem::take(&mut request.member),
            incarnation: request.incarnation,
            sequence: request.sequence,
        };
        let (verb, following) = match verbs::split(verb) {
            Ok(split) => split,
            Err(error) => return Ok(failed(&error)),
        };
        if request.unanswered.len() > MOST_CALLS {
            let text = format!("more than {MOST_CALLS} calls without a reply");
            return Err(Status::invalid_argument(text));
        }
        let answered = (request.answered_below, &*request.unanswered);
        let role = self.group.authorise(&caller.name, caller.incarnation, answered)?;
        if verbs::changes(&verb) != (caller.sequence != 0) {
            let text = "calls that change the store, and only these, have a number";
            return Err(Status::invalid_argument(text));
        }
        if role == Role::Reader && matches!(verb, Verb::Push(_)) {
            return Ok(failed(&Error::invalid("push: this member has joined as a reader")));
        }
        let received = timeout_at(deadline, self.receive(&verb, first, frames)).await;
        let late = |_| Status::deadline_exceeded("the data of the request did not arrive in time");
        let payload = match received.map_err(late)? {
            Ok(payload) => payload?,
            Err(error) => return Ok(failed(&error)),
        };
        if caller.sequence == 0 {
            let result = self.read(&caller, verb, payload, deadline).await;
            return Ok(result.unwrap_or_else(|error| failed(&error)));
        }
        let service = self.clone();
        let mut call = Box::pin(async move {
            match service.group.begin(&caller, deadline).await? {
                Ok(running) => {
                    let write = (verb, payload, following.as_ref());
                    let written = service.write(running, &caller, write, deadline).await;
                    match following.filter(|_| written.reply.failure.is_none()) {
                        Some(following) => Ok(service.follow(&caller, following, deadline).await),
                        None => Ok(written),
                    }
                }
                Err(failure) => {
                    let reply = proto::Reply { failure, ..proto::Reply::default() };
                    Ok(Answer { reply, ..Answer::default() })
                }
            }
        });
        // Polled here first, because most calls finish without a task of their own.
        if let Poll::Ready(made) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return made;
        }
        // In a task of its own, because the call must be completed even if the member goes away.
        let made = tokio::spawn(call).await;
        made.map_err(|error| Status::unavailable(format!("the call has panicked: {error}")))?
    }

    /// Receives the data of a request. The inner error is that of the connection.
    async fn receive(
        &self,
        verb: &Verb,
        first: &[u8],
        frames: &mut Incoming<proto::RequestFrame>,
    ) -> StoreResult<Result<Payload, Status>> {
        if let Some(num_bytes) = verbs::blob_in(verb) {
            // In a tensor, so that it counts towards the limit of memory.
            let mut receiver = Receiver::of_bytes(self.holder.contents().backends(), num_bytes)?;
            if let Err(ended) = received(&mut receiver, first, frames).await? {
                return Ok(Err(ended));
            }
            return Ok(Ok(Payload::Bytes(receiver.finish_bytes()?)));
        }
        let compression = verbs::compression_in(verb)?;
        let values = verbs::values_in(verb);
        let mut receiver =
            Receiver::new(self.holder.contents().backends(), values, compression.as_ref())?;
        if let Err(ended) = received(&mut receiver, first, frames).await? {
            return Ok(Err(ended));
        }
        Ok(Ok(Payload::Values(receiver.finish()?)))
    }

    /// Makes a call that changes nothing.
    async fn read(
        &self,
        caller: &Caller,
        verb: Verb,
        payload: Payload,
        deadline: Instant,
    ) -> StoreResult<Answer> {
        let (keys, staleness) = match &verb {
            Verb::Pull(pull) => (parse_keys(&pull.keys)?, pull.staleness),
            Verb::PullRows(pull) => (parse_keys(&pull.keys)?, pull.staleness),
            _ => (Vec::new(), None),
        };
        if let Some(staleness) = staleness {
            self.group.wait_for_workers(&caller.name, &keys, staleness, deadline).await?;
        }
        // Read before the values, so that a push never looks less stale than it is.
        let versions = self.group.versions(&keys);
        let is_short = self.holder.is_short(&verb, &payload);
        let make = || self.holder.make(caller.incarnation, verb, payload);
        // Permits of its own, because pushes may wait for pulls of their updaters.
        let mut answer = self.run(is_short, &self.reads, make).await?;
        for (value, version) in answer.reply.values.iter_mut().zip(versions) {
            value.version = version;
        }
        Ok(answer)
    }

    /// Pulls after a push. If that fails, the answer has no values, because the call has succeeded.
    async fn follow(&self, caller: &Caller, following: FollowingPull, deadline: Instant) -> Answer {
        let nothing = Payload::Values(Vec::new());
        let pulled = self.read(caller, Verb::Pull(following.pull), nothing, deadline).await;
        pulled.ok().filter(|answer| answer.reply.failure.is_none()).unwrap_or_default()
    }

    /// Makes a call that changes the store or the group, and records its outcome.
    async fn write(
        &self,
        running: Running<'_>,
        caller: &Caller,
        (verb, payload, following): (Verb, Payload, Option<&FollowingPull>),
        deadline: Instant,
    ) -> Answer {
        let (mut pushed, mut removed) = (Vec::new(), Vec::new());
        let result = match verb {
            Verb::Barrier(barrier) => {
                let passed = self.group.barrier(caller, barrier.round, deadline).await;
                passed.map(|()| Answer::default())
            }
            Verb::Command(command) => {
                let run = || self.commands.run(command.head, &command.body);
                self.blocking(&self.permits, run).await.map(|()| Answer::default())
            }
            verb => {
                let keys = verbs::pushed_keys(&verb);
                let is_removal = matches!(verb, Verb::Remove(_));
                let staleness = self.staleness(&verb, keys.as_deref().unwrap_or_default());
                let is_short = self.holder.is_short(&verb, &payload);
                let store = self.holder.contents().store();
                let make = || {
                    if following.map_or(Ok(true), |following| following.is_as_expected(store))? {
                        let make = || self.holder.make(caller.incarnation, verb, payload);
                        with_staleness(staleness, make)
                    } else {
                        Ok(Answer::out_of_date())
                    }
                };
                self.run(is_short, &self.permits, make).await.and_then(|answer| {
                    pushed = keys?;
                    if is_removal {
                        removed = parse_keys(&answer.reply.keys)?;
                    }
                    Ok(answer)
                })
            }
        };
        let answer = result.unwrap_or_else(|error| self.failed_call(caller, error));
        let outcome = answer.reply.failure.clone();
        if outcome.is_some() {
            pushed.clear();
        } else if !removed.is_empty() {
            self.group.remove_keys(&removed);
        }
        running.finish(outcome, &pushed);
        answer
    }

    /// Returns the answer for an error. Keeps the error of an updater for a caller in this process.
    fn failed_call(&self, caller: &Caller, error: Error) -> Answer {
        let mut answer = failed(&error);
        let process =
            || self.group.process_of(caller).filter(|process| LocalMember::exists(*process));
        if let (Error::Updater { source, .. }, Some(failure)) = (error, &mut answer.reply.failure)
            && let Some(process) = process()
        {
            failure.error_object = keep_error(process, source);
        }
        answer
    }

    /// Returns how many pushes have changed each key since the caller of a push pulled it last.
    fn staleness(&self, verb: &Verb, keys: &[Key]) -> Vec<(Key, u64)> {
        let Verb::Push(push) = verb else { return Vec::new() };
        let seen: HashMap<&str, u64> =
            push.values.iter().map(|value| (value.key.as_str(), value.version)).collect();
        let version = |key: &Key| seen.get(key.as_str()).copied().unwrap_or_default();
        self.group.pushes_since(keys.iter().map(|key| (key.clone(), version(key))).collect())
    }

    /// Runs short work in this thread, and other work as [`Self::blocking`] does. One call at a
    /// time is short, so that the runtime always has a thread for the calls of an updater for which
    /// a short call may wait.
    async fn run<R>(
        &self,
        is_short: bool,
        permits: &Semaphore,
        work: impl FnOnce() -> StoreResult<R>,
    ) -> StoreResult<R> {
        let permit = if is_short { self.short.try_acquire().ok() } else { None };
        if permit.is_some() { without_panic(work) } else { self.blocking(permits, work).await }
    }

    /// Runs work that may take long, wait for locks or panic, for example in an updater. If the
    /// runtime has several threads, the other tasks of this thread move to another one.
    async fn blocking<R>(
        &self,
        permits: &Semaphore,
        work: impl FnOnce() -> StoreResult<R>,
    ) -> StoreResult<R> {
        // The semaphore is never closed, so there is always a permit.
        let _permit = permits.acquire().await;
        let work = || without_panic(work);
        match Handle::current().runtime_flavor() {
            RuntimeFlavor::CurrentThread => work(),
            _ => tokio::task::block_in_place(work),
        }
    }

    fn status(&self) -> StoreResult<Answer> {
        let (members, num_dead) = self.group.members();
        let keys = self.holder.contents().store().stats()?;
        let found = proto::Status {
            members: members.members,
            num_dead: num_dead as u64,
            num_keys: keys.len() as u64,
            num_bytes: keys.iter().map(|key| (key.value_bytes + key.state_bytes) as u64).sum(),
            num_pushes: keys.iter().map(|key| key.num_pushes).sum(),
            uptime_ms: u64::try_from(self.group.now().as_millis()).unwrap_or(u64::MAX),
            server_run: self.run,
            store: self.holder.contents().store().name().to_owned(),
        };
        let reply = proto::Reply { status: Some(found), ..Default::default() };
        Ok(Answer { reply, ..Default::default() })
    }
}

/// The open stream of a member.
struct MemberStream {
    service: Service,
    name: String,
    joined: Joined,
    sender: mpsc::Sender<Result<proto::ServerMessage, Status>>,
}

impl MemberStream {
    /// Receives renewals and sends the members, until the member leaves or the connection is lost.
    async fn run(self, mut messages: Streaming<proto::MemberMessage>) {
        let group = Arc::clone(&self.service.group);
        let mut end = self.service.end.clone();
        let mut known = None;
        loop {
            let changed = group.members_changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (members, _) = group.members();
            if known.as_ref() != Some(&members) {
                match self.send(server_message::Content::Members(members.clone())) {
                    Sent::Yes => known = Some(members),
                    // The member does not read. The list is sent after its next message.
                    Sent::Full => {}
                    Sent::Lost => break,
                }
            }
            tokio::select! {
                // Messages before changes: a busy group must not delay the renewal of a lease.
                biased;
                () = async { drop(end.wait_for(|end| *end).await) } => return,
                received = messages.message() => match received {
                    Ok(Some(message)) => {
                        if let Some(member_message::Content::Leave(_)) = message.content {
                            group.leave(&self.name, self.joined.incarnation);
                            return;
                        }
                        let known = group.authorise(&self.name, self.joined.incarnation, (0, &[]));
                        if let Err(status) = known {
                            let _ = self.sender.try_send(Err(status));
                            return;
                        }
                        let renewed = server_message::Content::Renewed(proto::Renewal {});
                        if let Sent::Lost = self.send(renewed) {
                            break;
                        }
                    }
                    Ok(None) | Err(_) => break,
                },
                () = changed => {}
            }
        }
        group.lose(&self.name, self.joined.connection);
    }

    fn send(&self, content: server_message::Content) -> Sent {
        let message = proto::ServerMessage { content: Some(content) };
        match self.sender.try_send(Ok(message)) {
            Ok(()) => Sent::Yes,
            Err(mpsc::error::TrySendError::Full(_)) => Sent::Full,
            Err(mpsc::error::TrySendError::Closed(_)) => Sent::Lost,
        }
    }
}

/// Whether a message was queued for a member.
enum Sent {
    Yes,
    Full,
    Lost,
}

fn failed(error: &Error) -> Answer {
    let reply = proto::Reply { failure: Some(failure_of(error)), ..Default::default() };
    Answer { reply, ..Default::default() }
}

/// Receives the data of a request. The inner error is that of the connection.
async fn received(
    receiver: &mut Receiver,
    first: &[u8],
    frames: &mut Incoming<proto::RequestFrame>,
) -> StoreResult<Result<(), Status>> {
    receiver.take(first)?;
    while receiver.is_waiting() {
        match frames.message().await {
            Ok(Some(frame)) => receiver.take(&frame.data)?,
            Ok(None) => {
                let text = "the request ended before its data";
                return Ok(Err(Status::invalid_argument(text)));
            }
            Err(status) => return Ok(Err(status)),
        }
    }
    Ok(Ok(()))
}

/// Converts a panic, for example of an updater, into an error, so that the member gets a reply.
fn without_panic<R>(work: impl FnOnce() -> StoreResult<R>) -> StoreResult<R> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Error::Internal(format!("a panic: {}", panic_text(&*panic)))))
}

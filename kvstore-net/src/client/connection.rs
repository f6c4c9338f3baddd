//! [`Connection`]: the membership of this process at one server, and its calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kvstore_core::{Backends, Description, Error, Result, Value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::barriers::PassedBarriers;
use super::membership::{
    LEAVE, Members, Membership, Session, Target, history_of, reached, reason_of,
};
use super::operations::{Answering, Joint};
use super::pulled::PulledVersions;
use super::streams::Streams;
use super::unanswered::{Open, Unanswered};
use crate::endpoint::channels;
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::proto::request::Verb;
use crate::proto::store_client::StoreClient;
use crate::rules::Backoff;
use crate::trace::TraceContext;
use crate::wire::{Elements, parse_spec};

/// How much longer than the server the client waits, so that the server's report of a timeout,
/// which says for whom it waits, arrives first.
const GRACE: Duration = Duration::from_secs(1);

/// The membership of this process at one server.
pub(crate) struct Connection {
    target: Target,
    streams: Arc<Streams>,
    start: Instant,
    session: watch::Receiver<Session>,
    pub(super) members: Arc<Mutex<Members>>,
    calls: Mutex<Unanswered>,
    pulled: PulledVersions,
    /// The barriers that this member has passed.
    barriers: Arc<PassedBarriers>,
    /// The run of the server that has the values, as far as this process knows.
    known_run: AtomicU64,
    /// Why this process has left, if not because the store was closed.
    left_because: Arc<OnceLock<String>>,
    /// Ends the membership when it is dropped or a message is sent.
    end: mpsc::Sender<()>,
    /// Whether this process has decided to leave.
    is_leaving: AtomicBool,
    jitter: AtomicU64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("target", &self.target).finish_non_exhaustive()
    }
}

/// Ends a membership from outside of its connection.
pub(super) struct Leaver {
    end: mpsc::WeakSender<()>,
    reason: Arc<OnceLock<String>>,
}

impl Leaver {
    fn leave(self, reason: String) {
        if let Some(end) = self.end.upgrade() {
            let _ = self.reason.set(reason);
            let _ = end.try_send(());
        }
    }
}

/// A call: a request and its data.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) elements: Elements,
    /// Whether the call changes something, so that it must take effect once.
    pub(crate) changes: bool,
    /// A description of the call for errors.
    pub(crate) what: String,
    /// The trace of the thread that makes the call.
    pub(crate) trace: Option<TraceContext>,
    /// The operation of which this is one of several calls.
    pub(crate) joint: Option<Joint>,
}

impl Call {
    /// Returns a call that changes nothing.
    pub(super) fn read(verb: Verb, what: String) -> Self {
        let trace = TraceContext::current();
        Self { verb, elements: Elements::default(), changes: false, what, trace, joint: None }
    }

    /// Returns a call that changes something, without data.
    pub(super) fn write(verb: Verb, what: String) -> Self {
        Self { changes: true, ..Self::read(verb, what) }
    }
}

/// The reply to a call, with its data.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) reply: proto::Reply,
    pub(crate) values: Vec<Value>,
    pub(crate) bytes: Vec<u8>,
    /// The number of the newest message after which all servers went back to a recovery point.
    pub(super) history: u64,
}

impl Answer {
    /// Returns whether the server has not made the call, because what this member knows is out of
    /// date.
    pub(super) fn is_out_of_date(&self) -> bool {
        self.reply.failure.as_ref().is_some_and(|failure| failure.out_of_date)
    }

    /// Returns the descriptions of the keys in the reply.
    pub(super) fn descriptions(&self) -> Result<Vec<Description>> {
        let described = self.reply.values.iter().map(|value| {
            Ok(Description { order: value.order, spec: parse_spec(value.spec.as_ref())? })
        });
        described.collect()
    }
}

/// The end of an attempt.
enum Attempt {
    Answered(Box<Result<Answer>>),
    /// The server has refused the call for good.
    Failed(Error),
    /// The connection failed. The server may have made the call.
    Lost(Status),
    /// The server has not made the call.
    NotMade(Status),
    /// The server has not made the call, because it does not know this incarnation any more.
    Fenced,
}

const UNKNOWN: &str = "it is not known whether the call took effect";

/// The error of a call that may have taken effect.
pub(super) fn unknown(what: &str, reason: &str, error: &Error) -> Error {
    let error = error.chain();
    Error::Transport {
        operation: what.to_owned(),
        source: format!("{reason}{UNKNOWN}: {error}").into(),
    }
}

/// Returns whether the call of an error may have taken effect.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Transport { source, .. } if source.to_string().contains(UNKNOWN))
}

impl Connection {
    /// Connects to a server and joins its group.
    pub(super) async fn open(target: Target) -> Result<Arc<Self>> {
        let settings = (&target.security, target.timeout);
        let channels = channels(&target.server, settings, target.connections)?;
        Self::join(target, channels).await
    }

    /// Joins the group of a server, through the first channel.
    pub(crate) async fn join(target: Target, channels: Vec<Channel>) -> Result<Arc<Self>> {
        let none = || Error::Internal("a member without a connection".to_owned());
        let client = StoreClient::new(channels.first().cloned().ok_or_else(none)?);
        let (state, session) = watch::channel(Session::Absent("not connected yet".to_owned()));
        let (end, receiver) = mpsc::channel(1);
        let members = Arc::<Mutex<Members>>::default();
        let barriers = Arc::<PassedBarriers>::default();
        let streams = Arc::new(Streams::new(&target.server, channels));
        let membership = Membership {
            target: target.clone(),
            client,
            streams: Arc::clone(&streams),
            state,
            members: Arc::clone(&members),
            barriers: Arc::clone(&barriers),
            earlier: None,
        };
        tokio::spawn(membership.run(receiver));
        let connection = Arc::new(Self {
            jitter: AtomicU64::new(target.process),
            barriers,
            target,
            streams,
            start: Instant::now(),
            session,
            members,
            calls: Mutex::new(Unanswered::new()),
            pulled: PulledVersions::default(),
            known_run: AtomicU64::new(0),
            left_because: Arc::default(),
            end,
            is_leaving: AtomicBool::new(false),
        });
        let deadline = connection.deadline();
        connection.joined(deadline).await?;
        connection.know_run();
        if let Some(joined) = connection.membership() {
            connection.barriers.next(&joined);
        }
        Ok(connection)
    }

    /// Returns the address of the server, as the caller or the coordinator has given it.
    pub(super) fn server(&self) -> Arc<str> {
        self.streams.server()
    }

    /// Returns the newest membership, if there is one at the moment.
    pub(super) fn membership(&self) -> Option<proto::JoinReply> {
        match &*self.session.borrow() {
            Session::Joined(joined) => Some(joined.clone()),
            _ => None,
        }
    }

    /// Records that this run of the server has the values.
    pub(super) fn know_run(&self) {
        if let Some(joined) = self.membership() {
            self.known_run.store(joined.server_run, Ordering::Relaxed);
        }
    }

    /// Returns whether the server was restarted, and may have lost its values.
    pub(super) fn is_restarted(&self) -> bool {
        let known = self.known_run.load(Ordering::Relaxed);
        let has_lost =
            |joined: proto::JoinReply| joined.server_run != known && joined.rewound.is_none();
        self.membership().is_some_and(has_lost)
    }

    /// Returns whether the connection is lost.
    pub(super) fn is_lost(&self) -> bool {
        matches!(*self.session.borrow(), Session::Absent(_))
    }

    /// Returns the deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Duration {
        self.start.elapsed().saturating_add(self.target.timeout)
    }

    /// Ends the membership, and waits a moment until the server knows.
    pub(crate) async fn left(&self) {
        self.leave();
        let mut session = self.session.clone();
        let left = session.wait_for(|session| matches!(session, Session::Left));
        let _ = tokio::time::timeout(LEAVE, left).await;
    }

    /// Returns the newest list of live members, in the order of their ranks.
    pub(super) fn members(&self) -> Vec<proto::Member> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).now.clone()
    }

    /// Returns what ends the membership. It does not keep this process a member.
    pub(super) fn leaver(&self) -> Leaver {
        Leaver { end: self.end.downgrade(), reason: Arc::clone(&self.left_because) }
    }

    /// Ends the memberships at the other servers if another process takes the name at this server,
    /// so that it can join there, too.
    pub(super) fn leave_others_if_replaced(
        &self,
        others: Vec<Leaver>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut session = self.session.clone();
        let server = self.server();
        async move {
            let ended =
                session.wait_for(|session| matches!(session, Session::Refused(..) | Session::Left));
            if let Ok(ended) = ended.await
                && let Session::Refused(Code::AlreadyExists | Code::FailedPrecondition, text) =
                    &*ended
            {
                for other in others {
                    let reason = "this process has left, because another server has refused it";
                    other.leave(format!("{reason}: server `{server}`: {text}"));
                }
            }
        }
    }

    /// Ends the membership. Later calls fail, also while the server does not know it yet.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        let _ = self.end.try_send(());
    }

    /// Returns the membership, and waits for it until the deadline.
    pub(super) async fn joined(&self, deadline: Duration) -> Result<proto::JoinReply> {
        if self.is_leaving.load(Ordering::Relaxed) {
            return Err(Error::Closed { what: "the store".to_owned() });
        }
        let mut session = self.session.clone();
        let left = deadline.saturating_sub(self.start.elapsed());
        let settled = session.wait_for(|session| !matches!(session, Session::Absent(_)));
        let settled = tokio::time::timeout(left, settled).await;
        let now = match settled {
            Ok(Ok(now)) => now.clone(),
            Ok(Err(_)) => return Err(Error::Closed { what: "the store".to_owned() }),
            Err(_) => self.session.borrow().clone(),
        };
        let server = self.server();
        match now {
            Session::Joined(joined) => Ok(joined),
            Session::Absent(reason) => {
                let waited = self.target.timeout.as_secs_f64();
                Err(Error::Timeout(format!("server `{server}`: no answer in {waited} s: {reason}")))
            }
            Session::Left => Err(match self.left_because.get() {
                None => Error::Closed { what: "the store".to_owned() },
                Some(reason) => Error::Transport {
                    operation: format!("server `{server}`"),
                    source: reason.clone().into(),
                },
            }),
            Session::Refused(Code::AlreadyExists | Code::InvalidArgument, reason) => {
                Err(Error::InvalidArgument(reason))
            }
            Session::Refused(Code::Unimplemented | Code::PermissionDenied, reason) => {
                Err(Error::Unsupported(format!("server `{server}`: {reason}")))
            }
            Session::Refused(_, reason) => Err(Error::Transport {
                operation: format!("server `{server}`"),
                source: reason.into(),
            }),
        }
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Unanswered> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call, and repeats it if the connection is lost.
    pub(crate) async fn call(self: Arc<Self>, backends: Backends, call: Call) -> Result<Answer> {
        let open = Open { calls: &self.calls, sequence: self.number(call.changes) };
        // The incarnation for which the server may have made the call.
        let mut in_doubt = None;
        let mut result = self.attempts(&backends, &call, open.sequence, &mut in_doubt).await;
        if let Some(joint) = &call.joint {
            let deadline = self.deadline();
            while let Ok((_, history)) = &result
                && let Answering::Repeat(history) = self.settled(joint, *history).await
            {
                if self.start.elapsed() > deadline {
                    let text = "the servers have not gone back to the same recovery point";
                    in_doubt = Some(0);
                    let late = Error::Timeout(format!("{}: {text}", call.what));
                    result = Err(Unmade(late));
                    break;
                }
                // The server goes back, too, and then it may not know the call any more.
                let there = reached(self.session.clone(), history);
                let _ = tokio::time::timeout(self.target.timeout, there).await;
                result = self.attempts(&backends, &call, open.sequence, &mut in_doubt).await;
            }
            if result.is_err() {
                joint.fail();
            }
        }
        #[cfg(test)]
        if Fault::ReuseNumber.is_planted() && call.changes && result.is_err() {
            self.calls().next = open.sequence;
        }
        match result {
            Err(Unmade(error)) if call.changes && in_doubt.is_some() => {
                Err(unknown(&call.what, "the connection was lost, and ", &error))
            }
            Err(Unmade(error)) => Err(error),
            Ok((answered, _)) => answered,
        }
    }

    /// Returns the number of a new call, or 0 for a call that changes nothing.
    fn number(&self, changes: bool) -> u64 {
        if changes { self.calls().begin() } else { 0 }
    }

    /// Returns the answer of the server and the history in which it was made, or why there is none.
    async fn attempts(
        &self,
        backends: &Backends,
        call: &Call,
        sequence: u64,
        in_doubt: &mut Option<u64>,
    ) -> Result<(Result<Answer>, u64), Unmade> {
        let deadline = self.deadline();
        let mut backoff = Backoff::new(deadline);
        loop {
            let joined = self.joined(deadline).await.map_err(|error| match error {
                Error::Timeout(text) => Unmade(Error::Timeout(format!("{}: {text}", call.what))),
                error => Unmade(error),
            })?;
            if let Some(joint) = &call.joint {
                joint.reach(history_of(&joined));
            }
            #[cfg(test)]
            if Fault::RepeatElsewhere.is_planted() {
                *in_doubt = None;
            }
            let is_barrier = matches!(call.verb, Verb::Barrier(_));
            let may_repeat = is_barrier && self.barriers.may_repeat(&joined);
            let is_other = in_doubt.is_some_and(|earlier| earlier != joined.incarnation);
            if is_other && call.changes && !may_repeat {
                let text = "the server does not know this process any more";
                return Err(Unmade(Error::Internal(text.to_owned())));
            }
            let left = backoff.left(self.start.elapsed());
            let reason = match self.attempt(backends, call, sequence, &joined, left).await {
                Attempt::Answered(mut answer) => {
                    let history = history_of(&joined);
                    #[cfg(test)]
                    {
                        self.calls().history = history;
                    }
                    if let Ok(answer) = &mut *answer {
                        answer.history = history;
                    }
                    return Ok((*answer, history));
                }
                Attempt::Failed(error) => return Err(Unmade(error)),
                Attempt::Fenced => {
                    self.changed(&joined, deadline).await;
                    "this process is not a member".to_owned()
                }
                Attempt::NotMade(status) => status.message().to_owned(),
                Attempt::Lost(status) => {
                    *in_doubt = Some(joined.incarnation);
                    #[cfg(test)]
                    if Fault::ConfirmEarly.is_planted() {
                        self.calls().open.remove(&sequence);
                    }
                    reason_of(&status)
                }
            };
            let Some(wait) = backoff.wait(self.start.elapsed(), self.jitter()) else {
                let server = self.server();
                let text = format!("{}: server `{server}`: {reason}", call.what);
                return Err(Unmade(Error::Timeout(text)));
            };
            tracing::debug!(call = call.what, reason, ?wait, "a call is repeated");
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits until the membership is another one.
    async fn changed(&self, before: &proto::JoinReply, deadline: Duration) {
        let mut session = self.session.clone();
        let other = session.wait_for(|session| match session {
            Session::Joined(joined) => {
                joined.incarnation != before.incarnation || joined.server_run != before.server_run
            }
            Session::Absent(_) => false,
            Session::Refused(..) | Session::Left => true,
        });
        let left = deadline.saturating_sub(self.start.elapsed());
        let _ = tokio::time::timeout(left, other).await;
    }

    /// Records that a call was answered in a history. Waits until its operation is complete, or
    /// must be made in a later history.
    async fn settled(&self, joint: &Joint, history: u64) -> Answering {
        joint.answered(history);
        tokio::select! {
            biased;
            // What the user knows of this server is lost, too.
            later = reached(self.session.clone(), history + 1) => joint.reach(later),
            settled = joint.settled(history) => return settled,
        }
        joint.settled(history).await
    }

    /// Returns a number from 0 to 1 that differs from call to call and from process to process.
    fn jitter(&self) -> f64 {
        // The golden ratio spreads successive numbers evenly.
        fraction(self.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
    }

    async fn attempt(
        &self,
        backends: &Backends,
        call: &Call,
        sequence: u64,
        joined: &proto::JoinReply,
        left: Duration,
    ) -> Attempt {
        let mut verb = call.verb.clone();
        let mut round = None;
        if let Verb::Barrier(barrier) = &mut verb {
            barrier.round = self.barriers.next(joined);
            round = Some(barrier.round);
        }
        self.pulled.add_to(&mut verb, joined.incarnation);
        let (answered_below, unanswered) = self.calls().answered();
        let request = proto::Request {
            member: self.target.name.clone(),
            incarnation: joined.incarnation,
            sequence,
            answered_below,
            unanswered,
            traceparent: call.trace.map_or_else(String::new, |trace| trace.to_string()),
            timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1),
            joint: call.joint.as_ref().map(|joint| joint.message(history_of(joined))),
            verb: Some(verb),
        };
        let is_supplied = call.is_supplied();
        let sent = if is_supplied { Elements::default() } else { call.elements.clone() };
        let (mut request, mut elements) = (Some(request), sent);
        let frames = std::iter::from_fn(move || {
            let (request, data) = (request.take(), elements.next_chunk());
            (request.is_some() || !data.is_empty()).then_some(proto::RequestFrame { request, data })
        });
        let supplied = is_supplied.then_some(&call.elements);
        let answered = self.streams.call(backends, frames, supplied);
        // The server also has this time, so its own report of a timeout usually arrives.
        let answered = tokio::time::timeout(left.saturating_add(GRACE), answered).await;
        match answered {
            Ok(Ok(answer)) => {
                if let (Some(round), Ok(_)) = (round, &answer) {
                    self.barriers.pass(joined, round);
                }
                if let Ok(Answer { reply, .. }) = &answer
                    && reply.has_elements
                {
                    self.pulled.keep(&reply.values, joined);
                }
                Attempt::Answered(Box::new(answer))
            }
            Ok(Err(status)) => match status.code() {
                Code::FailedPrecondition => Attempt::Fenced,
                Code::Aborted => Attempt::NotMade(status),
                Code::Unimplemented | Code::PermissionDenied => Attempt::Failed(
                    Error::Unsupported(format!("server `{}`: {}", self.server(), status.message())),
                ),
                _ if has_not_connected(&status) => Attempt::NotMade(status),
                Code::InvalidArgument | Code::OutOfRange => Attempt::Failed(Error::Transport {
                    operation: call.what.clone(),
                    source: status.message().to_owned().into(),
                }),
                _ => Attempt::Lost(status),
            },
            Err(_) => Attempt::Lost(Status::deadline_exceeded("no answer")),
        }
    }
}

/// Returns a random number as a fraction from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a double has the 53 bits that are left")]
pub(super) fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// Why a call has no answer.
struct Unmade(Error);

/// Returns whether there was no connection to the server, so that it cannot have made the call.
fn has_not_connected(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

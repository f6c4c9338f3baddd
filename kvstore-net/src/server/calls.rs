//! The calls of members: receives, checks and makes them. `verbs.rs` and `holder` decide what they
//! do.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvstore_core::{Error, Key, KvStore, Result as StoreResult, with_staleness};
use prost::Message as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use tracing::{Instrument, Level, Span, field};

use super::access::Permission;
use super::coordinated;
use super::group::running::Running;
use super::group::{Caller, MOST_CALLS};
use super::rounds;
use super::service::{MOST_NAME_BYTES, Service, WAIT};
use super::transfer::{Interim, supply};
use super::verbs::{self, Answer, FollowingPull, Payload, VerbKind};
use crate::accounts::{Charge, STREAM};
#[cfg(test)]
use crate::faults::Fault;
use crate::journal::JournalState;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::Role;
use crate::runtime::{in_place, without_panic};
use crate::same_process::{LocalMember, keep_error};
use crate::trace::TraceIds;
use crate::wire::{Incoming, IncomingValues, Receiver, failure_of, parse_keys};

/// The bytes that an answer needs for a key, besides its name.
const KEY_BYTES: usize = 256;

/// The most bytes of the text of a failure, which the server keeps until its member has it.
const MOST_TEXT_BYTES: usize = 4096;

/// The error of a request whose verb was added to the protocol later.
pub(crate) const UNKNOWN_VERB: &str =
    "this server does not know the verb of the request: it needs a later version of kvstore";

/// The longest time that a call waits, so that deadlines do not overflow.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A call that changes the store or the group.
struct Write<'a> {
    verb: Verb,
    payload: Payload,
    following: Option<&'a FollowingPull>,
    joint: Option<proto::JointCall>,
}

/// The keys that a call has changed.
#[derive(Default)]
struct ChangedKeys {
    pushed: Vec<Key>,
    removed: Vec<Key>,
}

impl Service {
    /// Makes a call. Errors of the store are part of the answer.
    pub(super) async fn answer(
        &self,
        mut request: proto::Request,
        first: &[u8],
        (frames, interim): (&mut Incoming<proto::RequestFrame>, &Interim),
    ) -> Result<Answer, Status> {
        let verb = request.verb.take();
        let verb = verb.ok_or_else(|| Status::unimplemented(UNKNOWN_VERB))?;
        let VerbKind { name, needs, .. } = verbs::kind(&verb);
        let mut measured = self.metrics.begin(name);
        let span = span_of(name, &request);
        let permitted = self.access.permission.check(needs, name);
        let reads = needs == Permission::Read;
        let permitted = permitted.and_then(|()| if reads { Ok(()) } else { self.check_owner() });
        let permitted = permitted.and_then(|()| match &verb {
            Verb::Status(_) => Ok(()),
            _ => self.check_together(),
        });
        let mut answered = match permitted {
            Ok(()) => {
                self.answer_verb(request, verb, first, (frames, interim)).instrument(span).await
            }
            Err(status) => Err(status),
        };
        if !reads {
            answered = answered.and_then(|answer| self.check_still_owner().map(|()| answer));
        }
        if self.group.is_over() {
            let text = "the server goes back to a recovery point";
            answered = Err(Status::unavailable(text));
        }
        measured.ended(match &answered {
            Ok(answer) if answer.reply.failure.is_none() => "ok",
            Ok(_) => "failed",
            Err(_) => "rejected",
        });
        answered
    }

    async fn answer_verb(
        &self,
        mut request: proto::Request,
        verb: Verb,
        first: &[u8],
        (frames, interim): (&mut Incoming<proto::RequestFrame>, &Interim),
    ) -> Result<Answer, Status> {
        let wait = if request.timeout_ms == 0 {
            WAIT
        } else {
            Duration::from_millis(request.timeout_ms).min(LONGEST)
        };
        let deadline = Instant::now() + wait;
        let deadline = self.deadline.map_or(deadline, |end| end.min(deadline));
        let joint = request.joint.take();
        let history = self.recovery.as_ref().map_or(0, |recovery| recovery.rewound_by());
        if joint.as_ref().is_some_and(|joint| joint.history != history) {
            return Err(Status::aborted("the servers have gone back since this process joined"));
        }
        if let Verb::Status(_) = verb {
            let status = self.blocking(&self.statuses, || self.status()).await;
            return self.charged(status.unwrap_or_else(|error| failed(&error)));
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
        let process = (caller.incarnation, &self.access.identity);
        let role = self.group.authorise(&caller.name, process, answered)?;
        self.access.permission.check_role(role)?;
        if verbs::kind(&verb).changes != (caller.sequence != 0) {
            let text = "calls that change the store, and only these, have a number";
            return Err(Status::invalid_argument(text));
        }
        if role == Role::Reader && matches!(verb, Verb::Push(_)) {
            return Ok(failed(&Error::invalid("push: this member has joined as a reader")));
        }
        if matches!(verb, Verb::Push(_))
            && self.recovery.as_ref().is_some_and(|recovery| recovery.awaits_updater())
        {
            return Err(Status::aborted("the program of the server has not set its updater yet"));
        }
        let received = timeout_at(deadline, self.receive(&verb, first, frames)).await;
        let late = |_| Status::deadline_exceeded("the data of the request did not arrive in time");
        let (payload, charge) = match received.map_err(late)? {
            Ok(payload) => payload?,
            Err(error) => return Ok(failed(&error)),
        };
        let is_in_round = verbs::is_in_round(&verb);
        let source = is_in_round.then(|| self.sources.attach(&caller));
        // The call may continue after its stream, whose charges end then.
        let charges = (charge, frames.take_charge());
        if let (Verb::Reserve(layouts), Some(leader)) = (&verb, self.group.leader()) {
            let reserved = Box::pin(coordinated::reserve(leader, layouts.count)).await?;
            return self.charged(reserved.unwrap_or_else(|error| failed(&error)));
        }
        if caller.sequence == 0 {
            let result = self.read(&caller, verb, payload, deadline).await?;
            return self.charged(result.unwrap_or_else(|error| failed(&error)));
        }
        let is_joint = joint.is_some() && !is_in_round;
        let service = self.clone();
        let mut call = Box::pin(async move {
            match service.group.begin(&caller, is_joint, deadline).await? {
                Ok(running) => {
                    let write = Write { verb, payload, following: following.as_ref(), joint };
                    let written = service.write(running, &caller, write, deadline).await;
                    drop(charges);
                    match following.filter(|_| written.reply.failure.is_none()) {
                        Some(following) => Ok(service.follow(&caller, following, deadline).await),
                        None => Ok(written),
                    }
                }
                Err(failure) => {
                    if let (Verb::Push(push), Some(failure)) = (&verb, &failure) {
                        service.fail_again(&caller, push, failure);
                    }
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
        let made = tokio::spawn(call.in_current_span());
        let made = match source {
            Some((_attached, orders)) => Box::pin(supply(made, orders, frames, interim)).await?,
            None => made.await,
        };
        made.map_err(|error| Status::unavailable(format!("the call has panicked: {error}")))?
    }

    /// Receives the data of a request, with what they count. The inner error is a status.
    async fn receive(
        &self,
        verb: &Verb,
        first: &[u8],
        frames: &mut Incoming<proto::RequestFrame>,
    ) -> StoreResult<Result<(Payload, Option<Charge>), Status>> {
        let backends = self.holder.contents().backends();
        let tensor = verbs::tensor_in(verb);
        if verbs::is_in_round(verb) {
            if !first.is_empty() {
                let text = "the data of a push to a round before the server has requested them";
                return Ok(Err(Status::invalid_argument(text)));
            }
            let charge = self.access.charge(STREAM.saturating_add(rounds::MOST_HELD));
            return Ok(charge.map(|charge| (Payload::Values(Vec::new()), charge)));
        }
        let compression = verbs::compression_in(verb)?;
        let expected = IncomingValues::new(verbs::values_in(verb), compression.as_ref())?;
        let num_bytes = match &tensor {
            Some(spec) => spec.num_bytes()?,
            None => expected.num_bytes()?,
        };
        // Also counts the task of a call that changes something.
        let charge = match self.access.charge(num_bytes.saturating_add(STREAM)) {
            Ok(charge) => charge,
            Err(status) if status.code() == Code::OutOfRange => {
                return Err(Error::invalid(status.message()));
            }
            Err(status) => return Ok(Err(status)),
        };
        self.metrics.receive(num_bytes);
        let is_tensor = tensor.is_some();
        let mut receiver = match tensor {
            Some(spec) => Receiver::of_tensor(backends, spec)?,
            None => Receiver::new(backends, expected)?,
        };
        if let Err(ended) = received(&mut receiver, first, frames).await? {
            return Ok(Err(ended));
        }
        let payload = if is_tensor {
            Payload::Tensor(receiver.finish_tensor()?)
        } else {
            Payload::Values(receiver.finish()?)
        };
        Ok(Ok((payload, charge)))
    }

    /// Counts an answer until it is sent.
    fn charged(&self, mut answer: Answer) -> Result<Answer, Status> {
        // The messages of a reply need more memory than their bytes.
        let num_bytes = 4 * answer.reply.encoded_len() + answer.elements.num_bytes();
        answer.charge = self.access.charge_reply(num_bytes)?;
        self.metrics.send(answer.elements.num_bytes());
        Ok(answer)
    }

    /// Makes a call that changes nothing.
    async fn read(
        &self,
        caller: &Caller,
        verb: Verb,
        payload: Payload,
        deadline: Instant,
    ) -> Result<StoreResult<Answer>, Status> {
        let _estimate = self.estimate(&verb)?;
        Ok(self.read_counted(caller, verb, payload, deadline).await)
    }

    /// Counts the entries that the answer to a call has for each key, before it is made.
    fn estimate(&self, verb: &Verb) -> Result<Option<Charge>, Status> {
        let num_keys = match verb {
            Verb::ListKeys(_) | Verb::Stats(_) | Verb::TakeSnapshot(_) => {
                self.holder.contents().store().num_keys()
            }
            _ => 0,
        };
        self.access.charge_reply(num_keys.saturating_mul(KEY_BYTES))
    }

    async fn read_counted(
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
            self.group.wait_for_workers(caller, &keys, staleness, deadline).await?;
        }
        // Read before the values, so that a push never looks less stale than it is.
        let versions = self.group.versions(&keys);
        if let Verb::TakeSnapshot(request) = &verb
            && self.group.num_followers() > 0
        {
            self.take_on_all(caller, request, deadline).await?;
        }
        let is_short = self.holder.is_short(&verb, &payload);
        let make = || self.holder.make(caller.incarnation, verb, payload);
        let make = || self.holder.contents().called_by(caller, make);
        // Permits of its own, because pushes may wait for pulls of their updaters.
        let mut answer = self.run(is_short, &self.reads, make).await?;
        for (value, version) in answer.reply.values.iter_mut().zip(versions) {
            value.version = Some(version);
        }
        Ok(answer)
    }

    /// Pulls after a push. If that fails, the answer has no values, because the call has succeeded.
    async fn follow(&self, caller: &Caller, following: FollowingPull, deadline: Instant) -> Answer {
        let nothing = Payload::Values(Vec::new());
        let verb = Verb::Pull(following.pull);
        let pulled = self.read_counted(caller, verb, nothing, deadline).await;
        let pulled = pulled.ok().filter(|answer| answer.reply.failure.is_none());
        pulled.and_then(|answer| self.charged(answer).ok()).unwrap_or_default()
    }

    /// Makes a call that changes the store or the group, and records its outcome.
    async fn write(
        &self,
        running: Running<'_>,
        caller: &Caller,
        Write { verb, payload, following, joint }: Write<'_>,
        deadline: Instant,
    ) -> Answer {
        #[cfg(test)]
        if Fault::DelayCall.is_planted() && caller.sequence.is_multiple_of(3) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut changed = ChangedKeys::default();
        // Until the outcome is recorded.
        let mut effects = None;
        let changes_more = verbs::changes_more_than_values(&verb);
        let result = match verb {
            Verb::Barrier(barrier) => {
                let passed = self.group.barrier(caller, barrier.round, deadline).await;
                passed.map(|()| Answer::default())
            }
            Verb::Command(command) => {
                let run = || self.commands.run(command.head, &command.body);
                self.blocking(&self.permits, run).await.map(|()| Answer::default())
            }
            Verb::Push(push) if push.round.is_some() => {
                let store = self.holder.contents().store();
                let as_expected =
                    following.map_or(Ok(true), |following| following.is_as_expected(store));
                // Boxed, because the futures of other calls would have its size, too.
                let end = (as_expected, deadline);
                return Box::pin(self.write_in_round(running, caller, push, end)).await;
            }
            verb => match self.enter(caller, joint.as_ref(), deadline).await {
                Err(error) => Err(error),
                Ok(entered) => {
                    effects = Some(entered);
                    self.change(caller, (verb, payload), following, &mut changed).await
                }
            },
        };
        let answer = result.unwrap_or_else(|error| self.failed_call(caller, error));
        let outcome = answer.reply.failure.clone();
        if outcome.is_some() {
            changed.pushed.clear();
        } else if !changed.removed.is_empty() {
            self.group.remove_keys(&changed.removed);
        }
        let is_made = !outcome.as_ref().is_some_and(|failure| failure.out_of_date);
        let id = effects.as_mut().and_then(|entered| entered.joint.take());
        if let Some((id, joint)) = id.zip(joint).filter(|_| is_made) {
            self.group.make_joint(id, &joint);
        }
        running.finish(outcome, &changed.pushed);
        drop(effects);
        if let Some(recovery) = self.recovery.as_ref().filter(|_| changes_more) {
            recovery.request();
        }
        answer
    }

    /// Makes a call that changes the store.
    async fn change(
        &self,
        caller: &Caller,
        (mut verb, payload): (Verb, Payload),
        following: Option<&FollowingPull>,
        changed: &mut ChangedKeys,
    ) -> StoreResult<Answer> {
        if let Verb::Remove(keys) = &mut verb
            && self.access.permission < Permission::Administer
        {
            self.holder.retain_removable(keys, caller.incarnation);
        }
        let keys = verbs::pushed_keys(&verb);
        let is_removal = matches!(verb, Verb::Remove(_));
        let staleness = self.staleness(&verb, keys.as_deref().unwrap_or_default());
        let is_short = self.holder.is_short(&verb, &payload);
        let contents = self.holder.contents();
        let make = || {
            let is_expected =
                |following: &FollowingPull| following.is_as_expected(contents.store());
            if following.map_or(Ok(true), is_expected)? {
                let make = || self.holder.make(caller.incarnation, verb, payload);
                with_staleness(staleness, || contents.called_by(caller, make))
            } else {
                Ok(Answer::out_of_date())
            }
        };
        let answer = self.run(is_short, &self.permits, make).await?;
        changed.pushed = keys?;
        if is_removal {
            changed.removed = parse_keys(&answer.reply.keys)?;
        }
        Ok(answer)
    }

    /// Makes a push to a round, and records its outcome.
    async fn write_in_round(
        &self,
        running: Running<'_>,
        caller: &Caller,
        push: proto::Push,
        (as_expected, deadline): (StoreResult<bool>, Instant),
    ) -> Answer {
        let made = async {
            if as_expected? {
                self.push_to_round(caller, push, deadline).await
            } else {
                Ok(Answer::out_of_date())
            }
        };
        let made: StoreResult<_> = made.await;
        let answer = made.unwrap_or_else(|error| self.failed_call(caller, error));
        running.finish_in_round(answer.reply.failure.clone());
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
        let seen: HashMap<&str, u64> = push
            .values
            .iter()
            .map(|value| (value.key.as_str(), value.version.unwrap_or_default()))
            .collect();
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

    /// Runs work that may take long, wait for locks or panic, for example in an updater.
    pub(super) async fn blocking<R>(
        &self,
        permits: &Semaphore,
        work: impl FnOnce() -> StoreResult<R>,
    ) -> StoreResult<R> {
        let waiting = self.metrics.wait();
        // The semaphore is never closed, so there is always a permit.
        let _permit = permits.acquire().await;
        drop(waiting);
        in_place(|| without_panic(work))
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
            journal: self.holder.contents().journal().map(|journal| {
                let JournalState { mode, num_records, num_bytes, error } = journal.state();
                proto::JournalStatus { mode: mode.to_owned(), num_records, num_bytes, error }
            }),
            recovery: self.recovery.as_ref().map(|recovery| {
                let state = recovery.state();
                let age_ms = state.age().map(|age| age.as_millis());
                proto::RecoveryStatus {
                    num_points: state.num_points,
                    num_bytes: state.num_bytes,
                    age_ms: age_ms.map(|age| u64::try_from(age).unwrap_or(u64::MAX)),
                    error: state.error,
                    awaits_others: state.awaits_others,
                }
            }),
        };
        let reply = proto::Reply { status: Some(found), ..Default::default() };
        Ok(Answer { reply, ..Default::default() })
    }
}

/// Returns the span of a call, with the trace of the caller. Its level is `INFO` if the caller
/// records the trace, and `DEBUG` otherwise, because a span takes 2 us.
fn span_of(verb: &'static str, request: &proto::Request) -> Span {
    // Not yet known to be a member, so the name may have any length.
    let member = request.member.get(..MOST_NAME_BYTES).unwrap_or(&request.member);
    let member = if member.len() > MOST_NAME_BYTES { "" } else { member };
    let sequence = request.sequence;
    let ids = || TraceIds::in_header(&request.traceparent);
    macro_rules! span {
        ($level:expr) => {
            // Evaluates the fields only if the span is enabled.
            tracing::span!(
                $level,
                "call",
                verb,
                member,
                sequence,
                trace_id = ids().map(|ids| field::display(ids.trace_id)),
                parent_id = ids().map(|ids| field::display(ids.parent_id)),
            )
        };
    }
    if ids().is_some_and(TraceIds::is_sampled) { span!(Level::INFO) } else { span!(Level::DEBUG) }
}

fn failed(error: &Error) -> Answer {
    let mut failure = failure_of(error);
    for text in [&mut failure.message, &mut failure.subject] {
        let is_boundary = |end: &usize| text.is_char_boundary(*end);
        if let Some(end) = (0..=MOST_TEXT_BYTES).rev().find(is_boundary) {
            text.truncate(end);
        }
    }
    let key = failure.key.take();
    failure.key = key.filter(|key| key.len() <= MOST_TEXT_BYTES);
    let reply = proto::Reply { failure: Some(failure), ..Default::default() };
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
            Ok(Some(frame)) if frame.request.is_some() => {
                return Ok(Err(Status::invalid_argument(
                    "a request within the data of another one",
                )));
            }
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

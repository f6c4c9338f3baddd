//! Rounds: pushes of several members that become one push with their sum.
//!
//! `group::rounds` decides who takes part. Here, a task for each round receives the values of its
//! members and adds them up, as often as the list of members changes, and then makes the push.

mod fold;
mod followed;
pub(crate) mod sums;

use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{DType, Error, Key, KvStore, Result, Value, fallible};
use tokio::time::Instant;

use self::fold::{Failed, ServerParts, fold, pushes_of};
use super::group::{Attempt, Caller, Entrant, Fate, PushId, PushPart, RoundRule};
use super::service::Service;
use super::verbs::Answer;
use crate::journal::heads::Participant;
use crate::journal::{AttemptRecord, Callers, with_callers};
use crate::proto;
use crate::rules::Quorum;
use crate::runtime::in_place;
use crate::wire::{head_of, parse_keys, parse_spec, to_compression};

/// The bytes that a member's push to a round counts: the ranges that the server asks for in
/// advance. Rows and codes may need more, as long as the server adds them up.
pub(super) const MOST_HELD: usize = 2 << 20;

/// How much longer than the first server the others wait. The client waits longer.
const LATER: Duration = Duration::from_millis(500);

impl Service {
    /// Takes part in a round.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the push is not valid.
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    /// - [`Error::SpecMismatch`] if a value has another type than the stored one.
    /// - The errors of [`Group::take_part`](super::group::Group::take_part).
    pub(super) async fn push_to_round(
        &self,
        caller: &Caller,
        push: proto::Push,
        deadline: Instant,
    ) -> Result<Answer> {
        let part = self.part_of(caller, &push)?;
        let deadline = match part {
            // The first server knows for whom the push waits, so its report comes first.
            PushPart::OfFollower(_) => deadline + LATER,
            PushPart::OfLeader(..) | PushPart::Complete => deadline,
        };
        let entrant = match self.entrant(caller, push, part.clone()) {
            Ok(Some(entrant)) => Arc::new(entrant),
            Ok(None) => {
                self.group.reject_push((&part, &caller.name), &Ok(Fate::OutOfDate));
                return Ok(Answer::out_of_date());
            }
            Err(error) => {
                let rejected = Err(error.duplicate());
                self.group.reject_push((&part, &caller.name), &rejected);
                return Err(error);
            }
        };
        let begin = || {
            let (service, keys) = (self.clone(), Arc::clone(&entrant.keys));
            tokio::spawn(service.run_rounds(keys));
        };
        match self.group.take_part(&entrant, deadline, begin).await? {
            Fate::Committed => Ok(Answer::default()),
            Fate::OutOfDate => Ok(Answer::out_of_date()),
        }
    }

    /// Tells the other servers that a push to a round has failed, because they may have gone back
    /// to a recovery point in which they do not know.
    pub(super) fn fail_again(&self, caller: &Caller, push: &proto::Push, failure: &proto::Failure) {
        if push.round.is_some()
            && let Ok(part) = self.part_of(caller, push)
        {
            self.group.end_part(&part, failure.clone());
        }
    }

    /// Returns which part of a push this server has.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if this server does not lead the others.
    fn part_of(&self, caller: &Caller, push: &proto::Push) -> Result<PushPart> {
        let Some(part) = &push.part else { return Ok(PushPart::Complete) };
        let process = self.group.process_of(caller);
        let process = process.ok_or_else(|| Error::Closed { what: "the membership".to_owned() })?;
        let id = PushId { name: caller.name.clone(), process, number: part.number };
        if part.keys.is_empty() {
            return Ok(PushPart::OfFollower(id));
        }
        let followers = part.servers.iter().map(|number| usize::try_from(*number));
        let followers: Vec<usize> = followers.map(|number| number.unwrap_or(usize::MAX)).collect();
        let known = self.group.num_followers();
        let is_led = |number: &usize| (1..=known).contains(number);
        if !followers.is_sorted_by(|left, right| left < right) || !followers.iter().all(is_led) {
            let text = format!(
                "push to a round: expected the servers of the group, ascending from 1 to {known}"
            );
            return Err(Error::InvalidArgument(text));
        }
        Ok(PushPart::OfLeader(id, followers))
    }

    /// Returns the push of a member, or `None` if what the member knows is out of date.
    fn entrant(
        &self,
        caller: &Caller,
        mut push: proto::Push,
        part: PushPart,
    ) -> Result<Option<Entrant>> {
        let rule = rule_of(&push.round.unwrap_or_default())?;
        let held: Arc<[Key]> = parse_keys_of(&push.values)?.into();
        let keys = match (&part, push.part.take()) {
            (PushPart::OfLeader(..), Some(part)) => parse_keys(&part.keys)?.into(),
            _ => Arc::clone(&held),
        };
        check_ascending(&keys)?;
        if !held.is_empty() {
            check_ascending(&held)?;
        }
        let compression = push.compression.as_ref().map_or(Ok(None), to_compression)?;
        if compression != *self.holder.contents().compression()
            || !self.holder.has_layouts_of(&push.values)
        {
            return Ok(None);
        }
        self.check_specs(&held, &push.values, rule.is_weighted)?;
        Ok(Some(Entrant::new(caller.clone(), (keys, held), rule, (push, part))))
    }

    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    /// - [`Error::SpecMismatch`] if a value has another type than the stored one.
    /// - [`Error::InvalidArgument`] if there are weights and a value has an integer dtype.
    fn check_specs(&self, keys: &[Key], values: &[proto::Value], is_weighted: bool) -> Result<()> {
        let described = self.holder.contents().store().describe(keys)?;
        for ((key, value), described) in keys.iter().zip(values).zip(described) {
            let spec = parse_spec(value.spec.as_ref())?;
            if spec != described.spec {
                return Err(Error::spec_mismatch(key, &described.spec, &spec));
            }
            if is_weighted {
                check_weighted(key, spec.dtype())?;
            }
        }
        Ok(())
    }

    /// Makes the rounds of these keys, until there are no more pushes.
    async fn run_rounds(self, keys: Arc<[Key]>) {
        let (service, run_keys) = (self.clone(), Arc::clone(&keys));
        let run = tokio::spawn(async move {
            let run = async {
                while let Some(attempt) = service.group.closed_round(&run_keys).await {
                    service.run_attempt(&run_keys, attempt).await;
                }
            };
            service.until_rewind(run).await;
        });
        if let Err(panic) = run.await {
            let error = Error::Internal(format!("a round has ended: {panic}"));
            self.group.abandon_round(&keys, &error);
        }
    }

    /// Runs a task until it is done, or another run of the server begins.
    async fn until_rewind(&self, task: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = task => {}
            () = async {
                // The server completes its rounds before it ends.
                self.end.cancelled().await;
                if !self.group.is_over() {
                    std::future::pending::<()>().await;
                }
            } => {}
        }
    }

    /// Adds up the values of a list of members, and pushes the sum, unless the list changes.
    async fn run_attempt(&self, keys: &Arc<[Key]>, Attempt { number, members }: Attempt) {
        let folded = tokio::select! {
            biased;
            () = self.group.replaced_attempt(keys, number) => return,
            folded = self.fold(&members) => folded,
        };
        let mut folded = match folded {
            Ok(folded) => Ok(folded),
            Err(Failed::Member(name, outcome)) => {
                self.group.fail_in_round(keys, &name, outcome);
                return;
            }
            Err(Failed::Round(error)) => Err(error),
        };
        if folded.is_ok() {
            let prepared = tokio::select! {
                biased;
                () = self.group.replaced_attempt(keys, number) => return,
                prepared = self.group.prepared(keys, number) => prepared,
            };
            folded = prepared.and(folded);
        }
        if !self.group.begin_commit(keys, number, folded.is_ok()).await {
            return;
        }
        let outcome = match folded {
            Ok(folded) => {
                let pushed = self.apply_sums(&members, folded).await;
                self.group.applied(keys).await;
                pushed
            }
            Err(error) => Err(error),
        };
        self.group.finish_round(keys, outcome);
    }

    /// Returns the sums of the values of a list of members.
    async fn fold(&self, members: &[Arc<Entrant>]) -> Result<Folded<'_>, Failed> {
        let is_other =
            |member: &&Arc<Entrant>| members.first().is_some_and(|first| first.held != member.held);
        if let Some(member) = members.iter().find(is_other) {
            let text = "push to a round: expected the keys that other members have on this server";
            let failed = Err(Error::invalid(text));
            return Err(Failed::Member(member.caller.name.clone(), failed));
        }
        let is_outdated = |member: &&Arc<Entrant>| !self.holder.has_layouts_of(&member.push.values);
        if let Some(member) = members.iter().find(is_outdated) {
            return Err(Failed::Member(member.caller.name.clone(), Ok(Fate::OutOfDate)));
        }
        let server = ServerParts {
            backends: self.holder.contents().backends(),
            sources: &self.sources,
            metrics: &self.metrics,
        };
        let mut record = self.record_attempt(members)?;
        let sums = fold(&server, members, record.as_mut()).await?;
        Ok(Folded { sums, record })
    }

    /// Begins to record the pushes of a list of members.
    fn record_attempt(&self, members: &[Arc<Entrant>]) -> Result<Option<AttemptRecord<'_>>> {
        let has_keys = members.first().is_some_and(|first| !first.held.is_empty());
        let Some(journal) = self.holder.contents().journal().filter(|_| has_keys) else {
            return Ok(None);
        };
        let (participants, pushes) = (participants_of(members)?, pushes_of(members)?);
        in_place(|| journal.attempt(&participants, &pushes))
    }
}

/// The sums of a list of members, and the record of their pushes.
struct Folded<'a> {
    sums: Vec<Value>,
    record: Option<AttemptRecord<'a>>,
}

fn participants_of(members: &[Arc<Entrant>]) -> Result<Vec<Participant>> {
    fallible::collect(members.iter().map(|member| Participant {
        name: member.caller.name.clone(),
        incarnation: member.caller.incarnation,
        call: member.caller.sequence,
        weight: member.push.round.as_ref().and_then(|round| round.weight),
    }))
}

impl Service {
    /// Makes the push of a round, and records its effects. A recovery point has both or neither.
    async fn apply_sums(&self, members: &[Arc<Entrant>], folded: Folded<'_>) -> Result<()> {
        let _effects = self.effects().await?;
        self.push_sums(members, folded).await?;
        self.group.apply_round(members);
        Ok(())
    }

    /// Makes the push of a round.
    async fn push_sums(
        &self,
        members: &[Arc<Entrant>],
        Folded { sums, record }: Folded<'_>,
    ) -> Result<()> {
        let Some(first) = members.first() else { return Ok(()) };
        if sums.is_empty() {
            // The round has no keys on this server.
            return Ok(());
        }
        let (keys, priority) = (&first.held, first.push.priority);
        let heads = keys.iter().zip(&sums).map(|(key, sum)| head_of(key, sum));
        let values = fallible::collect(heads)?;
        let push = proto::Push { values, priority, ..proto::Push::default() };
        let round = keys.first().map(|key| self.group.versions(std::slice::from_ref(key)));
        let round = round.and_then(|versions| versions.first().map(|version| version + 1));
        let participants = participants_of(members)?;
        let push = || {
            let push = || self.holder.push_sums((push, &first.push.values), sums, record);
            with_callers(Callers { participants, round }, push)
        };
        self.blocking(&self.permits, push).await
    }
}

/// Returns the rule in a push.
///
/// # Errors
/// - [`Error::InvalidArgument`] if a number is not valid.
fn rule_of(round: &proto::RoundPush) -> Result<RoundRule> {
    let min = usize::try_from(round.min).unwrap_or(usize::MAX);
    if min == 0 {
        return Err(Error::invalid("quorum: expected at least 1, found 0"));
    }
    if let Some(weight) = round.weight
        && !(weight.is_finite() && weight > 0.0)
    {
        let text = format!("weight: expected a finite number above 0, found {weight}");
        return Err(Error::InvalidArgument(text));
    }
    Ok(RoundRule {
        quorum: Quorum { min, grace: Duration::from_millis(round.grace_ms) },
        keeps_late: round.late() == proto::LatePush::Next,
        is_weighted: round.weight.is_some(),
    })
}

fn parse_keys_of(values: &[proto::Value]) -> Result<Vec<Key>> {
    fallible::try_collect(values.iter().map(|value| Key::new(&value.key)))
}

/// Checks the keys of a push to a round.
///
/// # Errors
/// - [`Error::InvalidArgument`] if there are none, or they are not ascending.
fn check_ascending(keys: &[Key]) -> Result<()> {
    if keys.is_empty() || !keys.is_sorted_by(|left, right| left < right) {
        return Err(Error::invalid(
            "push to a round: expected at least one key, in ascending order",
        ));
    }
    Ok(())
}

/// # Errors
/// - [`Error::InvalidArgument`] if the dtype is an integer.
pub(crate) fn check_weighted(key: &Key, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::invalid(format!("key `{key}`: weights need a floating-point dtype, found {dtype}")))
}

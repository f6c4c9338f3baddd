//! Rounds: pushes of several members that become one push with their sum.
//!
//! `group::rounds` decides who takes part. Here, a task for each round receives the values of its
//! members and adds them up, as often as the list of members changes, and then makes the push.

mod fold;

use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{DType, Error, Key, KvStore, Result, Value, fallible};
use tokio::time::Instant;

use self::fold::{Failed, ServerParts, fold};
use super::group::{Attempt, Caller, Entrant, RoundRule};
use super::service::Service;
use super::verbs::Answer;
use crate::journal::heads::Participant;
use crate::journal::{Callers, with_callers};
use crate::proto;
use crate::rules::Quorum;
use crate::wire::{head_of, parse_spec, to_compression};

/// The bytes that a member's push to a round counts: the ranges that the server asks for in
/// advance. Rows and codes may need more, as long as the server adds them up.
pub(super) const MOST_HELD: usize = 2 << 20;

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
        let round = push.round.unwrap_or_default();
        let rule = rule_of(&round)?;
        let keys = keys_of_round(&push.values)?;
        let compression = push.compression.as_ref().map_or(Ok(None), to_compression)?;
        if compression != *self.holder.contents().compression() {
            return Ok(Answer::out_of_date());
        }
        self.check_specs(&keys, &push.values, rule.is_weighted)?;
        let keys: Arc<[Key]> = keys.into();
        let entrant = Arc::new(Entrant::new(caller.clone(), Arc::clone(&keys), rule, push));
        let begin = || {
            let (service, keys) = (self.clone(), Arc::clone(&keys));
            tokio::spawn(service.run_rounds(keys));
        };
        self.group.take_part(&entrant, deadline, begin).await?;
        Ok(Answer::default())
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
            while let Some(attempt) = service.group.closed_round(&run_keys).await {
                service.run_attempt(&run_keys, attempt).await;
            }
        });
        if let Err(panic) = run.await {
            let error = Error::Internal(format!("a round has ended: {panic}"));
            self.group.abandon_round(&keys, &error);
        }
    }

    /// Adds up the values of a list of members, and pushes the sum, unless the list changes.
    async fn run_attempt(&self, keys: &Arc<[Key]>, Attempt { number, members }: Attempt) {
        let server = ServerParts {
            backends: self.holder.contents().backends(),
            sources: &self.sources,
            metrics: &self.metrics,
        };
        let folded = tokio::select! {
            biased;
            () = self.group.replaced_attempt(keys, number) => return,
            folded = fold(&server, &members) => folded,
        };
        let sums = match folded {
            Ok(sums) => Ok(sums),
            Err(Failed::Member(name, error)) => {
                self.group.fail_in_round(keys, &name, error);
                return;
            }
            Err(Failed::Round(error)) => Err(error),
        };
        let _effects = self.effects.read().await;
        if !self.group.begin_commit(keys, number) {
            return;
        }
        let outcome = match sums {
            Ok(sums) => self.push_sums(keys, &members, sums).await,
            Err(error) => Err(error),
        };
        self.group.finish_round(keys, &outcome);
    }
}

impl Service {
    /// Makes the push of a round.
    async fn push_sums(
        &self,
        keys: &[Key],
        members: &[Arc<Entrant>],
        sums: Vec<Value>,
    ) -> Result<()> {
        let priority = members.first().map_or(0, |member| member.push.priority);
        let heads = keys.iter().zip(&sums).map(|(key, sum)| head_of(key, sum));
        let values = fallible::collect(heads)?;
        let push = proto::Push { values, priority, ..proto::Push::default() };
        let round = keys.first().map(|key| self.group.versions(std::slice::from_ref(key)));
        let round = round.and_then(|versions| versions.first().map(|version| version + 1));
        let participants = members.iter().map(|member| Participant {
            name: member.caller.name.clone(),
            incarnation: member.caller.incarnation,
            call: member.caller.sequence,
            weight: member.push.round.as_ref().and_then(|round| round.weight),
        });
        let participants = fallible::collect(participants)?;
        let push = || {
            let push = || self.holder.push_sums(push, sums);
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

/// Returns the keys of a push to a round.
///
/// # Errors
/// - [`Error::InvalidArgument`] if there are none, or they are not ascending.
fn keys_of_round(values: &[proto::Value]) -> Result<Vec<Key>> {
    let keys: Vec<Key> = fallible::try_collect(values.iter().map(|value| Key::new(&value.key)))?;
    if keys.is_empty() || !keys.is_sorted_by(|left, right| left < right) {
        return Err(Error::invalid(
            "push to a round: expected at least one key, in ascending order",
        ));
    }
    Ok(keys)
}

/// # Errors
/// - [`Error::InvalidArgument`] if the dtype is an integer.
pub(crate) fn check_weighted(key: &Key, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::invalid(format!("key `{key}`: weights need a floating-point dtype, found {dtype}")))
}

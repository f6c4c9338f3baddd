//! The rounds of a group: who takes part in them, and what became of their pushes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kvstore_core::{Error, Key, Result};
use tokio::time::{Instant, timeout_at};

use super::{Caller, Group, State, ending, left};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::rules::{Quorum, Round};

/// When a round closes, and what it does with its pushes. All its members have the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundRule {
    pub(crate) quorum: Quorum,
    /// Whether a late push belongs to the next round. Otherwise, it fails.
    pub(crate) keeps_late: bool,
    /// Whether the sum is divided by the sum of the weights.
    pub(crate) is_weighted: bool,
}

/// The push of a member to a round.
#[derive(Debug)]
pub(crate) struct Entrant {
    pub(crate) caller: Caller,
    /// The keys, ascending, which identify the round.
    pub(crate) keys: Arc<[Key]>,
    pub(crate) rule: RoundRule,
    /// The push without its data.
    pub(crate) push: proto::Push,
    outcome: OnceLock<Result<()>>,
}

impl Entrant {
    pub(crate) fn new(
        caller: Caller,
        keys: Arc<[Key]>,
        rule: RoundRule,
        push: proto::Push,
    ) -> Self {
        Self { caller, keys, rule, push, outcome: OnceLock::new() }
    }

    /// Returns each key with the version that the member has pulled last, if it has pulled it.
    fn pulled(&self) -> impl Iterator<Item = (&Key, Option<u64>)> {
        self.keys.iter().zip(self.push.values.iter().map(|value| value.version))
    }

    fn outcome(&self) -> Option<Result<()>> {
        let copy = |outcome: &Result<()>| outcome.as_ref().copied().map_err(Error::duplicate);
        self.outcome.get().map(copy)
    }
}

/// The rounds that have pushes.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    open: HashMap<Arc<[Key]>, OpenRound>,
    /// The round that a key belongs to.
    keys: HashMap<Key, Arc<[Key]>>,
    /// The version of each key after the last round that a member took part in.
    pub(super) last: HashMap<Key, HashMap<String, u64>>,
    pub(super) counts: RoundCounts,
}

/// How many rounds and late pushes there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundCounts {
    pub(crate) committed: u64,
    /// Rounds that have pushes at the moment.
    pub(crate) open: u64,
    /// Late pushes that were rejected.
    pub(crate) late: u64,
}

#[derive(Debug)]
struct OpenRound {
    round: Round<String>,
    rule: RoundRule,
    entrants: HashMap<String, Arc<Entrant>>,
}

/// The list of a round that has closed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u64,
    /// In the order of their names.
    pub(crate) members: Vec<Arc<Entrant>>,
}

/// Why a push to a round does not wait for its outcome any more.
enum Event {
    Decided,
    /// The push cannot be made.
    End(Error),
    /// The member is dead, but may come back.
    Dead,
}

/// What becomes of an open round.
enum Closing {
    Closed(Attempt),
    /// It has no pushes any more.
    Gone,
    /// It closes at this time, unless something changes.
    At(Duration),
    Waiting,
}

impl Group {
    /// Takes part in a round, and waits until it is committed. Calls `begin` if this is the first
    /// push of the round.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if other members push other keys together, or have another
    ///   rule.
    /// - [`Error::LatePush`] if the push is late.
    /// - [`Error::Timeout`] if the round is not committed in time.
    /// - [`Error::Closed`] if the server ends, or a later process takes the name of the caller.
    /// - The error of the round.
    pub(crate) async fn take_part(
        &self,
        entrant: &Arc<Entrant>,
        deadline: Instant,
        begin: impl Fn(),
    ) -> Result<()> {
        let caller = &entrant.caller;
        loop {
            let now = self.now();
            if self.change(|state| state.enter(now, entrant))? {
                begin();
            }
            let event = self.find(deadline, |state| {
                if entrant.outcome.get().is_some() {
                    return Some(Event::Decided);
                }
                let is_dead = || !state.members.is_live(caller.incarnation);
                state.obstacle(caller).map(Event::End).or_else(|| is_dead().then_some(Event::Dead))
            });
            let event = event.await;
            let now = self.now();
            let Some(waiting) = self.change(|state| state.withdraw(now, entrant)) else {
                // It is decided or being committed, which no member can stop.
                return self.wait(|_| entrant.outcome()).await;
            };
            match event {
                Some(Event::End(error)) => return Err(error),
                Some(_) => {}
                None => return Err(Error::Timeout(waiting)),
            }
            let back = self.find(deadline, |state| match state.obstacle(caller) {
                Some(error) => Some(Err(error)),
                None => state.members.is_live(caller.incarnation).then_some(Ok(())),
            });
            back.await.unwrap_or(Err(Error::Timeout(waiting)))?;
        }
    }

    /// Waits until a round closes. Returns `None` if it has no pushes any more. Then the next push
    /// of its keys begins another one.
    pub(crate) async fn closed_round(&self, keys: &Arc<[Key]>) -> Option<Attempt> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = self.now();
            let closing = self.state().close_round(now, keys);
            match closing {
                Closing::Closed(attempt) => return Some(attempt),
                Closing::Gone => return None,
                Closing::At(at) => drop(timeout_at(self.start + at, changed).await),
                Closing::Waiting => changed.await,
            }
        }
    }

    /// Waits until the list of an attempt is not the current one any more.
    pub(crate) async fn replaced_attempt(&self, keys: &Arc<[Key]>, attempt: u64) {
        self.wait(|state| {
            let open = state.rounds.open.get(keys);
            (!open.is_some_and(|open| open.round.is_folding(attempt))).then_some(())
        })
        .await;
    }

    /// Fails the push of a member whose data are wrong. The round continues without it.
    pub(crate) fn fail_in_round(&self, keys: &Arc<[Key]>, name: &str, error: Error) {
        let now = self.now();
        self.change(|state| {
            let open = state.rounds.open.get(keys);
            let Some(entrant) = open.and_then(|open| open.entrants.get(name)).cloned() else {
                return;
            };
            if state.withdraw(now, &entrant).is_some() {
                let _ = entrant.outcome.set(Err(error));
            }
        });
    }

    /// Begins the commit of an attempt. Returns whether it is still the current one.
    pub(crate) fn begin_commit(&self, keys: &Arc<[Key]>, attempt: u64) -> bool {
        let mut state = self.state();
        let open = state.rounds.open.get_mut(keys);
        open.is_some_and(|open| open.round.begin_commit(attempt))
    }

    /// Records the outcome of a round that is being committed, for all its members.
    pub(crate) fn finish_round(&self, keys: &Arc<[Key]>, outcome: &Result<()>) {
        let now = self.now();
        self.change(|state| state.finish_round(now, keys, outcome));
    }

    /// Fails all pushes of a round.
    pub(crate) fn abandon_round(&self, keys: &Arc<[Key]>, error: &Error) {
        self.change(|state| {
            for entrant in
                state.rounds.open.get(keys).iter().flat_map(|open| open.entrants.values())
            {
                let _ = entrant.outcome.set(Err(error.duplicate()));
            }
            state.rounds.remove(keys);
        });
    }

    /// Returns how many rounds and late pushes there were.
    pub(crate) fn round_counts(&self) -> RoundCounts {
        let rounds = &self.state().rounds;
        RoundCounts { open: rounds.open.len() as u64, ..rounds.counts }
    }
}

impl State {
    /// Returns why a call that waits for other members must end, if it must.
    fn obstacle(&self, caller: &Caller) -> Option<Error> {
        if self.check(caller).is_err() {
            // A later process has this name, and its join waits for this call to end.
            return Some(left());
        }
        self.is_draining.then(ending)
    }

    /// Adds a push. Returns whether the round is a new one.
    fn enter(&mut self, now: Duration, entrant: &Arc<Entrant>) -> Result<bool> {
        let (keys, name) = (&entrant.keys, &entrant.caller.name);
        let is_other = |key: &&Key| self.rounds.keys.get(*key).is_some_and(|open| open != keys);
        if let Some(key) = keys.iter().find(is_other) {
            return Err(Error::invalid(format!(
                "push of `{key}` to a round: expected the keys that other members push together \
                 with it, found {} keys",
                keys.len()
            )));
        }
        let open = self.rounds.open.get(keys);
        if let Some(open) = open {
            open.rule.check(&entrant.rule)?;
            if open.round.contains(name) {
                let key = keys.first().map_or("", Key::as_str);
                return Err(Error::invalid(format!(
                    "push of `{key}` to a round: another push of this member is waiting"
                )));
            }
        }
        if let Some((key, version)) = self.late(entrant) {
            self.rounds.counts.late += 1;
            let newest = self.versions.version(&key);
            let is_closed = self.rounds.open.get(keys).is_some_and(|open| open.round.is_closed());
            let current = newest + 1 + u64::from(is_closed);
            return Err(Error::LatePush { key, pushed: version + 1, current });
        }
        let is_new = !self.rounds.open.contains_key(keys);
        if is_new {
            self.rounds.keys.extend(keys.iter().map(|key| (key.clone(), Arc::clone(keys))));
        }
        let open = self.rounds.open.entry(Arc::clone(keys)).or_insert_with(|| OpenRound {
            round: Round::new(entrant.rule.quorum),
            rule: entrant.rule,
            entrants: HashMap::new(),
        });
        open.round.push(now, name.clone());
        open.entrants.insert(name.clone(), Arc::clone(entrant));
        Ok(is_new)
    }

    /// Closes a round if it is time.
    fn close_round(&mut self, now: Duration, keys: &Arc<[Key]>) -> Closing {
        let workers = self.workers();
        let Some(open) = self.rounds.open.get_mut(keys) else { return Closing::Gone };
        if open.round.is_empty() {
            self.rounds.remove(keys);
            return Closing::Gone;
        }
        if open.round.is_closed() {
            // A listed member has failed, so there is another list.
            return Closing::Closed(open.closed());
        }
        let is_complete = workers.iter().all(|name| open.round.contains(name));
        match open.round.closes_at(is_complete) {
            Some(at) if at <= now => Closing::Closed(open.closed()),
            Some(at) => Closing::At(at),
            None => Closing::Waiting,
        }
    }

    /// Returns the first key for which a push is late and must be rejected, with the version that
    /// the push is based on.
    fn late(&self, entrant: &Entrant) -> Option<(Key, u64)> {
        if entrant.rule.keeps_late {
            return None;
        }
        #[cfg(test)]
        if Fault::AcceptLate.is_planted() {
            return None;
        }
        let open = self.rounds.open.get(&entrant.keys);
        let is_closed = open.is_some_and(|open| open.round.is_closed());
        entrant.pulled().find_map(|(key, pulled)| {
            let last = self.rounds.last.get(key);
            let last = last.and_then(|last| last.get(&entrant.caller.name)).copied();
            let newest = self.versions.version(key);
            // A member that has never seen the key cannot be behind.
            let seen = last.max(pulled).unwrap_or(newest);
            let is_behind = self.versions.pushes_since(key, seen) > 0;
            (is_behind || is_closed).then(|| (key.clone(), seen))
        })
    }

    /// Removes the push of a member. Returns a description of what it waited for, or `None` if the
    /// round is being committed with it or the outcome is known.
    fn withdraw(&mut self, now: Duration, entrant: &Entrant) -> Option<String> {
        if entrant.outcome.get().is_some() {
            return None;
        }
        let name = &entrant.caller.name;
        let workers = self.workers();
        let Some(open) = self.rounds.open.get_mut(&entrant.keys) else {
            return Some(String::new());
        };
        let has_pushed = |name: &&String| open.round.contains(name);
        let num_pushed = open.round.members().count();
        let missing =
            workers.iter().filter(|name| !has_pushed(name)).map(|name| format!("`{name}`"));
        let missing: Vec<String> = missing.collect();
        let key = entrant.keys.first().map_or("", Key::as_str);
        let mut text = format!(
            "push of `{key}` to a round: {num_pushed} members have pushed, at least {} must",
            entrant.rule.quorum.min
        );
        if !missing.is_empty() {
            text.push_str(", waiting for ");
            text.push_str(&missing.join(", "));
        }
        #[cfg(test)]
        if Fault::KeepGivenUp.is_planted() && open.round.is_closed() {
            return Some(text);
        }
        if !open.round.withdraw(now, name) {
            return None;
        }
        open.entrants.remove(name);
        Some(text)
    }

    fn finish_round(&mut self, now: Duration, keys: &Arc<[Key]>, outcome: &Result<()>) {
        let Some(open) = self.rounds.open.get_mut(keys) else { return };
        let mut members = Vec::new();
        for name in open.round.members() {
            members.extend(open.entrants.remove(name));
        }
        open.round.finish(now);
        let names = || members.iter().map(|member| &*member.caller.name).collect::<Vec<_>>();
        let key = keys.first().map_or("", Key::as_str);
        match outcome {
            Ok(()) => tracing::debug!(key, members = ?names(), "a round is committed"),
            Err(error) => tracing::warn!(key, members = ?names(), %error, "a round has failed"),
        }
        if outcome.is_ok() {
            self.rounds.counts.committed += 1;
            for key in keys.iter() {
                self.versions.advance(key);
                let version = self.versions.version(key);
                let last = self.rounds.last.entry(key.clone()).or_default();
                last.extend(members.iter().map(|member| (member.caller.name.clone(), version)));
            }
        }
        for member in members {
            if outcome.is_ok() {
                // Together with the versions, so that no recovery point has only one of them.
                self.commit(&member);
            }
            let outcome = outcome.as_ref().copied().map_err(Error::duplicate);
            let _ = member.outcome.set(outcome);
        }
    }

    /// Records that the push of a member has taken effect.
    fn commit(&mut self, member: &Entrant) {
        let Caller { name, sequence, .. } = &member.caller;
        if self.check(&member.caller).is_err() {
            return;
        }
        for key in member.keys.iter() {
            self.clocks.advance(key, name);
        }
        if let Some(calls) = self.calls.get_mut(name) {
            calls.finish(*sequence, None);
        }
    }
}

impl Rounds {
    /// Forgets a member that has left.
    pub(super) fn remove_member(&mut self, name: &str) {
        for last in self.last.values_mut() {
            last.remove(name);
        }
    }

    /// Forgets a key that was removed.
    pub(super) fn remove_key(&mut self, key: &Key) {
        self.last.remove(key);
    }

    fn remove(&mut self, keys: &Arc<[Key]>) {
        self.open.remove(keys);
        for key in keys.iter() {
            self.keys.remove(key);
        }
    }
}

impl OpenRound {
    /// Closes the round, and returns its list.
    fn closed(&mut self) -> Attempt {
        self.round.close();
        let members = self.round.members().filter_map(|name| self.entrants.get(name)).cloned();
        let members: Vec<_> = members.collect();
        #[cfg(test)]
        let members = if Fault::FoldReversed.is_planted() {
            members.into_iter().rev().collect()
        } else {
            members
        };
        Attempt { number: self.round.attempt(), members }
    }
}

impl RoundRule {
    /// Checks the rule of another member.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if it differs.
    fn check(&self, other: &Self) -> Result<()> {
        if self == other {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "quorum: expected {self}, as other members have, found {other}"
        )))
    }
}

impl std::fmt::Display for RoundRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { quorum: Quorum { min, grace }, keeps_late, is_weighted } = self;
        let late = if *keeps_late { "next" } else { "reject" };
        let grace = grace.as_secs_f64();
        write!(f, "quorum {min}, grace {grace} s, late `{late}`, weights {is_weighted}")
    }
}

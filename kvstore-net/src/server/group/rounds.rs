//! The rounds of a group: who takes part in them, and what became of their pushes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kvstore_core::{Error, Key, Result};
use tokio::time::{Instant, timeout_at};

use super::entrants::{OpenRound, PushPart};
use super::{Attempt, Caller, Entrant, Fate, Group, RoundCounts, State, ending, left};
#[cfg(test)]
use crate::faults::Fault;
use crate::rules::{Round, Votes};

/// Why a push to a round does not wait for its outcome any more.
enum Event {
    Decided,
    /// The push cannot be made.
    End(Error),
    /// The member is dead, but may come back.
    Dead,
    /// Its parts at other servers have come or gone.
    Parts,
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
    ) -> Result<Fate> {
        self.begin_push(entrant);
        let result = self.wait_for_round(entrant, deadline, begin).await;
        self.end_push(entrant, &result);
        result
    }

    async fn wait_for_round(
        &self,
        entrant: &Arc<Entrant>,
        deadline: Instant,
        begin: impl Fn(),
    ) -> Result<Fate> {
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
                let end = state.obstacle(caller).map(Event::End);
                let end = end.or_else(|| is_dead().then_some(Event::Dead));
                end.or_else(|| state.has_other_parts(entrant).then_some(Event::Parts))
            });
            let event = event.await;
            let waiting = loop {
                let now = self.now();
                if let Some(waiting) = self.change(|state| state.withdraw(now, entrant)) {
                    break waiting;
                }
                // It is decided or being committed, which no member can stop. Or this server
                // follows another one, which decides.
                let decided = self.wait(|state| {
                    let outcome = entrant.outcome();
                    (outcome.is_some() || state.may_withdraw(entrant)).then_some(outcome)
                });
                if let Some(outcome) = decided.await {
                    return outcome;
                }
            };
            match event {
                Some(Event::End(error)) => return Err(error),
                Some(Event::Parts) => continue,
                Some(Event::Decided | Event::Dead) => {}
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
                Closing::Closed(attempt) => {
                    // Sends the list to other servers.
                    self.changed.notify_waiters();
                    return Some(attempt);
                }
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

    /// Ends the push of a member whose data are wrong. The round continues without it.
    pub(crate) fn fail_in_round(&self, keys: &Arc<[Key]>, name: &str, outcome: Result<Fate>) {
        let now = self.now();
        self.change(|state| {
            let open = state.rounds.open.get(keys);
            let Some(entrant) = open.and_then(|open| open.entrants.get(name)).cloned() else {
                return;
            };
            if state.withdraw(now, &entrant).is_some() {
                entrant.decide(outcome);
            }
        });
    }

    /// Begins the commit of an attempt, if there are sums, when a cut does not keep it from that.
    /// Returns whether the attempt is still the current one.
    pub(crate) async fn begin_commit(
        &self,
        keys: &Arc<[Key]>,
        attempt: u64,
        has_sums: bool,
    ) -> bool {
        let begun = self.wait(|state| {
            if state.holds_commits() {
                return None;
            }
            let open = state.rounds.open.get_mut(keys);
            let begins = open.is_some_and(|open| open.round.begin_commit(attempt));
            Some((begins, begins && has_sums && state.commit_on_followers(keys)))
        });
        let (begins, is_sent) = begun.await;
        if is_sent {
            self.changed.notify_waiters();
        }
        begins
    }

    /// Records that the sum of a round was applied here.
    pub(crate) fn apply_round(&self, members: &[Arc<Entrant>]) {
        self.change(|state| state.advance_round(members));
    }

    /// Records the outcome of a round that is being committed, for all its members. `own` is the
    /// outcome on this server.
    pub(crate) fn finish_round(&self, keys: &Arc<[Key]>, own: Result<()>) {
        let now = self.now();
        self.change(|state| state.finish_round(now, keys, own));
    }

    /// Fails all pushes of a round.
    pub(crate) fn abandon_round(&self, keys: &Arc<[Key]>, error: &Error) {
        self.change(|state| {
            for entrant in
                state.rounds.open.get(keys).iter().flat_map(|open| open.entrants.values())
            {
                entrant.decide(Err(error.duplicate()));
            }
            state.end_on_followers(keys, Some(error));
            state.rounds.remove(keys);
        });
    }

    /// Returns how many rounds and late pushes there were.
    pub(crate) fn round_counts(&self) -> RoundCounts {
        let rounds = &self.state().rounds;
        let open = rounds.open.len() + rounds.lists.len();
        RoundCounts { open: open as u64, ..rounds.counts }
    }
}

impl State {
    /// Returns why a call that waits for other members must end, if it must.
    pub(super) fn obstacle(&self, caller: &Caller) -> Option<Error> {
        if self.check(caller).is_err() {
            // A later process has this name, and its join waits for this call to end.
            return Some(left());
        }
        self.is_draining.then(ending)
    }

    /// Adds a push. Returns whether the round is a new one.
    fn enter(&mut self, now: Duration, entrant: &Arc<Entrant>) -> Result<bool> {
        match entrant.part {
            PushPart::Complete => {}
            PushPart::OfLeader(..) => {
                if !self.has_all_parts(entrant) {
                    return Ok(false);
                }
            }
            PushPart::OfFollower(_) => {
                self.report_part(entrant);
                return Ok(false);
            }
        }
        let (keys, name) = (&entrant.keys, &entrant.caller.name);
        let is_other = |key: &&Key| self.rounds.keys.get(*key).is_some_and(|open| open != keys);
        if let Some(key) = keys.iter().find(is_other) {
            return Err(Error::invalid(format!(
                "push of `{key}` to a round: expected the keys that other members push together \
                 with it, found {} keys",
                keys.len()
            )));
        }
        if let Some(open) = self.rounds.open.get_mut(keys) {
            if open.round.is_empty() {
                // The pushes of this round have ended, but its task has not removed it yet.
                open.round.set_quorum(entrant.rule.quorum);
                open.rule = entrant.rule;
            }
            open.rule.check(&entrant.rule)?;
            if open.round.contains(name) {
                let key = keys.first().map_or("", Key::as_str);
                return Err(Error::invalid(format!(
                    "push of `{key}` to a round: another push of this member is waiting"
                )));
            }
        }
        if let Some((key, version)) = self.late(entrant) {
            let newest = self.versions.version(&key);
            return Err(self.late_push(entrant, (key, version, newest)));
        }
        if let Some(late) = self.late_at_followers(entrant) {
            return Err(self.late_push(entrant, late));
        }
        self.replace_outdated(now, entrant);
        let is_new = !self.rounds.open.contains_key(keys);
        if is_new {
            self.rounds.keys.extend(keys.iter().map(|key| (key.clone(), Arc::clone(keys))));
        }
        self.rounds.last_round += u64::from(is_new);
        let number = self.rounds.last_round;
        let open = self.rounds.open.entry(Arc::clone(keys)).or_insert_with(|| OpenRound {
            number,
            round: Round::new(entrant.rule.quorum),
            rule: entrant.rule,
            entrants: HashMap::new(),
            votes: Votes::new([]),
            listed: None,
            failure: None,
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
        let is_complete = workers.iter().all(|name| open.round.contains(name));
        // If it is closed, a listed member has failed, so there is another list.
        let closes_at =
            if open.round.is_closed() { Some(now) } else { open.round.closes_at(is_complete) };
        match closes_at {
            Some(at) if at <= now => {
                let attempt = open.closed();
                self.list_on_followers(keys, &attempt);
                Closing::Closed(attempt)
            }
            Some(at) => Closing::At(at),
            None => Closing::Waiting,
        }
    }

    /// Removes the push of a member. Returns a description of what it waited for, or `None` if the
    /// round is being committed with it or the outcome is known.
    pub(super) fn withdraw(&mut self, now: Duration, entrant: &Arc<Entrant>) -> Option<String> {
        if entrant.outcome.get().is_some() {
            return None;
        }
        if let PushPart::OfFollower(_) = entrant.part {
            return self.withdraw_part(entrant);
        }
        if !self.is_in_round(entrant) {
            return Some(self.missing_parts(entrant));
        }
        let name = &entrant.caller.name;
        let workers = self.workers();
        let waits_for = self.unprepared(&entrant.keys);
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
        text.push_str(&waits_for);
        #[cfg(test)]
        if Fault::KeepGivenUp.is_planted() && open.round.is_closed() {
            return Some(text);
        }
        if !open.round.withdraw(now, name) {
            return None;
        }
        open.entrants.remove(name);
        self.reopen_on_followers(&entrant.keys);
        Some(text)
    }

    /// Returns whether a push belongs to an open round, or to the one after it.
    pub(super) fn is_in_round(&self, entrant: &Arc<Entrant>) -> bool {
        let open = self.rounds.open.get(&entrant.keys);
        let own = open.and_then(|open| open.entrants.get(&entrant.caller.name));
        own.is_some_and(|own| Arc::ptr_eq(own, entrant))
    }

    fn finish_round(&mut self, now: Duration, keys: &Arc<[Key]>, own: Result<()>) {
        let Some(open) = self.rounds.open.get_mut(keys) else { return };
        let outcome = own.and(open.failure.take().map_or(Ok(()), Err));
        self.end_on_followers(keys, outcome.as_ref().err());
        let Some(open) = self.rounds.open.get_mut(keys) else { return };
        let mut members = Vec::new();
        for name in open.round.members() {
            members.extend(open.entrants.remove(name));
        }
        open.round.finish(now);
        let names = || members.iter().map(|member| &*member.caller.name).collect::<Vec<_>>();
        let key = keys.first().map_or("", Key::as_str);
        match &outcome {
            Ok(()) => tracing::debug!(key, members = ?names(), "a round is committed"),
            Err(error) => tracing::warn!(key, members = ?names(), %error, "a round has failed"),
        }
        self.rounds.counts.committed += u64::from(outcome.is_ok());
        for member in members {
            member.decide(outcome.as_ref().map(|()| Fate::Committed).map_err(Error::duplicate));
        }
    }
}

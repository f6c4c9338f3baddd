//! Which pushes to rounds are late.

use std::sync::Arc;

use kvstore_core::{Error, Key};

use super::{Caller, Entrant, State};
#[cfg(test)]
use crate::faults::Fault;

impl State {
    /// Counts a late push, and returns its error. `late` has a key, the version that the push is
    /// based on, and the newest one.
    pub(super) fn late_push(&mut self, entrant: &Entrant, late: (Key, u64, u64)) -> Error {
        self.rounds.counts.late += 1;
        let (key, based_on, newest) = late;
        let current = newest + 1 + u64::from(self.is_closed(entrant));
        Error::LatePush { key, pushed: based_on + 1, current }
    }

    /// Returns whether the round of a push has closed.
    pub(super) fn is_closed(&self, entrant: &Entrant) -> bool {
        self.rounds.open.get(&entrant.keys).is_some_and(|open| open.round.is_closed())
    }

    /// Returns the first key for which a push is late and must be rejected, with the version that
    /// the push is based on.
    pub(super) fn late(&self, entrant: &Entrant) -> Option<(Key, u64)> {
        if entrant.rule.keeps_late {
            return None;
        }
        #[cfg(test)]
        if Fault::AcceptLate.is_planted() {
            return None;
        }
        let is_closed = self.is_closed(entrant);
        self.based_on(entrant).find_map(|(key, seen)| {
            let is_behind = self.versions.pushes_since(key, seen) > 0;
            (is_behind || is_closed).then(|| (key.clone(), seen))
        })
    }

    /// Returns each key of a push with the version that the push is based on.
    pub(super) fn based_on<'a>(
        &'a self,
        entrant: &'a Entrant,
    ) -> impl Iterator<Item = (&'a Key, u64)> {
        entrant.pulled().map(|(key, pulled)| {
            let last = self.rounds.last.get(key);
            let last = last.and_then(|last| last.get(&entrant.caller.name)).copied();
            // A member that has never seen the key cannot be behind.
            (key, last.max(pulled).unwrap_or_else(|| self.versions.version(key)))
        })
    }

    /// Records that a round has changed the values of this server, and that the pushes of its
    /// members have taken effect here.
    pub(super) fn advance_round(&mut self, members: &[Arc<Entrant>]) {
        for member in members {
            self.record_effect(member);
        }
        let Some(first) = members.first() else { return };
        for key in first.held.iter() {
            self.versions.advance(key);
            let version = self.versions.version(key);
            let last = self.rounds.last.entry(key.clone()).or_default();
            last.extend(members.iter().map(|member| (member.caller.name.clone(), version)));
        }
    }

    fn record_effect(&mut self, member: &Entrant) {
        if self.check(&member.caller).is_err() {
            return;
        }
        let Caller { name, sequence, .. } = &member.caller;
        for key in member.held.iter() {
            self.clocks.advance(key, name);
        }
        if let Some(calls) = self.calls.get_mut(name) {
            calls.take_effect(*sequence, None);
        }
    }
}

//! [`PulledVersions`]: the versions of the values that a member has pulled last.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::proto;
use crate::proto::request::Verb;

/// The versions of the values that a member has pulled last from a server. Its pushes contain them,
/// so that the server knows how stale a push is.
#[derive(Debug, Default)]
pub(super) struct PulledVersions(Mutex<VersionsByKey>);

#[derive(Debug, Default)]
struct VersionsByKey {
    incarnation: u64,
    by_key: HashMap<String, u64>,
}

impl PulledVersions {
    /// Returns the versions of an incarnation. A restarted server counts from 0.
    fn of(&self, incarnation: u64) -> MutexGuard<'_, VersionsByKey> {
        let mut pulled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pulled.incarnation != incarnation {
            *pulled = VersionsByKey { incarnation, ..VersionsByKey::default() };
        }
        pulled
    }

    /// Adds to a push which versions of its keys the member has pulled last.
    pub(super) fn add_to(&self, verb: &mut Verb, incarnation: u64) {
        let (Verb::Push(push) | Verb::PushPull(proto::PushPull { push: Some(push), .. })) = verb
        else {
            return;
        };
        let pulled = self.of(incarnation);
        for value in &mut push.values {
            value.version = pulled.by_key.get(&value.key).copied();
        }
    }

    /// Keeps the versions of pulled values.
    pub(super) fn keep(&self, values: &[proto::Value], incarnation: u64) {
        let mut pulled = self.of(incarnation);
        for value in values {
            let found = value.version.unwrap_or_default();
            match pulled.by_key.get_mut(&value.key) {
                // Two pulls of different threads may finish in another order than they began.
                Some(version) => *version = found.max(*version),
                None => drop(pulled.by_key.insert(value.key.clone(), found)),
            }
        }
    }
}

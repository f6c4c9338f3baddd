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
    by_key: HashMap<String, PulledVersion>,
}

/// A version, and the run of the server that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PulledVersion {
    server_run: u64,
    version: u64,
}

impl PulledVersions {
    /// Returns the versions of an incarnation. A server that has lost everything counts from 0.
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
            value.version = pulled.by_key.get(&value.key).map(|pulled| pulled.version);
        }
    }

    /// Keeps the versions of pulled values.
    pub(super) fn keep(&self, values: &[proto::Value], joined: &proto::JoinReply) {
        let mut pulled = self.of(joined.incarnation);
        for value in values {
            let version = value.version.unwrap_or_default();
            let found = PulledVersion { server_run: joined.server_run, version };
            match pulled.by_key.get_mut(&value.key) {
                // Two pulls of different threads may finish in another order than they began. After
                // a recovery of the server, versions are lower.
                Some(known) => *known = found.max(*known),
                None => drop(pulled.by_key.insert(value.key.clone(), found)),
            }
        }
    }
}

//! [`Sharded`]: the calls of a store whose keys are on several servers.
//!
//! Each key has a home, which its name determines. The home has the value and its layout. The rows
//! of a large value are divided among all servers, also its home. The home decides: a key exists if
//! its home has it, and another server accepts only calls with the layout that the home gave.

mod init;
mod placements;
mod rounds;
mod snapshots;
mod values;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvstore_core::key::describe_call;
use kvstore_core::{Description, Error, Key, KeyStats, Optimizer, Result, StepUnit, fallible};
use tokio::time::Instant;

use self::placements::{KeyPlacement, Placements};
use super::connection::{Answer, Call};
use super::options::NetStoreOptions;
use super::servers::{Servers, complete, made_in_part, missing};
use super::store::stats_in;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::home;
use crate::wire::parse_spec;

/// How long a call waits before it asks again where a key is.
const ASK_AGAIN: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A store whose keys are on several servers.
#[derive(Debug)]
pub(super) struct Sharded {
    servers: Arc<Servers>,
    /// The rows of values with more bytes are divided among the servers.
    divide_above: usize,
    staleness: Option<u64>,
    timeout: Duration,
    placements: Placements,
    /// The number of pushes to rounds.
    num_pushes: AtomicU64,
    /// Serialises `init`, because a server treats a second `init` of a key by the same process as a
    /// new attempt.
    initialising: Mutex<()>,
}

impl Sharded {
    pub(super) fn new(servers: Arc<Servers>, options: &NetStoreOptions) -> Self {
        let NetStoreOptions { divide_above, staleness, timeout, .. } = *options;
        Self {
            servers,
            divide_above,
            staleness,
            timeout,
            placements: Placements::default(),
            num_pushes: AtomicU64::new(0),
            initialising: Mutex::default(),
        }
    }

    /// Asks the homes of keys for the newest placements, and keeps them.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    fn fetch_placements(&self, keys: &[Key]) -> Result<Vec<Arc<KeyPlacement>>> {
        let num_servers = self.servers.len();
        let mut asked: BTreeMap<usize, (Vec<usize>, Vec<String>)> = BTreeMap::new();
        for (position, key) in keys.iter().enumerate() {
            let (positions, names) = asked.entry(home(key.as_str(), num_servers)).or_default();
            positions.push(position);
            names.push(key.as_str().to_owned());
        }
        self.placements.forget(keys);
        let calls = asked.iter().map(|(server, (_, names))| {
            let keys = proto::Keys { keys: names.clone(), ..proto::Keys::default() };
            (*server, Call::read(Verb::Describe(keys), "describe".to_owned()))
        });
        let answers = self.servers.call_each(calls)?;
        let mut found = fallible::filled(None, keys.len())?;
        for (answer, (positions, _)) in answers.into_iter().zip(asked.values()) {
            for (position, value) in positions.iter().zip(&answer?.reply.values) {
                let placed = Arc::new(KeyPlacement::of(value, num_servers)?);
                if let (Some(found), Some(key)) = (found.get_mut(*position), keys.get(*position)) {
                    self.placements.put(key, Arc::clone(&placed));
                    *found = Some(placed);
                }
            }
        }
        let placed = found.into_iter().collect::<Option<Vec<_>>>();
        placed.ok_or_else(|| missing("description"))
    }

    /// Returns the placements of keys. Asks their homes for those that are not known.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    fn placed(&self, keys: &[Key]) -> Result<Vec<Arc<KeyPlacement>>> {
        let known = keys.iter().map(|key| self.placements.get(key)).collect::<Option<_>>();
        known.map_or_else(|| self.fetch_placements(keys), Ok)
    }

    /// Runs a call, and repeats it while a placement is out of date. `run` returns `None` if a
    /// server refuses a placement. Then it must have changed nothing.
    fn with_placements<R>(
        &self,
        keys: &[Key],
        what: &str,
        mut run: impl FnMut(&[Arc<KeyPlacement>]) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut since = None;
        loop {
            if let Some(done) = run(&self.placed(keys)?)? {
                return Ok(done);
            }
            self.placements.forget(keys);
            self.wait_again(&mut since, what)?;
        }
    }

    /// Waits a moment for a call of another worker. `since` is the time of the first wait.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the call has waited too long.
    fn wait_again(&self, since: &mut Option<Instant>, what: &str) -> Result<()> {
        let (first, timeout) = (*since, self.timeout);
        let (first, is_late) = self.servers.wait(async move {
            let first = first.unwrap_or_else(Instant::now);
            let is_late = first.elapsed() > timeout;
            if !is_late {
                // Longer and longer, because the other worker may be slow.
                let pause = (first.elapsed() / 2).clamp(ASK_AGAIN, LONGEST_PAUSE);
                tokio::time::sleep(pause).await;
            }
            (first, is_late)
        })?;
        *since = Some(first);
        if is_late {
            let mut text = format!(
                "{what}: an `init`, a `remove` or a setting of another worker has not reached all \
                 servers"
            );
            for server in self.servers.restarted() {
                let _ = write!(text, "; server `{server}` was restarted, and may need a restore");
            }
            return Err(Error::Timeout(text));
        }
        Ok(())
    }

    /// Returns the answers of a call that changes something, or `None` if no server has made it
    /// because the placements were out of date.
    fn written(&self, calls: Vec<(usize, Call)>) -> Result<Option<Vec<Answer>>> {
        let Some((_, first)) = calls.first().cloned() else { return Ok(Some(Vec::new())) };
        let answers = self.servers.call_each(calls)?;
        let is_out_of_date =
            |answer: &Result<Answer>| answer.as_ref().is_ok_and(Answer::is_out_of_date);
        let num_refused = answers.iter().filter(|answer| is_out_of_date(answer)).count();
        if num_refused == answers.len() {
            return Ok(None);
        }
        if num_refused > 0 {
            let error = Error::Transport {
                operation: first.what.clone(),
                source: "another worker has removed or replaced a key meanwhile".into(),
            };
            let answers = answers.into_iter().map(|answer| match answer {
                Ok(answer) if answer.is_out_of_date() => Err(error.duplicate()),
                answer => answer,
            });
            return complete(&first, answers.collect()).map(Some);
        }
        complete(&first, answers).map(Some)
    }

    pub(super) fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        let description = |placed: Arc<KeyPlacement>| {
            let spec = placed.spec.clone();
            Description { order: placed.order, spec }
        };
        Ok(self.fetch_placements(keys)?.into_iter().map(description).collect())
    }

    pub(super) fn versions(&self, keys: &[Key]) -> Result<Vec<u64>> {
        self.with_placements(keys, "versions", |placed| {
            let mut asked: BTreeMap<usize, (Vec<usize>, proto::Keys)> = BTreeMap::new();
            for ((position, key), placed) in keys.iter().enumerate().zip(placed) {
                let (positions, keys) = asked.entry(placed.home).or_default();
                positions.push(position);
                keys.keys.push(key.as_str().to_owned());
                keys.layouts.push(placed.layout);
            }
            let calls = asked.iter().map(|(server, (_, keys))| {
                (*server, Call::read(Verb::Versions(keys.clone()), "versions".to_owned()))
            });
            let answers = self.servers.call_each(calls)?;
            let mut versions = fallible::filled(0, keys.len())?;
            for ((positions, _), answer) in asked.values().zip(answers) {
                let answer = answer?;
                if answer.is_out_of_date() {
                    return Ok(None);
                }
                for (position, value) in positions.iter().zip(&answer.reply.values) {
                    if let Some(version) = versions.get_mut(*position) {
                        *version = value.version.unwrap_or_default();
                    }
                }
            }
            Ok(Some(versions))
        })
    }

    /// Removes keys: first from their homes, which decides that they are removed, then their other
    /// parts.
    pub(super) fn remove(&self, keys: &[Key]) -> Result<()> {
        let what = describe_call("remove", keys);
        self.placements.forget(keys);
        let removed = self.with_placements(keys, &what, |placed| {
            let calls =
                removals(keys, placed, false, &what, |placed, server| server == placed.home);
            Ok(self.written(calls)?.map(|_| fallible::copied(placed)))
        })??;
        self.placements.forget(keys);
        let others = removals(keys, &removed, true, &what, |placed, server| server != placed.home);
        let homes: BTreeSet<usize> = removed.iter().map(|placed| placed.home).collect();
        let answers = self.servers.call_each(others)?;
        answers.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|error| {
            // The keys do not exist any more.
            made_in_part(&what, (homes.len(), self.servers.len()), &error)
        })
    }

    /// Removes the parts of members that died in an `init` or a `remove`, if this optimizer needs
    /// complete values and would reject them.
    pub(super) fn remove_left_parts(&self, optimizer: &Optimizer) -> Result<()> {
        if let StepUnit::Element | StepUnit::Row = optimizer.unit() {
            return Ok(());
        }
        let what = "removal of left-over parts";
        let stats = Call::read(Verb::Stats(proto::Empty {}), what.to_owned());
        let found = self.servers.call_all(&stats)?;
        let rollbacks: Vec<u64> = found.iter().map(|answer| answer.reply.first_layout).collect();
        // The parts outside of their homes, by home and server.
        let mut parts: BTreeMap<(usize, usize), proto::Keys> = BTreeMap::new();
        for (server, answer) in found.into_iter().enumerate() {
            for stats in answer.reply.stats {
                let Some(placement) = stats.placement else { continue };
                let home = home(&stats.key, self.servers.len());
                // `init` reaches the home first, but a rollback may not.
                if home != server && rollbacks.get(home) >= rollbacks.get(server) {
                    let keys = parts.entry((home, server)).or_default();
                    keys.keys.push(stats.key);
                    keys.layouts.push(placement.layout);
                }
            }
        }
        let sweep = |keys: &proto::Keys| Call::read(Verb::Sweep(keys.clone()), what.to_owned());
        let sweeps = parts.iter().map(|((home, _), keys)| (*home, sweep(keys)));
        let answers = self.servers.call_each(sweeps)?;
        let mut removals = Vec::new();
        for (((_, server), keys), answer) in parts.into_iter().zip(answers) {
            let missing: HashSet<String> = answer?.reply.keys.into_iter().collect();
            let pairs = keys.keys.into_iter().zip(keys.layouts);
            let (keys, layouts): (Vec<_>, Vec<_>) =
                pairs.filter(|(key, _)| missing.contains(key)).unzip();
            if !keys.is_empty() {
                let keys = proto::Keys { keys, layouts, only_present: true };
                removals.push((server, Call::write(Verb::Remove(keys), what.to_owned())));
            }
        }
        self.servers.call_each(removals)?.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Returns the statistics of every key. Those of a divided value are added up.
    pub(super) fn stats(&self) -> Result<Vec<KeyStats>> {
        let call = Call::read(Verb::Stats(proto::Empty {}), "stats".to_owned());
        self.joined_stats(&self.servers.call_all(&call)?)
    }

    /// Returns the statistics in the answers of all servers. Those of a divided value are added up.
    fn joined_stats(&self, answers: &[Answer]) -> Result<Vec<KeyStats>> {
        let mut homes: BTreeMap<(u64, String), (u64, KeyStats)> = BTreeMap::new();
        let mut others = Vec::new();
        for (server, answer) in answers.iter().enumerate() {
            let found = &answer.reply.stats;
            for (mut stats, found) in stats_in(found)?.into_iter().zip(found) {
                // A key without a placement is being added or removed.
                let Some(placement) = &found.placement else { continue };
                let at = (placement.order, stats.key.as_str().to_owned());
                if home(stats.key.as_str(), self.servers.len()) != server {
                    others.push((at, placement.layout, stats));
                    continue;
                }
                if let Some(complete) = &placement.complete {
                    stats.spec = parse_spec(Some(complete))?;
                }
                homes.insert(at, (placement.layout, stats));
            }
        }
        for (at, layout, part) in others {
            // Parts that a failed call has left behind do not count.
            if let Some((_, stats)) = homes.get_mut(&at).filter(|(home, _)| *home == layout) {
                stats.value_bytes = stats.value_bytes.saturating_add(part.value_bytes);
                stats.state_bytes = stats.state_bytes.saturating_add(part.state_bytes);
            }
        }
        Ok(homes.into_values().map(|(_, stats)| stats).collect())
    }
}

/// The error for a bound of the global norm.
pub(super) fn without_norm(bound: f64) -> Error {
    Error::Unsupported(format!(
        "clip_global_norm {bound} with several servers: no server knows the norm over the keys of \
         all servers"
    ))
}

/// Returns the calls that remove keys from some of the servers that have them. With `only_present`,
/// a server removes those keys that are there.
fn removals(
    keys: &[Key],
    placed: &[Arc<KeyPlacement>],
    only_present: bool,
    what: &str,
    is_meant: impl Fn(&KeyPlacement, usize) -> bool,
) -> Vec<(usize, Call)> {
    let mut removed: BTreeMap<usize, proto::Keys> = BTreeMap::new();
    for (key, placed) in keys.iter().zip(placed) {
        for server in placed.servers().filter(|server| is_meant(placed, *server)) {
            let keys = removed.entry(server).or_default();
            keys.only_present = only_present;
            keys.keys.push(key.as_str().to_owned());
            keys.layouts.push(placed.layout);
        }
    }
    let call = |keys| Call::write(Verb::Remove(keys), what.to_owned());
    removed.into_iter().map(|(server, keys)| (server, call(keys))).collect()
}

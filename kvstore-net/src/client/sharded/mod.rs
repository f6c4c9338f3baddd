//! [`Sharded`]: the calls of a store whose keys are on several servers.
//!
//! Each key has a home, which its name determines. The home has the value and its layout. The rows
//! of a large value are divided among all servers, also its home. The home decides: a key exists if
//! its home has it, and another server accepts only calls with the layout that the home gave.

mod init;
mod placements;
mod snapshots;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_core::key::describe_call;
use kvstore_core::{Description, Error, Key, KeyStats, Result, fallible};

use self::placements::{Placed, Placements};
use super::connection::{Answer, Call};
use super::options::NetStoreOptions;
use super::servers::{Servers, complete};
use super::store::stats_in;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::home;
use crate::runtime;
use crate::wire::{keys_of, parse_spec};

/// How long a call waits before it asks again where a key is.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// A store whose keys are on several servers.
#[derive(Debug)]
pub(super) struct Sharded {
    servers: Arc<Servers>,
    /// The rows of values with more bytes are divided among the servers.
    divide_above: usize,
    staleness: Option<u64>,
    timeout: Duration,
    placements: Placements,
}

impl Sharded {
    pub(super) fn new(servers: Arc<Servers>, options: &NetStoreOptions) -> Self {
        let NetStoreOptions { divide_above, staleness, timeout, .. } = *options;
        Self { servers, divide_above, staleness, timeout, placements: Placements::default() }
    }

    /// Asks the homes of keys for the newest placements.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    fn ask(&self, keys: &[Key]) -> Result<Vec<Arc<Placed>>> {
        let num_servers = self.servers.len();
        let mut asked: BTreeMap<usize, Vec<Key>> = BTreeMap::new();
        for key in keys {
            asked.entry(home(key.as_str(), num_servers)).or_default().push(key.clone());
        }
        self.placements.forget(keys);
        let calls = asked.iter().map(|(server, keys)| {
            let keys = proto::Keys { keys: keys_of(keys), layouts: Vec::new() };
            (*server, Call::read(Verb::Describe(keys), describe_call("describe", &[])))
        });
        let answers = self.servers.call_each(calls)?;
        for (answer, keys) in answers.into_iter().zip(asked.values()) {
            for (key, value) in keys.iter().zip(&answer?.reply.values) {
                self.placements.put(key, Arc::new(Placed::of(value, num_servers)?));
            }
        }
        keys.iter()
            .map(|key| {
                let found = self.placements.get(key);
                found.ok_or_else(|| Error::KeyNotFound { key: key.clone() })
            })
            .collect()
    }

    /// Returns the placements of keys. Asks their homes for those that are not known.
    ///
    /// # Errors
    /// - [`Error::KeyNotFound`] if a key is not initialised.
    fn placed(&self, keys: &[Key]) -> Result<Vec<Arc<Placed>>> {
        let known = keys.iter().map(|key| self.placements.get(key)).collect::<Option<_>>();
        known.map_or_else(|| self.ask(keys), Ok)
    }

    /// Runs a call until the placements that it uses are those of the servers. `run` returns `None`
    /// if they are not, and if it has changed nothing.
    fn with_placements<R>(
        &self,
        keys: &[Key],
        what: &str,
        mut run: impl FnMut(&[Arc<Placed>]) -> Result<Option<R>>,
    ) -> Result<R> {
        let start = Instant::now();
        loop {
            if let Some(done) = run(&self.placed(keys)?)? {
                return Ok(done);
            }
            self.placements.forget(keys);
            self.wait_again(start, what)?;
        }
    }

    /// Waits a moment for a call of another worker.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if the call has waited too long.
    fn wait_again(&self, start: Instant, what: &str) -> Result<()> {
        if start.elapsed() > self.timeout {
            return Err(Error::Timeout(format!(
                "{what}: an `init` or `remove` of another worker has not finished, so some servers \
                 do not have all keys"
            )));
        }
        runtime::wait(async { tokio::time::sleep(ASK_AGAIN).await })
    }

    /// Returns the answers of a call that changes something, or `None` if no server has made it
    /// because the placements were out of date.
    fn written(&self, calls: Vec<(usize, Call)>) -> Result<Option<Vec<Answer>>> {
        let Some((_, first)) = calls.first().cloned() else { return Ok(Some(Vec::new())) };
        let answers = self.servers.call_each(calls)?;
        let is_moved = |answer: &Result<Answer>| answer.as_ref().is_ok_and(Answer::is_moved);
        let num_moved = answers.iter().filter(|answer| is_moved(answer)).count();
        if num_moved == answers.len() {
            return Ok(None);
        }
        if num_moved > 0 {
            let error = Error::Transport {
                operation: first.what.clone(),
                source: "another worker has removed or replaced a key meanwhile".into(),
            };
            let answers = answers.into_iter().map(|answer| match answer {
                Ok(answer) if answer.is_moved() => Err(error.duplicate()),
                answer => answer,
            });
            return complete(&first, answers.collect()).map(Some);
        }
        complete(&first, answers).map(Some)
    }

    pub(super) fn describe(&self, keys: &[Key]) -> Result<Vec<Description>> {
        let description = |placed: Arc<Placed>| {
            let spec = placed.spec.clone();
            Description { order: placed.order, spec }
        };
        Ok(self.ask(keys)?.into_iter().map(description).collect())
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
                if answer.is_moved() {
                    return Ok(None);
                }
                for (position, value) in positions.iter().zip(&answer.reply.values) {
                    if let Some(version) = versions.get_mut(*position) {
                        *version = value.version;
                    }
                }
            }
            Ok(Some(versions))
        })
    }

    pub(super) fn remove(&self, keys: &[Key]) -> Result<()> {
        let what = describe_call("remove", keys);
        self.placements.forget(keys);
        self.with_placements(keys, &what, |placed| {
            let mut removed: BTreeMap<usize, proto::Keys> = BTreeMap::new();
            for (key, placed) in keys.iter().zip(placed) {
                for server in placed.servers() {
                    let keys = removed.entry(server).or_default();
                    keys.keys.push(key.as_str().to_owned());
                    keys.layouts.push(placed.layout);
                }
            }
            let calls = removed
                .into_iter()
                .map(|(server, keys)| (server, Call::write(Verb::Remove(keys), what.clone())));
            Ok(self.written(calls.collect())?.map(drop))
        })?;
        self.placements.forget(keys);
        Ok(())
    }

    /// Returns the statistics of every key. Those of a divided value are added up.
    pub(super) fn stats(&self) -> Result<Vec<KeyStats>> {
        let call = Call::read(Verb::Stats(proto::Empty {}), "stats".to_owned());
        let mut all: BTreeMap<(u64, String), KeyStats> = BTreeMap::new();
        for (server, answer) in self.servers.call_all(&call)?.into_iter().enumerate() {
            let placements = answer.reply.stats.iter().map(|stats| stats.placement.clone());
            let placements: Vec<_> = placements.collect();
            for (mut stats, placement) in stats_in(answer)?.into_iter().zip(placements) {
                let placement = placement.unwrap_or_default();
                let name = stats.key.as_str().to_owned();
                let is_home = home(&name, self.servers.len()) == server;
                if let Some(complete) = &placement.complete {
                    stats.spec = parse_spec(Some(complete))?;
                }
                let Some(known) = all.get_mut(&(placement.order, name.clone())) else {
                    all.insert((placement.order, name), stats);
                    continue;
                };
                known.value_bytes += stats.value_bytes;
                known.state_bytes += stats.state_bytes;
                if is_home {
                    known.num_pushes = stats.num_pushes;
                }
            }
        }
        Ok(all.into_values().collect())
    }
}

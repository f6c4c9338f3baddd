//! Snapshots, rollbacks and optimizer states of several servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvstore_core::{Error, Key, Optimizer, OptimizerState, Result, Snapshot, Tensor};

use super::placements::{KeyPlacement, is_divided, unit_of};
use super::{Sharded, without_norm};
use crate::client::connection::{Answer, Call};
use crate::client::residuals::Residuals;
use crate::client::servers::{complete, made_in_part};
use crate::client::snapshots::{NetSnapshot, SnapshotLease};
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::home;
use crate::wire::Elements;

/// The servers of the parts of a value, in order.
type Parts = Vec<usize>;

/// The keys of a server with their placements.
type Layouts<'a> = BTreeMap<&'a str, &'a proto::Placement>;

/// Returns the keys of each server. `pairs` returns those of a reply.
fn layouts_of<'a>(
    answers: &'a [Answer],
    pairs: impl Fn(&'a proto::Reply) -> Vec<(&'a str, &'a Option<proto::Placement>)>,
) -> Vec<Layouts<'a>> {
    let layouts = answers.iter().map(|answer| {
        let pairs = pairs(&answer.reply).into_iter();
        pairs.filter_map(|(key, placement)| Some((key, placement.as_ref()?))).collect()
    });
    layouts.collect()
}

impl Sharded {
    /// Returns a snapshot that all servers keep. If an `init` or `remove` is in progress, takes
    /// them again after it has finished.
    pub(in crate::client) fn snapshot(&self, residuals: &Residuals) -> Result<Snapshot> {
        let mut since = None;
        loop {
            if let Some(snapshot) = self.complete_snapshot(residuals)? {
                return Ok(snapshot);
            }
            self.wait_again(&mut since, "snapshot")?;
        }
    }

    /// Returns a snapshot, or `None` if the servers differ in a key or a setting.
    fn complete_snapshot(&self, residuals: &Residuals) -> Result<Option<Snapshot>> {
        let (lease, answers) = SnapshotLease::take(&self.servers, "")?;
        let layouts = layouts_of(&answers, |reply| {
            reply.stats.iter().map(|stats| (&*stats.key, &stats.placement)).collect()
        });
        let Some(keys) = self.complete_keys(&layouts)? else { return Ok(None) };
        let outlines = answers
            .iter()
            .map(|answer| Snapshot::from_bytes(self.servers.backends(), &answer.bytes));
        let outlines = outlines.collect::<Result<Vec<_>>>()?;
        let Some((outline, others)) = outlines.split_first() else { return Ok(None) };
        for other in others {
            if !outline.is_identical(other)? {
                return Ok(None);
            }
        }
        let divided = keys.into_iter().filter(|(_, servers)| servers.len() > 1);
        let divided = divided.map(|(key, _)| key).collect();
        let stats = self.joined_stats(&answers)?;
        NetSnapshot::snapshot(lease, outline, stats, divided, residuals).map(Some)
    }

    /// Writes a part of a checkpoint on each server: the snapshot of a number. Returns the keys of
    /// all servers with the servers of their parts.
    pub(in crate::client) fn checkpoint(
        &self,
        name: &str,
        checkpoint: impl Fn(usize, u64) -> Call,
    ) -> Result<Vec<(Key, Parts)>> {
        let mut since = None;
        loop {
            let (taken, _) = SnapshotLease::take(&self.servers, name)?;
            let calls =
                (0..self.servers.len()).map(|server| (server, checkpoint(server, taken.number())));
            let answers = self.servers.call_each(calls)?.into_iter().collect::<Result<Vec<_>>>()?;
            let layouts = layouts_of(&answers, |reply| {
                reply.values.iter().map(|value| (&*value.key, &value.placement)).collect()
            });
            if let Some(keys) = self.complete_keys(&layouts)? {
                return Ok(keys);
            }
            self.wait_again(&mut since, "checkpoint")?;
        }
    }

    /// Returns the keys of all servers in the order of initialisation, each with the servers of its
    /// parts. Returns `None` if a part is missing.
    fn complete_keys(&self, layouts: &[Layouts<'_>]) -> Result<Option<Vec<(Key, Parts)>>> {
        let num_servers = self.servers.len();
        let mut keys = BTreeMap::new();
        for (server, own) in layouts.iter().enumerate() {
            for (key, placement) in own.iter().filter(|(key, _)| home(key, num_servers) == server) {
                let has_part = |other: &Layouts<'_>| {
                    other.get(key).is_some_and(|other| other.layout == placement.layout)
                };
                let is_divided = placement.complete.is_some();
                if is_divided && !layouts.iter().all(has_part) {
                    return Ok(None);
                }
                let servers =
                    if is_divided { (0..num_servers).collect() } else { Parts::from([server]) };
                keys.insert((placement.order, *key), (Key::new(key)?, servers));
            }
        }
        Ok(Some(keys.into_values().collect()))
    }

    /// Replaces the contents of all servers. Decides anew where the keys are, unless the servers
    /// keep the snapshot: `kept` is its source then.
    pub(in crate::client) fn rollback(
        &self,
        snapshot: &Snapshot,
        kept: Option<&NetSnapshot>,
    ) -> Result<()> {
        if let Some(bound) = snapshot.clip_global_norm() {
            return Err(without_norm(bound));
        }
        // Before any server changes.
        kept.map_or(Ok(()), NetSnapshot::check)?;
        let num_servers = self.servers.len();
        let (mut since, mut num_made) = (None, 0);
        let partly = |num_made: usize| {
            move |error: Error| match num_made {
                0 => error,
                _ => made_in_part("rollback", (num_made, num_servers), &error),
            }
        };
        loop {
            num_made = self.try_rollback(snapshot, kept).map_err(partly(num_made))?;
            if num_made == num_servers {
                return Ok(());
            }
            self.wait_again(&mut since, "rollback").map_err(partly(num_made))?;
        }
    }

    /// Makes a rollback with new layouts, on all servers where no `init` of another worker has
    /// larger ones. Returns the number of these servers.
    fn try_rollback(&self, snapshot: &Snapshot, kept: Option<&NetSnapshot>) -> Result<usize> {
        let num_servers = self.servers.len();
        let unit = unit_of(snapshot.optimizer());
        let layout = self.reserve(snapshot.len().max(1))?;
        let placed = snapshot.stats().zip(layout..).map(|(stats, layout)| {
            let is_divided = match kept {
                Some(kept) => kept.is_divided(&stats.key),
                None => is_divided(&stats.spec, (self.divide_above, unit), num_servers),
            };
            let key = (&stats.key, &stats.spec);
            let placed = KeyPlacement::new(key, layout, is_divided, num_servers);
            (stats.key, placed)
        });
        let placed: BTreeMap<Key, KeyPlacement> = placed.collect();
        let mut calls = Vec::new();
        for server in 0..num_servers {
            let here = |key: &Key| placed.get(key).filter(|at| at.servers().contains(&server));
            let mut elements = Elements::default();
            if kept.is_none() {
                let part =
                    snapshot.slice_rows(|key| here(key).map(|placed| placed.rows(server)))?;
                elements.push_bytes(Bytes::from(part.to_bytes()?));
            }
            let placements = snapshot.keys().filter_map(|key| {
                let placement = Some(here(key)?.message(server));
                let key = key.as_str().to_owned();
                Some(proto::Value { key, placement, ..proto::Value::default() })
            });
            let verb = Verb::Rollback(proto::Rollback {
                num_bytes: elements.num_bytes() as u64,
                snapshot: kept.map(NetSnapshot::number),
                placements: placements.collect(),
                layout,
            });
            calls.push((server, Call { elements, ..Call::write(verb, "rollback".to_owned()) }));
        }
        let Some((_, first)) = calls.first().cloned() else { return Ok(num_servers) };
        let answers = complete(&first, self.servers.call_each(calls)?)?;
        let num_made = answers.iter().filter(|answer| !answer.is_out_of_date()).count();
        if num_made < num_servers {
            return Ok(num_made);
        }
        for (key, placed) in placed {
            self.placements.put(&key, Arc::new(placed));
        }
        Ok(num_made)
    }

    /// # Errors
    /// - [`Error::InvalidArgument`] if the store has no optimizer.
    fn optimizer(&self) -> Result<Optimizer> {
        let none = || Error::invalid("cannot set optimizer states: the store has no optimizer");
        Optimizer::from_json(&self.servers.settings()?.optimizer.ok_or_else(none)?)
    }

    /// Returns the parts of a residual of a key, by server.
    pub(in crate::client) fn split(
        &self,
        key: &Key,
        residual: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let placed = self.placed(std::slice::from_ref(key))?;
        let placed = placed.first();
        let part = |server: usize| {
            let Some(placed) = placed.filter(|placed| placed.servers().contains(&server)) else {
                return Ok(None);
            };
            let part = placed.part_of(&residual.into(), server)?.to_dense()?;
            part.compact().map(Some)
        };
        (0..self.servers.len()).map(part).collect()
    }

    /// Sets optimizer states. Each state belongs to a complete value.
    pub(in crate::client) fn set_optimizer_states(
        &self,
        optimizer: Option<Optimizer>,
        states: &BTreeMap<Key, OptimizerState>,
    ) -> Result<()> {
        let what = "set_optimizer_states";
        let optimizer = optimizer.map_or_else(|| self.optimizer(), Ok)?;
        self.remove_left_parts(&optimizer)?;
        let json = optimizer.to_json()?;
        let keys: Vec<Key> = states.keys().cloned().collect();
        self.with_placements(&keys, what, |placed| {
            for ((key, state), placed) in states.iter().zip(placed) {
                state.check(optimizer.name(), key, &placed.spec)?;
            }
            // A server without states also gets the call, because its states start anew.
            let mut calls = Vec::new();
            for server in 0..self.servers.len() {
                let (mut own, mut elements) = (Vec::new(), Elements::default());
                for ((key, state), placed) in states.iter().zip(placed) {
                    if !placed.servers().contains(&server) {
                        continue;
                    }
                    let bytes = match placed.rows(server) {
                        None => state.to_bytes(self.servers.backends())?,
                        Some(rows) => {
                            let row_len = placed.spec.shape().row().num_elements();
                            let part = placed.part_spec(server);
                            let state = state.part(&optimizer, rows.start * row_len, &part)?;
                            state.to_bytes(self.servers.backends())?
                        }
                    };
                    own.push(proto::KeyState {
                        key: key.as_str().to_owned(),
                        num_bytes: bytes.len() as u64,
                        layout: placed.layout,
                    });
                    elements.push_bytes(Bytes::from(bytes));
                }
                let states = proto::SetStates { states: own, optimizer: json.clone() };
                let call = Call::write(Verb::SetStates(states), what.to_owned());
                calls.push((server, Call { elements, ..call }));
            }
            Ok(self.written(calls)?.map(drop))
        })
    }
}

//! Snapshots, rollbacks and optimizer states of several servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kvstore_core::{Error, Key, Optimizer, OptimizerState, Result, Snapshot, Tensor};

use super::placements::{KeyPlacement, unit_of};
use super::{Sharded, without_norm};
use crate::client::connection::{Answer, Call};
use crate::client::servers::complete;
use crate::proto;
use crate::proto::request::Verb;
use crate::rules::placement::home;
use crate::wire::Elements;

/// The servers of the parts of a value, in order.
pub(in crate::client) type Parts = Vec<usize>;

impl Sharded {
    /// Returns the joined snapshots of all servers. If an `init` or `remove` is in progress, takes
    /// them again after it has finished.
    pub(in crate::client) fn snapshot(&self) -> Result<Snapshot> {
        let call = Call::read(Verb::Snapshot(proto::Empty {}), "snapshot".to_owned());
        let mut since = None;
        loop {
            let answers = self.servers.call_all(&call)?;
            if let Some(keys) = self.complete_keys(&answers)? {
                let read =
                    |answer: &Answer| Snapshot::from_bytes(self.servers.backends(), &answer.bytes);
                let snapshots = answers.iter().map(read).collect::<Result<Vec<_>>>()?;
                return Snapshot::concatenate(&snapshots, &keys);
            }
            self.wait_again(&mut since, "snapshot")?;
        }
    }

    /// Writes a part of a checkpoint on each server. Returns the keys of all servers with the
    /// servers of their parts.
    pub(in crate::client) fn checkpoint(
        &self,
        checkpoint: impl Fn(usize) -> Call,
    ) -> Result<Vec<(Key, Parts)>> {
        let mut since = None;
        loop {
            let calls = (0..self.servers.len()).map(|server| (server, checkpoint(server)));
            let answers = self.servers.call_each(calls)?.into_iter().collect::<Result<Vec<_>>>()?;
            if let Some(keys) = self.complete_keys(&answers)? {
                return Ok(keys);
            }
            self.wait_again(&mut since, "checkpoint")?;
        }
    }

    /// Returns the keys of all servers in the order of initialisation, each with the servers of its
    /// parts. Returns `None` if a part is missing.
    fn complete_keys(&self, answers: &[Answer]) -> Result<Option<Vec<(Key, Parts)>>> {
        let num_servers = self.servers.len();
        let layouts = answers.iter().map(|answer| {
            let values = answer.reply.values.iter();
            let pairs =
                values.filter_map(|value| Some((value.key.as_str(), value.placement.as_ref()?)));
            pairs.collect::<BTreeMap<_, _>>()
        });
        let layouts: Vec<_> = layouts.collect();
        let mut keys = BTreeMap::new();
        for (server, own) in layouts.iter().enumerate() {
            for (key, placement) in own.iter().filter(|(key, _)| home(key, num_servers) == server) {
                let has_part = |other: &BTreeMap<&str, &proto::Placement>| {
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

    /// Replaces the contents of all servers. Decides anew where the keys are.
    pub(in crate::client) fn rollback(&self, snapshot: &Snapshot) -> Result<()> {
        if let Some(bound) = snapshot.clip_global_norm() {
            return Err(without_norm(bound));
        }
        let unit = unit_of(snapshot.optimizer());
        let layout = self.reserve(snapshot.len().max(1))?;
        let placed = snapshot.keys().zip(layout..).filter_map(|(key, layout)| {
            let spec = snapshot.get(key)?.spec();
            let rule = (self.divide_above, unit);
            Some((key, KeyPlacement::new((key, spec), layout, rule, self.servers.len())))
        });
        let placed: BTreeMap<&Key, KeyPlacement> = placed.collect();
        let mut calls = Vec::new();
        for server in 0..self.servers.len() {
            let own = |key: &Key| placed.get(key).filter(|at| at.servers().contains(&server));
            let part = snapshot.slice_rows(|key| own(key).map(|placed| placed.rows(server)))?;
            let placements = part.keys().map(|key| proto::Value {
                key: key.as_str().to_owned(),
                placement: own(key).map(|placed| placed.message(server)),
                ..proto::Value::default()
            });
            let placements = placements.collect();
            let bytes = part.to_bytes()?;
            let verb = Verb::Rollback(proto::Rollback {
                num_bytes: bytes.len() as u64,
                placements,
                layout,
            });
            let mut elements = Elements::default();
            elements.push_bytes(Bytes::from(bytes));
            calls.push((server, Call { elements, ..Call::write(verb, "rollback".to_owned()) }));
        }
        let Some((_, first)) = calls.first().cloned() else { return Ok(()) };
        complete(&first, self.servers.call_each(calls)?)?;
        for (key, placed) in placed {
            self.placements.put(key, Arc::new(placed));
        }
        Ok(())
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

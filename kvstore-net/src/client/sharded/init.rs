//! `init` on several servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvstore_core::key::describe_call;
use kvstore_core::{Error, Key, OnExisting, Optimizer, Result, StepUnit, Value};

use super::Sharded;
use super::placements::{Placed, is_large, unit_of};
use super::values::Outgoing;
use crate::client::connection::{Answer, Call};
use crate::client::store::on_existing_of;
use crate::proto;
use crate::proto::request::Verb;

/// The keys of one call of `init`.
type New<'a> = Vec<(&'a Key, &'a Value, Arc<Placed>)>;

impl Sharded {
    /// Stores values. The homes of the keys come first and decide which keys exist. Then the other
    /// servers get their parts. If a server fails, the keys of this call are removed again.
    pub(in crate::client) fn init(
        &self,
        keys: &[Key],
        values: &[Value],
        existing: OnExisting,
    ) -> Result<()> {
        let what = describe_call("init", keys);
        let first_layout = self.reserve(keys.len())?;
        let num_servers = self.servers.len();
        let has_large =
            values.iter().any(|value| is_large(value.spec(), self.divide_above, num_servers));
        let unit = if has_large { self.unit()? } else { StepUnit::Element };
        let new = keys.iter().zip(values).zip(first_layout..).map(|((key, value), layout)| {
            let rule = (self.divide_above, unit);
            let placed = Placed::new((key, value.spec()), layout, rule, num_servers);
            (key, value, Arc::new(placed))
        });
        let new: New<'_> = new.collect();
        let replaced = match existing {
            OnExisting::Replace => self.divided(keys)?,
            OnExisting::Reject | OnExisting::Keep => Vec::new(),
        };
        self.placements.forget(keys);
        let to_homes = calls_of(&new, &what, existing, |placed, server| server == placed.home)?;
        let answers = self.made(&new, to_homes)?;
        // With `Keep`, keys that exist keep their values. With `Replace`, a later call of another
        // worker may have been faster.
        let own: New<'_> = new
            .into_iter()
            .filter(|(key, _, placed)| {
                answers.iter().flat_map(|answer| &answer.reply.values).any(|value| {
                    let layout = value.placement.as_ref().map(|placement| placement.layout);
                    value.key == key.as_str() && layout == Some(placed.layout)
                })
            })
            .collect();
        // A part that another call has left behind is replaced, because the home decides.
        let replace = OnExisting::Replace;
        let to_others = calls_of(&own, &what, replace, |placed, server| server != placed.home)?;
        self.made(&own, to_others)?;
        // The parts of replaced values whose successors are not divided.
        self.remove_parts(&replaced);
        for (key, _, placed) in own {
            self.placements.put(key, placed);
        }
        Ok(())
    }

    /// Returns the divided values among those of the keys that exist.
    fn divided(&self, keys: &[Key]) -> Result<Vec<(Key, Arc<Placed>)>> {
        let mut found = Vec::new();
        for key in keys {
            match self.ask(std::slice::from_ref(key)) {
                Ok(placed) => found.extend(placed.into_iter().map(|placed| (key.clone(), placed))),
                Err(Error::KeyNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        found.retain(|(_, placed)| placed.is_divided);
        Ok(found)
    }

    /// Reserves layouts for new keys, and returns the first one.
    pub(super) fn reserve(&self, count: usize) -> Result<u64> {
        let verb = Verb::Reserve(proto::Reserve { count: count as u64 });
        Ok(self.servers.call(Call::read(verb, "init".to_owned()))?.reply.first_layout)
    }

    /// Returns where the optimizer of the store allows values to be divided.
    fn unit(&self) -> Result<StepUnit> {
        let optimizer = self.servers.settings()?.optimizer;
        let optimizer = optimizer.map(|json| Optimizer::from_json(&json)).transpose()?;
        Ok(unit_of(optimizer.as_ref()))
    }

    /// Makes the calls. If one of them fails, removes the keys of this `init` again.
    fn made(&self, new: &New<'_>, calls: Vec<(usize, Call)>) -> Result<Vec<Answer>> {
        let answers = self.servers.call_each(calls)?.into_iter().collect::<Result<Vec<_>>>();
        if let Err(error) = &answers
            && let Some(text) = self.undo(new)
        {
            return Err(Error::Transport {
                operation: error.chain(),
                source: format!("the keys of the call could not be removed again: {text}").into(),
            });
        }
        answers
    }

    /// Removes the keys of an `init`. Returns the error of a server that cannot be reached.
    fn undo(&self, new: &New<'_>) -> Option<String> {
        let new: Vec<_> =
            new.iter().map(|(key, _, placed)| ((*key).clone(), Arc::clone(placed))).collect();
        self.remove_parts(&new)
    }

    /// Removes values that have these placements, one by one, because a server may have only some
    /// of them. Returns the error of a server that cannot be reached.
    fn remove_parts(&self, placed: &[(Key, Arc<Placed>)]) -> Option<String> {
        let mut calls = Vec::new();
        for (key, placed) in placed {
            for server in placed.servers() {
                let keys = Vec::from([key.as_str().to_owned()]);
                let keys = proto::Keys { keys, layouts: Vec::from([placed.layout]) };
                let what = describe_call("remove", [key]);
                calls.push((server, Call::write(Verb::Remove(keys), what)));
            }
        }
        // A server that does not have the key in this layout answers that it is elsewhere.
        let failed = |answer: Result<Answer>| answer.err().map(|error| error.chain());
        match self.servers.call_each(calls) {
            Ok(answers) => answers.into_iter().find_map(failed),
            Err(error) => Some(error.chain()),
        }
    }
}

/// Returns the calls of `init` with the parts for some servers of each key.
fn calls_of(
    new: &New<'_>,
    what: &str,
    existing: OnExisting,
    is_meant: impl Fn(&Placed, usize) -> bool,
) -> Result<Vec<(usize, Call)>> {
    let mut outgoing: BTreeMap<usize, Outgoing> = BTreeMap::new();
    for (key, value, placed) in new {
        for server in placed.servers().filter(|server| is_meant(placed, *server)) {
            let to = outgoing.entry(server).or_default();
            to.add(key, value, placed, (server, placed.message(server)))?;
        }
    }
    let calls = outgoing.into_iter().map(|(server, Outgoing { values, elements })| {
        let verb = Verb::Init(proto::Init { values, on_existing: on_existing_of(existing).into() });
        (server, Call { elements, ..Call::write(verb, what.to_owned()) })
    });
    Ok(calls.collect())
}

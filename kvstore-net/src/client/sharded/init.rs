//! `init` on several servers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use kvstore_core::key::describe_call;
use kvstore_core::{Error, Key, OnExisting, Optimizer, Result, StepUnit, Value, fallible};

use super::placements::{KeyPlacement, is_divided, is_large, unit_of};
use super::values::ServerValues;
use super::{Sharded, removals};
use crate::client::connection::{Answer, Call, unknown};
use crate::client::store::on_existing_of;
use crate::proto;
use crate::proto::request::Verb;

/// A key of a call of `init`, with its value and its place.
type Placed<'a> = (&'a Key, &'a Value, Arc<KeyPlacement>);

/// The keys of one call of `init`.
type New<'a> = Vec<Placed<'a>>;

/// What `init` does with existing keys, and placements whose parts may be left over.
#[derive(Debug)]
struct Attempts {
    existing: OnExisting,
    /// The divided values that this call replaces. Their successors may not be divided.
    replaced: Vec<(Key, Arc<KeyPlacement>)>,
    /// Placements of values that replace others, which another worker has overtaken. The servers
    /// keep them until the next attempt replaces them, so that the keys are always there.
    given_up: Vec<(Key, Arc<KeyPlacement>)>,
}

impl Sharded {
    /// Stores values. The homes of the keys decide whose values are stored. The other servers get
    /// their parts before the homes show the keys to other members. If a server fails before that,
    /// the keys of this call are removed again, and those that it has replaced get their old
    /// values.
    pub(in crate::client) fn init(
        &self,
        keys: &[Key],
        values: &[Value],
        existing: OnExisting,
    ) -> Result<()> {
        let _alone = self.initialising.lock().unwrap_or_else(PoisonError::into_inner);
        let mut attempts = Attempts { existing, replaced: Vec::new(), given_up: Vec::new() };
        let stored = self.init_alone(keys, values, &mut attempts);
        let Attempts { replaced, given_up: mut left, .. } = attempts;
        if stored.is_ok() {
            left.extend(replaced);
        }
        if left.is_empty() {
            return stored;
        }
        match (stored, self.remove_parts(&left)) {
            (Err(error), Some(text)) => Err(not_removed(error.chain(), &text)),
            (stored, _) => stored,
        }
    }

    /// Stores values. No other thread does so meanwhile.
    fn init_alone(&self, keys: &[Key], values: &[Value], attempts: &mut Attempts) -> Result<()> {
        let what = describe_call("init", keys);
        let mut since = None;
        let mut left = fallible::collect(keys.iter().zip(values))?;
        loop {
            // The placements are out of date if another worker has placed the keys or rolled back.
            let num_stored = keys.len() - left.len();
            let partly = |error| stored_in_part(&what, (num_stored, keys.len()), error);
            left = self.try_init(left, attempts, &what).map_err(partly)?;
            if left.is_empty() {
                return Ok(());
            }
            self.wait_again(&mut since, &what).map_err(partly)?;
        }
    }

    /// Stores values, and returns those that have yet to be stored: all of them, or those for which
    /// another worker has yet to finish its `init`.
    fn try_init<'a>(
        &self,
        pairs: Vec<(&'a Key, &'a Value)>,
        attempts: &mut Attempts,
        what: &str,
    ) -> Result<Vec<(&'a Key, &'a Value)>> {
        let existing = attempts.existing;
        let first_layout = self.reserve(pairs.len())?;
        let num_servers = self.servers.len();
        let has_large =
            pairs.iter().any(|(_, value)| is_large(value.spec(), self.divide_above, num_servers));
        let unit = if has_large { self.unit()? } else { StepUnit::Element };
        let new = pairs.iter().zip(first_layout..).map(|((key, value), layout)| {
            let rule = (self.divide_above, unit);
            let is_divided = is_divided(value.spec(), rule, num_servers);
            let placed = KeyPlacement::new((key, value.spec()), layout, is_divided, num_servers);
            (*key, *value, Arc::new(placed))
        });
        let mut new: New<'_> = new.collect();
        let keys: Vec<Key> = fallible::collect(pairs.iter().map(|(key, _)| (*key).clone()))?;
        if existing == OnExisting::Replace {
            attempts.replaced.extend(self.divided(&keys)?);
        }
        self.placements.forget(&keys);
        let is_home = |placed: &KeyPlacement, server| server == placed.home;
        // Other members see the keys when all servers have accepted their values.
        let homes: BTreeSet<usize> = new.iter().map(|(.., placed)| placed.home).collect();
        let continues = homes.len() > 1 || new.iter().any(|(.., placed)| placed.is_divided);
        let to_homes = calls_of(&new, what, (existing, continues), is_home)?;
        // A single call that fails has stored nothing, or everything if its outcome is not known.
        let revoked = if continues { &new[..] } else { &[] };
        let Some(answers) = self.made(revoked, to_homes, attempts)? else { return Ok(pairs) };
        let mut others = Vec::new();
        if existing == OnExisting::Keep {
            // Keys that exist keep their values.
            let own = self.own(&new, &answers);
            let own = own.map_err(|error| self.revoked(what, revoked, error))?;
            new.retain(|(key, ..)| own.contains(*key));
            others.extend(keys.into_iter().filter(|key| !own.contains(key)));
        }
        // The home has accepted the keys, so this also replaces parts that a failed call has left.
        let replace = OnExisting::Replace;
        let is_other = |placed: &KeyPlacement, server| server != placed.home;
        let to_others = calls_of(&new, what, (replace, false), is_other)
            .map_err(|error| self.revoked(what, &new, error))?;
        if self.made(&new, to_others, attempts)?.is_none() {
            return Ok(pairs);
        }
        if continues {
            others.extend(self.finish(&mut new, what, attempts)?);
            if existing == OnExisting::Replace {
                self.forget_replaced(&new, what);
            }
        }
        for (key, _, placed) in new {
            self.placements.put(key, placed);
        }
        if existing != OnExisting::Keep {
            let is_left = |(key, _): &(&Key, &Value)| others.contains(key);
            return fallible::gather(pairs.into_iter().filter(is_left));
        }
        let mut unfinished: HashSet<&Key> = others.iter().collect();
        let num_stored = pairs.len() - others.len();
        let found = self.found(&others);
        let found = found.map_err(|error| stored_in_part(what, (num_stored, pairs.len()), error));
        for (key, _) in found? {
            unfinished.remove(&key);
        }
        fallible::gather(pairs.into_iter().filter(|(key, _)| unfinished.contains(key)))
    }

    /// Shows the keys to other members. A home may have removed keys, because another member took
    /// this one for dead. Removes them from `new` and returns them.
    fn finish(&self, new: &mut New<'_>, what: &str, attempts: &mut Attempts) -> Result<Vec<Key>> {
        let calls = finishing(new, what, |placed, server| server == placed.home);
        let homes: Vec<usize> = calls.iter().map(|(home, _)| *home).collect();
        let answers = self.servers.call_each(calls)?;
        let mut showing = BTreeSet::new();
        let mut error = None;
        for (home, answer) in homes.into_iter().zip(answers) {
            match answer {
                Ok(answer) if answer.is_out_of_date() => {}
                Ok(_) => {
                    showing.insert(home);
                }
                Err(found) => error = Some(found),
            }
        }
        let (shown, hidden): (New<'_>, New<'_>) = std::mem::take(new)
            .into_iter()
            .partition(|(.., placed)| showing.contains(&placed.home));
        if let Some(error) = error {
            // A home may show its keys, so they are not removed.
            let num_keys = shown.len() + hidden.len();
            let error = unknown(what, "", &error);
            return Err(stored_in_part(what, (shown.len(), num_keys), error));
        }
        self.give_up(&hidden, attempts);
        *new = shown;
        fallible::collect(hidden.into_iter().map(|(key, ..)| key.clone()))
    }

    /// Lets the other servers free the values that this call has replaced. The call has succeeded,
    /// so a server that cannot be reached frees them later.
    fn forget_replaced(&self, new: &New<'_>, what: &str) {
        let calls = finishing(new, what, |placed, server| server != placed.home);
        if let Err(error) = self.servers.call_each(calls) {
            tracing::debug!(error = error.chain(), "replaced values are not freed yet");
        }
    }

    /// Returns the keys that their homes have in the layouts of this call.
    fn own(&self, new: &New<'_>, answers: &[Answer]) -> Result<HashSet<Key>> {
        let layout = |value: &proto::Value| Some(value.placement.as_ref()?.layout);
        let values = answers.iter().flat_map(|answer| &answer.reply.values);
        let mut layouts: HashMap<&str, u64> =
            values.filter_map(|value| Some((value.key.as_str(), layout(value)?))).collect();
        let mut own = HashSet::new();
        for (key, _, placed) in new {
            let found = match layouts.remove(key.as_str()) {
                Some(layout) => layout,
                // The reply of the first attempt was lost, and a repeated call has no values.
                None => match self.found(std::slice::from_ref(*key))?.first() {
                    Some((_, found)) => found.layout,
                    None => continue,
                },
            };
            if found == placed.layout {
                own.insert((*key).clone());
            }
        }
        Ok(own)
    }

    /// Returns the divided values among those of the keys that exist.
    fn divided(&self, keys: &[Key]) -> Result<Vec<(Key, Arc<KeyPlacement>)>> {
        let mut found = self.found(keys)?;
        found.retain(|(_, placed)| placed.is_divided);
        Ok(found)
    }

    /// Returns the keys that exist, with their placements.
    fn found(&self, keys: &[Key]) -> Result<Vec<(Key, Arc<KeyPlacement>)>> {
        let mut found = Vec::new();
        match self.fetch_placements(keys) {
            Ok(placed) => found.extend(keys.iter().cloned().zip(placed)),
            Err(Error::KeyNotFound { .. }) => {
                for key in keys {
                    match self.fetch_placements(std::slice::from_ref(key)) {
                        Ok(placed) => {
                            found.extend(placed.into_iter().map(|placed| (key.clone(), placed)));
                        }
                        Err(Error::KeyNotFound { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
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

    /// Makes the calls. If one of them fails, removes the keys of this `init` again. Returns `None`
    /// if a server has a later placement of a key, and gives the placements up.
    fn made(
        &self,
        new: &[Placed<'_>],
        calls: Vec<(usize, Call)>,
        attempts: &mut Attempts,
    ) -> Result<Option<Vec<Answer>>> {
        let answers = self.servers.call_each(calls)?.into_iter().collect::<Result<Vec<_>>>();
        match answers {
            Ok(answers) if !answers.iter().any(Answer::is_out_of_date) => Ok(Some(answers)),
            Ok(_) => match self.give_up(new, attempts) {
                None => Ok(None),
                Some(text) => Err(not_removed("init".to_owned(), &text)),
            },
            Err(error) => match self.remove_new(new) {
                None => Err(error),
                Some(text) => Err(not_removed(error.chain(), &text)),
            },
        }
    }

    /// Gives up placements that another worker has overtaken. Returns the error of a server that
    /// cannot be reached.
    fn give_up(&self, new: &[Placed<'_>], attempts: &mut Attempts) -> Option<String> {
        if attempts.existing != OnExisting::Replace {
            return self.remove_new(new);
        }
        attempts.given_up.extend(placements_of(new));
        None
    }

    /// Removes the keys of a failed `init` again, and returns its error. If the `init` was a single
    /// call, there are no keys to remove, and the error says that it may have taken effect.
    fn revoked(&self, what: &str, new: &[Placed<'_>], error: Error) -> Error {
        match self.remove_new(new) {
            _ if new.is_empty() => unknown(what, "", &error),
            Some(text) => not_removed(error.chain(), &text),
            None => error,
        }
    }

    /// Removes the keys of an `init` again. Returns the error of a server that cannot be reached.
    fn remove_new(&self, new: &[Placed<'_>]) -> Option<String> {
        self.remove_parts(&placements_of(new).collect::<Vec<_>>())
    }

    /// Removes values that have these placements. Returns the error of a server that cannot be
    /// reached.
    fn remove_parts(&self, placed: &[(Key, Arc<KeyPlacement>)]) -> Option<String> {
        let (keys, placed): (Vec<_>, Vec<_>) = placed.iter().cloned().unzip();
        let calls = removals(&keys, &placed, true, &describe_call("remove", &keys), |_, _| true);
        let failed = |answer: Result<Answer>| answer.err().map(|error| error.chain());
        match self.servers.call_each(calls) {
            Ok(answers) => answers.into_iter().find_map(failed),
            Err(error) => Some(error.chain()),
        }
    }
}

fn placements_of(new: &[Placed<'_>]) -> impl Iterator<Item = (Key, Arc<KeyPlacement>)> {
    new.iter().map(|(key, _, placed)| ((*key).clone(), Arc::clone(placed)))
}

/// The error of an `init` that has failed for this reason, and whose keys may still be there.
fn not_removed(reason: String, text: &str) -> Error {
    Error::Transport {
        operation: reason,
        source: format!("the keys of the call could not be removed again: {text}").into(),
    }
}

/// The error of an `init` that has stored some of its values.
fn stored_in_part(what: &str, (num_stored, num_values): (usize, usize), error: Error) -> Error {
    if num_stored == 0 {
        return error;
    }
    let error = error.chain();
    Error::Transport {
        operation: what.to_owned(),
        source: format!("{num_stored} of {num_values} values have been stored, but: {error}")
            .into(),
    }
}

/// Returns the calls that finish `init` at some servers of each key.
fn finishing(
    new: &New<'_>,
    what: &str,
    is_meant: impl Fn(&KeyPlacement, usize) -> bool,
) -> Vec<(usize, Call)> {
    let mut finished: BTreeMap<usize, proto::Keys> = BTreeMap::new();
    for (key, _, placed) in new {
        for server in placed.servers().filter(|server| is_meant(placed, *server)) {
            let keys = finished.entry(server).or_default();
            keys.keys.push(key.as_str().to_owned());
            keys.layouts.push(placed.layout);
        }
    }
    let call = |keys| Call::write(Verb::FinishInit(keys), what.to_owned());
    finished.into_iter().map(|(server, keys)| (server, call(keys))).collect()
}

/// Returns the calls of `init` with the parts for some servers of each key.
fn calls_of(
    new: &New<'_>,
    what: &str,
    (existing, continues): (OnExisting, bool),
    is_meant: impl Fn(&KeyPlacement, usize) -> bool,
) -> Result<Vec<(usize, Call)>> {
    let mut outgoing: BTreeMap<usize, ServerValues> = BTreeMap::new();
    for (key, value, placed) in new {
        for server in placed.servers().filter(|server| is_meant(placed, *server)) {
            let to = outgoing.entry(server).or_default();
            to.add(key, value, placed, (server, placed.message(server)))?;
        }
    }
    let calls = outgoing.into_iter().map(|(server, ServerValues { values, elements })| {
        let on_existing = on_existing_of(existing).into();
        let verb = Verb::Init(proto::Init { values, on_existing, continues });
        (server, Call { elements, ..Call::write(verb, what.to_owned()) })
    });
    Ok(calls.collect())
}

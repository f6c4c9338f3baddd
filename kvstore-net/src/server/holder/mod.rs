//! [`Holder`]: the contents of a server, with the layouts of its keys if its group has several
//! servers.

mod sums;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

mod recovery;
mod snapshots;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use kvstore_core::{Error, Key, KvStore, Optimizer, Result, Snapshot, StepUnit, Value, fallible};

use super::checkpoints::Checkpoints;
use super::contents::Contents;
use super::gate::{Gate, Held};
use super::group::Group;
use super::records::{Record, Records, Replaced};
use super::snapshots::Snapshots;
use super::verbs::{self, Answer, Payload};
#[cfg(test)]
use crate::faults::Fault;
use crate::proto;
use crate::proto::change_settings::Change;
use crate::proto::request::Verb;
use crate::wire::{keys_of, parse_keys};

/// The most bytes of a push that is short.
const SHORT: usize = 1 << 20;

/// The contents of a server and the layouts of its keys.
#[derive(Debug)]
pub(crate) struct Holder {
    contents: Arc<Contents>,
    gate: Gate,
    /// Locked for short moments only. Empty in a group of one server.
    records: Mutex<Records>,
    /// Whether the group has several servers.
    has_layouts: AtomicBool,
    next_layout: AtomicU64,
    checkpoints: Checkpoints,
    snapshots: Snapshots,
    group: Arc<Group>,
}

impl Holder {
    /// Returns a holder whose first layout is above `floor`. That of a restarted server must be
    /// above all layouts that it reserved before.
    pub(crate) fn new(
        contents: Arc<Contents>,
        checkpoints: Checkpoints,
        group: Arc<Group>,
        floor: u64,
    ) -> Self {
        Self {
            contents,
            gate: Gate::default(),
            records: Mutex::default(),
            has_layouts: AtomicBool::new(false),
            next_layout: AtomicU64::new(floor + 1),
            checkpoints,
            snapshots: Snapshots::default(),
            group,
        }
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Returns whether a call takes less time than the change of threads for calls that may block.
    pub(crate) fn is_short(&self, verb: &Verb, payload: &Payload) -> bool {
        let Payload::Values(values) = payload else { return false };
        let num_bytes = values.iter().map(Value::num_bytes).sum::<usize>();
        // A pull shares the memory of the store.
        matches!(verb, Verb::Pull(_) | Verb::Push(_))
            && num_bytes <= SHORT
            && !self.contents.store().has_updater()
    }

    /// Keeps pushes from running.
    fn change_keys(&self) -> Held<RwLockWriteGuard<'_, ()>> {
        self.gate.close(self.contents.store())
    }

    /// Keeps keys from being added or removed.
    fn keep_keys(&self) -> Held<RwLockReadGuard<'_, ()>> {
        self.gate.share(self.contents.store())
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the group has several servers.
    pub(crate) fn use_layouts(&self, is_used: bool) {
        self.has_layouts.store(is_used, Ordering::Relaxed);
    }

    /// Makes a call of a member on the store. The answer has a failure with `out_of_date` if a key
    /// does not have the layout of the call.
    pub(crate) fn make(&self, incarnation: u64, verb: Verb, payload: Payload) -> Result<Answer> {
        if let Verb::Init(init) = &verb {
            self.contents.check_room(&init.values)?;
        }
        if let Verb::Reserve(reserve) = verb {
            verbs::check_layouts(reserve.count)?;
            let first_layout = self.next_layout.fetch_add(reserve.count, Ordering::Relaxed);
            return Ok(Answer::of(proto::Reply { first_layout, ..Default::default() }));
        }
        let verb = match verb {
            Verb::Checkpoint(checkpoint) => return self.checkpoint(incarnation, &checkpoint),
            Verb::TakeSnapshot(taken) => return self.take_snapshot(incarnation, &taken),
            Verb::ReadSnapshot(read) => {
                #[cfg(test)]
                if Fault::ReadNewest.is_planted() {
                    return self.taken("")?.read(&read.keys);
                }
                return self.snapshots.get(incarnation, read.snapshot)?.read(&read.keys);
            }
            Verb::KeepSnapshots(list) => {
                drop(self.snapshots.keep(incarnation, &list)?);
                return Ok(Answer::default());
            }
            Verb::Rollback(rollback) => return self.rollback(incarnation, rollback, payload),
            verb => verb,
        };
        if !self.has_layouts.load(Ordering::Relaxed) {
            if matches!(&verb, Verb::Remove(keys) if keys.only_present) {
                let text = "remove: only a group of several servers has keys to remove if present";
                return Err(Error::invalid(text));
            }
            return self.contents.make(verb, payload);
        }
        match verb {
            Verb::Init(init) => self.init(incarnation, init, payload),
            Verb::FinishInit(keys) => Ok(self.finish_init(&keys)),
            Verb::Remove(keys) => self.remove(&keys),
            Verb::Sweep(keys) => self.sweep(keys),
            Verb::ChangeSettings(proto::ChangeSettings {
                change: Some(Change::Optimizer(json)),
            }) if !json.is_empty() => self.set_optimizer(&json),
            Verb::Push(push) => {
                let _kept = self.keep_keys();
                if !self.has_layouts_of(&push.values) {
                    return Ok(Answer::out_of_date());
                }
                self.contents.make(Verb::Push(push), payload)
            }
            Verb::SetStates(states) => {
                let _changed = self.change_keys();
                if !states.optimizer.is_empty() {
                    self.remove_unfinished(|_, _| false)?;
                    let optimizer = Optimizer::from_json(&states.optimizer)?;
                    check_undivided(&optimizer, self.records().divided())?;
                }
                let states_here = states.states.iter();
                let pairs = states_here.map(|state| Some((state.key.as_str(), state.layout)));
                if !self.records().has_all(pairs) {
                    return Ok(Answer::out_of_date());
                }
                self.contents.make(Verb::SetStates(states), payload)
            }
            Verb::Pull(proto::Pull { ref keys, ref layouts, .. })
            | Verb::PullRows(proto::PullRows { ref keys, ref layouts, .. })
            | Verb::Versions(proto::Keys { ref keys, ref layouts, .. }) => {
                let (keys, layouts) = (keys.clone(), layouts.clone());
                self.read(&keys, &layouts, || self.contents.make(verb, payload))
            }
            Verb::Describe(_) | Verb::Stats(_) => {
                let mut answer = self.contents.make(verb, payload)?;
                let records = self.records();
                for value in &mut answer.reply.values {
                    value.placement = records.visible(&value.key, incarnation);
                    if value.placement.is_none() {
                        // Another call is adding or removing it.
                        return Err(Error::KeyNotFound { key: Key::new(&value.key)? });
                    }
                }
                for stats in &mut answer.reply.stats {
                    stats.placement = records.visible(&stats.key, incarnation);
                }
                answer.reply.first_layout = records.rollback;
                Ok(answer)
            }
            verb => self.contents.make(verb, payload),
        }
    }

    fn rollback(
        &self,
        incarnation: u64,
        rollback: proto::Rollback,
        payload: Payload,
    ) -> Result<Answer> {
        let snapshot = match (rollback.snapshot, payload) {
            (Some(number), _) => self.snapshots.get(incarnation, number)?.snapshot.clone(),
            (None, Payload::Tensor(bytes)) => {
                Snapshot::from_bytes(self.contents.backends(), bytes.host_bytes()?)?
            }
            (None, Payload::Values(_)) => return Err(verbs::wrong_payload()),
        };
        if !self.has_layouts.load(Ordering::Relaxed) {
            self.contents.rollback(&snapshot)?;
            return Ok(Answer::default());
        }
        let _changed = self.change_keys();
        let layout = rollback.layout;
        if layout < self.records().rollback {
            return Ok(Answer::default());
        }
        if layout < self.records().newest {
            return Ok(Answer::out_of_date());
        }
        let mut by_key = fallible::hash_map(rollback.placements.len())?;
        for value in rollback.placements {
            let placement = value.placement.unwrap_or_default();
            by_key.insert(
                Key::new(&value.key)?,
                Record { placement, is_visible: true, stored_by: incarnation },
            );
        }
        // A server may also have parts that belong to no key.
        if let Some(key) = by_key.keys().find(|key| !snapshot.contains(key)) {
            return Err(Error::KeyNotFound { key: key.clone() });
        }
        let snapshot = snapshot.slice_rows(|key| by_key.contains_key(key).then_some(None))?;
        let before = {
            let mut records = self.records();
            // Calls that read meanwhile wait.
            let mut suspended = fallible::hash_map(records.by_key.len())?;
            for (key, record) in &records.by_key {
                suspended.insert(key.clone(), record.without_layout());
            }
            let suspended = Records { by_key: suspended, ..Records::default() };
            std::mem::replace(&mut *records, suspended)
        };
        let rolled_back = self.contents.rollback(&snapshot);
        *self.records() = match &rolled_back {
            Ok(()) => {
                let Records { abandoned, newest, .. } = before;
                Records { by_key, rollback: layout, abandoned, newest, ..Records::default() }
            }
            Err(_) => before,
        };
        rolled_back.map(|()| Answer::default())
    }

    fn set_optimizer(&self, json: &str) -> Result<Answer> {
        // Keeps values from being divided meanwhile.
        let _changed = self.change_keys();
        self.remove_unfinished(|_, _| false)?;
        let optimizer = Optimizer::from_json(json)?;
        check_undivided(&optimizer, self.records().divided())?;
        let change = Some(Change::Optimizer(json.to_owned()));
        let verb = Verb::ChangeSettings(proto::ChangeSettings { change });
        self.contents.make(verb, Payload::Values(Vec::new()))
    }

    /// Removes keys that dead members left unfinished. Returns the requested keys that are not here
    /// in the requested layouts.
    fn sweep(&self, keys: proto::Keys) -> Result<Answer> {
        // Waits for an `init` or a rollback, which may fail and restore the earlier layouts.
        let _changed = self.change_keys();
        self.remove_unfinished(|_, _| false)?;
        let records = self.records();
        let pairs = keys.keys.into_iter().zip(keys.layouts);
        let missing = pairs.filter(|(key, layout)| records.layout(key) != Some(*layout));
        let keys = fallible::gather(missing.map(|(key, _)| key))?;
        Ok(Answer::of(proto::Reply { keys, ..Default::default() }))
    }

    /// Removes from the list of a `remove` the keys that a worker must not remove: those that
    /// another live member has stored.
    pub(super) fn retain_removable(&self, keys: &mut proto::Keys, incarnation: u64) {
        let records = self.records();
        let is_removable = |key: &String| {
            records.by_key.get(key.as_str()).is_some_and(|record| {
                record.stored_by == incarnation || !self.group.is_live(record.stored_by)
            })
        };
        let pairs = keys.keys.drain(..).zip(keys.layouts.drain(..));
        let (kept, layouts) = pairs.filter(|(key, _)| is_removable(key)).unzip();
        (keys.keys, keys.layouts) = (kept, layouts);
    }

    /// Removes keys. Returns the removed keys.
    fn remove(&self, keys: &proto::Keys) -> Result<Answer> {
        let _changed = self.change_keys();
        let mut removed = parse_keys(&keys.keys)?;
        if keys.only_present {
            let records = self.records();
            let mut layouts = keys.layouts.iter();
            removed.retain(|key| {
                let layout = layouts.next();
                layout.is_some() && records.layout(key.as_str()).as_ref() == layout
            });
        } else if !self.records().has(&keys.keys, &keys.layouts) {
            return Ok(Answer::out_of_date());
        }
        if keys.only_present {
            self.restore(&mut removed)?;
        }
        self.contents.remove(&removed)?;
        let mut records = self.records();
        for key in &removed {
            records.remove(key);
        }
        Ok(Answer::of(proto::Reply { keys: keys_of(&removed), ..Default::default() }))
    }

    /// Restores those of the keys that a failed `init` has replaced, and removes them from `keys`.
    fn restore(&self, keys: &mut Vec<Key>) -> Result<()> {
        let mut replaced = self.records().take_replaced(keys);
        if replaced.is_empty() {
            return Ok(());
        }
        let rolled_back = self.roll_back_to(&replaced);
        keys.retain(|key| !replaced.contains_key(key));
        let mut records = self.records();
        for (key, replaced) in replaced.drain() {
            match &rolled_back {
                Ok(()) => records.restore(&key, replaced),
                Err(_) => drop(records.replaced.insert(key, replaced)),
            }
        }
        rolled_back
    }

    /// Gives keys the contents and the positions that they had before they were replaced.
    fn roll_back_to(&self, replaced: &HashMap<Key, Replaced>) -> Result<()> {
        let store = self.contents.store();
        let contents = |key: &Key| replaced.get(key).map(Replaced::contents);
        let snapshot = store.snapshot()?.with_keys_of(contents)?;
        let all = fallible::gather(snapshot.keys().cloned())?;
        let (moved, mut ordered): (Vec<Key>, Vec<Key>) =
            all.into_iter().partition(|key| replaced.contains_key(key));
        for key in moved {
            let Some(replaced) = replaced.get(&key) else { continue };
            let next = ordered.iter().position(|other| replaced.was_before(&key, other));
            ordered.insert(next.unwrap_or(ordered.len()), key);
        }
        self.contents.roll_back_values(&snapshot.only(&ordered)?)
    }

    /// Forgets what dead members have replaced, whose `init` cannot fail any more.
    pub(super) fn forget_replaced(&self) {
        let members = self.group.remembered();
        let forgotten = self.records().forget_replaced(|by| members.contains(&by));
        drop(forgotten);
    }

    /// Makes a call that only reads. An updater may make it during a push, so it does not take the
    /// gate. Instead, it checks the layouts before and after.
    fn read(
        &self,
        keys: &[String],
        layouts: &[u64],
        make: impl FnOnce() -> Result<Answer>,
    ) -> Result<Answer> {
        let is_here = || self.records().has(keys, layouts);
        if !is_here() {
            return Ok(Answer::out_of_date());
        }
        let answer = make();
        if is_here() { answer } else { Ok(Answer::out_of_date()) }
    }

    /// Adds keys with their layouts. The answer has the layouts that the keys have now.
    fn init(&self, incarnation: u64, init: proto::Init, payload: Payload) -> Result<Answer> {
        let Payload::Values(values) = payload else { return Err(verbs::wrong_payload()) };
        let _changed = self.change_keys();
        let is_divided = |value: &&proto::Value| {
            value.placement.as_ref().is_some_and(|placement| placement.complete.is_some())
        };
        if let (Some(value), Some(optimizer)) =
            (init.values.iter().find(is_divided), self.contents.store().optimizer()?)
        {
            check_undivided(&optimizer, Some(&Key::new(&value.key)?))?;
        }
        let existing = init.on_existing();
        let mut asked = fallible::with_capacity(init.values.len())?;
        for value in &init.values {
            let key = Key::new(&value.key)?;
            let placement = value.placement.clone();
            asked.push((key, placement.ok_or_else(|| Error::invalid("init without a layout"))?));
        }
        let mut names = fallible::hash_set(asked.len())?;
        names.extend(asked.iter().map(|(key, _)| key.clone()));
        let (mut replaced, mut before) = (Vec::new(), None);
        {
            let mut records = self.records();
            // A later placement arrived before this one, so the client must reserve new layouts.
            let is_late = |(key, placement): &(Key, proto::Placement)| {
                let own = records.layout(key.as_str()).unwrap_or_default();
                own > placement.layout
            };
            if existing == proto::OnExisting::Replace {
                if asked.iter().any(is_late) {
                    return Ok(Answer::out_of_date());
                }
                // They stay visible.
                for (key, _) in &asked {
                    replaced.extend(records.suspend(key));
                }
            }
        }
        let continues = init.continues;
        let store = || {
            if !replaced.is_empty() {
                let snapshot = self.contents.store().snapshot()?;
                let mut positions = fallible::hash_map(snapshot.len())?;
                positions.extend(snapshot.keys().cloned().zip(0..));
                let is_replaced = |key: &Key| names.contains(key).then_some(None);
                before = Some((snapshot.slice_rows(is_replaced)?, Arc::new(positions)));
            }
            self.remove_unfinished(|key, by| by == incarnation && names.contains(key))?;
            {
                let mut records = self.records();
                let least = records.rollback.max(records.abandoned);
                if asked.iter().any(|(_, placement)| placement.layout < least) {
                    return Ok(Answer::out_of_date());
                }
                fallible::reserve_entries(&mut records.by_key, asked.len())?;
                fallible::reserve_entries(&mut records.unfinished, asked.len())?;
                fallible::reserve_entries(&mut records.replaced, replaced.len())?;
            }
            self.contents.make(Verb::Init(init), Payload::Values(values))
        };
        let made = store();
        let mut records = self.records();
        if !made.as_ref().is_ok_and(|answer| answer.reply.failure.is_none()) {
            replaced.into_iter().rev().for_each(|suspended| records.resume(suspended));
            return made;
        }
        let replaced = replaced.into_iter().filter(|suspended| suspended.record.is_visible);
        let mut was_visible = HashSet::new();
        for suspended in replaced {
            was_visible.insert(suspended.key.clone());
            if let Some(contents) = &before {
                records.keep(suspended, contents, incarnation);
            }
        }
        let mut reply = proto::Reply::default();
        for (key, placement) in asked {
            records.newest = records.newest.max(placement.layout);
            let name = key.as_str().to_owned();
            if existing != proto::OnExisting::Keep || !records.by_key.contains_key(&key) {
                let is_unfinished = continues;
                #[cfg(test)]
                let is_unfinished = is_unfinished && !Fault::ShowEarly.is_planted();
                if is_unfinished {
                    records.unfinished.insert(key.clone(), incarnation);
                }
                let is_visible = !is_unfinished || was_visible.contains(&key);
                let record = Record { placement, is_visible, stored_by: incarnation };
                records.by_key.insert(key.clone(), record);
            }
            let placement = records.by_key.get(&key).map(|record| record.placement.clone());
            reply.values.push(proto::Value { key: name, placement, ..Default::default() });
        }
        Ok(Answer::of(reply))
    }

    /// Removes the keys whose initialisation no member will finish: its member is dead, or
    /// `starts_again`.
    fn remove_unfinished(&self, starts_again: impl Fn(&Key, u64) -> bool) -> Result<()> {
        #[cfg(test)]
        if Fault::KeepUnfinished.is_planted() {
            return Ok(());
        }
        let left: Vec<Key> = {
            let records = self.records();
            let is_left =
                |(key, by): &(&Key, &u64)| starts_again(key, **by) || !self.group.is_live(**by);
            let left = records.unfinished.iter().filter(is_left);
            fallible::gather(left.map(|(key, _)| key.clone()))?
        };
        if !left.is_empty() {
            self.contents.remove(&left)?;
            let mut records = self.records();
            for key in &left {
                records.remove(key);
            }
        }
        Ok(())
    }

    /// Makes keys visible whose parts are complete.
    fn finish_init(&self, keys: &proto::Keys) -> Answer {
        let _kept = self.keep_keys();
        let mut records = self.records();
        if !records.has(&keys.keys, &keys.layouts) {
            return Answer::out_of_date();
        }
        for key in &keys.keys {
            records.unfinished.remove(key.as_str());
            records.replaced.remove(key.as_str());
            if let Some(record) = records.by_key.get_mut(key.as_str()) {
                record.is_visible = true;
            }
        }
        Answer::default()
    }
}

/// # Errors
/// - [`Error::InvalidArgument`] if the value of `divided` is divided among the servers, and the
///   optimizer needs complete values.
fn check_undivided(optimizer: &Optimizer, divided: Option<&Key>) -> Result<()> {
    match (divided, optimizer.unit()) {
        (None, _) | (_, StepUnit::Element | StepUnit::Row) => Ok(()),
        (Some(key), StepUnit::Block | StepUnit::Weight) => Err(Error::invalid(format!(
            "key `{key}`: optimizer `{}` needs complete values, but this one is divided among the \
             servers: set the optimizer before `init`, or divide only larger values",
            optimizer.name()
        ))),
    }
}

//! [`Holder`]: the store of a server, with the layouts of its keys if its group has several
//! servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use kvstore_core::{
    Backends, Error, Key, KvStore, LocalStore, Optimizer, PartList, Result, StepUnit, fallible,
};

use super::checkpoints::Checkpoints;
use super::verbs::{self, Answer, Payload};
use crate::proto;
use crate::proto::change_settings::Change;
use crate::proto::request::Verb;
use crate::wire::failure_of;

/// Where the values of the keys of this server are.
#[derive(Debug, Default)]
struct Records {
    by_key: HashMap<Key, proto::Placement>,
    /// The first layout of the last rollback.
    rollback: u64,
}

impl Records {
    /// Returns each key with its placement.
    fn messages(&self) -> Result<Vec<proto::Value>> {
        let message = |(key, placement): (&Key, &proto::Placement)| proto::Value {
            key: key.as_str().to_owned(),
            placement: Some(placement.clone()),
            ..proto::Value::default()
        };
        fallible::collect(self.by_key.iter().map(message))
    }
}

/// A store and the layouts of its keys.
#[derive(Debug)]
pub(crate) struct Holder {
    store: Arc<LocalStore>,
    backends: Backends,
    /// Locked for writing while keys are added or removed, and for reading during pushes. Empty in
    /// a group of one server.
    records: RwLock<Records>,
    /// Whether the group has several servers. Otherwise, no call takes the lock.
    has_layouts: AtomicBool,
    next_layout: AtomicU64,
    checkpoints: Checkpoints,
}

impl Holder {
    /// Returns a holder whose first layout is above `floor`. That of a restarted server must be
    /// above all layouts that it reserved before.
    pub(crate) fn new(
        store: Arc<LocalStore>,
        backends: Backends,
        checkpoints: Checkpoints,
        floor: u64,
    ) -> Self {
        Self {
            store,
            backends,
            records: RwLock::default(),
            has_layouts: AtomicBool::new(false),
            next_layout: AtomicU64::new(floor + 1),
            checkpoints,
        }
    }

    pub(crate) fn store(&self) -> &dyn KvStore {
        &*self.store
    }

    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Records that the group has several servers.
    pub(crate) fn use_layouts(&self) {
        self.has_layouts.store(true, Ordering::Relaxed);
    }

    /// Makes a call on the store. The answer has a failure with `moved` if a key does not have the
    /// layout of the call.
    pub(crate) fn make(&self, verb: Verb, payload: Payload) -> Result<Answer> {
        let make = |verb, payload| verbs::make(&*self.store, &self.backends, verb, payload);
        if let Verb::Reserve(reserve) = verb {
            let first_layout = self.next_layout.fetch_add(reserve.count, Ordering::Relaxed);
            return Ok(Answer::of(proto::Reply { first_layout, ..Default::default() }));
        }
        if let Verb::Checkpoint(checkpoint) = verb {
            return self.checkpoint(&checkpoint);
        }
        if !self.has_layouts.load(Ordering::Relaxed) {
            return make(verb, payload);
        }
        match verb {
            Verb::Init(init) => self.init(init, payload),
            Verb::Remove(keys) => self.remove(&keys),
            Verb::Rollback(mut rollback) => {
                let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
                let layout = rollback.layout;
                if layout < records.rollback {
                    return Ok(Answer::default());
                }
                let placements = std::mem::take(&mut rollback.placements);
                let mut restored = fallible::hash_map(placements.len())?;
                for value in placements {
                    restored.insert(Key::new(&value.key)?, value.placement.unwrap_or_default());
                }
                let answer = make(Verb::Rollback(rollback), payload)?;
                *records = Records { by_key: restored, rollback: layout };
                Ok(answer)
            }
            Verb::ChangeSettings(proto::ChangeSettings {
                change: Some(Change::Optimizer(json)),
            }) if !json.is_empty() => {
                // Keeps values from being divided meanwhile.
                let records = self.records.write().unwrap_or_else(PoisonError::into_inner);
                let divided = records.by_key.iter().find(|(_, record)| record.complete.is_some());
                let optimizer = Optimizer::from_json(&json)?;
                check_undivided(&optimizer, divided.map(|(key, _)| key))?;
                self.store.set_optimizer(optimizer)?;
                Ok(Answer::default())
            }
            Verb::Push(push) => {
                let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
                let layout = |value: &proto::Value| value.placement.as_ref().map(|at| at.layout);
                let is_here = |value: &proto::Value| {
                    layout_of(&records, &value.key).is_some_and(|own| Some(own) == layout(value))
                };
                if !push.values.iter().all(is_here) {
                    return Ok(moved());
                }
                make(Verb::Push(push), payload)
            }
            Verb::SetStates(states) => {
                let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
                let is_here = |state: &proto::KeyState| {
                    layout_of(&records, &state.key).is_some_and(|own| own == state.layout)
                };
                if !states.states.iter().all(is_here) {
                    return Ok(moved());
                }
                make(Verb::SetStates(states), payload)
            }
            Verb::Pull(ref pull) => {
                let (keys, layouts) = (pull.keys.clone(), pull.layouts.clone());
                self.read(&keys, &layouts, || make(verb, payload))
            }
            Verb::PullRows(ref pull) => {
                let (keys, layouts) = (pull.keys.clone(), pull.layouts.clone());
                self.read(&keys, &layouts, || make(verb, payload))
            }
            Verb::Versions(ref asked) => {
                let (keys, layouts) = (asked.keys.clone(), asked.layouts.clone());
                self.read(&keys, &layouts, || make(verb, payload))
            }
            Verb::Describe(_) | Verb::Stats(_) => {
                let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
                let mut answer = make(verb, payload)?;
                let find = |key: &str| records.by_key.get(key).cloned();
                for value in &mut answer.reply.values {
                    value.placement = find(&value.key);
                }
                for stats in &mut answer.reply.stats {
                    stats.placement = find(&stats.key);
                }
                Ok(answer)
            }
            Verb::Snapshot(_) => {
                let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
                let mut answer = make(verb, payload)?;
                answer.reply.values = records.messages()?;
                Ok(answer)
            }
            verb => make(verb, payload),
        }
    }

    fn remove(&self, keys: &proto::Keys) -> Result<Answer> {
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        if !has_layouts(&records, &keys.keys, &keys.layouts) {
            return Ok(moved());
        }
        let removed = verbs::parse(keys)?;
        self.store.remove(&removed)?;
        for key in removed {
            records.by_key.remove(&key);
        }
        Ok(Answer::default())
    }

    /// Makes a call that only reads. It holds no lock, because an updater may make it during a
    /// push. Instead, it checks the layouts again at the end.
    fn read(
        &self,
        keys: &[String],
        layouts: &[u64],
        make: impl FnOnce() -> Result<Answer>,
    ) -> Result<Answer> {
        let is_here = || {
            let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
            has_layouts(&records, keys, layouts)
        };
        if !is_here() {
            return Ok(moved());
        }
        let answer = make();
        if is_here() { answer } else { Ok(moved()) }
    }

    /// Writes a part of a checkpoint, or the list of the parts. The answer of the former has the
    /// keys of the part.
    fn checkpoint(&self, checkpoint: &proto::Checkpoint) -> Result<Answer> {
        let folder = self.checkpoints.folder(&checkpoint.name)?;
        if !checkpoint.parts.is_empty() {
            self.checkpoints.keep(&folder, &PartList::from_json(&checkpoint.parts)?)?;
            return Ok(Answer::default());
        }
        let (snapshot, values) = {
            let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
            (self.store.snapshot()?, records.messages()?)
        };
        let keys = snapshot.keys().map(|key| key.as_str().to_owned()).collect();
        // Pushes continue meanwhile.
        self.checkpoints.write(&folder, &checkpoint.file, &snapshot)?;
        Ok(Answer::of(proto::Reply { keys, values, ..Default::default() }))
    }

    /// Adds keys with their layouts. The answer has the layouts that the keys have now.
    fn init(&self, mut init: proto::Init, payload: Payload) -> Result<Answer> {
        let Payload::Values(mut values) = payload else { return Err(verbs::wrong_payload()) };
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        let is_divided = |value: &&proto::Value| {
            value.placement.as_ref().is_some_and(|placement| placement.complete.is_some())
        };
        if let (Some(value), Some(optimizer)) =
            (init.values.iter().find(is_divided), self.store.optimizer()?)
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
        if existing == proto::OnExisting::Replace {
            // A later init of the key has been here first. This one would have been replaced.
            let is_late = |(key, placement): &(Key, proto::Placement)| {
                records.by_key.get(key).is_some_and(|own| own.layout > placement.layout)
            };
            let is_late: Vec<bool> = asked.iter().map(is_late).collect();
            retain(&mut init.values, &is_late);
            retain(&mut values, &is_late);
            retain(&mut asked, &is_late);
        }
        fallible::reserve_entries(&mut records.by_key, asked.len())?;
        verbs::make(&*self.store, &self.backends, Verb::Init(init), Payload::Values(values))?;
        let mut reply = proto::Reply::default();
        for (key, placement) in asked {
            let name = key.as_str().to_owned();
            if existing != proto::OnExisting::Keep || !records.by_key.contains_key(&key) {
                records.by_key.insert(key.clone(), placement);
            }
            let placement = records.by_key.get(&key).cloned();
            reply.values.push(proto::Value { key: name, placement, ..Default::default() });
        }
        Ok(Answer::of(reply))
    }
}

/// Removes the marked items.
fn retain<T>(items: &mut Vec<T>, is_removed: &[bool]) {
    let mut marks = is_removed.iter();
    items.retain(|_| marks.next().is_none_or(|is_removed| !is_removed));
}

fn layout_of(records: &Records, key: &str) -> Option<u64> {
    records.by_key.get(key).map(|record| record.layout)
}

fn has_layouts(records: &Records, keys: &[String], layouts: &[u64]) -> bool {
    let mut pairs = keys.iter().zip(layouts);
    keys.len() == layouts.len()
        && pairs.all(|(key, layout)| layout_of(records, key) == Some(*layout))
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

/// The answer for keys that are not here in the layout of the call.
fn moved() -> Answer {
    let error = Error::Internal("the key is in another layout".to_owned());
    let failure = Some(proto::Failure { moved: true, ..failure_of(&error) });
    Answer::of(proto::Reply { failure, ..Default::default() })
}

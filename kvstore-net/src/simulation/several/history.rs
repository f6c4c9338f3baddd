//! [`History`]: what the processes of a simulation did, and whether the store kept its promises.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use kvstore_core::{ErrorCode, Key, OnExisting, Result};

use crate::rules::placement::home;
use crate::simulation::checked::Checked;
use crate::simulation::schedule::STEP;

/// The number of elements of a part: the generation of the value, and one for each push.
pub(super) const PART: usize = 64;

/// A key whose values are divided among the servers.
pub(super) const LARGE: usize = 0;
/// A key whose values are complete on one server.
pub(super) const SMALL: usize = 1;

/// Returns a key that no other slot uses. Its values are divided.
pub(super) fn own_key(slot: usize) -> usize {
    SMALL + 1 + slot
}

pub(super) fn is_divided(key: usize) -> bool {
    key != SMALL
}

fn home_of(index: usize, num_servers: usize) -> usize {
    home(key(index).as_str(), num_servers)
}

pub(super) fn key(index: usize) -> Key {
    Key::new(&format!("key-{index}")).unwrap()
}

pub(super) fn index(key: &Key) -> usize {
    key.as_str().trim_start_matches("key-").parse().unwrap()
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Init {
        generation: usize,
        existing: OnExisting,
    },
    /// Adds 1 to an element of each part that no other push changes.
    Push {
        element: usize,
    },
    Pull,
    /// Reads the values of a snapshot.
    Snapshot,
    Remove,
}

impl Kind {
    /// Returns whether the call may take away a value, even if it fails.
    fn may_remove(self) -> bool {
        matches!(self, Self::Remove | Self::Init { existing: OnExisting::Replace, .. })
    }

    fn generation(self) -> Option<usize> {
        match self {
            Self::Init { generation, .. } => Some(generation),
            _ => None,
        }
    }
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Acknowledged,
    /// The call had no effect, and never will have one.
    Failed(String),
    /// The call may have had an effect on some of the servers.
    InDoubt(String),
}

/// What a call has returned.
#[derive(Debug)]
pub(super) enum Reply {
    Nothing,
    Values(Vec<Vec<f32>>),
}

#[derive(Clone, Debug)]
struct Call {
    process: u64,
    kind: Kind,
    keys: Vec<usize>,
    start: Duration,
    /// The position of the start among the starts and ends of all calls.
    started: usize,
    /// The pushes that had taken effect on each part when the call began.
    effects: HashMap<Part, usize>,
    end: Option<(Duration, usize, Outcome)>,
}

impl Call {
    fn has_succeeded_before(&self, moment: usize) -> bool {
        matches!(self.end, Some((_, ended, Outcome::Acknowledged)) if ended < moment)
    }
}

/// A server and a key.
type Place = (usize, usize);

/// A server, a key and a generation.
type Part = (usize, usize, usize);

/// What the processes did, what the servers did, and what went wrong.
#[derive(Debug)]
pub(super) struct History {
    timeout: Duration,
    num_servers: usize,
    num_processes: u64,
    num_runs: u64,
    num_generations: usize,
    num_pushes: usize,
    /// The number of starts and ends of calls.
    num_moments: usize,
    calls: Vec<Call>,
    /// The pushes in the order in which they took effect on each part. A repeated `init` begins a
    /// new list.
    effects: BTreeMap<Part, Vec<Vec<usize>>>,
    has_lost_server: bool,
    /// The processes that make their last calls, while everything is connected.
    at_end: BTreeSet<u64>,
    violation: Option<String>,
}

impl History {
    pub(super) fn new(timeout: Duration, num_servers: usize) -> Self {
        Self {
            timeout,
            num_servers,
            num_processes: 0,
            num_runs: 0,
            num_generations: 0,
            num_pushes: 0,
            num_moments: 0,
            calls: Vec::new(),
            effects: BTreeMap::new(),
            has_lost_server: false,
            at_end: BTreeSet::new(),
            violation: None,
        }
    }

    pub(super) fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    /// Returns the number of a new process.
    pub(super) fn begin_process(&mut self) -> u64 {
        self.num_processes += 1;
        self.num_processes
    }

    /// Returns the number of a new run of a server.
    pub(super) fn begin_run(&mut self, _server: usize) -> u64 {
        self.num_runs += 1;
        self.num_runs
    }

    /// Records that a server loses its contents.
    pub(super) fn lose_server(&mut self) {
        self.has_lost_server = true;
    }

    pub(super) fn begin_end(&mut self, process: u64) {
        self.at_end.insert(process);
    }

    pub(super) fn begin_generation(&mut self) -> usize {
        self.num_generations += 1;
        self.num_generations
    }

    /// Returns the element of a new push.
    pub(super) fn begin_push(&mut self) -> usize {
        self.num_pushes += 1;
        assert!(self.num_pushes < PART, "more pushes than elements");
        self.num_pushes
    }

    fn moment(&mut self) -> usize {
        self.num_moments += 1;
        self.num_moments
    }

    /// Records the start of a call, and returns its number.
    pub(super) fn begin(
        &mut self,
        process: u64,
        kind: Kind,
        keys: &[usize],
        start: Duration,
    ) -> usize {
        let newest = |lists: &Vec<Vec<usize>>| lists.last().map_or(0, Vec::len);
        let effects = self.effects.iter().map(|(part, lists)| (*part, newest(lists))).collect();
        let (keys, started) = (Vec::from(keys), self.moment());
        self.calls.push(Call { process, kind, keys, start, started, effects, end: None });
        self.calls.len() - 1
    }

    /// Records an effect of a push on a part whose elements were `before`.
    pub(super) fn take_effect(&mut self, (server, key): Place, before: &[f32], pushed: &[f32]) {
        let element = positions(pushed).next().unwrap_or_default();
        let is_this = |call: &&Call| call.kind == Kind::Push { element };
        let Some(call) = self.calls.iter().find(is_this) else {
            return self.violate(format!("push {element} took effect, but was not called"));
        };
        if let Some((_, _, Outcome::Failed(reason))) = &call.end {
            let text = format!("push {element} took effect after it had failed: {reason}");
            return self.violate(text);
        }
        if let Some(later) = self.overtaking(call, (server, key)) {
            let text = format!("push {element} took effect after {:?}, a later call", later.kind);
            return self.violate(text);
        }
        let generation = generation_of(before);
        // A part may take effect in a generation that does not exist any more for the home of the
        // key. Then the push takes effect again.
        let home = home_of(key, self.num_servers);
        let earlier = self.parts_with(key, element);
        let is_alive =
            |at: usize| earlier.contains(&(home, at)) || server == home && at == generation;
        for (server_of, found) in &earlier {
            if *found == generation && *server_of == server {
                return self.violate(format!("push {element} took effect twice on {server}"));
            }
            if *found != generation && is_alive(*found) && is_alive(generation) {
                let text = format!(
                    "push {element} took effect in generations {found} and {generation} of {key}"
                );
                return self.violate(text);
            }
        }
        let stored: BTreeSet<usize> = positions(before).collect();
        let lists = self.effects.entry((server, key, generation)).or_default();
        match lists.last_mut() {
            Some(list) if list.iter().copied().collect::<BTreeSet<_>>() == stored => {
                list.push(element);
            }
            _ if stored.is_empty() => lists.push(vec![element]),
            newest => {
                let text = format!("{key} has pushes {stored:?} on {server}, not {newest:?}");
                self.violate(text);
            }
        }
    }

    /// Returns a call of a key that its process began after the end of this one, and that a server
    /// with a part of the key has made.
    fn overtaking(&self, call: &Call, (server, key): Place) -> Option<&Call> {
        let (_, ended, _) = call.end.as_ref()?;
        self.calls.iter().find(|later| {
            let is_made = match (later.kind, &later.end) {
                (Kind::Push { element }, _) => {
                    self.parts_with(key, element).iter().any(|(other, _)| *other == server)
                }
                (Kind::Pull, Some((.., Outcome::Acknowledged))) => true,
                (_, _) => false,
            };
            later.process == call.process
                && later.started > *ended
                && later.keys.contains(&key)
                && is_made
        })
    }

    /// Returns the servers and generations of a key in which a push has taken effect.
    fn parts_with(&self, key: usize, element: usize) -> Vec<(usize, usize)> {
        let has_it = |(part, lists): &(&Part, &Vec<Vec<usize>>)| {
            part.1 == key && lists.iter().flatten().any(|other| *other == element)
        };
        self.effects.iter().filter(has_it).map(|((server, _, at), _)| (*server, *at)).collect()
    }

    /// Returns the servers with parts of a key.
    fn servers_of(&self, index: usize) -> Vec<usize> {
        let num_servers = self.num_servers;
        if is_divided(index) {
            (0..num_servers).collect()
        } else {
            vec![home_of(index, num_servers)]
        }
    }

    /// Records the end of a call, and checks it.
    pub(super) fn end(&mut self, number: usize, time: Duration, result: &Result<Reply>) {
        let call = self.calls[number].clone();
        let checked = match result {
            Ok(reply) => self.check_success(&call, reply),
            Err(error) => self.check_failure(&call, time, error.code(), &error.chain()),
        };
        let outcome = match result {
            Ok(_) => Outcome::Acknowledged,
            Err(error) => {
                let text = error.chain();
                let in_doubt = [
                    "it is not known whether the call took effect",
                    "servers have made their part",
                    "values have been pushed",
                    "values have been stored",
                    "could not be removed again",
                ];
                let is_in_doubt = in_doubt.iter().any(|reason| text.contains(reason));
                if is_in_doubt { Outcome::InDoubt(text) } else { Outcome::Failed(text) }
            }
        };
        let checked = checked.and_then(|()| match (&outcome, call.kind) {
            (Outcome::Failed(reason), Kind::Push { element }) => {
                // Other effects are on values that do not exist any more.
                let has_effect = call.keys.iter().any(|key| {
                    let home = home_of(*key, self.num_servers);
                    self.parts_with(*key, element).iter().any(|(server, _)| *server == home)
                });
                if has_effect { Err(format!("took effect, but failed: {reason}")) } else { Ok(()) }
            }
            _ => Ok(()),
        });
        if let Err(text) = checked {
            let Call { process, kind, keys, .. } = &call;
            self.violate(format!("{kind:?} of process {process} on {keys:?}: {text}"));
        }
        let moment = self.moment();
        self.calls[number].end = Some((time, moment, outcome));
    }

    /// Returns whether a call that may take away this key has begun, other than `except`.
    fn may_be_removed(&self, key: usize, except: Option<&Call>) -> bool {
        let started = except.map(|call| call.started);
        self.calls.iter().any(|call| {
            let has_failed = matches!(call.end, Some((.., Outcome::Failed(_))));
            call.kind.may_remove()
                && !has_failed
                && call.keys.contains(&key)
                && Some(call.started) != started
        })
    }

    /// Returns whether another call that may take away the key may have run during this one.
    fn is_disturbed(&self, call: &Call, key: usize) -> bool {
        self.calls.iter().any(|other| {
            let has_ended = match &other.end {
                None | Some((.., Outcome::InDoubt(_))) => false,
                Some((_, ended, _)) => *ended < call.started,
            };
            other.kind.may_remove()
                && other.keys.contains(&key)
                && other.started != call.started
                && !has_ended
        })
    }

    /// Returns the calls of `init` with a key.
    fn inits(&self, key: usize) -> impl Iterator<Item = &Call> {
        let is_init = |call: &&Call| call.kind.generation().is_some();
        self.calls.iter().filter(is_init).filter(move |call| call.keys.contains(&key))
    }

    fn check_success(&self, call: &Call, reply: &Reply) -> Result<(), String> {
        let now = self.num_moments + 1;
        for (position, key) in call.keys.iter().enumerate() {
            match (call.kind, reply) {
                (Kind::Pull | Kind::Snapshot, Reply::Values(values)) => {
                    self.check_value(call, *key, &values[position])?;
                }
                (Kind::Push { element }, _) => {
                    let mut found = self.parts_with(*key, element);
                    let home = home_of(*key, self.num_servers);
                    let Some((_, generation)) = found.iter().find(|(server, _)| *server == home)
                    else {
                        return Err(format!("acknowledged without an effect on {key}"));
                    };
                    let generation = *generation;
                    found.retain(|(_, found)| *found == generation);
                    let expected = self.servers_of(*key).len();
                    if found.len() < expected
                        && !self.is_disturbed(call, *key)
                        && !self.has_lost_server
                    {
                        return Err(format!("acknowledged with effects {found:?} on {key} only"));
                    }
                }
                (Kind::Init { existing: OnExisting::Reject, .. }, _) => {
                    if self.has_lost_server || self.may_be_removed(*key, None) {
                        continue;
                    }
                    // Another call has certainly stored this key.
                    let other = self.inits(*key).find(|other| {
                        let is_keep =
                            matches!(other.kind, Kind::Init { existing: OnExisting::Keep, .. });
                        let least = if is_keep { call.started } else { now };
                        other.started != call.started && other.has_succeeded_before(least)
                    });
                    if let Some(other) = other {
                        return Err(format!("added {key} after {:?}", other.kind));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that a pulled value has one generation, which has not been removed, and that each
    /// part is the result of its first pushes.
    fn check_value(&self, call: &Call, key: usize, value: &[f32]) -> Result<(), String> {
        let generations: BTreeSet<usize> = value.chunks(PART).map(generation_of).collect();
        let mut generations = generations.into_iter();
        let (Some(generation), None) = (generations.next(), generations.next()) else {
            let all: Vec<usize> = value.chunks(PART).map(generation_of).collect();
            return Err(format!("pulled parts of generations {all:?} of {key}"));
        };
        let Some(init) = self.inits(key).find(|init| init.kind.generation() == Some(generation))
        else {
            return Err(format!("pulled {key} with generation {generation}, which has no `init`"));
        };
        if let Some((_, ended, Outcome::Failed(reason))) = &init.end
            && *ended < call.started
        {
            return Err(format!("pulled generation {generation} of {key} after: {reason}"));
        }
        let later = self.calls.iter().find(|later| {
            later.kind.may_remove()
                && later.keys.contains(&key)
                && init.has_succeeded_before(later.started)
                && later.has_succeeded_before(call.started)
        });
        if let Some(later) = later {
            return Err(format!("pulled generation {generation} of {key} after {:?}", later.kind));
        }
        for (server, part) in self.servers_of(key).into_iter().zip(value.chunks(PART)) {
            if let Some(wrong) = part[1..].iter().find(|element| **element > 1.0) {
                return Err(format!("pulled {wrong} for a push on {key} from {server}"));
            }
            let pulled: BTreeSet<usize> = positions(part).collect();
            let at = (server, key, generation);
            let lists = self.effects.get(&at).map_or(&[][..], Vec::as_slice);
            let is_prefix = |list: &Vec<usize>| {
                list.len() >= pulled.len()
                    && list[..pulled.len()].iter().all(|push| pulled.contains(push))
            };
            if !pulled.is_empty() && !lists.iter().any(is_prefix) {
                return Err(format!("pulled {pulled:?} of {key} from {server}, not {lists:?}"));
            }
            let least = call.effects.get(&at).copied().unwrap_or_default();
            if init.has_succeeded_before(call.started) && pulled.len() < least {
                let num = pulled.len();
                return Err(format!("pulled {num} of {least} pushes of {key} from {server}"));
            }
        }
        Ok(())
    }

    /// Checks that a call that failed had a reason.
    fn check_failure(
        &self,
        call: &Call,
        end: Duration,
        code: ErrorCode,
        reason: &str,
    ) -> Result<(), String> {
        // A snapshot needs all parts of all keys.
        let may_lack_parts = call.kind == Kind::Snapshot && self.has_lost_server;
        if self.at_end.contains(&call.process) && !may_lack_parts {
            return Err(format!("failed after the last event: {reason}"));
        }
        let waited = end.saturating_sub(call.start);
        let has_waited = waited + 2 * STEP >= self.timeout;
        // Another call of `init` may add the key first, or add and remove it again.
        let has_rival = |key: &usize| self.inits(*key).any(|init| init.started != call.started);
        let may_be_missing = |key: &usize| {
            let moment = call.started;
            self.may_be_removed(*key, Some(call))
                || !self.inits(*key).any(|init| init.has_succeeded_before(moment))
        };
        let is_explained = match (call.kind, code) {
            (Kind::Init { existing: OnExisting::Reject, .. }, ErrorCode::KeyExists) => {
                call.keys.iter().any(has_rival)
            }
            (Kind::Init { .. }, ErrorCode::KeyNotFound | ErrorCode::KeyExists)
            | (_, ErrorCode::Internal) => false,
            // The process was not connected for longer than a lease.
            (Kind::Snapshot, _) if reason.contains("does not keep it any more") => true,
            (_, ErrorCode::KeyNotFound) => call.keys.iter().any(may_be_missing),
            // Some of the values have been pushed before.
            _ if reason.contains("has not been initialised") => {
                call.keys.iter().any(may_be_missing)
            }
            _ => call.keys.iter().any(|key| self.is_disturbed(call, *key)),
        };
        let is_late = has_waited && code != ErrorCode::Internal;
        if is_late || is_explained || self.has_lost_server {
            return Ok(());
        }
        Err(format!("failed after {waited:?} without a reason: {reason}"))
    }
}

impl Checked for History {
    fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    fn count(&self, outcomes: &mut BTreeMap<String, usize>) {
        for call in &self.calls {
            let kind = match call.kind {
                Kind::Init { existing, .. } => format!("init {existing:?}"),
                Kind::Push { .. } => "push".to_owned(),
                kind => format!("{kind:?}").to_lowercase(),
            };
            let end = match &call.end {
                None => "without an end",
                Some((_, _, Outcome::Acknowledged)) => "acknowledged",
                Some((_, _, Outcome::Failed(_))) => "failed",
                Some((_, _, Outcome::InDoubt(_))) => "in doubt",
            };
            *outcomes.entry(format!("{kind} {end}")).or_default() += 1;
        }
        let mut add = |what: &str, num| *outcomes.entry(what.to_owned()).or_default() += num;
        add("process", usize::try_from(self.num_processes).unwrap());
        add("run of a server", usize::try_from(self.num_runs).unwrap());
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for call in &self.calls {
            let Call { process, kind, keys, .. } = call;
            let start = call.start.as_millis();
            write!(f, "{start:5} ms, process {process}: {kind:?} of {keys:?}: ")?;
            match &call.end {
                None => writeln!(f, "never ends")?,
                Some((end, _, outcome)) => writeln!(f, "{} ms, {outcome:?}", end.as_millis())?,
            }
        }
        for ((server, key, generation), lists) in &self.effects {
            writeln!(f, "server {server}, key {key}, generation {generation}: {lists:?}")?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
fn generation_of(part: &[f32]) -> usize {
    part[0] as usize
}

/// Returns the elements of the pushes in a part.
fn positions(part: &[f32]) -> impl Iterator<Item = usize> {
    let elements = part.iter().enumerate().skip(1);
    elements.filter(|(_, value)| **value != 0.0).map(|(element, _)| element)
}

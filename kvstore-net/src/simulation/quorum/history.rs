//! [`History`]: what the processes of a simulation did, and whether the servers kept their
//! promises.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

use kvstore_core::{Key, Result};

use super::schedule::Schedule;
use crate::client::LatePush;
use crate::rules::placement::home;
use crate::simulation::checked::Checked;
use crate::simulation::history::mark;

/// The number of elements of a part: the sum of the marks, and one for each push.
pub(super) const PART: usize = 160;

/// The number of keys. The values of every second one are divided among the servers.
pub(super) const KEYS: usize = 4;

pub(super) fn is_divided(key: usize) -> bool {
    key.is_multiple_of(2)
}

pub(super) fn key(index: usize) -> Key {
    Key::new(&format!("key-{index}")).unwrap()
}

pub(super) fn index(key: &Key) -> usize {
    key.as_str().trim_start_matches("key-").parse().unwrap()
}

pub(super) fn name(slot: usize) -> String {
    format!("worker-{slot}")
}

/// The end of a push.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Acknowledged,
    /// The push had no effect, and never will have one.
    Failed(String),
    /// The push may have had an effect.
    InDoubt(String),
}

#[derive(Clone, Debug)]
struct Push {
    process: u64,
    start: Duration,
    end: Option<(Duration, Outcome)>,
}

/// A server and a key.
type Place = (usize, usize);

/// What the processes did, what the servers did, and what went wrong.
#[derive(Debug)]
pub(super) struct History {
    num_servers: usize,
    min: usize,
    late: LatePush,
    /// The slots of the processes, which are numbered from 1.
    processes: Vec<usize>,
    num_runs: u64,
    pushes: BTreeMap<usize, Push>,
    /// The pushes of each sum, in the order of the sums of each part.
    effects: BTreeMap<Place, Vec<BTreeSet<usize>>>,
    /// The number of sums of each part that a process has seen.
    seen: HashMap<(u64, Place), usize>,
    has_lost_server: bool,
    violation: Option<String>,
}

impl History {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            num_servers: schedule.num_servers,
            min: schedule.min,
            late: schedule.late,
            processes: Vec::new(),
            num_runs: 0,
            pushes: BTreeMap::new(),
            effects: BTreeMap::new(),
            seen: HashMap::new(),
            has_lost_server: false,
            violation: None,
        }
    }

    pub(super) fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    /// Returns the number of a new process.
    pub(super) fn begin_process(&mut self, slot: usize) -> u64 {
        self.processes.push(slot);
        self.processes.len() as u64
    }

    /// Returns the number of a new run of a server.
    pub(super) fn begin_run(&mut self) -> u64 {
        self.num_runs += 1;
        self.num_runs
    }

    /// Records that a server loses its contents.
    pub(super) fn lose_server(&mut self) {
        self.has_lost_server = true;
    }

    pub(super) fn has_lost_server(&self) -> bool {
        self.has_lost_server
    }

    /// Returns the element of a new push.
    pub(super) fn begin_push(&mut self, process: u64, start: Duration) -> usize {
        let element = self.pushes.len() + 1;
        assert!(element < PART, "more pushes than elements");
        self.pushes.insert(element, Push { process, start, end: None });
        element
    }

    fn slot(&self, element: usize) -> usize {
        let process = self.pushes.get(&element).map_or(1, |push| push.process);
        self.processes[usize::try_from(process).unwrap() - 1]
    }

    fn servers_of(&self, key: usize) -> Vec<usize> {
        let home = home(self::key(key).as_str(), self.num_servers);
        if is_divided(key) { (0..self.num_servers).collect() } else { vec![home] }
    }

    /// Returns the pushes that a part has in a sum with this one.
    fn sum_with(&self, place: Place, element: usize) -> Option<&BTreeSet<usize>> {
        self.effects.get(&place)?.iter().find(|sum| sum.contains(&element))
    }

    fn places(&self) -> Vec<Place> {
        let of_key = |key| self.servers_of(key).into_iter().map(move |server| (server, key));
        (0..KEYS).flat_map(of_key).collect()
    }

    /// Records the sum of a round that a server applies to a part.
    pub(super) fn take_effect(&mut self, place: Place, sum: &[f32]) {
        let pushes = sum.iter().enumerate().skip(1).filter(|(_, found)| **found != 0.0);
        let pushes: BTreeSet<usize> = pushes.map(|(element, _)| element).collect();
        if let Err(text) = self.check_sum(place, &pushes, sum) {
            self.violate(format!("key {} on server {}: {text}", place.1, place.0));
        }
        let sums = self.effects.entry(place).or_default();
        sums.push(pushes.clone());
        let count = sums.len();
        for element in pushes {
            let process = self.pushes.get(&element).map_or(1, |push| push.process);
            self.seen.insert((process, place), count);
        }
    }

    fn check_sum(
        &self,
        place: Place,
        pushes: &BTreeSet<usize>,
        sum: &[f32],
    ) -> std::result::Result<(), String> {
        let mut members: Vec<_> =
            pushes.iter().map(|element| (name(self.slot(*element)), *element)).collect();
        members.sort_unstable();
        if members.len() < self.min {
            return Err(format!("members {members:?} are fewer than {}", self.min));
        }
        if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("members {twice:?} have one name"));
        }
        if let Some(twice) =
            pushes.iter().find(|element| sum[**element].to_bits() != 1.0_f32.to_bits())
        {
            return Err(format!("push {twice} is several times in a sum"));
        }
        let marks = members.iter().map(|(_, element)| mark(*element));
        let expected = marks.reduce(|left, right| left + right).unwrap_or_default();
        if expected.to_bits() != sum[0].to_bits() {
            return Err(format!("{members:?} was not folded in this order"));
        }
        for element in pushes {
            if self.sum_with(place, *element).is_some() {
                return Err(format!("push {element} took effect twice"));
            }
            let others = self.effects.keys().filter_map(|other| self.sum_with(*other, *element));
            if let Some(other) = others.into_iter().find(|other| *other != pushes) {
                return Err(format!("members {pushes:?}, but elsewhere {other:?}"));
            }
            if let Some((_, Outcome::Failed(reason))) =
                self.pushes.get(element).and_then(|push| push.end.as_ref())
            {
                return Err(format!("push {element} took effect after it had failed: {reason}"));
            }
            let process = self.pushes.get(element).map_or(1, |push| push.process);
            let seen = self.seen.get(&(process, place));
            let count = self.effects.get(&place).map_or(0, Vec::len);
            if self.late == LatePush::Reject
                && !self.has_lost_server
                && seen.is_some_and(|seen| *seen < count)
            {
                return Err(format!("push {element} is late"));
            }
        }
        Ok(())
    }

    /// Records the end of a push, and checks it.
    pub(super) fn end_push(&mut self, element: usize, time: Duration, result: &Result<()>) {
        let outcome = match result {
            Ok(()) => Outcome::Acknowledged,
            Err(error) => {
                let text = error.chain();
                let in_doubt = ["it is not known whether", "during the commit", "meanwhile"];
                if in_doubt.iter().any(|reason| text.contains(reason)) {
                    Outcome::InDoubt(text)
                } else {
                    Outcome::Failed(text)
                }
            }
        };
        let has = |place: &Place| self.sum_with(*place, element).is_some();
        let missing = self.places().into_iter().find(|place| !has(place));
        let found = self.places().into_iter().find(has);
        match (&outcome, missing, found) {
            (Outcome::Acknowledged, Some(place), _) => {
                self.violate(format!("push {element} is acknowledged, but not in {place:?}"));
            }
            (Outcome::Failed(reason), _, Some(place)) => {
                self.violate(format!("push {element} failed, but is in {place:?}: {reason}"));
            }
            _ => {}
        }
        if let Some(push) = self.pushes.get_mut(&element) {
            push.end = Some((time, outcome));
        }
    }

    /// Records how many sums a process has seen in values that it has pulled.
    pub(super) fn pulled(&mut self, process: u64, values: impl Iterator<Item = Vec<f32>>) {
        for (key, value) in values.enumerate() {
            for (server, part) in self.servers_of(key).into_iter().zip(value.chunks(PART)) {
                let place = (server, key);
                let sums = self.effects.get(&place).into_iter().flatten();
                let is_seen =
                    |sum: &&BTreeSet<usize>| sum.iter().all(|element| part[*element] != 0.0);
                let count = sums.filter(is_seen).count();
                let known = self.seen.entry((process, place)).or_default();
                *known = count.max(*known);
            }
        }
    }

    /// Records that a process may have seen all sums.
    pub(super) fn pulled_in_part(&mut self, process: u64) {
        for (place, sums) in &self.effects {
            self.seen.insert((process, *place), sums.len());
        }
    }

    /// Checks that all servers have applied the same pushes.
    pub(super) fn check_final(&mut self) {
        if self.has_lost_server {
            return;
        }
        let pushes: Vec<usize> = self.pushes.keys().copied().collect();
        for element in pushes {
            let places = self.places();
            let count = places.iter().filter(|at| self.sum_with(**at, element).is_some()).count();
            if count != 0 && count != places.len() {
                let all = places.len();
                self.violate(format!("push {element} is in {count} of {all} parts"));
            }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (element, Push { process, start, end }) in &self.pushes {
            let (start, name) = (start.as_millis(), name(self.slot(*element)));
            write!(f, "{start:5} ms: push {element} of process {process} (`{name}`): ")?;
            match end {
                None => writeln!(f, "never ends")?,
                Some((end, outcome)) => writeln!(f, "{} ms, {outcome:?}", end.as_millis())?,
            }
        }
        for ((server, key), sums) in &self.effects {
            writeln!(f, "key {key} on server {server}: {sums:?}")?;
        }
        Ok(())
    }
}

impl Checked for History {
    fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    fn count(&self, outcomes: &mut BTreeMap<String, usize>) {
        let mut add = |what: &str, num| *outcomes.entry(what.to_owned()).or_default() += num;
        for push in self.pushes.values() {
            add(
                match &push.end {
                    None => "push without an end",
                    Some((_, Outcome::Acknowledged)) => "push acknowledged",
                    Some((_, Outcome::Failed(_))) => "push failed",
                    Some((_, Outcome::InDoubt(_))) => "push in doubt",
                },
                1,
            );
        }
        let first = || self.effects.values().next().into_iter().flatten();
        add("process", self.processes.len());
        add("run of a server", usize::try_from(self.num_runs).unwrap());
        add("round", first().count());
        add("round with several members", first().filter(|sum| sum.len() > 1).count());
    }
}

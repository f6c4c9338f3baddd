//! [`History`]: what the processes of a simulation did, and whether the server kept its promises.

use std::collections::HashMap;
use std::time::Duration;

use kvstore_core::Error;

use super::schedule::{STEP, Schedule};
use crate::server::group::seen::Seen;

/// The number of elements of the value: the run of the server, and one for each push.
pub(super) const NUM_ELEMENTS: usize = 192;

/// Returns a number whose sums in different orders differ.
pub(super) fn mark(element: usize) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let element = element as f32;
    1000.7 / element - element * 0.3
}

/// How long after the last event the group may take to recover.
const RECOVERY: Duration = Duration::from_secs(1);

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Adds 1 to an element that no other push changes.
    Push {
        element: usize,
    },
    Pull {
        staleness: Option<u64>,
    },
    Versions,
    Barrier,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Acknowledged,
    /// The call had no effect, and never will have one.
    Failed(String),
    /// The call may have had an effect.
    InDoubt(String),
}

/// A moment of a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) time: Duration,
    /// The newest run of the server, from 1.
    pub(super) run: usize,
    /// The number of pushes that this run has made.
    num_effects: usize,
    /// The number of observations of the group.
    pub(super) num_seen: usize,
    /// The number of calls that have begun.
    num_calls: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) process: u64,
    pub(super) kind: Kind,
    pub(super) start: Moment,
    /// Whether the process had joined in this run of the server.
    is_member: bool,
    pub(super) end: Option<(Moment, Outcome)>,
}

/// What a call that reads has returned.
#[derive(Debug)]
pub(super) enum Reply {
    Nothing,
    Value(Vec<f32>),
    Version(u64),
}

/// What the processes did, what the server did, and what went wrong.
#[derive(Debug)]
pub(super) struct History {
    timeout: Duration,
    /// Whether pushes wait for those of other workers.
    has_rounds: bool,
    /// When the last event happens.
    quiet: Duration,
    /// The names of the processes, which are numbered from 1.
    pub(super) processes: Vec<&'static str>,
    pub(super) calls: Vec<Call>,
    num_pushes: usize,
    /// The pushed elements in the order in which each run of the server has added them.
    pub(super) effects: Vec<Vec<usize>>,
    /// The elements of the rounds of the current run of the server.
    pub(super) rounds: Vec<Vec<usize>>,
    /// The number of rounds that each process has seen in this run.
    pub(super) seen_rounds: HashMap<u64, usize>,
    /// The effects since the last observation.
    pub(super) new_effects: Vec<usize>,
    /// The bounded pulls that have ended since the last observation.
    pub(super) new_pulls: Vec<usize>,
    /// The observations of the group, one after each step, with the run of the server.
    pub(super) seen: Vec<(usize, Seen)>,
    /// The incarnations of the processes in this run.
    pub(super) incarnations: HashMap<u64, u64>,
    /// Whether the server accepts no further calls in this run.
    is_draining: bool,
    pub(super) violation: Option<String>,
}

impl History {
    pub(super) fn new(schedule: &Schedule, quiet: Duration) -> Self {
        Self {
            timeout: schedule.timeout,
            has_rounds: schedule.rounds.is_some(),
            quiet,
            processes: Vec::new(),
            calls: Vec::new(),
            num_pushes: 0,
            effects: Vec::new(),
            rounds: Vec::new(),
            seen_rounds: HashMap::new(),
            new_effects: Vec::new(),
            new_pulls: Vec::new(),
            seen: Vec::new(),
            incarnations: HashMap::new(),
            is_draining: false,
            violation: None,
        }
    }

    pub(super) fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    /// Returns the number of a new process.
    pub(super) fn begin_process(&mut self, name: &'static str) -> u64 {
        self.processes.push(name);
        self.processes.len() as u64
    }

    /// Returns the number of a new run of the server.
    pub(super) fn begin_run(&mut self) -> usize {
        self.effects.push(Vec::new());
        self.incarnations.clear();
        self.rounds.clear();
        self.seen_rounds.clear();
        self.is_draining = false;
        self.effects.len()
    }

    /// Records that the server accepts no further calls in this run.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Returns the element of a new push.
    pub(super) fn begin_push(&mut self) -> usize {
        self.num_pushes += 1;
        assert!(self.num_pushes < NUM_ELEMENTS, "more pushes than elements");
        self.num_pushes
    }

    fn now(&self, time: Duration) -> Moment {
        let num_effects = self.effects.last().map_or(0, Vec::len);
        Moment {
            time,
            run: self.effects.len(),
            num_effects,
            num_seen: self.seen.len(),
            num_calls: self.calls.len(),
        }
    }

    /// Records the start of a call, and returns its number.
    pub(super) fn begin(&mut self, process: u64, kind: Kind, time: Duration) -> usize {
        let is_member = self.incarnations.contains_key(&process);
        self.calls.push(Call { process, kind, start: self.now(time), is_member, end: None });
        self.calls.len() - 1
    }

    pub(super) fn name(&self, process: u64) -> &'static str {
        self.processes[usize::try_from(process).unwrap() - 1]
    }

    /// Returns whether a later process has had the name of this one in this run of the server.
    pub(super) fn is_replaced(&self, process: u64) -> bool {
        self.is_replaced_since(process, self.incarnations.get(&process).copied().unwrap_or(0))
    }

    /// Returns whether another process has had the name of this one after this incarnation.
    pub(super) fn is_replaced_since(&self, process: u64, incarnation: u64) -> bool {
        self.incarnations.iter().any(|(other, later)| {
            *other != process && self.name(*other) == self.name(process) && *later > incarnation
        })
    }

    /// Returns the process that has had a name since before a call began, if there is one.
    fn holder_since(&self, call: &Call) -> Option<u64> {
        let name = self.name(call.process);
        let seen = self.seen.get(call.start.num_seen.checked_sub(1)?..)?;
        let mut holders = seen.iter().map(|(run, seen)| {
            let worker = seen.worker(name)?;
            (*run == self.effects.len()).then_some((worker.process, worker.incarnation))
        });
        let first = holders.next()??;
        holders.all(|holder| holder == Some(first)).then_some(first.0)
    }

    /// Records an effect of a push in the current run of the server.
    pub(super) fn took_effect(&mut self, element: usize) {
        let is_this = |call: &Call| call.kind == Kind::Push { element };
        let Some(number) = self.calls.iter().position(is_this) else {
            return self.violate(format!("push {element} took effect, but was not called"));
        };
        if let Some((_, Outcome::Failed(reason))) = &self.calls[number].end {
            let text = format!("push {element} took effect after it had failed: {reason}");
            return self.violate(text);
        }
        if let Some(later) = self.overtaking(number) {
            let text = format!("push {element} took effect after {:?}, a later call", later.kind);
            return self.violate(text);
        }
        if self.effects.iter().flatten().any(|other| *other == element) {
            return self.violate(format!("push {element} took effect twice"));
        }
        self.effects.last_mut().unwrap().push(element);
        self.new_effects.push(element);
    }

    /// Returns a call that its process began after the end of this one, and that the server has
    /// made.
    fn overtaking(&self, number: usize) -> Option<&Call> {
        let (ended, _) = self.calls[number].end.as_ref()?;
        let process = self.calls[number].process;
        self.calls[ended.num_calls..].iter().find(|later| {
            let is_made = match (later.kind, &later.end) {
                (Kind::Push { element }, _) => self.had_effect(element),
                (_, Some((_, Outcome::Acknowledged))) => true,
                (_, _) => false,
            };
            later.process == process && is_made
        })
    }

    fn had_effect(&self, element: usize) -> bool {
        self.effects.iter().flatten().any(|other| *other == element)
    }

    /// Records the end of a call, and checks it.
    pub(super) fn end(&mut self, number: usize, time: Duration, result: Result<Reply, &Error>) {
        let end = self.now(time);
        let call = self.calls[number].clone();
        let (outcome, reply) = match result {
            Ok(reply) => (Outcome::Acknowledged, reply),
            Err(error) => {
                let text = error.chain();
                let is_in_doubt = text.contains("it is not known whether the call took effect");
                let failed = if is_in_doubt { Outcome::InDoubt } else { Outcome::Failed };
                (failed(text), Reply::Nothing)
            }
        };
        if let Err(text) = self.check_end(&call, end, &outcome, &reply) {
            let name = self.name(call.process);
            let process = call.process;
            self.violate(format!("{:?} of process {process} (`{name}`): {text}", call.kind));
        }
        self.see_rounds(&call, &outcome, &reply);
        if let (Kind::Pull { staleness: Some(_) }, Outcome::Acknowledged) = (call.kind, &outcome) {
            self.new_pulls.push(number);
        }
        self.calls[number].end = Some((end, outcome));
    }

    fn check_end(
        &self,
        call: &Call,
        end: Moment,
        outcome: &Outcome,
        reply: &Reply,
    ) -> Result<(), String> {
        match outcome {
            Outcome::Acknowledged => {
                let holder = self.holder_since(call);
                if let Some(holder) = holder.filter(|holder| *holder != call.process) {
                    return Err(format!("accepted although process {holder} has the name"));
                }
            }
            Outcome::Failed(reason) | Outcome::InDoubt(reason) => {
                self.check_failure(call, end, reason)?;
            }
        }
        match (call.kind, outcome) {
            (Kind::Push { element }, Outcome::Acknowledged) if !self.had_effect(element) => {
                Err("acknowledged without an effect".to_owned())
            }
            (Kind::Push { element }, Outcome::Failed(reason)) if self.had_effect(element) => {
                Err(format!("took effect, but failed: {reason}"))
            }
            _ => match reply {
                Reply::Nothing => Ok(()),
                Reply::Value(value) => self.check_value(call, value),
                Reply::Version(version) => self.check_version(call, *version),
            },
        }
    }

    /// Checks that a call that failed had a reason: its time was over, the server ended or had
    /// restarted, or a later process had the name.
    fn check_failure(&self, call: &Call, end: Moment, reason: &str) -> Result<(), String> {
        let has_ended = end.run != call.start.run || !call.is_member || self.is_draining;
        if has_ended || self.is_replaced(call.process) {
            return Ok(());
        }
        let waits = match call.kind {
            Kind::Barrier | Kind::Pull { staleness: Some(_) } => true,
            Kind::Push { .. } => self.has_rounds,
            _ => false,
        };
        if self.has_rounds && reason.contains("the current round is") {
            return Ok(());
        }
        let (start, waited) = (call.start.time, end.time.saturating_sub(call.start.time));
        if start > self.quiet + RECOVERY && !waits {
            return Err(format!("failed after the last event: {reason}"));
        }
        if waited + 2 * STEP < self.timeout {
            return Err(format!("failed after {waited:?} without a reason: {reason}"));
        }
        Ok(())
    }

    /// Checks that a pulled value is the sum of the first pushes of a run, among them all that had
    /// taken effect when the pull began.
    fn check_value(&self, call: &Call, value: &[f32]) -> Result<(), String> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small run")]
        let run = value[0] as usize;
        if run < call.start.run || run > self.effects.len() {
            return Err(format!("pulled from run {run} after run {}", call.start.run));
        }
        let effects = &self.effects[run - 1];
        if let Some(element) = (1..value.len()).find(|element| {
            let pushed = effects.contains(element);
            value[*element] != 0.0 && (value[*element] != 1.0 || !pushed)
        }) {
            return Err(format!("pulled {} of push {element}", value[element]));
        }
        let num_pulled = value[1..].iter().filter(|element| **element != 0.0).count();
        if let Some(missing) = effects[..num_pulled].iter().find(|push| value[**push] == 0.0) {
            return Err(format!("pulled without push {missing}, but with later pushes"));
        }
        let least = if run == call.start.run { call.start.num_effects } else { 0 };
        if num_pulled < least {
            return Err(format!("pulled {num_pulled} pushes after {least} took effect"));
        }
        Ok(())
    }

    fn check_version(&self, call: &Call, version: u64) -> Result<(), String> {
        let (start, most) = (call.start, self.effects.last().map_or(0, Vec::len));
        let is_same_run = start.run == self.effects.len();
        if is_same_run && !(start.num_effects as u64..=most as u64).contains(&version) {
            return Err(format!("version {version} of {} to {most}", start.num_effects));
        }
        Ok(())
    }

    /// Checks the value of the server at the end of the simulation.
    pub(super) fn check_final(&mut self, value: &[f32]) {
        let effects = self.effects.last().cloned().unwrap_or_default();
        for (element, found) in value.iter().enumerate().skip(1) {
            let expected = if effects.contains(&element) { 1.0 } else { 0.0 };
            if *found != expected {
                self.violate(format!("at the end, push {element} is {found}, not {expected}"));
            }
        }
    }
}

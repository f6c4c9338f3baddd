//! The history of a simulation as text.

use std::collections::BTreeMap;
use std::fmt;

use super::checked::Checked;
use super::history::{History, Kind, Outcome};

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for call in &self.calls {
            let (start, run) = (call.start.time.as_millis(), call.start.run);
            let (process, name) = (call.process, self.name(call.process));
            write!(f, "{start:5} ms, run {run}, process {process} (`{name}`): {:?}: ", call.kind)?;
            match &call.end {
                None => writeln!(f, "never ends")?,
                Some((end, Outcome::Acknowledged)) => writeln!(f, "{} ms", end.time.as_millis())?,
                Some((end, outcome)) => writeln!(f, "{} ms, {outcome:?}", end.time.as_millis())?,
            }
        }
        for (run, effects) in (1..).zip(&self.effects) {
            writeln!(f, "pushes of run {run}: {effects:?}")?;
        }
        writeln!(f, "rounds of the last run: {:?}", self.rounds)?;
        let mut last = None;
        for (step, (run, seen)) in self.seen.iter().enumerate() {
            if last != Some((*run, seen.num_changes, seen.round)) {
                last = Some((*run, seen.num_changes, seen.round));
                write!(f, "observation {step}, run {run}, barrier {}: ", seen.round)?;
                for worker in &seen.workers {
                    write!(f, "`{}` is process {}, ", worker.name, worker.process)?;
                }
                writeln!(f, "change {}", seen.num_changes)?;
            }
        }
        Ok(())
    }
}

impl Checked for History {
    fn violation(&self) -> Option<&String> {
        self.violation.as_ref()
    }

    fn count(&self, outcomes: &mut BTreeMap<String, usize>) {
        for call in &self.calls {
            let kind = match call.kind {
                Kind::Push { .. } => "push",
                Kind::Pull { staleness: None } => "pull",
                Kind::Pull { staleness: Some(_) } => "bounded pull",
                Kind::Versions => "versions",
                Kind::Barrier => "barrier",
            };
            let end = match &call.end {
                None => "without an end",
                Some((_, Outcome::Acknowledged)) => "acknowledged",
                Some((_, Outcome::Failed(_))) => "failed",
                Some((_, Outcome::InDoubt(_))) => "in doubt",
            };
            *outcomes.entry(format!("{kind} {end}")).or_default() += 1;
        }
        let mut add = |what: &str, num| *outcomes.entry(what.to_owned()).or_default() += num;
        add("process", self.processes.len());
        add("run of the server", self.effects.len());
        add("round of the last run", self.rounds.len());
        add(
            "round with several members",
            self.rounds.iter().filter(|round| round.len() > 1).count(),
        );
        // Each run of the server counts from 0.
        let repeated = self.seen.iter().map(|(run, seen)| (run, seen.num_repeated));
        add("repeated call", repeated.collect::<BTreeMap<_, _>>().into_values().sum());
    }
}

//! The checks after each step, of what the simulation sees inside the server.

use super::history::{History, Kind, Outcome};
use crate::server::group::seen::{Seen, SeenWorker};

impl Seen {
    /// Returns the live worker of a name.
    pub(super) fn worker(&self, name: &str) -> Option<&SeenWorker> {
        self.workers.iter().find(|worker| worker.name == name)
    }

    /// Returns a worker if it is the same incarnation in a later observation.
    fn same(&self, worker: &SeenWorker) -> Option<&SeenWorker> {
        self.worker(&worker.name).filter(|later| later.incarnation == worker.incarnation)
    }
}

impl History {
    /// Records what the simulation sees of the group in the current run of the server, and checks
    /// it.
    pub(super) fn see(&mut self, seen: Seen) {
        for (process, incarnation) in &seen.processes {
            let earlier = self.incarnations.insert(*process, *incarnation);
            let name = self.name(*process);
            if earlier.is_some_and(|earlier| self.is_replaced_since(*process, earlier)) {
                self.violate(format!("process {process} gets the name `{name}` back"));
            }
        }
        let run = self.effects.len();
        let before = self.seen.last().filter(|(earlier, _)| *earlier == run).cloned();
        if let Some((_, before)) = before {
            for check in [Self::check_fence, Self::check_barrier, Self::check_clocks] {
                if let Err(text) = check(self, &before, &seen) {
                    self.violate(text);
                }
            }
        }
        self.seen.push((run, seen));
        for pull in std::mem::take(&mut self.new_pulls) {
            if let Err(text) = self.check_staleness(pull) {
                self.violate(text);
            }
        }
        self.new_effects.clear();
    }

    /// Returns the process that has made a push.
    pub(super) fn pusher(&self, element: usize) -> u64 {
        let is_this = |kind: Kind| kind == Kind::Push { element };
        self.calls.iter().find(|call| is_this(call.kind)).map_or(0, |call| call.process)
    }

    /// A push of a process takes no effect while another process has the name.
    fn check_fence(&self, before: &Seen, after: &Seen) -> Result<(), String> {
        for element in &self.new_effects {
            let process = self.pusher(*element);
            let name = self.name(process);
            let holder = before.worker(name).and_then(|worker| after.same(worker));
            if let Some(holder) = holder.filter(|holder| holder.process != process) {
                let holder = holder.process;
                return Err(format!(
                    "push {element} of process {process} took effect although process {holder} \
                     has the name `{name}`"
                ));
            }
        }
        Ok(())
    }

    /// A barrier is passed when each live worker has called it.
    fn check_barrier(&self, before: &Seen, after: &Seen) -> Result<(), String> {
        // A worker may have been dead in the meantime if there are two changes.
        if after.round == before.round || after.num_changes > before.num_changes + 1 {
            return Ok(());
        }
        for worker in before.workers.iter().filter(|worker| after.same(worker).is_some()) {
            let has_arrived = self.calls.iter().any(|call| {
                // The server may still make a call that is in doubt.
                let is_open = matches!(call.end, None | Some((_, Outcome::InDoubt(_))));
                call.process == worker.process && call.kind == Kind::Barrier && is_open
            });
            if !has_arrived {
                let (round, name) = (after.round, &worker.name);
                return Err(format!("barrier {round} was passed without `{name}`, which is live"));
            }
        }
        Ok(())
    }

    /// The clock of a worker counts its pushes.
    fn check_clocks(&self, before: &Seen, after: &Seen) -> Result<(), String> {
        for worker in &before.workers {
            let Some(later) = after.same(worker) else { continue };
            let is_own = |element: &&usize| self.name(self.pusher(**element)) == worker.name;
            let expected = worker.clock + self.new_effects.iter().filter(is_own).count() as u64;
            let is_right = if before.num_changes == after.num_changes {
                later.clock == expected
            } else {
                // The clock of a worker that becomes live is raised.
                later.clock >= expected
            };
            if !is_right {
                let (name, clock) = (&worker.name, later.clock);
                return Err(format!("the clock of `{name}` is {clock}, not {expected}"));
            }
        }
        Ok(())
    }

    /// A bounded pull ends when no live worker is too far behind the caller.
    fn check_staleness(&self, pull: usize) -> Result<(), String> {
        let call = &self.calls[pull];
        let Kind::Pull { staleness: Some(staleness) } = call.kind else { return Ok(()) };
        let Some(start) = call.start.num_seen.checked_sub(1) else { return Ok(()) };
        let (run, first) = &self.seen[start];
        let rest = &self.seen[start + 1..];
        let Some(own) = first.workers.iter().find(|worker| worker.process == call.process) else {
            return Ok(());
        };
        let mut num_changes = first.num_changes;
        for (later, seen) in rest {
            // A worker may have been dead in the meantime if there are two changes.
            if later != run || seen.num_changes > num_changes + 1 || seen.same(own).is_none() {
                return Ok(());
            }
            num_changes = seen.num_changes;
        }
        for other in &first.workers {
            let mut clock = other.clock;
            let is_live = rest.iter().all(|(_, seen)| {
                clock = seen.same(other).map_or(clock, |worker| worker.clock);
                seen.same(other).is_some()
            });
            if is_live && other.name != own.name && clock + staleness < own.clock {
                let (own, name) = (own.clock, &other.name);
                return Err(format!(
                    "process {} pulled at clock {own} with staleness {staleness}, but the clock of \
                     `{name}` is {clock}",
                    call.process
                ));
            }
        }
        Ok(())
    }
}

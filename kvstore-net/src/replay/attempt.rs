//! [`Refold`]: adds up the pushes of a round again.

use std::mem;

use kvstore_core::{Backends, Error, Key, Result, Value, fallible};

use crate::journal::heads::{Attempt, Participant};
use crate::proto;
use crate::server::rounds::sums::{self, Step};
use crate::server::verbs;
use crate::wire::{IncomingValues, Receiver, to_compression};

/// An attempt to add up the pushes of a round. Like a server, it holds the sums and the data of one
/// step.
pub(super) struct Refold {
    members: Vec<Member>,
    steps: Vec<Step>,
    /// The index of the present step.
    step: usize,
    /// The number of members whose data of this step are missing.
    num_waiting: usize,
    sums: Vec<Value>,
}

struct Member {
    participant: Participant,
    push: proto::Push,
    receiver: Receiver,
    /// Data of later steps. A server writes none, if its steps are those of this library.
    early: Vec<u8>,
}

impl Member {
    fn take(&mut self, data: &[u8]) -> Result<()> {
        let (now, later) = data.split_at(data.len().min(self.receiver.num_missing()));
        self.receiver.take(now)?;
        fallible::extend(&mut self.early, later)
    }
}

fn corrupt(reason: String) -> Error {
    Error::Corrupt { subject: "the pushes of a round".to_owned(), reason }
}

fn pushes_of(members: &[Member]) -> Result<Vec<&proto::Push>> {
    fallible::collect(members.iter().map(|member| &member.push))
}

impl Refold {
    /// Begins an attempt. `most_bytes` follow in the journal.
    pub(super) fn new(backends: &Backends, attempt: Attempt, most_bytes: u64) -> Result<Self> {
        let mut members = fallible::with_capacity(attempt.members.len())?;
        for member in attempt.members {
            let participant = member.participant.unwrap_or_default();
            let push = member.push.unwrap_or_default();
            let (receiver, early) = (Receiver::default(), Vec::new());
            members.push(Member { participant, push, receiver, early });
        }
        let pushes = pushes_of(&members)?;
        let check = |num_bytes: usize| {
            let is_there = u64::try_from(num_bytes).is_ok_and(|num_bytes| num_bytes <= most_bytes);
            let text = || corrupt(format!("expected {num_bytes} bytes, {most_bytes} follow"));
            is_there.then_some(()).ok_or_else(text)
        };
        // Before memory is allocated, also for the steps.
        if let Some(first) = pushes.first() {
            let compression = first.compression.as_ref().map_or(Ok(None), to_compression)?;
            check(IncomingValues::new(&first.values, compression.as_ref())?.num_bytes()?)?;
        }
        let steps = sums::steps(&pushes)?;
        let mut num_bytes = 0_usize;
        for step in &steps {
            for push in &pushes {
                num_bytes = num_bytes.saturating_add(sums::incoming(push, step)?.num_bytes()?);
            }
        }
        check(num_bytes)?;
        let (step, num_waiting, sums) = (0, 0, Vec::new());
        let mut refold = Self { members, steps, step, num_waiting, sums };
        refold.begin_step(backends)?;
        refold.advance(backends)?;
        Ok(refold)
    }

    /// Adds data of a member.
    pub(super) fn take(&mut self, backends: &Backends, member: u32, data: &[u8]) -> Result<()> {
        let index = usize::try_from(member).unwrap_or(usize::MAX);
        let found = self.members.get_mut(index);
        let member = found.ok_or_else(|| corrupt(format!("member {member} is missing")))?;
        let was_waiting = member.receiver.is_waiting();
        member.take(data)?;
        self.num_waiting -= usize::from(was_waiting && !member.receiver.is_waiting());
        self.advance(backends)
    }

    fn begin_step(&mut self, backends: &Backends) -> Result<()> {
        let Some(step) = self.steps.get(self.step) else { return Ok(()) };
        for member in &mut self.members {
            member.receiver = Receiver::new(backends, sums::incoming(&member.push, step)?)?;
            let early = mem::take(&mut member.early);
            member.take(&early)?;
            self.num_waiting += usize::from(member.receiver.is_waiting());
        }
        Ok(())
    }

    /// Adds up the steps whose data are complete.
    fn advance(&mut self, backends: &Backends) -> Result<()> {
        while self.num_waiting == 0
            && let Some(step) = self.steps.get(self.step)
        {
            let mut values = fallible::with_capacity(self.members.len())?;
            for member in &mut self.members {
                let receiver = mem::take(&mut member.receiver);
                values.push(sums::values(backends, &member.push, step, receiver)?);
            }
            let heads = self.members.first().map_or(&[][..], |first| &first.push.values);
            sums::add(backends, heads, &mut self.sums, step, values)?;
            self.step += 1;
            self.begin_step(backends)?;
        }
        Ok(())
    }

    /// Returns the keys and their sums.
    pub(super) fn finish(self, participants: &[Participant]) -> Result<(Vec<Key>, Vec<Value>)> {
        if !self.members.iter().map(|member| &member.participant).eq(participants) {
            return Err(corrupt("the members of the push are others".to_owned()));
        }
        if self.step < self.steps.len() {
            return Err(corrupt("data are missing".to_owned()));
        }
        if self.members.iter().any(|member| !member.early.is_empty()) {
            return Err(corrupt("there are more data than elements".to_owned()));
        }
        let pushes = pushes_of(&self.members)?;
        let keys = pushes.first().map_or(Ok(Vec::new()), |first| verbs::keys_in(&first.values))?;
        Ok((keys, sums::finish(&pushes, self.sums)?))
    }
}

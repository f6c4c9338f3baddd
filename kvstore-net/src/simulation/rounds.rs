//! The checks of rounds.

use super::history::{Call, History, Outcome, Reply, mark};
use crate::proto;

impl History {
    /// Records which pushes took effect together in the current run of the server, and checks the
    /// sum of their marks.
    pub(super) fn took_effect_together(
        &mut self,
        elements: &[usize],
        sum: f32,
        round: &proto::RoundPush,
    ) {
        if let Err(text) = self.check_round(elements, sum, round) {
            self.violate(format!("round {}: {text}", self.rounds.len() + 1));
        }
        self.rounds.push(elements.to_vec());
        for element in elements {
            self.seen_rounds.insert(self.pusher(*element), self.rounds.len());
        }
    }

    fn check_round(
        &self,
        elements: &[usize],
        sum: f32,
        round: &proto::RoundPush,
    ) -> Result<(), String> {
        let process = |element: &usize| self.pusher(*element);
        let mut members: Vec<(&str, usize)> =
            elements.iter().map(|element| (self.name(process(element)), *element)).collect();
        members.sort_unstable();
        if (members.len() as u64) < round.min {
            return Err(format!("{members:?} are fewer than {}", round.min));
        }
        if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("it has two pushes of a name: {twice:?}"));
        }
        let expected = members.iter().map(|(_, element)| mark(*element));
        let expected = expected.reduce(|left, right| left + right).unwrap_or_default();
        if expected.to_bits() != sum.to_bits() {
            return Err(format!("{members:?} was not folded in this order: {expected}, {sum}"));
        }
        if round.late() == proto::LatePush::Reject {
            let is_late = |element: &&usize| {
                let seen = self.seen_rounds.get(&process(element));
                seen.is_some_and(|seen| *seen < self.rounds.len())
            };
            if let Some(late) = elements.iter().find(is_late) {
                return Err(format!("push {late} is late"));
            }
        }
        Ok(())
    }

    /// Records how many rounds a process has seen in a value that it has pulled.
    pub(super) fn see_rounds(&mut self, call: &Call, outcome: &Outcome, reply: &Reply) {
        let Reply::Value(value) = reply else { return };
        if *outcome != Outcome::Acknowledged || call.start.run != self.effects.len() {
            return;
        }
        let is_seen = |round: &&Vec<usize>| round.iter().all(|push| value[*push] != 0.0);
        let seen = self.rounds.iter().filter(is_seen).count();
        let known = self.seen_rounds.entry(call.process).or_default();
        *known = seen.max(*known);
    }
}

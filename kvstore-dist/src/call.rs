//! [`Call`]: which call of a collective it is. It travels with every message, so that ranks which do different things
//! hear of it, and do not take each other's bytes for something else.

use std::fmt;

use crate::collective::Wait;
use crate::fault::Fault;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Open,
    Barrier,
    Broadcast,
    AllToAll,
    AllGather,
    Finalize,
}

impl Verb {
    const ALL: [Self; 6] = [
        Self::Open,
        Self::Barrier,
        Self::Broadcast,
        Self::AllToAll,
        Self::AllGather,
        Self::Finalize,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all_to_all",
            Self::AllGather => "all_gather",
            Self::Finalize => "finalize",
        }
    }
}

/// A call by verb and number, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    verb: Verb,
    /// Counted from 0; after so many it begins again.
    number: i32,
}

impl Call {
    /// Numbers are below this one. A tag of MPI may be 32767 at least (`MPI_TAG_UB`), and the verb is in it too.
    const NUMBERS: i32 = 4096;

    pub(crate) fn first(verb: Verb) -> Self {
        Self { verb, number: 0 }
    }

    /// Returns the call that comes after this one.
    pub(crate) fn next(self, verb: Verb) -> Self {
        Self { verb, number: (self.number + 1) % Self::NUMBERS }
    }

    /// Returns what messages of this call carry: a number from 0 to 24575.
    pub(crate) fn tag(self) -> i32 {
        let verb = Verb::ALL.iter().zip(0..).find(|(verb, _)| **verb == self.verb);
        verb.map_or(0, |(_, index)| index * Self::NUMBERS) + self.number
    }

    /// Returns the call whose messages carry this, if there is one.
    pub(crate) fn of_tag(tag: i32) -> Option<Self> {
        let verb = Verb::ALL.get(usize::try_from(tag / Self::NUMBERS).ok()?)?;
        (tag >= 0).then_some(Self { verb: *verb, number: tag % Self::NUMBERS })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {})", self.verb.name(), self.number)
    }
}

/// Who does what, for texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) call: Call,
    pub(crate) wait: &'a Wait<'a>,
}

impl Place<'_> {
    /// Compares what came with what was to come.
    pub(crate) fn check(
        &self,
        peer: usize,
        call: Option<Call>,
        (expected, found): (usize, usize),
    ) -> Result<(), Fault> {
        if call != Some(self.call) {
            let what = call.map_or_else(|| "something else".to_owned(), |call| call.to_string());
            return Err(Fault::Diverged(format!("{self}: rank {peer} is in {what}")));
        }
        if expected != found {
            let what = format!("{self}: bytes from rank {peer}");
            return Err(Fault::WrongLength { what, expected, found });
        }
        Ok(())
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (subject, rank, size) = (self.wait.subject(), self.rank, self.size);
        write!(f, "{subject}: rank {rank} of {size} in {}", self.call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_which_call_it_is() {
        let mut call = Call::first(Verb::Finalize);
        for number in 0..5000 {
            assert!((0..32_767).contains(&call.tag()));
            assert_eq!(Call::of_tag(call.tag()), Some(call));
            assert_eq!(call.number, number % Call::NUMBERS);
            call = call.next(Verb::ALL[usize::try_from(number).unwrap() % 6]);
        }
        assert_eq!([-1, 6 * Call::NUMBERS].map(Call::of_tag), [None; 2]);
    }
}

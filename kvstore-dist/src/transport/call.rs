//! [`Call`]: the identity of a call of a collective. Every message carries it, so that ranks in
//! different calls are detected before one reads the other's bytes.

use std::fmt;

use super::collective::Wait;
use super::fault::Fault;

/// The verb of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The start of the collective.
    Open,
    /// [`Collective::barrier`](super::Collective::barrier)
    Barrier,
    /// [`Collective::broadcast`](super::Collective::broadcast)
    Broadcast,
    /// [`Collective::all_to_all`](super::Collective::all_to_all)
    AllToAll,
    /// [`Collective::all_gather`](super::Collective::all_gather)
    AllGather,
    /// The end of the collective.
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

/// The verb and the number of a call. Both are the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    verb: Verb,
    /// The number of the call, modulo `NUMBERS`.
    number: i32,
}

impl Call {
    /// The upper bound of call numbers. A tag also contains the verb, and MPI guarantees tags only
    /// up to 32767 (`MPI_TAG_UB`).
    const NUMBERS: i32 = 4096;

    /// Returns the first call of a collective.
    pub fn first(verb: Verb) -> Self {
        Self { verb, number: 0 }
    }

    /// Returns the call after this one.
    #[must_use]
    pub fn next(self, verb: Verb) -> Self {
        Self { verb, number: (self.number + 1) % Self::NUMBERS }
    }

    /// Returns the tag of the messages of this call, a number from 0 to 24575.
    pub fn tag(self) -> i32 {
        let verb = Verb::ALL.iter().zip(0..).find(|(verb, _)| **verb == self.verb);
        verb.map_or(0, |(_, index)| index * Self::NUMBERS) + self.number
    }

    /// Returns the call with this tag, or `None` if no call has it.
    pub fn of_tag(tag: i32) -> Option<Self> {
        let verb = Verb::ALL.get(usize::try_from(tag / Self::NUMBERS).ok()?)?;
        (tag >= 0).then_some(Self { verb: *verb, number: tag % Self::NUMBERS })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {})", self.verb.name(), self.number)
    }
}

/// The place of a call: the rank, the call and its deadline. Used in checks and error messages.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The rank of this member.
    pub rank: usize,
    /// The number of members.
    pub size: usize,
    /// The call.
    pub call: Call,
    /// The subject and the deadline of the call.
    pub wait: &'a Wait<'a>,
}

impl Place<'_> {
    /// Checks a received message: its call, and its number of bytes.
    ///
    /// # Errors
    /// - [`Fault::Diverged`] if the message belongs to another call.
    /// - [`Fault::WrongLength`] if it has another number of bytes.
    pub fn check(
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
    fn a_tag_identifies_its_call() {
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

//! [`Fault`]: why a collective has ended, to be told again at every later call.

use std::fmt::{self, Write as _};

use kvstore_core::Error;

use crate::call::Place;

/// What ended a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The deadline passed.
    Late(String),
    /// Another rank does something else.
    Diverged(String),
    /// Another rank sent so many bytes.
    WrongLength { what: String, expected: usize, found: usize },
    /// The library failed, or a member is gone.
    Failed { operation: String, reason: String },
    /// It was ended.
    Closed(&'static str),
}

impl Fault {
    /// The deadline has passed: bytes of the `silent` are still to come, and the `slow` are still to take theirs.
    pub(crate) fn late(place: &Place<'_>, silent: &[usize], slow: &[usize]) -> Self {
        let mut text = format!("{place} after {:?}", place.wait.timeout());
        // Writing to a text cannot fail.
        if !silent.is_empty() {
            let _ = write!(text, ", still to come from {}", Ranks(silent));
        }
        if !slow.is_empty() {
            let _ = write!(text, ", still to be taken by {}", Ranks(slow));
        }
        Self::Late(text)
    }

    /// Returns the error that says so.
    pub(crate) fn to_error(&self) -> Error {
        match self.clone() {
            Self::Late(text) => Error::Timeout(text),
            Self::Diverged(text) => Error::InvalidArgument(text),
            Self::WrongLength { what, expected, found } => {
                Error::LengthMismatch { what, expected, found }
            }
            Self::Failed { operation, reason } => {
                Error::Transport { operation, source: reason.into() }
            }
            Self::Closed(what) => Error::Closed { what: what.to_owned() },
        }
    }
}

/// Ranks in words: `ranks 1, 2`.
pub(crate) struct Ranks<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 16;
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        for (index, rank) in self.0.iter().take(MOST).enumerate() {
            write!(f, "{}{rank}", if index == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_are_not_all_named() {
        let ranks: Vec<usize> = (0..20).collect();
        assert_eq!(Ranks(&ranks[3..4]).to_string(), "rank 3");
        assert_eq!(Ranks(&ranks[3..5]).to_string(), "ranks 3, 4");
        assert!(Ranks(&ranks).to_string().ends_with(", 15 and 4 more"));
    }
}

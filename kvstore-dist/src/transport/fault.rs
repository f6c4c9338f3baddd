//! [`Fault`]: the reason why a collective ended. Every later call reports it again.

use std::fmt::{self, Write as _};

use kvstore_core::Error;

use super::call::Place;

/// The reason why a collective ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The deadline passed.
    Late(String),
    /// Another rank made another call.
    Diverged(String),
    /// Another rank sent another number of bytes.
    WrongLength {
        /// The call and the sender.
        what: String,
        /// The expected number of bytes.
        expected: usize,
        /// The number of bytes that were sent.
        found: usize,
    },
    /// The library failed, or a member ended.
    Failed {
        /// The operation that failed.
        operation: String,
        /// The reason.
        reason: String,
    },
    /// The collective was closed. The string names the closed object.
    Closed(&'static str),
}

impl Fault {
    /// Returns the fault for a missed deadline. `silent` are the ranks that have not sent all
    /// bytes, `slow` the ranks that have not received all bytes.
    pub fn late(place: &Place<'_>, silent: &[usize], slow: &[usize]) -> Self {
        let mut text = format!("{place} after {:?}", place.wait.timeout());
        // Writing to a string cannot fail.
        if !silent.is_empty() {
            let _ = write!(text, ", waiting for data from {}", Ranks(silent));
        }
        if !slow.is_empty() {
            let _ = write!(text, ", waiting for {} to receive", Ranks(slow));
        }
        Self::Late(text)
    }

    /// Returns the error for the caller.
    pub fn to_error(&self) -> Error {
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

/// Formats a list of ranks, for example as `ranks 1, 2`.
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a>(pub &'a [usize]);

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
    fn a_long_list_of_ranks_is_shortened() {
        let ranks: Vec<usize> = (0..20).collect();
        assert_eq!(Ranks(&ranks[3..4]).to_string(), "rank 3");
        assert_eq!(Ranks(&ranks[3..5]).to_string(), "ranks 3, 4");
        assert!(Ranks(&ranks).to_string().ends_with(", 15 and 4 more"));
    }
}

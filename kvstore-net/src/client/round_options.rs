//! [`RoundOptions`]: how the rounds of a store work.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvstore_core::{Error, Result};

use crate::proto;

/// How long a round waits by default for the workers that have not pushed.
const GRACE: Duration = Duration::from_secs(1);

/// What happens to a push that misses its round: one that is based on values from before the last
/// round, or that arrives after the round has closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePush {
    /// It fails with [`Error::LatePush`].
    #[default]
    Reject,
    /// It belongs to the next round.
    Next,
}

/// How the rounds of a store work.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundOptions {
    pub(super) min: Option<usize>,
    pub(super) grace: Duration,
    pub(super) late: LatePush,
    pub(super) weight: Option<f64>,
}

impl RoundOptions {
    pub(super) const NEW: Self =
        Self { min: None, grace: GRACE, late: LatePush::Reject, weight: None };
}

/// The rounds of a store.
#[derive(Debug)]
pub(super) struct Rounds {
    options: RoundOptions,
    weight: Mutex<Option<f64>>,
}

impl Rounds {
    pub(super) fn new(options: RoundOptions) -> Self {
        Self { options, weight: Mutex::new(options.weight) }
    }

    /// Returns the part of a push that makes it take part in a round.
    pub(super) fn round(&self, weight: Option<f64>) -> proto::RoundPush {
        let RoundOptions { min, grace, late, .. } = self.options;
        let late = match late {
            LatePush::Reject => proto::LatePush::Reject,
            LatePush::Next => proto::LatePush::Next,
        };
        proto::RoundPush {
            min: min.unwrap_or_default() as u64,
            grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
            late: late.into(),
            weight,
        }
    }

    pub(super) fn weight(&self) -> Option<f64> {
        *self.weight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the weight of the next pushes.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store was created without a weight.
    /// - [`Error::InvalidArgument`] if the weight is not valid.
    pub(super) fn set_weight(&self, weight: f64) -> Result<()> {
        check_weight(weight)?;
        let mut current = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_none() {
            return Err(without_weight());
        }
        *current = Some(weight);
        Ok(())
    }
}

/// The error for the weight of a store whose rounds have none.
pub(super) fn without_weight() -> Error {
    let text = "set_weight: expected a store that was created with the option `weight`";
    Error::Unsupported(text.to_owned())
}

/// # Errors
/// - [`Error::InvalidArgument`] if the weight is not a finite number above 0.
pub(super) fn check_weight(weight: f64) -> Result<()> {
    if weight.is_finite() && weight > 0.0 {
        return Ok(());
    }
    Err(Error::invalid(format!("weight: expected a finite number above 0, found {weight}")))
}

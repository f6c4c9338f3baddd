//! [`Checked`]: what the tests read of a history.

use std::collections::BTreeMap;

/// The history of a simulation, which its checks have read.
pub(super) trait Checked: std::fmt::Display {
    /// Returns the first broken promise.
    fn violation(&self) -> Option<&String>;

    /// Adds the number of calls of each kind and outcome.
    fn count(&self, outcomes: &mut BTreeMap<String, usize>);
}

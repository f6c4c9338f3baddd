//! [`ReplayReport`]: the result of a replay.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::journal::IncompleteRecord;

/// The result of a [`replay`](crate::replay).
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// The number of starts of the server.
    pub num_runs: u64,
    /// The number of those whose journal has the values of calls. The others have only the order.
    pub num_runs_with_values: u64,
    /// The number of pushes.
    pub num_steps: u64,
    /// The number of other calls that have changed the store.
    pub num_changes: u64,
    /// The number of calls that have failed after they had a record.
    pub num_failed: u64,
    /// The bytes of the replayed part of the journal.
    pub num_bytes: u64,
    /// The time of the replay, without the search for checkpoints.
    pub duration: Duration,
    /// The keys that were pushed.
    pub keys: BTreeMap<String, ReplayedKey>,
    /// The number of pushes that each member has taken part in.
    pub members: BTreeMap<String, u64>,
    /// How many times the value of a key was compared with the checksum of a step.
    pub num_compared_values: u64,
    /// How many times all keys were compared: at snapshots, at checkpoints and at the end.
    pub num_compared_marks: u64,
    /// The incomplete record that was ignored at the end, for example after the server was killed.
    pub incomplete: Option<IncompleteRecord>,
    /// Whether the journal ends with the end of the server. Otherwise, the server was killed or
    /// still runs, or the journal has stopped after an error.
    pub is_ended: bool,
    /// The first difference between the replay and the journal. The replay ends there.
    pub difference: Option<Difference>,
}

/// A key in a [`ReplayReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedKey {
    /// The number of replayed pushes.
    pub num_steps: u64,
    /// The number of pushes that have changed the key since it was initialised.
    pub version: u64,
}

/// A push or a round in a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedStep {
    /// The number of its record.
    pub record: u64,
    /// Its keys, each with the number of pushes that have changed it, this one included.
    pub keys: Vec<(String, u64)>,
    /// The members that have taken part in it, in the order in which their values were added.
    pub members: Vec<StepMember>,
}

/// A member that has taken part in a push or a round.
#[derive(Clone, Debug, PartialEq)]
pub struct StepMember {
    /// Its name.
    pub name: String,
    /// Identifies the process among those that have had the name.
    pub incarnation: u64,
    /// Its weight in a round.
    pub weight: Option<f64>,
}

/// A difference between a replay and its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The number of the record.
    pub record: u64,
    /// The position of its first byte.
    pub offset: u64,
    /// What differs.
    pub text: String,
}

//! [`Caller`]: who makes a call. [`RunningCalls`]: how many calls it makes at the moment.

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

impl Caller {
    pub(super) fn process(&self) -> (String, u64) {
        (self.name.clone(), self.incarnation)
    }
}

/// The calls of an incarnation that run.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    pub(super) num_calls: usize,
    /// How many of them are joint.
    pub(super) num_joint: usize,
    /// Whether the member leaves when its joint calls have ended.
    pub(super) leaves: bool,
}

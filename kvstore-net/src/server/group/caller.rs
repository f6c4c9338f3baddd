//! [`Caller`]: who makes a call.

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

//! The keys, values and outputs of the verbs.

pub(crate) mod keys;
pub(crate) mod listed;
pub(crate) mod mapped;
pub(crate) mod values;

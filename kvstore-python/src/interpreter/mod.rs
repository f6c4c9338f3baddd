//! The interpreter: exceptions, signals, lists, and its end.

pub(crate) mod error;
pub(crate) mod finalization;
pub(crate) mod interrupt;
pub(crate) mod lists;

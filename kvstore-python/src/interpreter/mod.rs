//! The interpreter: exceptions, signals, its end.

pub(crate) mod error;
pub(crate) mod finalization;
pub(crate) mod interrupt;

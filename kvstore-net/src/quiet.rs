//! Keeps tests that load the machine apart from those that need the same order of events each time.
//!
//! The HTTP/2 library forgets a cancelled stream after one second of real time, so a simulation on
//! a busy machine may differ from its repetition.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static LOAD: RwLock<()> = RwLock::new(());

/// Several tests may load the machine at the same time.
pub(crate) fn loads_the_machine() -> RwLockReadGuard<'static, ()> {
    LOAD.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test loads the machine, and lets those that begin wait.
pub(crate) fn needs_quiet() -> RwLockWriteGuard<'static, ()> {
    LOAD.write().unwrap_or_else(PoisonError::into_inner)
}

//! [`Ticket`]: the end of a call that goes on behind its caller.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kvstore_core::Result;

/// What became of a call, for everybody who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    outcome: Mutex<Option<Result<()>>>,
    ended: Condvar,
}

impl Ticket {
    /// Ends the call.
    pub(crate) fn end(&self, result: Result<()>) {
        self.outcome().get_or_insert(result);
        self.ended.notify_all();
    }

    /// Waits for the end of the call. Whoever comes first gets its error itself, with the sources
    /// that it has; later ones get one of the same kind and text.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome();
        loop {
            match &mut *outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => {
                    let later = error.duplicate();
                    return Err(std::mem::replace(error, later));
                }
                None => outcome = self.ended.wait(outcome).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Returns whether the call has failed; none while it goes on.
    pub(crate) fn has_failed(&self) -> Option<bool> {
        self.outcome().as_ref().map(Result::is_err)
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

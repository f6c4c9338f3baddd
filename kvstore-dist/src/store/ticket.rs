//! [`Ticket`]: the result of a call that runs in the background.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kvstore_core::Result;

/// The result of a call, for all threads that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    outcome: Mutex<Option<Result<()>>>,
    ended: Condvar,
}

impl Ticket {
    /// Ends the call with a result. Has no effect on a call that has already ended.
    pub(crate) fn end(&self, result: Result<()>) {
        self.outcome().get_or_insert(result);
        self.ended.notify_all();
    }

    /// Waits until the call ends, and returns its result. The first caller receives the original
    /// error with its sources. Later callers receive copies of the same kind and message.
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

    /// Returns whether the call has failed, or `None` if it has not ended.
    pub(crate) fn has_failed(&self) -> Option<bool> {
        self.outcome().as_ref().map(Result::is_err)
    }

    fn outcome(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! [`Ticket`]: the end of a call that goes on behind its caller.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kvstore_core::{Error, Result};

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

    /// Waits for the end of the call. Whoever comes first gets its error itself, with the sources that it has; later ones
    /// get one of the same kind and text.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome();
        loop {
            match &mut *outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => {
                    let later = copy(error);
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

/// Returns an error of the same kind and text.
pub(crate) fn copy(error: &Error) -> Error {
    match error {
        Error::Updater { key, source } => {
            Error::Updater { key: key.clone(), source: source.to_string().into() }
        }
        Error::KeyNotFound { key } => Error::KeyNotFound { key: key.clone() },
        Error::KeyExists { key } => Error::KeyExists { key: key.clone() },
        Error::Poisoned { key } => Error::Poisoned { key: key.clone() },
        Error::LengthMismatch { what, expected, found } => {
            Error::LengthMismatch { what: what.clone(), expected: *expected, found: *found }
        }
        Error::SpecMismatch { subject, key, expected, found } => Error::SpecMismatch {
            subject: subject.clone(),
            key: key.clone(),
            expected: expected.clone(),
            found: found.clone(),
        },
        Error::OutOfMemory { device, requested, in_use, limit } => Error::OutOfMemory {
            device: *device,
            requested: *requested,
            in_use: *in_use,
            limit: *limit,
        },
        Error::DeviceUnavailable { device, reason } => {
            Error::DeviceUnavailable { device: *device, reason: reason.clone() }
        }
        Error::Io { path, operation, source } => Error::Io {
            path: path.clone(),
            operation: operation.clone(),
            source: std::io::Error::new(source.kind(), source.to_string()),
        },
        Error::Corrupt { subject, reason } => {
            Error::Corrupt { subject: subject.clone(), reason: reason.clone() }
        }
        Error::Backend { device, operation, source } => Error::Backend {
            device: *device,
            operation: operation.clone(),
            source: source.to_string().into(),
        },
        Error::Transport { operation, source } => {
            Error::Transport { operation: operation.clone(), source: source.to_string().into() }
        }
        Error::Closed { what } => Error::Closed { what: what.clone() },
        Error::Timeout(text) => Error::Timeout(text.clone()),
        Error::InvalidArgument(text) => Error::InvalidArgument(text.clone()),
        Error::Unsupported(text) => Error::Unsupported(text.clone()),
        Error::Internal(text) => Error::Internal(text.clone()),
        other => Error::Transport {
            operation: "a call of all ranks".to_owned(),
            source: other.chain().into(),
        },
    }
}

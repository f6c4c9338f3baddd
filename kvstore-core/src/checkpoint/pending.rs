//! [`Checkpoints`]: the unfinished checkpoints of a store or a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::background::{Checkpoint, CheckpointProgress, WriterState};
use crate::process::{Origin, PerProcess};
use crate::store::Snapshot;
use crate::types::{Error, Result};

/// The maximum number of entries. Adding one more discards the oldest failure, so that failures do
/// not accumulate in a program that never calls `finish`.
const MAX_FAILURES: usize = 100;

/// The running checkpoints, and the failures that no caller has received.
#[derive(Debug)]
pub struct Checkpoints {
    begun: Mutex<Vec<Arc<WriterState>>>,
    /// The process that created this list. A forked child must not lock the mutex.
    origin: Origin,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { begun: Mutex::default(), origin: Origin::current() }
    }
}

impl Checkpoints {
    /// Returns the checkpoints of this process. A forked child starts with an empty list.
    pub fn of_process() -> &'static Self {
        static OF_PROCESS: PerProcess<Checkpoints> = PerProcess::new();
        OF_PROCESS.get_or_init(|_| Self::default())
    }

    /// Adds a checkpoint. Does nothing in a forked child.
    pub fn add(&self, checkpoint: &Checkpoint) {
        if self.origin.is_inherited() {
            return;
        }
        let mut begun = self.begun();
        begun.retain(|writing| writing.is_running() || writing.has_unreported_error());
        while begun.len() >= MAX_FAILURES
            && let Some(oldest) = begun.iter().position(|writing| !writing.is_running())
        {
            begun.remove(oldest);
        }
        begun.push(Arc::clone(checkpoint.writing()));
    }

    /// Returns the progress of the running checkpoints.
    pub fn running(&self) -> Vec<CheckpointProgress> {
        let running = self.all().into_iter().filter(|writing| writing.is_running());
        running.map(CheckpointProgress::of).collect()
    }

    /// Waits for the checkpoints of this snapshot. Reports no failure.
    pub(super) fn wait_for_file_of(&self, snapshot: &Snapshot) {
        for writing in self.all().iter().filter(|writing| writing.is_of(snapshot)) {
            writing.wait_for_end();
        }
    }

    /// Waits for every checkpoint begun before the call. Returns the failures that no caller has
    /// received.
    #[must_use = "it returns errors that no other call reports"]
    pub fn finish(&self) -> Vec<Error> {
        let all = self.all();
        for writing in &all {
            writing.wait_for_end();
        }
        take_errors(&all)
    }

    /// Returns the failures that no caller has received, without waiting.
    #[must_use = "it returns errors that no other call reports"]
    pub fn take_errors(&self) -> Vec<Error> {
        take_errors(&self.all())
    }

    /// Waits for every checkpoint begun before the call.
    ///
    /// # Errors
    /// - The first failure that no caller has received. The others are logged.
    pub fn wait(&self) -> Result<()> {
        let mut errors = self.finish().into_iter();
        let first = errors.next();
        for error in errors {
            tracing::error!(error = error.chain(), "a checkpoint failed");
        }
        first.map_or(Ok(()), Err)
    }

    /// Returns every checkpoint. Returns an empty list in a forked child, because the mutex may
    /// stay locked there.
    fn all(&self) -> Vec<Arc<WriterState>> {
        if self.origin.is_inherited() { Vec::new() } else { self.begun().clone() }
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Arc<WriterState>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_errors(all: &[Arc<WriterState>]) -> Vec<Error> {
    all.iter().filter_map(|writing| writing.take_error()).collect()
}

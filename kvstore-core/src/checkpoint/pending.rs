//! [`Checkpoints`]: the checkpoints that a store or a process has begun.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::background::{Checkpoint, CheckpointProgress, Writing};
use crate::error::{Error, Result};
use crate::process::{Origin, PerProcess};

/// At this number of entries the oldest failure is forgotten. Without a limit, a program that never
/// calls `finish` would keep every failure.
const MAX_FAILURES: usize = 100;

/// Checkpoints that are being written, and failures that no caller knows yet.
#[derive(Debug)]
pub struct Checkpoints {
    begun: Mutex<Vec<Arc<Writing>>>,
    /// The process that writes them. A forked child of it must not wait for the mutex.
    origin: Origin,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { begun: Mutex::default(), origin: Origin::current() }
    }
}

impl Checkpoints {
    /// Returns the checkpoints that this process has begun. A forked child begins with none: another
    /// thread may have held the parent's lock.
    pub fn of_process() -> &'static Self {
        static OF_PROCESS: PerProcess<Checkpoints> = PerProcess::new();
        OF_PROCESS.get_or_init(|_| Self::default())
    }

    /// Adds a checkpoint. Does nothing in a forked child of the process that made this list.
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

    /// Returns the progress of those that are being written.
    pub fn running(&self) -> Vec<CheckpointProgress> {
        let running = self.all().into_iter().filter(|writing| writing.is_running());
        running.map(CheckpointProgress::of).collect()
    }

    /// Waits for every checkpoint that was begun before the call. Returns the errors that no caller
    /// knows yet, as [`Checkpoints::take_errors`] does.
    #[must_use = "it returns errors that no other call reports"]
    pub fn finish(&self) -> Vec<Error> {
        let all = self.all();
        for writing in &all {
            writing.wait_for_end();
        }
        take_errors(&all)
    }

    /// Returns the errors that no caller knows yet, neither by [`Checkpoint::wait`] nor by this function.
    #[must_use = "it returns errors that no other call reports"]
    pub fn take_errors(&self) -> Vec<Error> {
        take_errors(&self.all())
    }

    /// Waits as [`Checkpoints::finish`] does.
    ///
    /// # Errors
    /// The first error that `finish` returns. The others are logged.
    pub fn wait(&self) -> Result<()> {
        let mut errors = self.finish().into_iter();
        let first = errors.next();
        for error in errors {
            tracing::error!(error = error.chain(), "a checkpoint failed");
        }
        first.map_or(Ok(()), Err)
    }

    /// Returns every checkpoint, and none in a forked child: a thread of its parent may have held the
    /// mutex, and only the parent has the threads that write.
    fn all(&self) -> Vec<Arc<Writing>> {
        if self.origin.is_inherited() { Vec::new() } else { self.begun().clone() }
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Arc<Writing>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_errors(all: &[Arc<Writing>]) -> Vec<Error> {
    all.iter().filter_map(|writing| writing.take_error()).collect()
}

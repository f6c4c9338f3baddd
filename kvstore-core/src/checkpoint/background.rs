//! [`Checkpoint`]: a checkpoint that a thread writes while the store is in use.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::base::DeltaBase;
use super::pending::Checkpoints;
use super::write::CheckpointFile;
use crate::file::Replacement;
use crate::process::Origin;
use crate::store::{FileSlot, Snapshot};
use crate::types::{Error, Result};

/// A checkpoint that a background thread writes.
///
/// Dropping the handle does not stop the thread, but the end of the process does. Before `main`
/// returns, call [`Checkpoint::wait`], or [`Checkpoints::finish`] for all checkpoints. If the
/// handle was dropped, a failure is logged, and [`Checkpoints::finish`] returns it.
#[derive(Debug)]
pub struct Checkpoint {
    writing: Arc<WriterState>,
    progress: CheckpointProgress,
}

/// The progress of a checkpoint. Clones share it.
#[derive(Clone, Debug)]
pub struct CheckpointProgress(Arc<WriterState>);

impl CheckpointProgress {
    pub(super) fn of(writing: Arc<WriterState>) -> Self {
        Self(writing)
    }

    /// Returns the size of the complete file. For a delta, returns 0 until the writing thread has
    /// found the changes.
    pub fn num_bytes(&self) -> u64 {
        self.0.num_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes written so far. After the last byte, the file must still be
    /// synced to disk.
    pub fn num_bytes_written(&self) -> u64 {
        self.0.num_bytes_written.load(Ordering::Relaxed)
    }

    /// Returns whether the file is in place or writing it has failed. Returns `true` in a forked
    /// child, because the writing thread does not exist there.
    pub fn is_done(&self) -> bool {
        // The parent's thread may have held the mutex at the fork.
        self.0.origin.is_inherited() || !self.0.is_running()
    }

    /// Waits until the checkpoint is done, for at most `limit`. Returns whether it is done. Use
    /// [`Checkpoint::wait`] or [`Checkpoints::finish`] to learn of a failure.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        if self.0.origin.is_inherited() {
            return true;
        }
        let is_running = |outcome: &mut Outcome| !outcome.is_done;
        let waited = self.0.ended.wait_timeout_while(self.0.outcome(), limit, is_running);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_done
    }
}

/// The state that the writing thread shares with waiting threads.
#[derive(Debug)]
pub(super) struct WriterState {
    path: PathBuf,
    num_bytes: AtomicU64,
    num_bytes_written: AtomicU64,
    /// The process of the writing thread.
    origin: Origin,
    outcome: Mutex<Outcome>,
    ended: Condvar,
    /// Receives the file when it is complete.
    slot: Arc<FileSlot>,
}

#[derive(Debug, Default)]
struct Outcome {
    is_done: bool,
    error: Option<Error>,
    /// Whether a caller has received the error, or `wait` is about to return it.
    is_reported: bool,
    /// Whether the handle was dropped. Then only [`Checkpoints`] can report the error.
    is_dropped: bool,
}

impl WriterState {
    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this writes the snapshot.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        Arc::ptr_eq(&self.slot, snapshot.file_slot())
    }

    pub(super) fn is_running(&self) -> bool {
        !self.outcome().is_done
    }

    /// Returns whether writing failed and no caller has received the error.
    pub(super) fn has_unreported_error(&self) -> bool {
        let outcome = self.outcome();
        outcome.error.is_some() && !outcome.is_reported
    }

    /// Waits until the thread is done.
    fn wait(&self) -> MutexGuard<'_, Outcome> {
        let waited = self.ended.wait_while(self.outcome(), |outcome| !outcome.is_done);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait_for_end(&self) {
        drop(self.wait());
    }

    /// Returns the error, unless a caller has received it.
    pub(super) fn take_error(&self) -> Option<Error> {
        let mut outcome = self.outcome();
        if outcome.is_reported {
            return None;
        }
        outcome.is_reported = outcome.error.is_some();
        // Returns a copy, because `Checkpoint::wait` may still return the error.
        outcome.error.as_ref().map(Error::duplicate)
    }

    fn end(&self, written: Result<()>) {
        let mut outcome = self.outcome();
        outcome.is_done = true;
        outcome.error = written.err();
        if outcome.is_dropped {
            outcome.log();
        }
        self.ended.notify_all();
    }
}

impl Outcome {
    fn log(&self) {
        if let Some(error) = self.error.as_ref().filter(|_| !self.is_reported) {
            tracing::error!(
                error = error.chain(),
                "a checkpoint failed after its handle was dropped"
            );
        }
    }
}

/// Marks the checkpoint as failed if the thread panics. Otherwise waiting threads would never wake
/// up.
struct FinishOnDrop(Arc<WriterState>);

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        if self.0.is_running() {
            let path = self.0.path.display();
            let text = format!("{path}: the thread that writes the checkpoint panicked");
            self.0.end(Err(Error::Internal(text)));
        }
    }
}

impl Checkpoint {
    /// Starts a thread that writes the snapshot like [`Snapshot::write`]. Prepares the header
    /// first, which takes time proportional to the number of keys. If the values are elsewhere,
    /// loads them first (see [`Snapshot::load`]).
    ///
    /// Checkpoints of one process to the same file are written in the order of the `begin` calls.
    ///
    /// # Errors
    /// - [`Error::Io`] if no thread can be started.
    /// - The errors of [`Snapshot::to_bytes`].
    pub fn begin(snapshot: &Snapshot, path: impl AsRef<Path>) -> Result<Self> {
        let file = CheckpointFile::of_store(snapshot)?;
        Self::start(snapshot, path.as_ref(), file.num_bytes(), move || Ok(file))
    }

    /// Starts a thread that writes a delta like [`Snapshot::write_since`]. The thread also finds
    /// the changes. If values are elsewhere, loads them first (see [`Snapshot::load`]). If a
    /// checkpoint of `base` is still being written, waits for it.
    ///
    /// # Errors
    /// - [`Error::Io`] if no thread can be started.
    /// - The errors of [`Snapshot::write_since`] for the base and `path`. [`Checkpoint::wait`]
    ///   returns the errors of writing.
    pub fn begin_since(
        snapshot: &Snapshot,
        path: impl AsRef<Path>,
        base: &Snapshot,
    ) -> Result<Self> {
        let path = path.as_ref();
        Checkpoints::of_process().wait_for_file_of(base);
        let base = DeltaBase::new(base, path)?;
        let loaded = snapshot.load()?;
        Self::start(snapshot, path, 0, move || CheckpointFile::of_delta(&loaded, &base))
    }

    /// Starts a thread that writes the file that `prepare` returns. `num_bytes` is its size, or 0
    /// if it is not known yet.
    fn start(
        snapshot: &Snapshot,
        path: &Path,
        num_bytes: u64,
        prepare: impl FnOnce() -> Result<CheckpointFile> + Send + 'static,
    ) -> Result<Self> {
        let writing = Arc::new(WriterState {
            path: path.to_owned(),
            num_bytes: AtomicU64::new(num_bytes),
            num_bytes_written: AtomicU64::new(0),
            origin: Origin::current(),
            outcome: Mutex::default(),
            ended: Condvar::new(),
            slot: Arc::clone(snapshot.file_slot()),
        });
        // Takes the place in the file's queue here: the threads may start in another order.
        let (place, finish) = (Replacement::begin(path), FinishOnDrop(Arc::clone(&writing)));
        let write = move || {
            let writing = &finish.0;
            // Frees the values before waiting threads continue.
            let written = prepare().and_then(|file| {
                writing.num_bytes.store(file.num_bytes(), Ordering::Relaxed);
                file.write(place, &writing.num_bytes_written)
            });
            writing.end(written.map(|file| writing.slot.set(file)));
        };
        let thread = thread::Builder::new().name("kvstore-checkpoint".to_owned()).spawn(write);
        thread.map_err(|source| Error::Io {
            path: path.to_owned(),
            operation: "starting the writer thread".to_owned(),
            source,
        })?;
        let checkpoint = Self { progress: CheckpointProgress(Arc::clone(&writing)), writing };
        Checkpoints::of_process().add(&checkpoint);
        Ok(checkpoint)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.writing.path
    }

    /// Returns the progress of the checkpoint.
    pub fn progress(&self) -> &CheckpointProgress {
        &self.progress
    }

    pub(super) fn writing(&self) -> &Arc<WriterState> {
        &self.writing
    }

    /// Returns whether the file is in place or writing it has failed.
    pub fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    /// Waits until the file is in place and has reached the disk.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::write`]. The old file is unchanged unless the error says
    ///   otherwise.
    /// - [`Error::InvalidArgument`] in a forked child: only the process that began the checkpoint
    ///   can wait.
    pub fn wait(self) -> Result<()> {
        if self.writing.origin.is_inherited() {
            return Err(Error::InvalidArgument(format!(
                "{}: only the process that began the checkpoint can wait for it, not a forked \
                 child",
                self.path().display()
            )));
        }
        let mut outcome = self.writing.wait();
        outcome.is_reported = true;
        outcome.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // In a forked child, no thread may ever unlock the mutex.
        if self.writing.origin.is_inherited() {
            return;
        }
        let mut outcome = self.writing.outcome();
        outcome.is_dropped = true;
        outcome.log();
    }
}

#[cfg(all(test, unix, not(miri)))]
#[allow(clippy::unwrap_used, reason = "a check fails by panicking")]
mod tests {
    use crate::backend::registry::Backends;
    use crate::cpu::CpuBackend;
    use crate::process::tests::{in_child, while_held};
    use crate::store::{KvStore, LocalStore};

    use super::*;

    #[test]
    fn a_child_does_not_wait_for_a_checkpoint_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let backends = Backends::new(vec![CpuBackend::with_threads(1)]);
        let snapshot = LocalStore::new("local", backends).unwrap().snapshot().unwrap();
        let checkpoint = Checkpoint::begin(&snapshot, folder.path().join("store")).unwrap();
        let writing = Arc::clone(&checkpoint.writing);
        // The parent drops this after it releases the lock, because the drop takes the lock.
        let mut checkpoint = Some(checkpoint);
        let check = || {
            let checkpoint = checkpoint.take().unwrap();
            assert!(checkpoint.is_done() && checkpoint.progress().wait_timeout(Duration::MAX));
            let error = checkpoint.wait().unwrap_err();
            assert!(error.to_string().contains("forked"), "{error}");
            assert!(Checkpoints::of_process().running().is_empty());
        };
        while_held(|| writing.outcome(), || in_child(check));
        writing.wait_for_end();
    }
}

//! [`Checkpoint`]: a checkpoint that is being written while the store goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use super::write::CheckpointFile;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;

/// A checkpoint that a thread of its own writes. Dropping it lets the thread go on to the end, but the end of the
/// process does not wait for it.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    progress: Progress,
    thread: JoinHandle<Result<()>>,
}

/// How far writing a checkpoint has come. A clone looks at the same one.
#[derive(Clone, Debug)]
pub struct Progress {
    num_bytes: u64,
    written: Arc<AtomicU64>,
}

impl Progress {
    /// Returns how long the file will be.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Returns how many bytes have been written. When it is all of them, the disk may still have to be waited
    /// for.
    pub fn num_bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

impl Checkpoint {
    /// Begins to write the snapshot, as [`Snapshot::write`] does.
    ///
    /// # Errors
    /// [`Error::Io`] when there can be no more threads; [`Error::Unsupported`] for so many keys that the
    /// format has no room for their names.
    pub fn begin(snapshot: &Snapshot, path: impl AsRef<Path>) -> Result<Self> {
        let file = CheckpointFile::of_store(snapshot)?;
        let (num_bytes, written) = (file.num_bytes(), Arc::new(AtomicU64::new(0)));
        let path = path.as_ref().to_owned();
        // The process may be in another folder by the time that it is written.
        let target = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let counter = Arc::clone(&written);
        let write = move || file.write(&target, &counter);
        let thread = Builder::new().name("kvstore-checkpoint".to_owned()).spawn(write);
        let thread = thread.map_err(|source| Error::Io {
            path: path.clone(),
            operation: "starting the thread that writes it".to_owned(),
            source,
        })?;
        Ok(Self { path, progress: Progress { num_bytes, written }, thread })
    }

    /// Returns where it is written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how far it has come.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns whether the file is in its place, or writing it has failed.
    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the file is in its place and has reached the disk.
    ///
    /// # Errors
    /// Those of [`Snapshot::write`]. The old file, if there was one, is then as it was.
    pub fn wait(self) -> Result<()> {
        self.thread.join().unwrap_or_else(|_| {
            Err(Error::Internal(format!("writing {} panicked", self.path.display())))
        })
    }
}

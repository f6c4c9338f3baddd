//! [`Checkpoint`]: a checkpoint that is being written while the store goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SendError, sync_channel};
use std::thread;

use super::write::CheckpointFile;
use crate::error::{Error, Result};
use crate::file::Replacement;
use crate::snapshot::Snapshot;

/// A checkpoint that a thread of its own writes. Dropping it lets the thread go on to the end, and what goes wrong
/// is only logged then; the end of the process does not wait for it.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    progress: CheckpointProgress,
    /// The thread waits until somebody takes its result, or nobody can any more.
    result: Receiver<Result<()>>,
}

/// How far writing a checkpoint has come. A clone looks at the same one.
#[derive(Clone, Debug)]
pub struct CheckpointProgress {
    num_bytes: u64,
    reached: Arc<Reached>,
}

#[derive(Debug, Default)]
struct Reached {
    num_bytes: AtomicU64,
    is_done: AtomicBool,
}

impl CheckpointProgress {
    /// Returns how long the file will be.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Returns how many bytes have been written. When it is all of them, the disk may still have to be waited
    /// for.
    pub fn num_bytes_written(&self) -> u64 {
        self.reached.num_bytes.load(Ordering::Relaxed)
    }
}

/// Says in the end that there is nothing more to come, after a panic too.
struct Writing<'a>(&'a Reached);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Release);
    }
}

impl Checkpoint {
    /// Begins to write the snapshot, as [`Snapshot::write`] does. It comes after all that was begun before for the
    /// same file by this process. Returns when the header is made, in time of the number of keys.
    ///
    /// # Errors
    /// [`Error::Io`] when there can be no more threads; [`Error::Unsupported`] for so many keys that the
    /// format has no room for their names; [`Error::InvalidArgument`] for a key whose names take more than
    /// 64 KiB in the file.
    pub fn begin(snapshot: &Snapshot, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = CheckpointFile::of_store(snapshot)?;
        let (num_bytes, reached) = (file.num_bytes(), Arc::new(Reached::default()));
        let progress = CheckpointProgress { num_bytes, reached: Arc::clone(&reached) };
        let place = Replacement::begin(path);
        let (sender, result) = sync_channel(0);
        let write = move || {
            let writing = Writing(&reached);
            let written = file.write(place, &reached.num_bytes);
            drop((file, writing));
            if let Err(SendError(Err(error))) = sender.send(written) {
                tracing::error!(
                    error = error.chain(),
                    "a checkpoint has failed, and nobody waits for it"
                );
            }
        };
        let thread = thread::Builder::new().name("kvstore-checkpoint".to_owned()).spawn(write);
        match thread {
            Ok(_) => Ok(Self { path: path.to_owned(), progress, result }),
            Err(source) => Err(Error::Io {
                path: path.to_owned(),
                operation: "starting the thread that writes it".to_owned(),
                source,
            }),
        }
    }

    /// Returns where it is written to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how far it has come.
    pub fn progress(&self) -> &CheckpointProgress {
        &self.progress
    }

    /// Returns whether the file is in its place, or writing it has failed.
    pub fn is_done(&self) -> bool {
        self.progress.reached.is_done.load(Ordering::Acquire)
    }

    /// Waits until the file is in its place and has reached the disk.
    ///
    /// # Errors
    /// Those of [`Snapshot::write`]. The old file, if there was one, is then as it was.
    pub fn wait(self) -> Result<()> {
        self.result.recv().unwrap_or_else(|_| {
            Err(Error::Internal(format!("writing {} panicked", self.path.display())))
        })
    }
}

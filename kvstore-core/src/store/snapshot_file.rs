//! [`SnapshotFile`]: the file that has the contents of a snapshot.

use std::fmt;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::process::ForkMutex;

/// A file that has the contents of a snapshot. It can be the base of a delta, a file with only the
/// changes since then: see [`Snapshot::write_since`](super::Snapshot::write_since).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// The canonical path.
    path: PathBuf,
    checksum: u32,
    num_bytes: u64,
    base: Option<Arc<SnapshotFile>>,
}

impl SnapshotFile {
    /// Returns a file at its canonical path.
    pub(crate) fn new(
        path: PathBuf,
        checksum: u32,
        num_bytes: u64,
        base: Option<Arc<SnapshotFile>>,
    ) -> Self {
        Self { path, checksum, num_bytes, base }
    }

    /// Returns the canonical path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the CRC-32 at the end of the file.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Returns the length of the file in bytes.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Returns the base if the file is a delta, or `None` if the file is complete.
    pub fn base(&self) -> Option<&SnapshotFile> {
        self.base.as_deref()
    }

    /// Iterates over all files that reading this one needs: this file, then the base of each file
    /// before, up to a complete file.
    pub fn chain(&self) -> impl Iterator<Item = &SnapshotFile> {
        iter::successors(Some(self), |file| file.base())
    }
}

/// The file of a snapshot, if it has one. The thread that writes the file sets it.
pub(crate) struct FileSlot(ForkMutex<Option<SnapshotFile>>);

impl Default for FileSlot {
    fn default() -> Self {
        Self(ForkMutex::new(None))
    }
}

impl FileSlot {
    /// Returns the file. Returns `None` in a forked child, if another thread held the lock at the
    /// fork.
    pub(crate) fn get(&self) -> Option<SnapshotFile> {
        self.0.lock().ok()?.clone()
    }

    /// Sets the file. `None` does nothing, because an earlier file still has the contents.
    pub(crate) fn set(&self, file: Option<SnapshotFile>) {
        if let (Some(file), Ok(mut slot)) = (file, self.0.lock()) {
            *slot = Some(file);
        }
    }
}

impl fmt::Debug for FileSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileSlot").field(&self.get()).finish()
    }
}

//! Writes a delta in the calling thread.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::base::DeltaBase;
use super::pending::Checkpoints;
use super::write::CheckpointFile;
use crate::file::Replacement;
use crate::store::Snapshot;
#[cfg(doc)]
use crate::types::Error;
use crate::types::Result;

impl Snapshot {
    /// Writes a delta: a checkpoint with only the changes since `base`, which was written to or
    /// read from a file. The delta must be in the folder of this file. [`Snapshot::read`] reads
    /// the delta and its base, which can be a delta too.
    ///
    /// The delta omits tensors that have the bits of the base, and of a tensor with few changes, it
    /// has only the changed rows. The call does not read memory that the snapshots share.
    ///
    /// If a checkpoint of `base` is still being written, the call waits for it.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `base` has no file: see [`Snapshot::file`].
    /// - [`Error::InvalidArgument`] if `path` is in another folder, or is a file that the delta
    ///   needs.
    /// - [`Error::InvalidArgument`] if the chain would have more than 1000 deltas.
    /// - [`Error::Io`] if the file of the base does not exist any more.
    /// - [`Error::Corrupt`] if another file has replaced the one of the base.
    /// - The errors of [`Snapshot::write`].
    pub fn write_since(&self, path: impl AsRef<Path>, base: &Self) -> Result<()> {
        let path = path.as_ref();
        Checkpoints::of_process().wait_for_file_of(base);
        let base = DeltaBase::new(base, path)?;
        let file = CheckpointFile::of_delta(self, &base)?;
        let written = file.write(Replacement::begin(path), &AtomicU64::new(0))?;
        self.file_slot().set(written);
        Ok(())
    }
}

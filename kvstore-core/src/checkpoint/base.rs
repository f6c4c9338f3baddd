//! [`DeltaBase`]: the base of a delta that is about to be written.

use std::path::Path;
use std::sync::Arc;

use super::chain::check_link;
use super::format::MAX_DELTAS;
use super::manifest::BaseRecord;
use crate::file::canonical_path;
use crate::store::{HeldSnapshot, Snapshot, SnapshotFile};
use crate::types::{Error, Result};

/// The base of a delta: its contents and its file.
pub(super) struct DeltaBase {
    contents: Arc<HeldSnapshot>,
    file: Arc<SnapshotFile>,
    record: BaseRecord,
}

impl DeltaBase {
    /// Returns the base for a delta in the file `path`.
    ///
    /// # Errors
    /// - The errors of [`Snapshot::write_since`].
    pub(super) fn new(base: &Snapshot, path: &Path) -> Result<Self> {
        let invalid = |reason: String| Error::invalid(format!("{}: {reason}", path.display()));
        let file = base.file().ok_or_else(|| {
            invalid(
                "the base of a delta must be in a file: write the base to a checkpoint, or read \
                 it from one"
                    .to_owned(),
            )
        })?;
        let place = canonical_path(path);
        if place.parent() != file.path().parent() {
            return Err(invalid(format!(
                "a delta must be in the folder of its base {}",
                file.path().display()
            )));
        }
        let mut num_deltas = 0;
        for link in file.chain() {
            if link.path() == place {
                return Err(invalid("a delta cannot replace a file that it needs".to_owned()));
            }
            num_deltas += 1;
        }
        // The last link is complete, and the new file is a delta.
        if num_deltas > MAX_DELTAS {
            return Err(invalid(format!(
                "a chain has at most {MAX_DELTAS} deltas: write a complete checkpoint"
            )));
        }
        let name = file.path().file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| {
            invalid(format!("the name of its base {} is not UTF-8", file.path().display()))
        })?;
        let record = BaseRecord {
            file: name.to_owned(),
            checksum: file.checksum(),
            num_bytes: file.num_bytes(),
        };
        check_link(file.path(), &record, path)?;
        Ok(Self { contents: base.held()?, file: Arc::new(file), record })
    }

    pub(super) fn contents(&self) -> &HeldSnapshot {
        &self.contents
    }

    pub(super) fn file(&self) -> &Arc<SnapshotFile> {
        &self.file
    }

    pub(super) fn record(&self) -> &BaseRecord {
        &self.record
    }
}

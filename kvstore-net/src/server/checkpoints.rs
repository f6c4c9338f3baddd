//! [`Checkpoints`]: the folder where a server writes its parts of checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvstore_core::{Error, PartList, Result, Snapshot};

/// The folder for the checkpoints of a server, if it has one.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    root: Option<PathBuf>,
    /// The numbers of the files that this run of the server has written to each folder.
    written: Mutex<BTreeMap<PathBuf, BTreeSet<u64>>>,
}

/// Returns the name of the file with the part of a server.
pub(crate) fn file_name(number: u64, server: u32) -> String {
    format!("{number}-{server}.safetensors")
}

impl Checkpoints {
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, written: Mutex::default() }
    }

    /// Returns the folder of a checkpoint.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the server has no folder for checkpoints.
    /// - [`Error::InvalidArgument`] if the name is not that of a folder in it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let root = self.root.as_ref().ok_or_else(|| {
            let text = "checkpoints on servers: start the server with a folder for them, as with \
                        `kvstore serve --checkpoints FOLDER`";
            Error::Unsupported(text.to_owned())
        })?;
        Ok(root.join(checked(name)?))
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<PathBuf, BTreeSet<u64>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the snapshot of this server.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written, for example because the disk is full.
    pub(crate) fn write(
        &self,
        folder: &Path,
        (number, server): (u64, u32),
        snapshot: &Snapshot,
    ) -> Result<()> {
        fs::create_dir_all(folder).map_err(|source| Error::Io {
            path: folder.to_owned(),
            operation: "creating".to_owned(),
            source,
        })?;
        snapshot.write(folder.join(file_name(number, server)))?;
        self.written().entry(folder.to_owned()).or_default().insert(number);
        Ok(())
    }

    /// Writes the list of parts if this is the first server. Then removes the files that a server
    /// with this number has written to the folder for earlier checkpoints. Does nothing if the list
    /// of a later checkpoint has been published before.
    ///
    /// # Errors
    /// - [`Error::Io`] if the list cannot be written.
    /// - [`Error::Internal`] if the server was restarted after it had written its part.
    pub(crate) fn publish(
        &self,
        folder: &Path,
        (number, server): (u64, u32),
        parts: &PartList,
    ) -> Result<()> {
        let mut written = self.written();
        let numbers = written.entry(folder.to_owned()).or_default();
        if numbers.first().is_some_and(|first| *first > number) {
            return Ok(());
        }
        if !numbers.contains(&number) {
            let text = format!("part {number} was not written by this run of the server");
            return Err(Error::Internal(text));
        }
        if server == 0 {
            parts.write(folder)?;
        }
        remove_earlier(folder, (number, server));
        *numbers = numbers.split_off(&number);
        Ok(())
    }
}

/// Removes the files of earlier checkpoints, also those that an earlier run of the server has
/// written.
fn remove_earlier(folder: &Path, (number, server): (u64, u32)) {
    let removed = fs::read_dir(folder).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('-'));
            let earlier = parts.and_then(|(earlier, _)| earlier.parse().ok());
            let is_earlier = |earlier: &u64| *earlier < number;
            if earlier.filter(is_earlier).is_some_and(|old| name == *file_name(old, server)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    });
    if let Err(error) = removed {
        tracing::warn!(%error, folder = %folder.display(), "an old part cannot be removed");
    }
}

/// Returns the name of a folder without other folders, so that a member cannot write elsewhere.
fn checked(name: &str) -> Result<&str> {
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    if is_plain && name.len() < 200 {
        return Ok(name);
    }
    Err(Error::invalid(format!(
        "checkpoint `{name}`: expected the name of a folder, of up to 199 bytes, without `/` and \
         not beginning with `.`"
    )))
}

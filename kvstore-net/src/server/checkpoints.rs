//! [`Checkpoints`]: the folder where a server writes its parts of checkpoints.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kvstore_core::{Error, PartList, Result, Snapshot};

/// The folder for the checkpoints of a server, if it has one.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    root: Option<PathBuf>,
    /// The files that this server has written. It never removes others.
    written: Mutex<BTreeSet<PathBuf>>,
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

    /// Writes the snapshot of this server.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written, for example because the disk is full.
    pub(crate) fn write(&self, folder: &Path, file: &str, snapshot: &Snapshot) -> Result<()> {
        let path = folder.join(checked(file)?);
        fs::create_dir_all(folder).map_err(|source| failed(folder, "creating", source))?;
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        snapshot.write(&path)
    }

    /// Writes the list of parts if this server has the first one, and removes files of earlier
    /// checkpoints that this server has written to the folder.
    ///
    /// # Errors
    /// - [`Error::Io`] if the list cannot be written.
    pub(crate) fn keep(&self, folder: &Path, parts: &PartList) -> Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.files().first().is_some_and(|first| written.contains(&folder.join(first))) {
            parts.write(folder)?;
        }
        let is_old = |path: &PathBuf| {
            let is_listed = |file: &String| folder.join(file) == *path;
            path.parent() == Some(folder) && !parts.files().iter().any(is_listed)
        };
        let old: Vec<PathBuf> = written.iter().filter(|path| is_old(path)).cloned().collect();
        for path in old {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "an old part cannot be removed");
            }
            written.remove(&path);
        }
        Ok(())
    }
}

/// Returns the name of a file or folder without other folders, so that a member cannot write
/// elsewhere.
fn checked(name: &str) -> Result<&str> {
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    if is_plain && name.len() < 200 {
        return Ok(name);
    }
    Err(Error::invalid(format!(
        "checkpoint `{name}`: expected the name of a folder, of up to 200 bytes, without `/` and \
         not beginning with `.`"
    )))
}

fn failed(path: &Path, operation: &str, source: io::Error) -> Error {
    Error::Io { path: path.to_owned(), operation: operation.to_owned(), source }
}

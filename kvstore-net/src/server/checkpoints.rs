//! [`Checkpoints`]: the folder where a server writes its parts of checkpoints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use kvstore_core::{Error, PartList, Result, Snapshot};

/// The folder for the checkpoints of a server, if it has one.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    root: Option<PathBuf>,
    folders: Mutex<BTreeMap<PathBuf, Folder>>,
}

/// What this run of the server has written to a folder.
#[derive(Debug, Default)]
struct Folder {
    /// The numbers of the files, with the incarnation of the member that has requested each.
    written: BTreeMap<u64, u64>,
    /// The number of the newest checkpoint that is complete.
    published: u64,
}

/// Returns the name of the file with the part of a server.
pub(crate) fn file_name(number: u64, server: u32) -> String {
    format!("{number}-{server}.safetensors")
}

impl Checkpoints {
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, folders: Mutex::default() }
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

    fn folders(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Folder>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn published(&self, folder: &Path) -> u64 {
        self.folders().get(folder).map_or(0, |folder| folder.published)
    }

    /// Writes the snapshot of this server for a member. Does nothing if this or a later checkpoint
    /// is complete. Removes the parts of earlier checkpoints that will never be complete: each
    /// member writes one at a time, and dead ones write none. Otherwise, attempts that fail because
    /// another server has a full disk would also fill this one.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written, for example because the disk is full.
    pub(crate) fn write(
        &self,
        folder: &Path,
        (number, server): (u64, u32),
        (member, is_live): (u64, impl Fn(u64) -> bool),
        snapshot: &Snapshot,
    ) -> Result<()> {
        if self.published(folder) >= number {
            return Ok(());
        }
        if let Some(known) = self.folders().get_mut(folder) {
            let published = known.published;
            known.written.retain(|earlier, by| {
                let is_abandoned =
                    (published + 1..number).contains(earlier) && (*by == member || !is_live(*by));
                if is_abandoned {
                    remove(&folder.join(file_name(*earlier, server)));
                }
                !is_abandoned
            });
        }
        fs::create_dir_all(folder).map_err(|source| Error::Io {
            path: folder.to_owned(),
            operation: "creating".to_owned(),
            source,
        })?;
        let path = folder.join(file_name(number, server));
        snapshot.write(&path)?;
        let mut folders = self.folders();
        let known = folders.entry(folder.to_owned()).or_default();
        if known.published > number {
            remove(&path);
        } else {
            known.written.insert(number, member);
        }
        Ok(())
    }

    /// Writes the list of parts if this is the first server. Then removes the files that servers
    /// with this index have written to the folder for earlier checkpoints. Does nothing if a later
    /// checkpoint is complete.
    ///
    /// # Errors
    /// - [`Error::Io`] if the part of this server is gone, or the list cannot be written.
    /// - [`Error::Internal`] if the server was restarted after it had written its part.
    pub(crate) fn publish(
        &self,
        folder: &Path,
        (number, server): (u64, u32),
        parts: &PartList,
    ) -> Result<()> {
        let mut folders = self.folders();
        let known = folders.entry(folder.to_owned()).or_default();
        if known.published > number {
            return Ok(());
        }
        if !known.written.contains_key(&number) {
            let text = format!("part {number} was not written by this run of the server");
            return Err(Error::Internal(text));
        }
        // Another server with this index may use the same folder by mistake.
        let path = folder.join(file_name(number, server));
        fs::metadata(&path).map_err(|source| Error::Io {
            path,
            operation: "looking for the part of this server".to_owned(),
            source,
        })?;
        if server == 0 {
            parts.write(folder)?;
        }
        known.published = number;
        known.written = known.written.split_off(&number);
        remove_earlier(folder, (number, server));
        Ok(())
    }
}

/// Removes the files of earlier checkpoints, also those that an earlier run of the server has
/// written.
fn remove_earlier(folder: &Path, (number, server): (u64, u32)) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "old parts cannot be found");
            return;
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('-'));
        let earlier: Option<u64> = parts.and_then(|(earlier, _)| earlier.parse().ok());
        if earlier.is_some_and(|old| old < number && name == *file_name(old, server)) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "an old part cannot be removed");
        }
        _ => {}
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

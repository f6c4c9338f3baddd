//! Reads a delta with the files that it needs.
//!
//! A delta names its base, a file in the same folder, with its checksum and length. The base can be
//! a delta too. The files from a delta to the complete file at the end are its chain.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use super::format::{CHECKSUM_BYTES, MAX_DELTAS};
use super::manifest::BaseRecord;
use super::read::{CompleteOrBase, DAMAGED, Opened};
use crate::backend::registry::Backends;
use crate::fallible;
use crate::file::{Input, canonical_path};
use crate::store::Snapshot;
use crate::types::{Error, Result};

/// The number of bytes to read at once.
const CHUNK: usize = 256 << 10;

/// A file of a chain.
struct Link {
    path: PathBuf,
    /// The delta that needs the file, and the file that it expects.
    needed: Option<(PathBuf, BaseRecord)>,
}

/// Reads the checkpoint of a store and the files that it needs.
///
/// # Errors
/// - The errors of [`Snapshot::read`].
pub(super) fn read_chain(backends: &Backends, path: &Path) -> Result<Snapshot> {
    let mut links = Vec::from([Link { path: path.to_owned(), needed: None }]);
    // Finds the complete file first, because its tensors are the first to be read.
    let mut snapshot = match read_complete(backends, &mut links) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            // The header of a damaged delta can name a wrong base. The last link is none of them.
            let deltas = links.split_last().map(|(_, deltas)| deltas).unwrap_or_default();
            deltas.iter().try_for_each(Link::check_contents)?;
            return Err(error);
        }
    };
    links.pop();
    while let Some(link) = links.pop() {
        snapshot = link.read(|opened| opened.snapshot(backends, Some(snapshot)))?;
    }
    Ok(snapshot)
}

/// Appends the files that the last link needs to `links`, and reads the complete file at the end.
fn read_complete(backends: &Backends, links: &mut Vec<Link>) -> Result<Snapshot> {
    let mut deltas = HashSet::new();
    loop {
        let Some(link) = links.last() else {
            return Err(Error::Internal("a chain without a file".to_owned()));
        };
        let base = match link.read(|opened| opened.complete_or_base(backends))? {
            CompleteOrBase::Complete(snapshot) => return Ok(snapshot),
            CompleteOrBase::Base(base) => base,
        };
        // The canonical path, because the file may be a symbolic link to one in another folder.
        let delta = canonical_path(&link.path);
        let place = delta.with_file_name(&base.file);
        deltas.insert(delta.clone());
        let is_cycle = deltas.contains(&canonical_path(&place));
        let error = if is_cycle {
            let reason = format!("its base `{}` is a delta that needs this file", base.file);
            Some(corrupt(&delta, reason))
        } else {
            let reason = format!("it needs more than {MAX_DELTAS} deltas");
            links
                .first()
                .filter(|_| links.len() > MAX_DELTAS)
                .map(|link| corrupt(&link.path, reason))
        };
        links.push(Link { path: place, needed: Some((delta, base)) });
        error.map_or(Ok(()), Err)?;
    }
}

fn corrupt(path: &Path, reason: String) -> Error {
    Error::Corrupt { subject: path.display().to_string(), reason }
}

impl Link {
    /// Opens the file, and calls `read` with it.
    fn read<T>(&self, read: impl FnOnce(Opened<'_>) -> Result<T>) -> Result<T> {
        let Some((delta, base)) = &self.needed else { return read_file(&self.path, READING, read) };
        check_link(&self.path, base, delta)?;
        let found = read_file(&self.path, &operation(delta), read);
        found.map_err(|error| self.with_delta(error))
    }

    /// Adds the delta that needs the file to an error.
    fn with_delta(&self, error: Error) -> Error {
        match (error, &self.needed) {
            (Error::Corrupt { subject, reason }, Some((delta, _))) => {
                let reason = format!("{reason}; it is the base of {}", delta.display());
                Error::Corrupt { subject, reason }
            }
            (error, _) => error,
        }
    }

    /// Checks that the contents of the file have the checksum at its end, without reading tensors.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the file is damaged.
    /// - [`Error::Io`] if the file cannot be read.
    fn check_contents(&self) -> Result<()> {
        let failed =
            |source| Error::Io { path: self.path.clone(), operation: READING.to_owned(), source };
        let mut file = File::open(&self.path).map_err(failed)?;
        let num_bytes = file.metadata().map_err(failed)?.len();
        let mut checksum = Hasher::new();
        let mut contents = (&mut file).take(num_bytes.saturating_sub(CHECKSUM_BYTES as u64));
        let mut buffer = fallible::zeroed(CHUNK)?;
        loop {
            let count = contents.read(&mut buffer).map_err(failed)?;
            let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
            checksum.update(read);
        }
        let mut stored = [0; CHECKSUM_BYTES];
        file.read_exact(&mut stored).map_err(failed)?;
        if checksum.finalize().to_le_bytes() == stored {
            return Ok(());
        }
        Err(self.with_delta(corrupt(&self.path, DAMAGED.to_owned())))
    }
}

const READING: &str = "reading a checkpoint";

/// Returns the operation in the error for a base that cannot be read.
fn operation(delta: &Path) -> String {
    format!("reading the base of {}", delta.display())
}

/// Opens a file, and calls `read` with it. `operation` is for errors of the system.
fn read_file<T>(
    path: &Path,
    operation: &str,
    read: impl FnOnce(Opened<'_>) -> Result<T>,
) -> Result<T> {
    let failed =
        |source| Error::Io { path: path.to_owned(), operation: operation.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // Only a regular file can be the base of a delta, because it can be read again.
    let place = fs::canonicalize(path).ok().filter(|_| metadata.is_file());
    let mut reader = BufReader::new(file);
    let opened = Opened::read(Input::of_file(&mut reader, metadata.len(), path))?;
    read(opened.at(place.map(|path| (path, metadata.len()))))
}

/// Checks that a file exists and is the base that `delta` expects. Reads only the checksum at the
/// end of the file. Reading the entire file compares the checksum with the contents.
///
/// # Errors
/// - [`Error::Io`] if the file cannot be read.
/// - [`Error::Corrupt`] if it is another file.
pub(super) fn check_link(path: &Path, base: &BaseRecord, delta: &Path) -> Result<()> {
    let failed = |source| Error::Io { path: path.to_owned(), operation: operation(delta), source };
    let BaseRecord { checksum, num_bytes, .. } = base;
    let expected = format!(
        "expected the base of {} with {num_bytes} bytes and checksum {checksum:08x}",
        delta.display()
    );
    // Opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(corrupt(path, format!("{expected}, found no regular file")));
    }
    let mut file = File::open(path).map_err(failed)?;
    let found_bytes = file.metadata().map_err(failed)?.len();
    let mut found = [0; CHECKSUM_BYTES];
    if found_bytes >= CHECKSUM_BYTES as u64 {
        let start = found_bytes - CHECKSUM_BYTES as u64;
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        file.read_exact(&mut found).map_err(failed)?;
    }
    let found = u32::from_le_bytes(found);
    if (found_bytes, found) == (*num_bytes, *checksum) {
        return Ok(());
    }
    Err(corrupt(path, format!("{expected}, found {found_bytes} bytes and checksum {found:08x}")))
}

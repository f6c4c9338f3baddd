//! [`PointFolder`]: the recovery points of a server in files.
//!
//! A point is two files: `NUMBER.safetensors`, a checkpoint with the contents, and `NUMBER.state`,
//! which is written when the checkpoint is complete. So a point without a state is not one.
//!
//! ```text
//! state: 8 magic | 4 version | 4 zero | 8 length of the message | message | 8 checksum
//! ```
//!
//! All numbers are little-endian. The message is a [`SavedState`] of Protocol Buffers. The checksum
//! is the CRC-64/NVME of all bytes before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kvstore_core::{Backends, Error, Result, Snapshot, fallible, replace_file};
use prost::Message;

use super::{Point, SavedState, encoded};
use crate::files::{crc, lock};

const MAGIC: &[u8; 8] = b"KVPOINT\0";
const VERSION: u32 = 1;
const HEADER: usize = 24;
const CHECKSUM: usize = 8;

/// The extensions of the two files.
const CONTENTS: &str = "safetensors";
const STATE: &str = "state";

/// The folder with the recovery points of a server. No other server uses it.
#[derive(Debug)]
pub(crate) struct PointFolder {
    path: PathBuf,
    /// Locked as long as the server runs.
    lock: Mutex<Option<File>>,
}

fn failed(path: &Path, operation: &str) -> impl FnOnce(io::Error) -> Error {
    let (path, operation) = (path.to_owned(), operation.to_owned());
    move |source| Error::Io { path, operation, source }
}

impl PointFolder {
    /// Opens or creates a folder.
    ///
    /// # Errors
    /// - [`Error::Io`] if it cannot be used, or another server uses it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let opening = "opening the folder for recovery points";
        fs::create_dir_all(path).map_err(failed(path, opening))?;
        let lock_path = path.join("lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let file = opened.map_err(failed(&lock_path, opening))?;
        lock(&file, "this folder").map_err(failed(path, opening))?;
        Ok(Self { path: path.to_owned(), lock: Mutex::new(Some(file)) })
    }

    /// Lets another server use the folder.
    pub(super) fn release(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn file(&self, number: u64, extension: &str) -> PathBuf {
        self.path.join(format!("{number}.{extension}"))
    }

    /// Writes a point. Returns the number of bytes.
    ///
    /// # Errors
    /// - [`Error::Io`] if a file cannot be written. The earlier points stay.
    pub(super) fn write(&self, Point { mut state, contents }: Point) -> Result<u64> {
        let path = self.file(state.number, CONTENTS);
        let written = contents.write(&path).and_then(|()| {
            let missing = || Error::Internal("a checkpoint without a file".to_owned());
            let file = contents.file().ok_or_else(missing)?;
            state.checksum = file.checksum();
            Ok(file.num_bytes() + write_state(&self.file(state.number, STATE), &state)?)
        });
        if written.is_err() {
            self.remove(|number| number == state.number);
        }
        written
    }

    /// Returns the numbers of the points, ascending.
    ///
    /// # Errors
    /// - [`Error::Io`] if the folder cannot be read.
    pub(super) fn numbers(&self) -> Result<Vec<u64>> {
        let files = self.files().map_err(failed(&self.path, "listing the recovery points in"))?;
        let states = files.into_iter().filter(|(_, extension)| *extension == STATE);
        let mut numbers: Vec<u64> = states.map(|(number, _)| number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the state of a point.
    ///
    /// # Errors
    /// - The errors of [`Self::read`].
    pub(super) fn read_state(&self, number: u64) -> Result<SavedState> {
        read_state(&self.file(number, STATE))
    }

    /// Returns a point.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if it is damaged.
    /// - [`Error::Io`] if it cannot be read.
    pub(super) fn read(&self, backends: &Backends, number: u64) -> Result<Point> {
        let path = self.file(number, STATE);
        let state = read_state(&path)?;
        let contents = Snapshot::read(backends, self.file(number, CONTENTS))?;
        let found = contents.file().map(|file| file.checksum());
        if state.number != number || found != Some(state.checksum) {
            return Err(Error::Corrupt {
                subject: path.display().to_string(),
                reason: "it belongs to other contents than those of the checkpoint beside it"
                    .to_owned(),
            });
        }
        Ok(Point { state, contents })
    }

    /// Returns the number and the extension of each file of a point.
    fn files(&self) -> io::Result<Vec<(u64, &'static str)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let parts = name.to_str().and_then(|name| name.split_once('.'));
            let Some((number, extension)) = parts else { continue };
            let extension = [CONTENTS, STATE].into_iter().find(|known| *known == extension);
            if let (Ok(number), Some(extension)) = (number.parse(), extension) {
                files.push((number, extension));
            }
        }
        Ok(files)
    }

    /// Removes the files of points, the state of each point first. Then syncs the folder, because
    /// a removed file could otherwise be there again after a loss of power.
    pub(super) fn remove(&self, is_removed: impl Fn(u64) -> bool) {
        let mut files = match self.files() {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, folder = %self.path.display(), "old recovery points stay");
                return;
            }
        };
        files.sort_unstable_by_key(|(_, extension)| *extension == CONTENTS);
        files.retain(|(number, _)| is_removed(*number));
        for (number, extension) in &files {
            let path = self.file(*number, extension);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(%error, path = %path.display(), "an old file cannot be removed");
            }
        }
        if !files.is_empty() && cfg!(unix) {
            let _ = File::open(&self.path).and_then(|folder| folder.sync_all());
        }
    }
}

/// Writes the state of a point. Returns the number of bytes.
fn write_state(path: &Path, state: &SavedState) -> Result<u64> {
    let message = encoded(state)?;
    let mut header = [0; HEADER];
    let fields: [&[u8]; 4] =
        [MAGIC, &VERSION.to_le_bytes(), &[0; 4], &(message.len() as u64).to_le_bytes()];
    for (place, byte) in header.iter_mut().zip(fields.into_iter().flatten()) {
        *place = *byte;
    }
    let checksum = crc(&[&header, &message]).to_le_bytes();
    replace_file(path, |file| {
        file.write_all(&header)?;
        file.write_all(&message)?;
        file.write_all(&checksum)
    })?;
    Ok((HEADER + message.len() + CHECKSUM) as u64)
}

fn read_state(path: &Path) -> Result<SavedState> {
    let reading = || failed(path, "reading a recovery point");
    let mut file = File::open(path).map_err(reading())?;
    let num_bytes = file.metadata().map_err(reading())?.len();
    let mut bytes = fallible::zeroed(usize::try_from(num_bytes).unwrap_or(usize::MAX))?;
    file.read_exact(&mut bytes).map_err(reading())?;
    from_bytes(&bytes)
        .map_err(|reason| Error::Corrupt { subject: path.display().to_string(), reason })
}

/// Returns the state in the bytes of a file, or what is wrong with them.
fn from_bytes(bytes: &[u8]) -> std::result::Result<SavedState, String> {
    let parts = bytes.split_at_checked(HEADER).zip(bytes.len().checked_sub(CHECKSUM));
    let Some(((header, _), end)) = parts.filter(|(_, end)| *end >= HEADER) else {
        return Err(format!("a recovery point cannot have {} bytes", bytes.len()));
    };
    let (contents, checksum) = bytes.split_at(end);
    if !header.starts_with(MAGIC) {
        return Err("it is not a recovery point".to_owned());
    }
    if crc(&[contents]).to_le_bytes() != *checksum {
        return Err("the checksum is wrong".to_owned());
    }
    if header.get(8..12) != Some(&VERSION.to_le_bytes()) {
        return Err(format!("expected version {VERSION}: a later kvstore has written it"));
    }
    let message = contents.get(HEADER..).unwrap_or_default();
    if header.get(16..) != Some(&(message.len() as u64).to_le_bytes()) {
        return Err("the length is wrong".to_owned());
    }
    SavedState::decode(message).map_err(|error| error.to_string())
}

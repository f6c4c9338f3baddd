//! Writing a file so that at every moment there is a whole one: the old or the new.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::turn::Turn;
use crate::error::{Error, Result};

/// How many random letters end the name of a file that is to replace another one.
const NUM_RANDOM: usize = 6;

/// A file that is to be written anew. Several of one file are written one after the other, in the order in which
/// they were begun: the last one stays.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    turn: Turn,
}

impl Replacement {
    pub(crate) fn begin(path: &Path) -> Self {
        // The process may be in another folder by the time that it is written.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { turn: Turn::take(&path), path }
    }

    /// Writes beside the file, then renames into place, and returns when both have reached the disk. What is no
    /// regular file (a pipe, a terminal) is written to as it is; a link stays one, and what it leads to is
    /// replaced or made.
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let Self { path, turn } = self;
        turn.wait();
        let written = match place_of(&path) {
            Ok(Some(place)) => beside(&place, write),
            Ok(None) => File::create(&path).and_then(|file| through(file, write)),
            Err(error) => Err(error),
        };
        let operation = "writing".to_owned();
        written.map_err(|source| Error::Io { path, operation, source })
    }
}

/// Returns where the file is or will be, which is where links lead to; none for what is no regular file.
fn place_of(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        // What has been removed is still there for those who have it open, but has no name.
        Ok(found) if found.is_file() => return Ok(fs::canonicalize(path).ok()),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut place = path.to_owned();
    while let Ok(target) = fs::read_link(&place) {
        place.pop();
        place.push(target);
    }
    Ok(Some(place))
}

fn beside(place: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = match place.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let prefix = prefix_for(place);
    remove_left_over(&folder, &prefix);
    let file = locked_file(&folder, &prefix)?;
    if let Ok(found) = fs::metadata(place) {
        file.as_file().set_permissions(found.permissions())?;
    }
    through(file.as_file(), write)?;
    file.as_file().sync_all()?;
    // The lock goes with the handle, after the renaming.
    let _file = file.persist(place)?;
    sync_folder(&folder)
}

/// Returns what the names of files begin with that are to replace this one.
fn prefix_for(place: &Path) -> String {
    let name = place.file_name().unwrap_or_default();
    // A name may already be as long as names can be.
    format!(".kvstore-{:08x}-", crc32fast::hash(name.as_encoded_bytes()))
}

/// Makes a file that is locked as long as somebody writes to it.
fn locked_file(folder: &Path, prefix: &str) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).rand_bytes(NUM_RANDOM);
    #[cfg(unix)]
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(all);
    loop {
        let file = builder.tempfile_in(folder)?;
        match file.as_file().lock() {
            // Between its making and its locking somebody may have taken it for one that was left over.
            Ok(()) if file.path().exists() => return Ok(file),
            Ok(()) => {}
            // There are file systems without locks, and each says so in its own way; what is left over there
            // stays.
            Err(_) => return Ok(file),
        }
    }
}

/// Removes what a process has left that ended while it wrote. What is locked is being written.
fn remove_left_over(folder: &Path, prefix: &str) {
    let Ok(found) = fs::read_dir(folder) else { return };
    for entry in found.flatten() {
        let name = entry.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_bytes());
        let is_ours = random.is_some_and(|random| random.len() == NUM_RANDOM);
        // Opening a pipe would wait for whoever is at its other end.
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        // It may have the mode of a file that nobody may write to.
        let opened = File::options().write(true).open(&path).or_else(|_| File::open(&path));
        // Whoever cannot open, lock or remove it leaves it where it is. The lock is held until it has no name any
        // more: whoever has just made it and is about to lock it then sees that it is gone.
        if let Ok(file) = opened
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Waits until the names in a folder have reached the disk, where a folder can be opened for that.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) if cfg!(unix) => folder.sync_all(),
        _ => Ok(()),
    }
}

fn through(
    file: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    writer.flush()
}

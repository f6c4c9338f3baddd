//! [`Replacement`]: replaces a file atomically. At every moment, either the old or the new file is
//! complete.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::turn::{Turn, end_of_links};
use crate::types::{Error, Result};

/// The number of random characters at the end of a temporary file's name.
const NUM_RANDOM: usize = 6;

/// The replacement of a file. Replacements of the same file are written one after another, in the
/// order of their `begin` calls, so the last one stays.
#[derive(Debug)]
pub(crate) struct Replacement {
    path: PathBuf,
    turn: Turn,
}

impl Replacement {
    pub(crate) fn begin(path: &Path) -> Self {
        // The process may change its working directory before the file is written.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { turn: Turn::take(&path), path }
    }

    /// Returns the absolute path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a temporary file in the same folder, then renames it. Returns after the file and the
    /// folder have reached the disk.
    ///
    /// - Pipes and terminals are written directly.
    /// - A symbolic link is followed, and its target is replaced.
    /// - The new file gets the owner, group and mode of the old one, so that no other user can read
    ///   it. Access control lists are not copied.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written. The old file is unchanged, unless the message
    ///   says that the new one is in place.
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.write_with(write, sync_folder)
    }

    /// Writes the file, then calls `sync` with its folder.
    fn write_with(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<()> {
        let Self { path, turn } = self;
        turn.wait();
        let failed = |operation: &str, source| Error::Io {
            path: path.clone(),
            operation: operation.to_owned(),
            source,
        };
        let Some(place) = place_of(&path).map_err(|source| failed(WRITING, source))? else {
            let written = File::create(&path).and_then(|file| through(file, write));
            return written.map_err(|source| failed(WRITING, source));
        };
        let folder = folder_of(&place);
        beside(&place, &folder, write).map_err(|source| failed(WRITING, source))?;
        sync(&folder).map_err(|source| failed(SYNCING, source))
    }
}

/// Writes a file that replaces an earlier one at once, for the files of other crates. Returns after
/// the file and its folder have reached the disk.
///
/// # Errors
/// - [`Error::Io`] if the file cannot be written. The old file is unchanged, unless the message
///   says that the new one is in place.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    Replacement::begin(path).write(write)
}

const WRITING: &str = "writing";
/// At this point the new file has already replaced the old one, and the message must say so.
const SYNCING: &str = "the new file is in place, but a power failure may bring back the old one, \
                       because syncing its folder failed";

/// Returns the path of the file after following links, or `None` if it is not a regular file.
fn place_of(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        // A removed file that is still open, as in `/dev/fd`, has no path. It is written directly.
        Ok(found) if found.is_file() => return Ok(fs::canonicalize(path).ok()),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(Some(end_of_links(path)))
}

fn folder_of(place: &Path) -> PathBuf {
    match place.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Writes a temporary file in `folder` and renames it to `place`.
fn beside(
    place: &Path,
    folder: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let prefix = prefix_for(place);
    remove_left_over(folder, &prefix);
    let old = fs::metadata(place).ok();
    let file = locked_file(folder, &prefix, old.is_none())?;
    if let Some(old) = old {
        take_access(file.as_file(), &old)?;
    }
    through(file.as_file(), write)?;
    file.as_file().sync_all()?;
    // Dropping the handle after the rename releases the lock.
    let _file = file.persist(place)?;
    Ok(())
}

/// Copies owner, group and mode of another file to a private file.
#[cfg(unix)]
fn take_access(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

    let found = file.metadata()?;
    // Only root may change the owner. A member of the group may keep the group.
    if (found.uid(), found.gid()) != (old.uid(), old.gid())
        && fchown(file, Some(old.uid()), Some(old.gid())).is_err()
    {
        let _ = fchown(file, None, Some(old.gid()));
    }
    let kept = file.metadata()?;
    let mode = mode_for(old.mode(), kept.uid() == old.uid(), kept.gid() == old.gid());
    // Changes the mode after the owner, because a change of owner clears bits of the mode.
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
fn take_access(file: &File, old: &Metadata) -> io::Result<()> {
    file.set_permissions(old.permissions())
}

/// Returns the mode of a file that replaces one with the mode `old`. If the group changes, its old
/// members become others, so group and others get only the permissions that both had.
#[cfg(unix)]
fn mode_for(old: u32, keeps_owner: bool, keeps_group: bool) -> u32 {
    let shared = (old >> 3) & old & 0o007;
    let allowed = if keeps_group { 0o777 } else { 0o700 | (shared << 3) | shared };
    let special = if keeps_owner && keeps_group { 0o7000 } else { 0 };
    old & (special | allowed)
}

/// Returns the prefix of the names of temporary files for this file.
fn prefix_for(place: &Path) -> String {
    let name = place.file_name().unwrap_or_default();
    // Uses a hash, because the name may already have the maximum length.
    format!(".kvstore-{:08x}-", crc32fast::hash(name.as_encoded_bytes()))
}

/// Creates the temporary file and locks it while it is written. A new file gets the default mode of
/// the process. A replacement is private (0600) until it gets the mode of the old file.
fn locked_file(folder: &Path, prefix: &str, is_first: bool) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).rand_bytes(NUM_RANDOM);
    #[cfg(unix)]
    let mode = if is_first { 0o666 } else { 0o600 };
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = is_first;
    loop {
        let file = builder.tempfile_in(folder)?;
        match file.as_file().lock() {
            Ok(()) if file.path().exists() => return Ok(file),
            // Before the lock, another process took the file for an abandoned one and removed it.
            Ok(()) => {}
            // File systems without locks return different errors. Abandoned files stay there.
            Err(_) => return Ok(file),
        }
    }
}

/// Removes temporary files of processes that ended while writing. A locked file is still being
/// written.
fn remove_left_over(folder: &Path, prefix: &str) {
    let Ok(found) = fs::read_dir(folder) else { return };
    for entry in found.flatten() {
        let name = entry.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_bytes());
        let is_ours = random.is_some_and(|random| random.len() == NUM_RANDOM);
        // Checks the type first, because opening a pipe would wait for its other end.
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path();
        // The file may have the mode of a read-only file.
        let opened = File::options().write(true).open(&path).or_else(|_| File::open(&path));
        // Removing is best effort. The lock is held until the file is removed. A process that has
        // just created the file then sees, after locking it, that the file is gone.
        if let Ok(file) = opened
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Waits until the entries of a folder have reached the disk. Does nothing if the folder cannot be
/// opened.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) if cfg!(unix) => folder.sync_all(),
        _ => Ok(()),
    }
}

/// Calls `write` with a buffered writer, and flushes it.
fn through(
    file: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    writer.flush()
}

#[cfg(all(test, unix, not(miri)))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a check fails by panicking")]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Returns a temporary folder with one file.
    fn folder_with_file(content: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        fs::write(&path, content).unwrap();
        set_mode(&path, mode);
        (folder, path)
    }

    #[test]
    fn a_failed_folder_sync_reports_that_the_new_file_is_in_place() {
        let (folder, path) = folder_with_file("old", 0o600);
        let synced = Replacement::begin(&path).write_with(
            |file| file.write_all(b"new"),
            |synced| {
                assert_eq!(synced, folder.path().canonicalize().unwrap());
                Err(io::Error::other("the disk is gone"))
            },
        );
        let text = synced.unwrap_err().chain();
        let expected = format!("{}: the new file is in place", path.display());
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with("because syncing its folder failed: the disk is gone"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let (folder, path) = folder_with_file("old", 0o600);
        let written = Replacement::begin(&path).write_with(
            |_| Err(io::Error::other("no room")),
            |_| unreachable!("nothing is in place"),
        );
        assert_eq!(written.unwrap_err().chain(), format!("{}: writing: no room", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replacement_is_created_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = locked_file(folder.path(), "x", false).unwrap();
        assert_eq!(mode(file.path()), 0o600);
        // A file that replaces nothing gets the default mode of the process.
        let (first, plain) = (folder.path().join("first"), folder.path().join("plain"));
        Replacement::begin(&first).write(|file| file.write_all(b"new")).unwrap();
        fs::write(&plain, "").unwrap();
        assert_eq!(mode(&first), mode(&plain));
    }

    #[test]
    fn the_new_file_has_the_mode_of_the_old_one_during_and_after_the_write() {
        for old in [0o600, 0o400, 0o640, 0o666] {
            let (folder, path) = folder_with_file("old", old);
            let check = |file: &mut dyn Write| {
                let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
                let modes: Vec<u32> = entries.map(|entry| mode(&entry.path())).collect();
                assert_eq!(modes, [old; 2]);
                file.write_all(b"new")
            };
            Replacement::begin(&path).write(check).unwrap();
            assert_eq!((mode(&path), fs::read_to_string(&path).unwrap()), (old, "new".to_owned()));
        }
    }

    #[test]
    fn owner_and_group_are_kept() {
        let (_folder, path) = folder_with_file("old", 0o640);
        if let Err(error) = chown(&path, Some(12_345), Some(23_456)) {
            println!("skipped: a file cannot be given away, which only root may: {error}");
            return;
        }
        Replacement::begin(&path).write(|file| file.write_all(b"new")).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), mode(&path)), (12_345, 23_456, 0o640));
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_changed_owner_or_group_gains_no_access() {
        assert_eq!(mode_for(0o100_640, true, true), 0o640);
        assert_eq!(mode_for(0o4755, true, true), 0o4755);
        // The group has changed.
        assert_eq!(mode_for(0o640, true, false), 0o600);
        assert_eq!(mode_for(0o664, true, false), 0o644);
        // Members of the old group could not read the file. They are now others.
        assert_eq!(mode_for(0o604, true, false), 0o600);
        assert_eq!(mode_for(0o6775, false, true), 0o775);
        assert_eq!(mode_for(0o2770, false, false), 0o700);
    }
}

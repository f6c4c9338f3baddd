//! Writing a file so that at every moment there is a whole one: the old or the new.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::turn::{Turn, end_of_links};
use crate::types::{Error, Result};

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

    /// Writes a temporary file beside the file, then renames it. Returns when both have reached the
    /// disk. Writes to a pipe or terminal directly. Follows a link and replaces its target. Keeps
    /// owner, group and mode of a replaced file, so that no other user can read the new one. Does not
    /// copy access control lists.
    ///
    /// # Errors
    /// [`Error::Io`]. The old file is then as it was, unless the error says that the new one is in place.
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

const WRITING: &str = "writing";
/// The new file has already replaced the old one, and the message must say so.
const SYNCING: &str = "the new file is in place, but a power failure may bring back the old one, \
                       because syncing its folder failed";

/// Returns where the file is or will be, which is where links lead to; none for what is no regular file.
fn place_of(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        // What has been removed is still there for those who have it open, but has no name.
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
    // The lock goes with the handle, after the renaming.
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
    // After the owner: a change of owner clears bits of the mode.
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

/// Returns what the names of files begin with that are to replace this one.
fn prefix_for(place: &Path) -> String {
    let name = place.file_name().unwrap_or_default();
    // A name may already be as long as names can be.
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
        // The first one of its name is like every file of this process.
        let (first, plain) = (folder.path().join("first"), folder.path().join("plain"));
        Replacement::begin(&first).write(|file| file.write_all(b"new")).unwrap();
        fs::write(&plain, "").unwrap();
        assert_eq!(mode(&first), mode(&plain));
    }

    #[test]
    fn the_mode_is_that_of_the_old_file_while_content_is_written_and_afterwards() {
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
        // The group is another one now.
        assert_eq!(mode_for(0o640, true, false), 0o600);
        assert_eq!(mode_for(0o664, true, false), 0o644);
        // Members of the old group could not read it, and are others now.
        assert_eq!(mode_for(0o604, true, false), 0o600);
        assert_eq!(mode_for(0o6775, false, true), 0o775);
        assert_eq!(mode_for(0o2770, false, false), 0o700);
    }
}

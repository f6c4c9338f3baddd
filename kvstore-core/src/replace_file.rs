//! Writing a file so that at every moment there is a whole one: the old or the new.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes beside the file, then renames into place. What is no regular file (a pipe, a terminal) is
/// written to as it is, and so is what a link leads to that is not there; a link to a file stays one,
/// and the file is replaced.
pub(crate) fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_special = match fs::metadata(&place) {
        Ok(found) => !found.is_file(),
        Err(_) => fs::symlink_metadata(&place).is_ok(),
    };
    let written = if is_special {
        File::create(&place).and_then(|file| through(file, write))
    } else {
        beside(&place, write)
    };
    written.map_err(|source| Error::Io {
        path: path.to_owned(),
        operation: "writing".to_owned(),
        source,
    })
}

fn beside(place: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let folder = match place.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".kvstore-");
    #[cfg(unix)]
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(all);
    let file = builder.tempfile_in(folder)?;
    if let Ok(found) = fs::metadata(place) {
        file.as_file().set_permissions(found.permissions())?;
    }
    through(file.as_file(), write)?;
    file.as_file().sync_all()?;
    file.persist(place)?;
    Ok(())
}

fn through(
    file: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(&mut writer)?;
    writer.flush()
}

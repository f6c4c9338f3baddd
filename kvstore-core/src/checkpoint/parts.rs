//! [`PartList`]: names the parts of a checkpoint that several servers have written.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fallible;
use crate::file::Replacement;
use crate::store::Snapshot;
use crate::types::{Error, Key, Result};

/// The version of the format.
const VERSION: u32 = 1;

/// The longest list: no group has as many keys.
const MAX_BYTES: u64 = 1 << 30;

/// The list of the parts of a checkpoint that several servers have written: the file `parts.json`
/// in its folder. Each part is a checkpoint file of its own. [`Snapshot::read`] joins the parts if
/// its path is the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartList {
    version: u32,
    /// The names of the files.
    files: Vec<String>,
    /// The keys in the order of initialisation.
    keys: Vec<PartsOfKey>,
}

/// A key and the indices of the files that have its rows, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartsOfKey {
    key: String,
    files: Vec<usize>,
}

impl PartList {
    /// The name of the file.
    pub const FILE: &'static str = "parts.json";

    /// Returns a list of files. `keys` has each key in the order of initialisation, with the
    /// indices of the files that have its rows, in order.
    pub fn new(files: Vec<String>, keys: &[(Key, Vec<usize>)]) -> Self {
        let keys = keys
            .iter()
            .map(|(key, files)| PartsOfKey { key: key.as_str().to_owned(), files: files.clone() });
        Self { version: VERSION, files, keys: keys.collect() }
    }

    /// Returns the names of the files.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Returns the list as JSON.
    ///
    /// # Errors
    /// - [`Error::Internal`] if the list cannot be represented.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))
    }

    /// Reads a list from JSON, which may come from another process.
    ///
    /// # Errors
    /// - [`Error::Corrupt`] if the text is not a list of parts, or has another version.
    pub fn from_json(text: &str) -> Result<Self> {
        let corrupt = |reason: String| Error::Corrupt { subject: Self::FILE.to_owned(), reason };
        let list: Self = serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?;
        if list.version != VERSION {
            return Err(corrupt(format!(
                "its format has version {}, this library reads version {VERSION}",
                list.version
            )));
        }
        if let Some(name) = list.files.iter().find(|name| !is_file_name(name)) {
            return Err(corrupt(format!("`{name}` is not the name of a file of its folder")));
        }
        let names: HashSet<&String> = list.files.iter().collect();
        if names.len() < list.files.len() {
            return Err(corrupt("a file is in the list twice".to_owned()));
        }
        let mut seen = HashSet::new();
        for PartsOfKey { key, files } in &list.keys {
            let is_known = |file: &usize| *file < list.files.len();
            let is_ascending = files.is_sorted_by(|left, right| left < right);
            let is_valid = !files.is_empty() && files.iter().all(is_known) && is_ascending;
            if !is_valid || !seen.insert(key) {
                return Err(corrupt(format!("key `{key}` is there twice or has wrong files")));
            }
        }
        Ok(list)
    }

    /// Writes the list to its file in a folder, which replaces an earlier list at once.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be written.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let json = self.to_json()?;
        let replacement = Replacement::begin(&folder.as_ref().join(Self::FILE));
        replacement.write(|file| file.write_all(json.as_bytes()))
    }

    /// Reads the list of a folder.
    ///
    /// # Errors
    /// - [`Error::Io`] if the file cannot be read.
    /// - The errors of [`PartList::from_json`].
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(Self::FILE);
        let failed =
            |source| Error::Io { path: path.clone(), operation: "reading".to_owned(), source };
        let corrupt = |reason| Error::Corrupt { subject: path.display().to_string(), reason };
        let mut file = File::open(&path).map_err(failed)?;
        let num_bytes = file.metadata().map_err(failed)?.len();
        let len = usize::try_from(num_bytes).ok().filter(|_| num_bytes <= MAX_BYTES);
        let len =
            len.ok_or_else(|| corrupt(format!("a list of parts cannot have {num_bytes} bytes")))?;
        let mut bytes = fallible::zeroed(len)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| corrupt(error.to_string()))?;
        Self::from_json(text)
    }
}

/// Returns whether a name has no folder, so that a list cannot refer to files elsewhere.
pub(super) fn is_file_name(name: &str) -> bool {
    let name_only = Path::new(name).file_name().and_then(|name| name.to_str());
    name_only == Some(name) && !name.contains(['/', '\\'])
}

/// Reads the checkpoint of several servers from its folder. `read_part` reads one of its files.
pub(super) fn read_folder(
    folder: &Path,
    read_part: impl Fn(&Path) -> Result<Snapshot>,
) -> Result<Snapshot> {
    let list = PartList::read(folder)?;
    let parts = list.files.iter().map(|name| read_part(&folder.join(name)));
    let parts = fallible::try_collect(parts)?;
    let keys = list.keys.into_iter().map(|PartsOfKey { key, files }| Ok((Key::new(&key)?, files)));
    let keys: Vec<(Key, Vec<usize>)> = keys.collect::<Result<_>>()?;
    Snapshot::concatenate(&parts, &keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorCode;

    #[test]
    fn damaged_lists_are_rejected() {
        let key = Key::new("w").unwrap();
        let list = PartList::new(vec!["a".to_owned(), "b".to_owned()], &[(key, vec![0, 1])]);
        let json = list.to_json().unwrap();
        assert_eq!(PartList::from_json(&json).unwrap(), list);
        for (good, bad) in [
            ("\"a\"", "\"../a\""),
            ("\"a\"", "\"/etc/passwd\""),
            ("\"a\"", "\"..\""),
            ("\"version\": 1", "\"version\": 2"),
            ("1\n", "2\n"),
            ("0,", "1,"),
            ("\"b\"", "\"a\""),
            ("{", "{\"more\": 1,"),
            ("}", ""),
        ] {
            let damaged = json.replacen(good, bad, 1);
            assert_ne!(damaged, json, "{good}");
            let error = PartList::from_json(&damaged).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Corrupt, "{damaged}");
        }
        let twice = r#"{"version": 1, "files": ["a"], "keys": [
            {"key": "w", "files": [0]}, {"key": "w", "files": [0]}]}"#;
        assert!(PartList::from_json(twice).is_err());
        assert!(
            PartList::from_json(
                r#"{"version": 1, "files": [], "keys": [{"key": "w", "files": []}]}"#
            )
            .is_err()
        );
    }
}

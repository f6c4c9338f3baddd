//! Checksums of the contents of a store, with which a replay is compared.

use std::collections::HashMap;
use std::slice;

use kvstore_core::{Key, Result, Snapshot, Value, fallible};

use super::heads::{Digests, KeyDigest};
use crate::files::crc;

/// The most keys of a record with checksums.
const MOST_KEYS: usize = 4096;

/// The name of the store in the files whose checksums are compared.
const NAME: &str = "local";

/// The checksums of the contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentDigests {
    /// In the order of initialisation, which a push follows.
    pub(crate) keys: Vec<(String, u32)>,
    pub(crate) settings: u32,
}

impl ContentDigests {
    /// Returns the checksums of a snapshot. They do not depend on the name of the store, or on the
    /// residuals of the member that has taken it.
    pub(crate) fn of(snapshot: &Snapshot) -> Result<Self> {
        let plain = plain(snapshot)?;
        let digest = |key: &Key| -> Result<_> {
            Ok((key.as_str().to_owned(), digest(&plain, slice::from_ref(key))?))
        };
        let keys = fallible::try_collect(plain.keys().map(digest))?;
        Ok(Self { keys, settings: digest_of_settings(&plain)? })
    }

    /// Adds the checksums of a record. Returns whether they are complete.
    pub(crate) fn add(&mut self, digests: Digests) -> bool {
        self.keys.extend(digests.keys.into_iter().map(|entry| (entry.key, entry.digest)));
        self.settings = digests.settings.unwrap_or_default();
        digests.settings.is_some()
    }
}

fn plain(snapshot: &Snapshot) -> Result<Snapshot> {
    snapshot.with_residuals(NAME, snapshot.compression(), &HashMap::new())
}

fn digest(snapshot: &Snapshot, keys: &[Key]) -> Result<u32> {
    Ok(u32::from_le_bytes(snapshot.only(keys)?.to_pieces()?.checksum))
}

fn digest_of_settings(snapshot: &Snapshot) -> Result<u32> {
    digest(snapshot, &[])
}

/// Returns the records with the checksums of a snapshot, for the mark with this number.
pub(super) fn digest_records(
    mark: u64,
    snapshot: &Snapshot,
) -> Result<impl Iterator<Item = Digests>> {
    let ContentDigests { keys, settings } = ContentDigests::of(snapshot)?;
    let entries = keys.into_iter().map(|(key, digest)| KeyDigest { key, digest });
    let entries = fallible::gather(entries)?;
    let num_records = entries.len().div_ceil(MOST_KEYS).max(1);
    let mut entries = entries.into_iter();
    Ok((1..=num_records).map(move |record| Digests {
        mark,
        keys: entries.by_ref().take(MOST_KEYS).collect(),
        settings: (record == num_records).then_some(settings),
    }))
}

/// Returns the CRC-64 of a value, or `None` if its elements are not in the memory of the host.
pub(crate) fn value_digest(value: &Value) -> Option<u64> {
    Some(match value {
        Value::Dense(tensor) => crc(&[tensor.host_bytes().ok()?]),
        Value::Rows(rows) => {
            crc(&[bytemuck::cast_slice(rows.indices()), rows.rows().host_bytes().ok()?])
        }
    })
}

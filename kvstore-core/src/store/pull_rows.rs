//! Pulls rows of stored values.

use std::sync::Arc;

use super::table::Entry;
use crate::backend::RowIds;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::rows::{RowSparse, RowSum};
use crate::types::{Error, Result};

/// Returns the requested rows of each entry, as one batch.
///
/// Locks the values while it reads them, in the order of initialisation like everywhere else. A
/// clone of a value would make a concurrent step copy all of it.
pub(crate) fn pull_rows(
    backends: &Backends,
    requested: &[(Arc<Entry>, &[i64])],
) -> Result<Vec<RowSparse>> {
    let indices = fallible::try_collect(requested.iter().map(|(_, ids)| ascending(ids)))?;
    // A key may be requested more than once. Locking its value twice would deadlock.
    let mut entries = fallible::collect(requested.iter().map(|(entry, _)| entry))?;
    entries.sort_unstable_by_key(|entry| entry.order());
    entries.dedup_by_key(|entry| entry.order());
    let mut values = fallible::with_capacity(entries.len())?;
    for entry in &entries {
        values.push(entry.lock_value()?);
    }
    let picks = requested.iter().zip(indices).map(|((entry, _), indices)| {
        let found = entries.binary_search_by_key(&entry.order(), |entry| entry.order()).ok();
        let value = found.and_then(|found| values.get(found)).ok_or_else(lost)?;
        RowSum::pick(value, Arc::new(RowIds::new(indices)))
    });
    RowSum::run(backends, fallible::try_collect(picks)?)
}

/// Returns the row indices without duplicates, in ascending order.
fn ascending(ids: &[i64]) -> Result<Vec<i64>> {
    let mut indices = fallible::copied(ids)?;
    indices.sort_unstable();
    indices.dedup();
    Ok(indices)
}

fn lost() -> Error {
    Error::Internal("a pull of rows has lost one of its values".to_owned())
}

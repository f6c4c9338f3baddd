//! Pulls rows of stored values.

use std::sync::Arc;

use super::table::Entry;
use crate::backend::RowIds;
use crate::backend::registry::Backends;
use crate::fallible;
use crate::rows::{RowSparse, RowSum, check_ids};
use crate::types::{Error, Result};

/// Returns the requested rows of each entry, as one batch.
///
/// Locks the values while it reads them, in the order of initialisation like everywhere else. A
/// clone of a value would make a concurrent step copy all of it.
pub(crate) fn pull_rows(
    backends: &Backends,
    requested: &[(Arc<Entry>, Arc<RowIds>)],
) -> Result<Vec<RowSparse>> {
    // A key may be requested more than once. Locking its value twice would deadlock.
    let mut entries = fallible::collect(requested.iter().map(|(entry, _)| entry))?;
    entries.sort_unstable_by_key(|entry| entry.order());
    entries.dedup_by_key(|entry| entry.order());
    let mut values = fallible::with_capacity(entries.len())?;
    for entry in &entries {
        values.push(entry.lock_value()?);
    }
    let picks = requested.iter().map(|(entry, ids)| {
        let found = entries.binary_search_by_key(&entry.order(), |entry| entry.order()).ok();
        let value = found.and_then(|found| values.get(found)).ok_or_else(lost)?;
        RowSum::pick(value, Arc::clone(ids))
    });
    RowSum::run(backends, fallible::try_collect(picks)?)
}

/// Returns the row indices without duplicates, in ascending order.
///
/// # Errors
/// - The errors of [`check_ids`], if an index is not valid for the entry.
pub(crate) fn ascending(entry: &Entry, ids: &[i64]) -> Result<Arc<RowIds>> {
    let mut indices = fallible::with_capacity(ids.len())?;
    let (mut are_ascending, mut previous) = (true, i64::MIN);
    // One pass copies and compares, because most callers have sorted their ids.
    indices.extend(ids.iter().map(|id| {
        are_ascending &= previous < *id;
        previous = *id;
        *id
    }));
    if !are_ascending {
        indices.sort_unstable();
        indices.dedup();
    }
    let (what, shape) = (format!("key `{}`", entry.key()), entry.spec().shape());
    let ends = [indices.first(), indices.last()].map(|end| end.copied().unwrap_or_default());
    if check_ids(&what, shape, &ends).is_err() {
        // The error names the first invalid index of the call.
        check_ids(&what, shape, ids)?;
    }
    Ok(Arc::new(RowIds::new(indices)))
}

fn lost() -> Error {
    Error::Internal("a pull of rows has lost one of its values".to_owned())
}

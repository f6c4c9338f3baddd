//! Allocates vectors, strings, maps and sets whose length comes from data.
//!
//! These functions return an error if there is not enough memory. The standard constructors abort
//! the process instead, so Clippy rejects them in all crates (`clippy.toml`).
//!
//! Clippy does not find allocations by `collect`, `extend`, `push` and `clone`. Tests with a
//! failing allocator (`failed_allocations.rs`) cover the calls that use them.

#![expect(clippy::disallowed_methods, reason = "the fallible replacements are implemented here")]

use std::collections::{HashMap, HashSet, TryReserveError};
use std::hash::{BuildHasher, Hash};

use bytemuck::Zeroable;

use crate::types::{Device, Error, Result};

/// Returns an empty vector with capacity for `len` items.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn with_capacity<T>(len: usize) -> Result<Vec<T>> {
    let mut items = Vec::new();
    reserve(&mut items, len)?;
    Ok(items)
}

/// Reserves capacity for `more` additional items.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<()> {
    items.try_reserve(more).map_err(|_| out_of_memory::<T>(items.len().saturating_add(more)))
}

/// Returns a vector of `len` zeros.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn zeroed<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let items = bytemuck::allocation::try_zeroed_slice_box(len);
    items.map(<[T]>::into_vec).map_err(|()| out_of_memory::<T>(len))
}

/// Returns a vector of `len` clones of `item`.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn filled<T: Clone>(item: T, len: usize) -> Result<Vec<T>> {
    let mut items = with_capacity(len)?;
    items.resize(len, item);
    Ok(items)
}

/// Returns a copy of a slice.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn copied<T: Clone>(list: &[T]) -> Result<Vec<T>> {
    let mut items = Vec::new();
    extend(&mut items, list)?;
    Ok(items)
}

/// Collects an iterator of known length into a vector.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn collect<T>(list: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut items = with_capacity(list.len())?;
    items.extend(list);
    Ok(items)
}

/// Collects an iterator of known length, up to the first error.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
/// - The first error of the iterator.
pub fn try_collect<T, E: From<Error>>(
    list: impl ExactSizeIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, E> {
    let mut items = with_capacity(list.len())?;
    for item in list {
        items.push(item?);
    }
    Ok(items)
}

/// Collects an iterator of unknown length into a vector.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn gather<T>(list: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let list = list.into_iter();
    let mut items = with_capacity(list.size_hint().0)?;
    for item in list {
        push(&mut items, item)?;
    }
    Ok(items)
}

/// Appends an item. The capacity grows by a factor, as in [`Vec::push`].
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn push<T>(items: &mut Vec<T>, item: T) -> Result<()> {
    reserve(items, 1)?;
    items.push(item);
    Ok(())
}

/// Drops the items and returns the memory as a vector of items of the same size.
///
/// Relies on an optimisation of the standard library, which collects in place. Without it, this
/// allocates a new vector, and the test that counts allocations fails.
pub(crate) fn reuse<A, B>(mut items: Vec<A>) -> Vec<B> {
    items.clear();
    items.into_iter().filter_map(|_| None).collect()
}

/// Appends a copy of a slice.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn extend<T: Clone>(items: &mut Vec<T>, list: &[T]) -> Result<()> {
    reserve(items, list.len())?;
    items.extend_from_slice(list);
    Ok(())
}

/// Returns an empty string with capacity for `num_bytes` bytes.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn string(num_bytes: usize) -> Result<String> {
    let mut text = String::new();
    text.try_reserve_exact(num_bytes).map_err(|_| out_of_memory::<u8>(num_bytes))?;
    Ok(text)
}

/// Returns an empty map with capacity for `len` entries.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn hash_map<K: Eq + Hash, V, S: BuildHasher + Default>(len: usize) -> Result<HashMap<K, V, S>> {
    let mut entries = HashMap::default();
    reserve_entries(&mut entries, len)?;
    Ok(entries)
}

/// Reserves capacity for `more` additional entries.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn reserve_entries<K: Eq + Hash, V, S: BuildHasher>(
    entries: &mut HashMap<K, V, S>,
    more: usize,
) -> Result<()> {
    let len = entries.len().saturating_add(more);
    let reserved: Result<(), TryReserveError> = entries.try_reserve(more);
    reserved.map_err(|_| out_of_memory::<(K, V)>(len))
}

/// Reserves capacity for `more` additional items.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn reserve_items<T: Eq + Hash, S: BuildHasher>(
    items: &mut HashSet<T, S>,
    more: usize,
) -> Result<()> {
    let len = items.len().saturating_add(more);
    let reserved: Result<(), TryReserveError> = items.try_reserve(more);
    reserved.map_err(|_| out_of_memory::<T>(len))
}

/// Returns an empty set with capacity for `len` items.
///
/// # Errors
/// - [`Error::OutOfMemory`] if there is not enough memory.
pub fn hash_set<T: Eq + Hash>(len: usize) -> Result<HashSet<T>> {
    let mut items = HashSet::new();
    reserve_items(&mut items, len)?;
    Ok(items)
}

/// Returns the error for a failed allocation of `len` items on the host.
pub fn out_of_memory<T>(len: usize) -> Error {
    let requested = len.saturating_mul(size_of::<T>());
    Error::OutOfMemory { device: Device::default(), requested, in_use: 0, limit: None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::hash::RandomState;

    use super::*;
    use crate::types::ErrorCode;

    #[test]
    fn oversized_allocations_are_errors() {
        let errors = [
            with_capacity::<u64>(usize::MAX).unwrap_err(),
            zeroed::<u64>(usize::MAX).unwrap_err(),
            // 8 EiB: a valid layout that no system can allocate. Miri aborts on it.
            zeroed::<u64>(if cfg!(miri) { usize::MAX } else { usize::MAX / 16 }).unwrap_err(),
            filled(1_u8, usize::MAX).unwrap_err(),
            hash_set::<u64>(usize::MAX).unwrap_err(),
            hash_map::<u64, u64, RandomState>(usize::MAX).unwrap_err(),
            string(usize::MAX).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), ErrorCode::OutOfMemory, "{error}");
        }
    }

    #[test]
    fn contents_match_the_standard_library() {
        assert_eq!(zeroed::<u16>(3).unwrap(), [0; 3]);
        assert!(zeroed::<u16>(0).unwrap().is_empty());
        assert_eq!(filled(7, 3).unwrap(), [7; 3]);
        assert_eq!(collect(1..4).unwrap(), [1, 2, 3]);
        assert_eq!(try_collect((1..4).map(Ok::<_, Error>)).unwrap(), [1, 2, 3]);
        assert_eq!(gather((1..9).filter(|number| number % 2 == 1)).unwrap(), [1, 3, 5, 7]);
        let error = |number| if number < 2 { Ok(number) } else { Err(Error::invalid("two")) };
        assert_eq!(try_collect((1..4).map(error)).unwrap_err().to_string(), "two");
        let mut items = copied(&[1, 2]).unwrap();
        extend(&mut items, &[3]).unwrap();
        assert_eq!(items, [1, 2, 3]);
        assert!(with_capacity::<u8>(9).unwrap().capacity() >= 9);
    }
}

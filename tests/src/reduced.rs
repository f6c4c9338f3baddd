//! Reduces the sizes of checks under Miri, which takes some thousand times as long per step. The
//! checks run the same code paths, but fewer times. Without Miri, these functions return their
//! arguments.
//!
//! Under Miri, the thread pool of the CPU backend cuts work into smaller pieces, so that lengths
//! that Miri can handle are cut, too.

use std::time::Duration;

use crate::STORE_NAMES;

const IS_REDUCED: bool = cfg!(miri);

/// Returns how often to repeat a check whose later rounds add little.
pub const fn times(count: u16) -> u16 {
    if IS_REDUCED && count > 2 { 2 } else { count }
}

/// Returns a length. Reduces a length that only the thread pool cuts to one that is just cut.
pub const fn length(length: usize) -> usize {
    const LONGEST: usize = 100;
    if IS_REDUCED && length > LONGEST { LONGEST } else { length }
}

/// Returns the cases. Under Miri, returns only the first and the last.
pub fn few<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let all: Vec<T> = all.into_iter().collect();
    let last = all.len().saturating_sub(1);
    let is_kept = move |index: usize| !IS_REDUCED || [0, last].contains(&index);
    all.into_iter().enumerate().filter(move |(index, _)| is_kept(*index)).map(|(_, case)| case)
}

/// Returns the lengths. Under Miri, returns the longest that Miri can handle and a shorter one.
pub fn lengths(all: &[usize]) -> impl Iterator<Item = usize> {
    let mut lengths: Vec<usize> = all.iter().copied().map(length).collect();
    lengths.dedup();
    let middle = lengths.len() / 2;
    few(lengths.split_off(if IS_REDUCED { middle } else { 0 }))
}

/// Returns numbers of threads. Under Miri, returns only the smallest above one, because a new
/// thread pool takes seconds.
pub fn threads(all: &[usize]) -> impl Iterator<Item = usize> {
    let enough = all.iter().copied().filter(|count| *count > 1).min();
    all.iter().copied().filter(move |count| !IS_REDUCED || Some(*count) == enough)
}

/// Returns the names of stores. Under Miri, returns only the first.
pub fn store_names() -> impl Iterator<Item = &'static str> {
    STORE_NAMES.into_iter().take(if IS_REDUCED { 1 } else { STORE_NAMES.len() })
}

/// Returns the time after which a waiting thread counts as hanging. Miri's clock counts steps and
/// runs much faster than real time. When every thread waits, it jumps to the deadline.
pub const fn deadline() -> Duration {
    Duration::from_secs(if IS_REDUCED { 100_000 } else { 60 })
}

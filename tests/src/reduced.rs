//! Sizes of the checks under Miri, which needs some thousand times as long for every step: the same
//! paths, fewer times. Everywhere else these functions return what they are given.
//!
//! The thread pool of the host's backend cuts work into smaller pieces there, so that lengths which
//! Miri can wait for are cut as well.

use std::time::Duration;

use crate::STORE_NAMES;

const IS_REDUCED: bool = cfg!(miri);

/// How often something is repeated of which once would say almost as much.
pub const fn times(count: u16) -> u16 {
    if IS_REDUCED && count > 2 { 2 } else { count }
}

/// A length, one that only the thread pool would cut made just long enough to be cut.
pub const fn length(length: usize) -> usize {
    const LONGEST: usize = 100;
    if IS_REDUCED && length > LONGEST { LONGEST } else { length }
}

/// Of many cases the first and the last.
pub fn few<T>(all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let all: Vec<T> = all.into_iter().collect();
    let last = all.len().saturating_sub(1);
    let is_kept = move |index: usize| !IS_REDUCED || [0, last].contains(&index);
    all.into_iter().enumerate().filter(move |(index, _)| is_kept(*index)).map(|(_, case)| case)
}

/// Of many lengths the longest that Miri can wait for and a shorter one.
pub fn lengths(all: &[usize]) -> impl Iterator<Item = usize> {
    let mut lengths: Vec<usize> = all.iter().copied().map(length).collect();
    lengths.dedup();
    let middle = lengths.len() / 2;
    few(lengths.split_off(if IS_REDUCED { middle } else { 0 }))
}

/// Numbers of threads, or only the smallest that is more than one: a new thread pool costs seconds.
pub fn threads(all: &[usize]) -> impl Iterator<Item = usize> {
    let enough = all.iter().copied().filter(|count| *count > 1).min();
    all.iter().copied().filter(move |count| !IS_REDUCED || Some(*count) == enough)
}

/// The names of stores, or only the first.
pub fn store_names() -> impl Iterator<Item = &'static str> {
    STORE_NAMES.into_iter().take(if IS_REDUCED { 1 } else { STORE_NAMES.len() })
}

/// The time after which something that waits will wait for ever. Miri's clock counts steps and runs
/// far ahead of the machine's; when every thread waits, it goes to the deadline at once.
pub const fn deadline() -> Duration {
    Duration::from_secs(if IS_REDUCED { 100_000 } else { 60 })
}

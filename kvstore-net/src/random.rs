//! [`random_number`]: numbers that identify processes, errors and recovery points.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a random number that is not 0.
pub(crate) fn random_number() -> u64 {
    // The standard library draws the keys of hash tables from the operating system.
    RandomState::new().build_hasher().finish().max(1)
}

//! [`Versions`]: how many pushes have changed each key, for the staleness of a push.

use std::collections::HashMap;
use std::hash::Hash;

/// The versions of the keys `K`. A push increases the version of a key by one.
///
/// A key that is removed and initialised again continues with a version that is not lower.
/// Otherwise, members that pulled the removed value would look up to date.
#[derive(Clone, Debug)]
pub struct Versions<K> {
    by_key: HashMap<K, Version>,
    /// The highest version of all keys that were removed.
    floor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    /// The version before the first push.
    first: u64,
    now: u64,
}

impl<K> Default for Versions<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), floor: 0 }
    }
}

impl<K: Clone + Eq + Hash> Versions<K> {
    /// Counts a push.
    pub fn advance(&mut self, key: &K) {
        let new = Version { first: self.floor, now: self.floor };
        self.by_key.entry(key.clone()).or_insert(new).now += 1;
    }

    /// Returns the version of a key.
    pub fn version(&self, key: &K) -> u64 {
        self.by_key.get(key).map_or(self.floor, |version| version.now)
    }

    /// Returns how many pushes have changed a key since it had the version `seen`, or since it was
    /// initialised after a removal, if that was later.
    pub fn pushes_since(&self, key: &K, seen: u64) -> u64 {
        let since = |version: &Version| version.now.saturating_sub(seen.max(version.first));
        self.by_key.get(key).map_or(0, since)
    }

    /// Returns each key with its version before the first push, and now. Others have the version
    /// [`Self::floor`].
    pub fn saved(&self) -> impl Iterator<Item = (&K, (u64, u64))> {
        self.by_key.iter().map(|(key, version)| (key, (version.first, version.now)))
    }

    /// Returns the highest version of all keys that were removed.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns versions that an earlier run of the server has saved.
    pub fn restored(floor: u64, saved: impl IntoIterator<Item = (K, (u64, u64))>) -> Self {
        let saved = saved.into_iter();
        let by_key = saved.map(|(key, (first, now))| (key, Version { first, now })).collect();
        Self { by_key, floor }
    }

    /// Removes a key.
    pub fn remove_key(&mut self, key: &K) {
        if let Some(version) = self.by_key.remove(key) {
            self.floor = self.floor.max(version.now);
        }
    }
}

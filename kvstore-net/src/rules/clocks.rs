//! [`Clocks`]: how many pushes each member has made to each key, for pulls with bounded staleness.

use std::collections::HashMap;
use std::hash::Hash;

/// The clocks of the members `M` for the keys `K`: the numbers of their pushes.
///
/// With the staleness `s`, a pull of a member whose clock is `c` waits until the clock of every
/// other live worker is at least `c - s` (Ho et al., "More effective distributed ML via a stale
/// synchronous parallel parameter server", 2013).
#[derive(Clone, Debug)]
pub struct Clocks<K, M> {
    clocks: HashMap<K, HashMap<M, u64>>,
    /// What a member starts with that has no clock for a key.
    starts: HashMap<M, HashMap<K, u64>>,
}

impl<K: Clone + Eq + Hash, M: Clone + Eq + Hash> Default for Clocks<K, M> {
    fn default() -> Self {
        Self { clocks: HashMap::new(), starts: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, M: Clone + Eq + Hash> Clocks<K, M> {
    /// Starts the clocks of a new member at the smallest clocks of the live workers, so that it
    /// does not hold up members that have pushed before it came.
    pub fn start(&mut self, member: M, live: &[M]) {
        let starts = self.clocks.keys().filter_map(|key| {
            let others = live.iter().filter(|other| **other != member);
            let start = others.map(|other| self.clock(key, other)).min()?;
            Some((key.clone(), start))
        });
        let starts = starts.collect();
        for clocks in self.clocks.values_mut() {
            clocks.remove(&member);
        }
        self.starts.insert(member, starts);
    }

    /// Counts a push of a member.
    pub fn advance(&mut self, key: &K, member: &M) {
        let clock = self.clock(key, member) + 1;
        self.clocks.entry(key.clone()).or_default().insert(member.clone(), clock);
    }

    /// Returns the clock of a member.
    pub fn clock(&self, key: &K, member: &M) -> u64 {
        let own = self.clocks.get(key).and_then(|clocks| clocks.get(member));
        let start = || self.starts.get(member).and_then(|starts| starts.get(key));
        own.or_else(start).copied().unwrap_or_default()
    }

    /// Returns the first of the live workers for which a pull of this member must wait.
    pub fn awaited<'a>(&self, key: &K, member: &M, staleness: u64, live: &'a [M]) -> Option<&'a M> {
        let least = self.clock(key, member).saturating_sub(staleness);
        live.iter().find(|other| *other != member && self.clock(key, other) < least)
    }

    /// Removes a key.
    pub fn remove_key(&mut self, key: &K) {
        self.clocks.remove(key);
        for starts in self.starts.values_mut() {
            starts.remove(key);
        }
    }

    /// Removes a member.
    pub fn remove_member(&mut self, member: &M) {
        self.starts.remove(member);
        for clocks in self.clocks.values_mut() {
            clocks.remove(member);
        }
    }
}

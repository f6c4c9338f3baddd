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
}

impl<K: Clone + Eq + Hash, M: Clone + Eq + Hash> Default for Clocks<K, M> {
    fn default() -> Self {
        Self { clocks: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, M: Clone + Eq + Hash> Clocks<K, M> {
    /// Raises the clocks of a member that becomes live to the smallest clocks of the other live
    /// workers, so that they do not wait for pushes that it has missed. If there are none, a new
    /// member gets the largest clocks.
    pub fn raise(&mut self, member: &M, others: &[M], is_new: bool) {
        for clocks in self.clocks.values_mut() {
            let clock = |member: &M| clocks.get(member).copied().unwrap_or_default();
            let least = others.iter().map(clock).min();
            let largest = || clocks.values().max().copied().filter(|_| is_new);
            let start = least.or_else(largest).unwrap_or_default();
            let own = if is_new { 0 } else { clock(member) };
            clocks.insert(member.clone(), own.max(start));
        }
    }

    /// Counts a push of a member.
    pub fn advance(&mut self, key: &K, member: &M) {
        let clocks = self.clocks.entry(key.clone()).or_default();
        *clocks.entry(member.clone()).or_default() += 1;
        #[cfg(test)]
        if crate::faults::Fault::AdvanceTwice.is_planted() {
            *clocks.entry(member.clone()).or_default() += 1;
        }
    }

    /// Returns the clock of a member.
    pub fn clock(&self, key: &K, member: &M) -> u64 {
        let clocks = self.clocks.get(key);
        clocks.and_then(|clocks| clocks.get(member)).copied().unwrap_or_default()
    }

    /// Returns the keys that have clocks.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.clocks.keys()
    }

    /// Sets the clock of a member that an earlier run of the server has saved.
    pub fn set(&mut self, key: K, member: M, clock: u64) {
        self.clocks.entry(key).or_default().insert(member, clock);
    }

    /// Returns the first of the live workers for which a pull of this member must wait.
    pub fn awaited<'a>(&self, key: &K, member: &M, staleness: u64, live: &'a [M]) -> Option<&'a M> {
        let least = self.clock(key, member).saturating_sub(staleness);
        live.iter().find(|other| *other != member && self.clock(key, other) < least)
    }

    /// Removes a key.
    pub fn remove_key(&mut self, key: &K) {
        self.clocks.remove(key);
    }

    /// Removes a member.
    pub fn remove_member(&mut self, member: &M) {
        for clocks in self.clocks.values_mut() {
            clocks.remove(member);
        }
    }
}

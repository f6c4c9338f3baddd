//! Which server of a group has a key, and which rows of it.

use std::ops::Range;

use kvstore_core::key::stable_hash;

/// The layout of a key whose value is being replaced. No layout that a server reserves is as small,
/// and servers reject calls with it.
pub(crate) const NO_LAYOUT: u64 = 0;

/// Returns the index of the server that has a key or keeps its layout: its home.
///
/// This is rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit
/// rates", 1998): the server with the largest hash of index and key. With one server more, only the
/// keys move whose largest hash is that of the new server. The choice does not depend on sizes or
/// on other keys, so that a member finds a key that it has never seen.
pub fn home(key: &str, num_servers: usize) -> usize {
    let score = |server: &usize| (hash(key, *server), *server);
    (0..num_servers).max_by_key(score).unwrap_or_default()
}

/// Returns the rows of a server, if the rows of a value are divided among all servers. The numbers
/// of rows of two servers differ by at most one.
pub fn rows_of(num_rows: usize, server: usize, num_servers: usize) -> Range<usize> {
    let (each, more) = (num_rows / num_servers, num_rows % num_servers);
    let first = |server: usize| server * each + server.min(more);
    first(server)..first(server + 1)
}

/// Returns a hash of the key for a server. Mixes the bits as `splitmix64` does, because keys that
/// differ in the last letter only have similar hashes.
fn hash(key: &str, server: usize) -> u64 {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = stable_hash(key).wrapping_add((server as u64 + 1).wrapping_mul(GOLDEN_RATIO));
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

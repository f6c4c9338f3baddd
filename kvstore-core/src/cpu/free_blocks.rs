//! [`FreeBlocks`]: a pool of blocks of host memory that no tensor uses. `memory.rs` decides how
//! many it keeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::size_class::SizeClass;
use crate::backend::Storage;

/// The largest capacity, in blocks, that an empty list keeps.
const ROOM_KEPT: usize = 1 << 10;

/// The blocks that no tensor uses, in one list per size class.
///
/// `take` removes the newest block, at the back of a list; `evict` removes the oldest, at the
/// front. The cost of both is independent of the number of blocks.
pub(super) struct FreeBlocks {
    /// One list per [`SizeClass::index`].
    lists: Box<[Mutex<VecDeque<FreeBlock>>]>,
    num_bytes: AtomicUsize,
    /// The sequence number of the next block.
    next_age: AtomicU64,
    /// The number of list locks taken.
    #[cfg(test)]
    num_looks: AtomicUsize,
}

/// A block that no tensor uses.
struct FreeBlock {
    /// The sequence number of the insertion: lower is older.
    age: u64,
    num_bytes: usize,
    storage: Arc<dyn Storage>,
}

type List = VecDeque<FreeBlock>;

impl FreeBlocks {
    pub(super) fn new() -> Self {
        Self {
            lists: (0..SizeClass::COUNT).map(|_| Mutex::default()).collect(),
            num_bytes: AtomicUsize::new(0),
            next_age: AtomicU64::new(0),
            #[cfg(test)]
            num_looks: AtomicUsize::new(0),
        }
    }

    /// Returns the total size of all blocks.
    pub(super) fn num_bytes(&self) -> usize {
        self.num_bytes.load(Ordering::Relaxed)
    }

    /// Adds a block to the list of its class. Drops the block if the list cannot grow.
    pub(super) fn put(&self, class: SizeClass, storage: Arc<dyn Storage>) {
        let Some(mut list) = self.list(class.index) else { return };
        if list.try_reserve(1).is_err() {
            return;
        }
        let num_bytes = class.num_bytes();
        // Counted under the lock, because the thread that takes the block subtracts it.
        self.num_bytes.fetch_add(num_bytes, Ordering::Relaxed);
        let age = self.next_age.fetch_add(1, Ordering::Relaxed);
        list.push_back(FreeBlock { age, num_bytes, storage });
    }

    /// Takes the newest block of a class that no other thread references.
    pub(super) fn take(&self, class: SizeClass) -> Option<Arc<dyn Storage>> {
        let mut list = self.list(class.index)?;
        // A thread that has just put a block here may still hold it: at most one block per thread.
        let index =
            list.iter_mut().rposition(|block| Arc::get_mut(&mut block.storage).is_some())?;
        let block = list.remove(index)?;
        shrink(&mut list);
        drop(list);
        self.num_bytes.fetch_sub(block.num_bytes, Ordering::Relaxed);
        Some(block.storage)
    }

    /// Frees the oldest blocks until `num_bytes` are freed or no block is left.
    pub(super) fn evict(&self, num_bytes: usize) {
        let mut ages = [u64::MAX; SizeClass::COUNT];
        for (index, age) in ages.iter_mut().enumerate() {
            *age = self.list(index).map_or(u64::MAX, |list| age_of(&list));
        }
        let mut freed = 0;
        while freed < num_bytes {
            let (index, next_age) = two_oldest(&ages);
            let Some(age) = ages.get_mut(index).filter(|age| **age != u64::MAX) else { return };
            // Stays in this list while it has the oldest block, without locking the others.
            while freed < num_bytes && *age <= next_age && *age != u64::MAX {
                let Some(mut list) = self.list(index) else { return };
                let Some(block) = list.pop_front() else {
                    *age = u64::MAX;
                    break;
                };
                *age = age_of(&list);
                shrink(&mut list);
                // Unlocks first, because freeing a long block is slow.
                drop(list);
                freed += self.free(block);
            }
        }
    }

    /// Removes all blocks.
    pub(super) fn clear(&self) {
        for list in &self.lists {
            let blocks = std::mem::take(&mut *lock(list));
            for block in blocks {
                self.free(block);
            }
        }
    }

    /// Frees a block and returns its size.
    fn free(&self, block: FreeBlock) -> usize {
        let num_bytes = block.num_bytes;
        drop(block);
        // Subtracts the size after freeing. A thread at the memory limit then tries again instead
        // of failing.
        self.num_bytes.fetch_sub(num_bytes, Ordering::Relaxed);
        num_bytes
    }

    fn list(&self, index: usize) -> Option<MutexGuard<'_, List>> {
        #[cfg(test)]
        self.num_looks.fetch_add(1, Ordering::Relaxed);
        self.lists.get(index).map(lock)
    }
}

fn lock(list: &Mutex<List>) -> MutexGuard<'_, List> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the age of the oldest block, or `u64::MAX` for an empty list.
fn age_of(list: &List) -> u64 {
    list.front().map_or(u64::MAX, |block| block.age)
}

fn shrink(list: &mut List) {
    if list.is_empty() && list.capacity() > ROOM_KEPT {
        *list = List::new();
    }
}

/// Returns the index of the lowest age, and the second-lowest age.
fn two_oldest(ages: &[u64]) -> (usize, u64) {
    let (mut index, mut oldest, mut second) = (0, u64::MAX, u64::MAX);
    for (at, &age) in ages.iter().enumerate() {
        if age < oldest {
            (index, second, oldest) = (at, oldest, age);
        } else {
            second = second.min(age);
        }
    }
    (index, second)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    #[derive(Debug)]
    struct Block(usize);

    impl Storage for Block {
        fn num_bytes(&self) -> usize {
            self.0
        }
    }

    fn put(blocks: &FreeBlocks, num_bytes: usize) -> Arc<dyn Storage> {
        let storage: Arc<dyn Storage> = Arc::new(Block(num_bytes));
        blocks.put(SizeClass::of(num_bytes), Arc::clone(&storage));
        storage
    }

    fn take(blocks: &FreeBlocks, num_bytes: usize) -> Option<usize> {
        blocks.take(SizeClass::of(num_bytes)).map(|storage| storage.num_bytes())
    }

    #[test]
    fn the_newest_block_is_taken_and_the_oldest_is_evicted() {
        let blocks = FreeBlocks::new();
        // All these lengths belong to one class.
        let lengths = [1000, 1001, 1002, 1003];
        for length in lengths {
            drop(put(&blocks, length));
        }
        assert_eq!(take(&blocks, 1000), Some(1003));
        blocks.evict(1);
        assert_eq!(take(&blocks, 1000), Some(1002));
        assert_eq!(take(&blocks, 1000), Some(1001));
        assert_eq!(take(&blocks, 1000), None);
        assert_eq!(blocks.num_bytes(), 0);
    }

    #[test]
    fn take_skips_referenced_blocks() {
        let blocks = FreeBlocks::new();
        drop(put(&blocks, 1000));
        drop(put(&blocks, 1001));
        let held = put(&blocks, 1002);
        assert_eq!(take(&blocks, 1000), Some(1001));
        drop(held);
        assert_eq!(take(&blocks, 1000), Some(1002));
        assert_eq!(take(&blocks, 1000), Some(1000));
    }

    #[test]
    fn eviction_goes_by_age_across_all_classes() {
        let blocks = FreeBlocks::new();
        let num_blocks = if cfg!(miri) { 6 } else { 60 };
        let lengths: Vec<usize> = (0..num_blocks).map(|number| 100 << (number * 7 % 11)).collect();
        let weak: Vec<_> =
            lengths.iter().map(|length| Arc::downgrade(&put(&blocks, *length))).collect();
        for gone in 1..=weak.len() {
            blocks.evict(1);
            let left = weak.iter().map(Weak::strong_count);
            let expected = (0..weak.len()).map(|index| usize::from(index >= gone));
            assert!(left.eq(expected), "after {gone} evictions");
        }
        assert_eq!(blocks.num_bytes(), 0);
        blocks.evict(1);
    }

    #[test]
    fn eviction_frees_no_more_blocks_than_needed() {
        let blocks = FreeBlocks::new();
        let class = SizeClass::of(1000).num_bytes();
        (0..10).for_each(|_| drop(put(&blocks, 1000)));
        blocks.evict(0);
        assert_eq!(blocks.num_bytes(), 10 * class);
        blocks.evict(3 * class);
        assert_eq!(blocks.num_bytes(), 7 * class);
        blocks.evict(3 * class + 1);
        assert_eq!(blocks.num_bytes(), 3 * class);
        blocks.clear();
        assert_eq!(blocks.num_bytes(), 0);
    }

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn eviction_shrinks_an_empty_list() {
        let blocks = FreeBlocks::new();
        (0..20 * ROOM_KEPT).for_each(|_| drop(put(&blocks, 1000)));
        blocks.evict(usize::MAX);
        let list = blocks.list(SizeClass::of(1000).index).unwrap();
        assert!(list.is_empty() && list.capacity() <= ROOM_KEPT);
    }

    /// The cost of eviction is independent of the number of blocks that stay in the list.
    #[test]
    fn eviction_moves_no_other_block() {
        let blocks = FreeBlocks::new();
        let num_blocks = if cfg!(miri) { 5 } else { 1000 };
        (0..num_blocks).for_each(|_| drop(put(&blocks, 1000)));
        let addresses = || -> Vec<usize> {
            let list = blocks.list(SizeClass::of(1000).index).unwrap();
            list.iter().map(|block| std::ptr::from_ref(block).addr()).collect()
        };
        let before = addresses();
        for num_evicted in 1..=num_blocks {
            blocks.evict(1);
            assert_eq!(addresses(), before[num_evicted..], "after {num_evicted} evictions");
        }
    }

    /// Eviction locks once per block and once per list.
    #[test]
    fn eviction_locks_once_per_block() {
        let blocks = FreeBlocks::new();
        let num_blocks = if cfg!(miri) { 30 } else { 300_000 };
        (0..num_blocks).for_each(|number| drop(put(&blocks, 100 << (number % 3))));
        let before = blocks.num_looks.load(Ordering::Relaxed);
        blocks.evict(usize::MAX);
        let num_looks = blocks.num_looks.load(Ordering::Relaxed) - before;
        assert_eq!(blocks.num_bytes(), 0);
        assert!(num_looks <= num_blocks + SizeClass::COUNT, "{num_looks} looks");
    }
}

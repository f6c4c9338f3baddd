//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// The bytes that are allocated now.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The maximum of `HELD` since a call of [`peak`].
static PEAK: AtomicUsize = AtomicUsize::new(0);

const ORDER: Ordering = Ordering::SeqCst;

/// The system's allocator. It counts the allocations of all threads.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

/// The allocations of the process so far. A reallocation counts as a new allocation.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// The number of allocations.
    pub blocks: u64,
    /// The bytes of all allocations, including those that were freed.
    pub bytes: u64,
}

/// Returns the counts of [`CountingAllocator`].
pub fn counts() -> Counts {
    Counts { blocks: BLOCKS.load(ORDER), bytes: BYTES.load(ORDER) }
}

/// Returns the maximum number of bytes that a call holds at one time, counted by
/// [`CountingAllocator`].
pub fn peak<R>(call: impl FnOnce() -> R) -> usize {
    let before = HELD.load(ORDER);
    PEAK.store(before, ORDER);
    let _result = call();
    PEAK.load(ORDER) - before
}

fn count(block: *mut u8, num_bytes: usize) {
    if !block.is_null() {
        BLOCKS.fetch_add(1, ORDER);
        BYTES.fetch_add(num_bytes as u64, ORDER);
        let held = HELD.fetch_add(num_bytes, ORDER) + num_bytes;
        PEAK.fetch_max(held, ORDER);
    }
}

// SAFETY: forwards to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        let block = unsafe { System.alloc(layout) };
        count(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        count(block, layout.size());
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        let block = unsafe { System.realloc(block, layout, size) };
        if !block.is_null() {
            HELD.fetch_sub(layout.size(), ORDER);
        }
        count(block, size);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), ORDER);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

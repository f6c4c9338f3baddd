//! An allocator for tests that fails long allocations on request.

#![expect(unsafe_code, reason = "an allocator is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// Shorter allocations succeed: they do not depend on the number of objects.
const LONG: usize = 64 << 10;

thread_local! {
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `call` while long allocations of this thread fail.
pub(super) fn without_memory<R>(call: impl FnOnce() -> R) -> R {
    FAILS.set(true);
    let result = call();
    FAILS.set(false);
    result
}

struct FailingAllocator;

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

// SAFETY: forwards to the system's allocator, or returns null.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LONG && FAILS.get() {
            return null_mut();
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

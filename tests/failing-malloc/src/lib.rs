//! A `malloc` that fails on request.
//!
//! A test preloads the library into a program (`LD_PRELOAD`). There it replaces `malloc`, `calloc`,
//! `realloc` and the functions for aligned memory, and forwards to those of glibc. A thread calls
//! [`kvstore_fail_allocations`] to make its own allocations of [`LONG`] bytes or more fail.
//! Allocations of other threads and `mmap` never fail.
//!
//! The Java tests call the same two functions as native methods of `dev.kvstore.FailingMalloc`.
//!
//! The library has these functions on Linux with glibc. Elsewhere it is empty.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code, reason = "an allocator is unsafe code")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// The size from which an allocation may fail. Shorter allocations do not depend on the size of the
/// data.
pub const LONG: usize = 64 << 10;

/// The error numbers of Linux.
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// The thread whose allocations fail, or 0. Thread-local variables may allocate, so this is global.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The number of long allocations of that thread that still succeed.
static LEFT: AtomicI64 = AtomicI64::new(0);
/// Whether exactly one allocation fails.
static ONCE: AtomicBool = AtomicBool::new(false);
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    safe fn pthread_self() -> usize;
    safe fn __errno_location() -> *mut c_int;
    safe fn __libc_malloc(size: usize) -> *mut c_void;
    safe fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    safe fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

/// Lets the first `after` long allocations of the calling thread succeed. Then the next one fails,
/// or, if `once` is 0, all that follow.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_fail_allocations(after: i64, once: c_int) {
    LEFT.store(after, Ordering::Relaxed);
    ONCE.store(once != 0, Ordering::Relaxed);
    HAS_FAILED.store(false, Ordering::Relaxed);
    THREAD.store(pthread_self(), Ordering::Relaxed);
}

/// Lets all allocations succeed again. Returns 1 if one has failed since
/// [`kvstore_fail_allocations`], otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn kvstore_stop_failing() -> c_int {
    THREAD.store(0, Ordering::Relaxed);
    HAS_FAILED.load(Ordering::Relaxed).into()
}

/// [`kvstore_fail_allocations`] for Java. All later allocations fail.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_kvstore_FailingMalloc_fail(
    _env: *mut c_void,
    _class: *mut c_void,
    after: i64,
) {
    kvstore_fail_allocations(after, 0);
}

/// [`kvstore_stop_failing`] for Java.
#[unsafe(no_mangle)]
pub extern "system" fn Java_dev_kvstore_FailingMalloc_stop(
    _env: *mut c_void,
    _class: *mut c_void,
) -> u8 {
    u8::from(kvstore_stop_failing() != 0)
}

/// Counts an allocation. Returns whether it fails, and sets `errno` if so.
fn fails(num_bytes: usize) -> bool {
    if num_bytes < LONG || THREAD.load(Ordering::Relaxed) != pthread_self() {
        return false;
    }
    // Only the thread itself changes the count.
    let left = LEFT.load(Ordering::Relaxed);
    if left > 0 {
        LEFT.store(left - 1, Ordering::Relaxed);
        return false;
    }
    if ONCE.load(Ordering::Relaxed) {
        THREAD.store(0, Ordering::Relaxed);
    }
    HAS_FAILED.store(true, Ordering::Relaxed);
    // SAFETY: the address is the thread's own `errno`.
    unsafe { *__errno_location() = ENOMEM };
    true
}

/// `malloc` of C.
///
/// # Safety
/// The function has no preconditions. It is unsafe because rustc expects this signature.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    if fails(size) { null_mut() } else { __libc_malloc(size) }
}

/// `calloc` of C.
///
/// # Safety
/// - The errors of [`malloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    if fails(count.saturating_mul(size)) { null_mut() } else { __libc_calloc(count, size) }
}

/// `realloc` of C.
///
/// # Safety
/// - `block` is null or comes from this allocator.
/// - The caller does not use `block` after a successful call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if fails(size) {
        return null_mut();
    }
    // SAFETY: the caller upholds the same contract.
    unsafe { __libc_realloc(block, size) }
}

/// `aligned_alloc` of C.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    if fails(size) { null_mut() } else { __libc_memalign(alignment, size) }
}

/// `memalign` of glibc.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    aligned_alloc(alignment, size)
}

/// `posix_memalign` of POSIX.
///
/// # Safety
/// - `block` is valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    block: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    let found = aligned_alloc(alignment, size);
    if found.is_null() {
        return ENOMEM;
    }
    // SAFETY: by the contract of this function.
    unsafe { block.write(found) };
    0
}

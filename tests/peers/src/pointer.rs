//! What a pointer of the caller becomes.

use std::slice;

/// Returns what the caller holds.
///
/// # Safety
/// The pointer is valid while the result is used.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> &'a T {
    // SAFETY: that is the caller's promise.
    unsafe { &*pointer }
}

/// Returns a list of the caller; of an empty one the pointer does not matter.
///
/// # Safety
/// `len` items stand there, and nobody writes them while the result is used.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: that is the caller's promise.
    unsafe { slice::from_raw_parts(pointer, len) }
}

/// Returns a list of the caller, for writing.
///
/// # Safety
/// `len` items stand there, and nobody else uses them while the result is used.
pub(crate) unsafe fn list_mut<'a, T>(pointer: *mut T, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: that is the caller's promise.
    unsafe { slice::from_raw_parts_mut(pointer, len) }
}

/// Drops what was given away; null is nothing.
///
/// # Safety
/// The pointer came from `Box::into_raw` and is not used any more.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: that is the caller's promise.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

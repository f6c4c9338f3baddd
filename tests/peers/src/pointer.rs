//! Conversions from the caller's pointers.

use std::slice;

/// Returns a reference to the caller's object.
///
/// # Safety
/// - The pointer is valid while the result is used.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> &'a T {
    // SAFETY: the contract of this function.
    unsafe { &*pointer }
}

/// Returns a list of the caller. The pointer to an empty list may be invalid.
///
/// # Safety
/// - The pointer points to `len` items, and no one writes to them while the result is used.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the contract of this function.
    unsafe { slice::from_raw_parts(pointer, len) }
}

/// Returns a mutable list of the caller. The pointer to an empty list may be invalid.
///
/// # Safety
/// - The pointer points to `len` items, and no one else uses them while the result is used.
pub(crate) unsafe fn list_mut<'a, T>(pointer: *mut T, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the contract of this function.
    unsafe { slice::from_raw_parts_mut(pointer, len) }
}

/// Drops an object. Does nothing if the pointer is null.
///
/// # Safety
/// - The pointer comes from `Box::into_raw` and is not used any more.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the contract of this function.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

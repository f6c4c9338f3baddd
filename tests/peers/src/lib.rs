//! A C interface to the store, with only the functions that `peers.py` needs.
//!
//! Unsafe code is allowed here because the driver is a Python program, and only a call of a C
//! function with pointers takes less than a microsecond. Rules for all functions:
//!
//! - A returned pointer is valid until it is passed to `kvp_free_*`.
//! - Strings end with NUL. A list is a pointer and a length.
//! - A failed function returns null or -1, and [`kvp_last_error`] returns the reason.
//! - A panic ends the process, because this is a benchmark.
#![allow(unsafe_code, reason = "a C interface takes pointers")]

/// Defines the function that frees a returned object.
macro_rules! end {
    ($name:ident, $type:ty) => {
        /// Frees a returned object.
        ///
        /// # Safety
        /// - This library returned the pointer, and the caller does not use it any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: *mut $type) {
            // SAFETY: the caller does not use the pointer any more.
            unsafe { free(pointer) }
        }
    };
}

mod copy;
mod pointer;
pub mod row_sparse;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use kvstore::{Device, Error, Key, NDArray, OnExisting, Optimizer, Pairs, Result, Store, Tensor};

use pointer::{borrow, free, list, list_mut};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Returns the reason why the last failed call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn kvp_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

fn remember(error: &Error) {
    let text = CString::new(error.to_string()).unwrap_or_default();
    LAST_ERROR.set(text);
}

fn boxed<T>(result: Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(error) => {
            remember(&error);
            ptr::null_mut()
        }
    }
}

fn status(result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            remember(&error);
            -1
        }
    }
}

/// Returns a string of the caller.
///
/// # Safety
/// - The pointer is valid while the result is used.
/// - The string ends with NUL.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: the contract of this function.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Error::InvalidArgument(error.to_string()))
}

/// Returns a store with this name.
///
/// # Safety
/// - The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_store(name: *const c_char) -> *mut Store {
    // SAFETY: the caller passes a valid string.
    let name = unsafe { text(name) };
    boxed(name.and_then(kvstore::create))
}

/// Returns an array on `cpu(ordinal)` with a copy of these elements.
///
/// # Safety
/// - `shape` points to `rank` lengths.
/// - `elements` points to as many elements as the shape has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_array(
    elements: *const f32,
    shape: *const usize,
    rank: usize,
    ordinal: u32,
) -> *mut NDArray {
    // SAFETY: the caller passes `rank` lengths.
    let shape = unsafe { list(shape, rank) };
    // SAFETY: the caller passes as many elements as the shape has.
    let elements = unsafe { list(elements, shape.iter().product()) };
    boxed(kvstore::array(elements, shape, Device::cpu(ordinal)))
}

/// Returns a prepared list of `keys[i]` with `arrays[i]`.
///
/// # Safety
/// - `keys` and `arrays` point to `len` valid pointers each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_pairs(
    keys: *const *const c_char,
    arrays: *const *const NDArray,
    len: usize,
) -> *mut Pairs {
    // SAFETY: the caller passes `len` strings.
    let keys = unsafe { list(keys, len) };
    // SAFETY: the caller passes `len` arrays.
    let arrays = unsafe { list(arrays, len) };
    // SAFETY: each of them is a valid string.
    let keys = keys.iter().map(|&key| unsafe { text(key) }.and_then(Key::new));
    let keys: Result<Vec<Key>> = keys.collect();
    // SAFETY: each of them is a valid pointer.
    let arrays = arrays.iter().map(|&array| unsafe { borrow(array) }.clone());
    boxed(keys.and_then(|keys| Pairs::new(keys, arrays.collect::<Vec<_>>())))
}

/// Sets the optimizer of the store.
///
/// # Safety
/// - `store` and `optimizer` are valid.
/// - `names` and `values` point to `len` strings and numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_set_optimizer(
    store: *const Store,
    optimizer: *const c_char,
    names: *const *const c_char,
    values: *const f64,
    len: usize,
) -> c_int {
    // SAFETY: the caller passes a valid store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller passes `len` strings.
    let names = unsafe { list(names, len) };
    // SAFETY: the caller passes `len` numbers.
    let values = unsafe { list(values, len) };
    // SAFETY: the caller passes a valid string.
    let optimizer = unsafe { text(optimizer) };
    // SAFETY: each of them is a valid string.
    let names = names.iter().map(|&name| unsafe { text(name) }.map(str::to_owned));
    let options = names.zip(values).map(|(name, &value)| Ok((name?, value)));
    let options: Result<Vec<_>> = options.collect();
    status(
        options.and_then(|options| {
            store.set_optimizer(Optimizer::from_options(optimizer?, &options)?)
        }),
    )
}

/// Stores the values of a prepared list under their keys.
///
/// # Safety
/// - Both pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_init(store: *const Store, pairs: *const Pairs) -> c_int {
    // SAFETY: the caller passes a valid store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller passes a valid list.
    let pairs = unsafe { borrow(pairs) };
    status(store.init_pairs(pairs, OnExisting::Reject))
}

/// Pushes one prepared list and pulls the other, `count` times. A null pointer skips the push or
/// pull.
///
/// # Safety
/// - `store` is valid.
/// - `pushed` and `pulled` are valid or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_steps(
    store: *const Store,
    pushed: *const Pairs,
    pulled: *const Pairs,
    count: usize,
) -> c_int {
    // SAFETY: the caller passes a valid store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller passes a valid list or null.
    let pushed = unsafe { pushed.as_ref() };
    // SAFETY: the caller passes a valid list or null.
    let pulled = unsafe { pulled.as_ref() };
    status((0..count).try_for_each(|_| {
        pushed.map_or(Ok(()), |pairs| store.push_pairs(pairs, 0))?;
        pulled.map_or(Ok(()), |pairs| store.pull_pairs(pairs, 0))
    }))
}

/// Returns the current value of an array. It does not change until it is freed.
///
/// # Safety
/// - The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_value(array: *const NDArray) -> *mut Tensor {
    // SAFETY: the caller passes a valid array.
    let array = unsafe { borrow(array) };
    boxed(Ok(array.tensor()))
}

/// Returns the address of the elements of a value. It is valid until the value is freed.
///
/// # Safety
/// - The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_address(value: *const Tensor) -> *const u8 {
    // SAFETY: the caller passes a valid value.
    let value = unsafe { borrow(value) };
    value.host_bytes().inspect_err(remember).map_or(ptr::null(), <[u8]>::as_ptr)
}

/// Copies floats on all cores: in one long piece per core (0), or in blocks that fit the caches
/// (1).
///
/// # Safety
/// - `dst` and `src` point to `len` floats and do not overlap.
/// - No one else uses `dst` or writes to `src` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_copy(dst: *mut f32, src: *const f32, len: usize, kind: c_int) {
    // SAFETY: the caller passes `len` floats that no one else uses.
    let dst = unsafe { list_mut(dst, len) };
    // SAFETY: the caller passes `len` floats that no one writes to.
    let src = unsafe { list(src, len) };
    if kind == 0 { copy::pieces(dst, src) } else { copy::blocks(dst, src) }
}

end!(kvp_free_store, Store);
end!(kvp_free_array, NDArray);
end!(kvp_free_pairs, Pairs);
end!(kvp_free_value, Tensor);

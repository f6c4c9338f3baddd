//! A C interface to the store, as small as `peers.py` needs it.
//!
//! Unsafe code is allowed here because the driver is a Python program, and the only way in that
//! costs a call no more than a microsecond is a C function with pointers. Rules for all of them:
//! a pointer that was returned is valid until it is given to `kvp_free_*`; texts end with NUL; a
//! list is a pointer and a length. A function that fails returns null or -1, and
//! [`kvp_last_error`] says why. A panic ends the process: it is a benchmark.
#![allow(unsafe_code, reason = "a C interface takes pointers")]

/// Defines the end of what was returned.
macro_rules! end {
    ($name:ident, $type:ty) => {
        /// Frees what was returned.
        ///
        /// # Safety
        /// The pointer was returned by this library, and is not used any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: *mut $type) {
            // SAFETY: the caller gives the pointer up.
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

/// Returns why the last failing call of this thread failed.
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

/// Returns a text of the caller.
///
/// # Safety
/// The pointer is valid while the result is used, and the text ends with NUL.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str> {
    // SAFETY: that is the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Error::InvalidArgument(error.to_string()))
}

/// Returns a store of this kind.
///
/// # Safety
/// The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_store(name: *const c_char) -> *mut Store {
    // SAFETY: the caller holds the text.
    let name = unsafe { text(name) };
    boxed(name.and_then(kvstore::create))
}

/// Returns an array on `cpu(ordinal)` with a copy of these elements.
///
/// # Safety
/// `shape` points to `rank` lengths, `elements` to as many elements as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_array(
    elements: *const f32,
    shape: *const usize,
    rank: usize,
    ordinal: u32,
) -> *mut NDArray {
    // SAFETY: the caller has `rank` lengths there.
    let shape = unsafe { list(shape, rank) };
    // SAFETY: the caller has that many elements there.
    let elements = unsafe { list(elements, shape.iter().product()) };
    boxed(kvstore::array(elements, shape, Device::cpu(ordinal)))
}

/// Returns a prepared list: `keys[i]` with `arrays[i]`.
///
/// # Safety
/// Both point to `len` valid pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_pairs(
    keys: *const *const c_char,
    arrays: *const *const NDArray,
    len: usize,
) -> *mut Pairs {
    // SAFETY: the caller has `len` texts there.
    let keys = unsafe { list(keys, len) };
    // SAFETY: the caller has `len` arrays there.
    let arrays = unsafe { list(arrays, len) };
    // SAFETY: each of them is a valid text.
    let keys = keys.iter().map(|&key| unsafe { text(key) }.and_then(Key::new));
    let keys: Result<Vec<Key>> = keys.collect();
    // SAFETY: each of them is a valid pointer.
    let arrays = arrays.iter().map(|&array| unsafe { borrow(array) }.clone());
    boxed(keys.and_then(|keys| Pairs::new(keys, arrays.collect::<Vec<_>>())))
}

/// Lets an optimizer run on the store.
///
/// # Safety
/// `store` is valid; `names` and `values` point to `len` texts and numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_set_optimizer(
    store: *const Store,
    optimizer: *const c_char,
    names: *const *const c_char,
    values: *const f64,
    len: usize,
) -> c_int {
    // SAFETY: the caller holds the store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller has `len` texts there.
    let names = unsafe { list(names, len) };
    // SAFETY: the caller has `len` numbers there.
    let values = unsafe { list(values, len) };
    // SAFETY: the caller holds the text.
    let optimizer = unsafe { text(optimizer) };
    // SAFETY: each of them is a valid text.
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
/// Both pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_init(store: *const Store, pairs: *const Pairs) -> c_int {
    // SAFETY: the caller holds the store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller holds the list.
    let pairs = unsafe { borrow(pairs) };
    status(store.init_pairs(pairs, OnExisting::Reject))
}

/// Pushes the one prepared list and pulls the other, as often as asked; null is no list.
///
/// # Safety
/// Every pointer is valid or, a list's, null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_steps(
    store: *const Store,
    pushed: *const Pairs,
    pulled: *const Pairs,
    count: usize,
) -> c_int {
    // SAFETY: the caller holds the store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller holds the list, if there is one.
    let pushed = unsafe { pushed.as_ref() };
    // SAFETY: the caller holds the list, if there is one.
    let pulled = unsafe { pulled.as_ref() };
    status((0..count).try_for_each(|_| {
        pushed.map_or(Ok(()), |pairs| store.push_pairs(pairs, 0))?;
        pulled.map_or(Ok(()), |pairs| store.pull_pairs(pairs, 0))
    }))
}

/// Returns the present value of an array; it stays as it is until it is freed.
///
/// # Safety
/// The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_value(array: *const NDArray) -> *mut Tensor {
    // SAFETY: the caller holds the array.
    let array = unsafe { borrow(array) };
    boxed(Ok(array.tensor()))
}

/// Returns where the elements of a value stand, for as long as it is not freed.
///
/// # Safety
/// The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_address(value: *const Tensor) -> *const u8 {
    // SAFETY: the caller holds the value.
    let value = unsafe { borrow(value) };
    value.host_bytes().inspect_err(remember).map_or(ptr::null(), <[u8]>::as_ptr)
}

/// Copies floats on all cores: in one long piece per core (0), or in blocks that fit the caches
/// (1).
///
/// # Safety
/// `dst` and `src` point to `len` floats and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_copy(dst: *mut f32, src: *const f32, len: usize, kind: c_int) {
    // SAFETY: the caller has `len` floats there, and nobody else uses them.
    let dst = unsafe { list_mut(dst, len) };
    // SAFETY: the caller has `len` floats there, and nobody writes them.
    let src = unsafe { list(src, len) };
    if kind == 0 { copy::pieces(dst, src) } else { copy::blocks(dst, src) }
}

end!(kvp_free_store, Store);
end!(kvp_free_array, NDArray);
end!(kvp_free_pairs, Pairs);
end!(kvp_free_value, Tensor);

//! Row-sparse values.

use std::ffi::{c_char, c_int};

use kvstore::{Error, Key, NDArray, Pairs, RowSparse, Store};

use crate::pointer::{borrow, free, list};
use crate::{boxed, remember, status, text};

/// Returns the row-sparse value of this shape with these rows.
///
/// # Safety
/// - `shape` points to `rank` lengths.
/// - `rows` is valid.
/// - `indices` points to as many numbers as `rows` has rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_rows(
    shape: *const usize,
    rank: usize,
    indices: *const i64,
    rows: *const NDArray,
) -> *mut RowSparse {
    // SAFETY: the caller passes `rank` lengths.
    let shape = unsafe { list(shape, rank) };
    // SAFETY: the caller passes a valid array.
    let rows = unsafe { borrow(rows) };
    // SAFETY: the caller passes an index for each row.
    let indices = unsafe { list(indices, rows.shape().dims()[0]) };
    boxed(RowSparse::new(shape, indices, rows.tensor()))
}

/// Returns a prepared list of row-sparse values of one key.
///
/// # Safety
/// - `key` is a valid string.
/// - `rows` points to `len` valid pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_row_pairs(
    key: *const c_char,
    rows: *const *const RowSparse,
    len: usize,
) -> *mut Pairs<RowSparse> {
    // SAFETY: the caller passes a valid string.
    let key = unsafe { text(key) }.and_then(Key::new);
    // SAFETY: the caller passes `len` values.
    let rows = unsafe { list(rows, len) };
    // SAFETY: each of them is a valid pointer.
    let rows = rows.iter().map(|&rows| unsafe { borrow(rows) }.clone());
    boxed(key.and_then(|key| Pairs::new(&key, rows.collect::<Vec<_>>())))
}

/// Pushes the prepared list.
///
/// # Safety
/// - Both pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_push_rows(
    store: *const Store,
    pushed: *const Pairs<RowSparse>,
) -> c_int {
    // SAFETY: the caller passes a valid store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller passes a valid list.
    let pushed = unsafe { borrow(pushed) };
    status(store.push_pairs(pushed, 0))
}

/// Pulls rows of a key.
///
/// # Safety
/// - `store` and `key` are valid.
/// - `ids` points to `len` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_pull_rows(
    store: *const Store,
    key: *const c_char,
    ids: *const i64,
    len: usize,
) -> *mut RowSparse {
    // SAFETY: the caller passes a valid store.
    let store = unsafe { borrow(store) };
    // SAFETY: the caller passes `len` numbers.
    let ids = unsafe { list(ids, len) };
    // SAFETY: the caller passes a valid string.
    let key = unsafe { text(key) }.and_then(Key::new);
    let pulled = key.and_then(|key| store.pull_rows(&key, &[ids]));
    let lost = || Error::InvalidArgument("one key gives one value of rows".to_owned());
    boxed(pulled.and_then(|mut rows| rows.pop().ok_or_else(lost)))
}

/// Returns the address of the elements of the rows. It is valid until the rows are freed.
///
/// # Safety
/// - The pointer is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvp_rows_address(rows: *const RowSparse) -> *const u8 {
    // SAFETY: the caller passes valid rows.
    let rows = unsafe { borrow(rows) };
    let bytes = rows.rows().host_bytes();
    bytes.inspect_err(remember).map_or(std::ptr::null(), <[u8]>::as_ptr)
}

end!(kvp_free_rows, RowSparse);
end!(kvp_free_row_pairs, Pairs<RowSparse>);

//! Vectors that a verb needs, kept between calls: a warm call allocates none.

use std::cell::Cell;
use std::thread::LocalKey;

use kvstore_core::{Pulled, Value};

thread_local! {
    /// The values of a call.
    pub(crate) static VALUES: Cell<Vec<Value>> = const { Cell::new(Vec::new()) };
    /// What a call pulled.
    pub(crate) static PULLED: Cell<Vec<Pulled>> = const { Cell::new(Vec::new()) };
}

/// The vectors of more than this many values are not worth keeping.
const MOST_KEPT: usize = 1 << 16;

/// Runs `call` with the vector of this thread; a call inside a call gets a new one.
pub(crate) fn with<T, R>(
    kept: &'static LocalKey<Cell<Vec<T>>>,
    call: impl FnOnce(&mut Vec<T>) -> R,
) -> R {
    let mut items = kept.take();
    let result = call(&mut items);
    items.clear();
    if items.capacity() <= MOST_KEPT {
        kept.set(items);
    }
    result
}

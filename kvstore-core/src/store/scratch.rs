//! Vectors that each thread keeps for its next call, so that a repeated call allocates nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;

use super::key_push::{KeyPush, PushedValue};
use super::table::Entry;
use super::types::PulledValue;
use crate::backend::Span;
use crate::fallible;
use crate::rows::Value;
use crate::types::Result;

/// Vectors with a capacity above this are freed, because keeping them would waste memory.
const MOST_KEPT: usize = 1 << 16;

/// The vectors of one call. They are empty between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The entries of the call's keys. A key that appears several times in a row has one entry.
    entries: Vec<Arc<Entry>>,
    /// The values of the call, sorted by the order in which their keys were initialised.
    pushed: Vec<PushedValue>,
    spans: Vec<Span<'static>>,
    keys: Vec<KeyPush<'static>>,
}

thread_local! {
    static KEPT: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    static VALUES: Cell<Vec<Value>> = const { Cell::new(Vec::new()) };
    static PULLED: Cell<Vec<PulledValue>> = const { Cell::new(Vec::new()) };
}

/// Calls `call` with an empty list of values. The thread keeps the list's memory for its next call.
/// A nested call gets a new list.
pub fn with_values<R>(call: impl FnOnce(&mut Vec<Value>) -> R) -> R {
    with_kept(&VALUES, call)
}

/// Calls `call` with an empty list for pulled values. The thread keeps the list's memory for its
/// next call. A nested call gets a new list.
pub fn with_pulled_values<R>(call: impl FnOnce(&mut Vec<PulledValue>) -> R) -> R {
    with_kept(&PULLED, call)
}

fn with_kept<T, R>(
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

impl Scratch {
    /// Calls `call` with the vectors of this thread. A nested call gets new vectors.
    pub(crate) fn with<R>(call: impl FnOnce(&mut Self) -> R) -> R {
        let mut scratch = KEPT.take().unwrap_or_default();
        let result = call(&mut scratch);
        if scratch.pushed.capacity() <= MOST_KEPT {
            KEPT.set(Some(scratch));
        }
        result
    }

    /// Takes the vectors for the plan of a push.
    pub(crate) fn take_plan(&mut self) -> (Vec<Arc<Entry>>, Vec<PushedValue>) {
        (std::mem::take(&mut self.entries), std::mem::take(&mut self.pushed))
    }

    /// Keeps the memory of these vectors for the next call.
    pub(crate) fn put_back_plan(
        &mut self,
        mut entries: Vec<Arc<Entry>>,
        mut pushed: Vec<PushedValue>,
    ) {
        entries.clear();
        pushed.clear();
        (self.entries, self.pushed) = (entries, pushed);
    }
}

/// Defines how a call takes and returns a vector. The items borrow from the call, which is shorter
/// than the lifetime of the scratch.
macro_rules! reused {
    ($take:ident, $put_back:ident, $field:ident: $Item:ident) => {
        impl Scratch {
            /// Takes the vector, with capacity for `len` items.
            pub(crate) fn $take<'a>(&mut self, len: usize) -> Result<Vec<$Item<'a>>> {
                let mut items = fallible::reuse(std::mem::take(&mut self.$field));
                fallible::reserve(&mut items, len)?;
                Ok(items)
            }

            /// Keeps the memory of the vector for the next call.
            pub(crate) fn $put_back(&mut self, items: Vec<$Item<'_>>) {
                self.$field = fallible::reuse(items);
            }
        }
    };
}

reused!(take_spans, put_back_spans, spans: Span);
reused!(take_keys, put_back_keys, keys: KeyPush);

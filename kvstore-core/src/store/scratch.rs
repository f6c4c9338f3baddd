//! Vectors that calls need, kept between calls of a thread: a warm call allocates none.

use std::cell::Cell;
use std::sync::Arc;
use std::thread::LocalKey;

use super::push::{KeyPush, PushedValue};
use super::table::Entry;
use super::types::PulledValue;
use crate::backend::{Span, SumJob, UpdateJob};
use crate::fallible;
use crate::rows::Value;
use crate::types::Result;

/// The vectors of more than this many values are not worth keeping.
const MOST_KEPT: usize = 1 << 16;

/// The vectors of one call, empty between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The entries of the keys of the call; a key that stands twice in a row has one.
    entries: Vec<Arc<Entry>>,
    /// The values of the call by the order of their keys' initialisation.
    pushed: Vec<PushedValue>,
    spans: Vec<Span<'static>>,
    keys: Vec<KeyPush<'static>>,
    sums: Vec<SumJob<'static>>,
    updates: Vec<UpdateJob<'static>>,
}

thread_local! {
    static KEPT: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    static VALUES: Cell<Vec<Value>> = const { Cell::new(Vec::new()) };
    static PULLED: Cell<Vec<PulledValue>> = const { Cell::new(Vec::new()) };
}

/// Runs `call` with an empty list of values, whose memory this thread keeps. A nested call
/// gets a new list.
pub fn with_values<R>(call: impl FnOnce(&mut Vec<Value>) -> R) -> R {
    with_kept(&VALUES, call)
}

/// Runs `call` with an empty list for what is pulled, whose memory this thread keeps. A nested
/// call gets a new list.
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
    /// Runs `call` with the vectors of this thread. A call inside a call gets new ones.
    pub(crate) fn with<R>(call: impl FnOnce(&mut Self) -> R) -> R {
        let mut scratch = KEPT.take().unwrap_or_default();
        let result = call(&mut scratch);
        if scratch.pushed.capacity() <= MOST_KEPT {
            KEPT.set(Some(scratch));
        }
        result
    }

    /// Takes the vectors of a plan.
    pub(crate) fn take_plan(&mut self) -> (Vec<Arc<Entry>>, Vec<PushedValue>) {
        (std::mem::take(&mut self.entries), std::mem::take(&mut self.pushed))
    }

    /// Keeps the memory of a plan for the next call.
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

/// A vector that lives shorter than the scratch whose memory it uses.
macro_rules! reused {
    ($take:ident, $put_back:ident, $field:ident: $Item:ident) => {
        impl Scratch {
            /// Takes the vector for the call, with capacity for `len` items.
            pub(crate) fn $take<'a>(&mut self, len: usize) -> Result<Vec<$Item<'a>>> {
                let mut items = reuse(std::mem::take(&mut self.$field));
                fallible::reserve(&mut items, len)?;
                Ok(items)
            }

            /// Keeps the vector's memory for the next call.
            pub(crate) fn $put_back(&mut self, items: Vec<$Item<'_>>) {
                self.$field = reuse(items);
            }
        }
    };
}

reused!(take_spans, put_back_spans, spans: Span);
reused!(take_keys, put_back_keys, keys: KeyPush);
reused!(take_sums, put_back_sums, sums: SumJob);
reused!(take_updates, put_back_updates, updates: UpdateJob);

/// Drops the items and returns the vector for items of the same size: the standard library collects
/// in place. Should it ever stop to, a new vector is allocated, and the test of allocations fails.
fn reuse<A, B>(mut items: Vec<A>) -> Vec<B> {
    items.clear();
    items.into_iter().filter_map(|_| None).collect()
}

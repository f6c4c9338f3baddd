//! [`HandleTable`]: the numbers that stand for Rust objects on the Java side.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kvstore::Error;

/// Objects by number. A number is an index and a generation: it is never 0, and it goes out of date
/// when its object is removed, so a late user gets an error and not somebody else's object.
///
/// A look-up clones the `Arc`, hence removing an object during a call in another thread is harmless.
pub(crate) struct HandleTable<T> {
    what: &'static str,
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

struct Entry<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

impl<T> HandleTable<T> {
    /// Returns an empty table; `what` names one of its objects in errors.
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, slots: RwLock::new(Slots { entries: Vec::new(), free: Vec::new() }) }
    }

    /// Puts an object in and returns its number.
    ///
    /// # Errors
    /// [`Error::Internal`] when there are 2^32 objects already.
    pub(crate) fn insert(&self, value: T) -> Result<i64, Error> {
        let value = Some(Arc::new(value));
        let mut slots = self.write();
        let index = match slots.free.pop() {
            Some(index) => index,
            None => u32::try_from(slots.entries.len())
                .map_err(|_| Error::Internal(format!("too many handles of {}", self.what)))?,
        };
        let generation = if let Some(entry) = slots.entry_mut(index) {
            entry.value = value;
            entry.generation
        } else {
            slots.entries.push(Entry { generation: FIRST_GENERATION, value });
            FIRST_GENERATION
        };
        Ok(pack(index, generation))
    }

    /// Returns the object of a number.
    ///
    /// # Errors
    /// [`Error::Closed`] when it was removed, or never put in.
    pub(crate) fn get(&self, handle: i64) -> Result<Arc<T>, Error> {
        let (index, generation) = unpack(handle);
        self.read()
            .entry(index)
            .filter(|entry| entry.generation == generation)
            .and_then(|entry| entry.value.clone())
            .ok_or_else(|| Error::Closed { what: self.what.to_owned() })
    }

    /// Takes the object of a number out; nothing happens when it is out of date.
    ///
    /// The caller drops the object, and with it whatever it owns, outside the table's lock.
    pub(crate) fn remove(&self, handle: i64) -> Option<Arc<T>> {
        let (index, generation) = unpack(handle);
        let mut slots = self.write();
        let entry = slots.entry_mut(index).filter(|entry| entry.generation == generation)?;
        let value = entry.value.take()?;
        // A slot that has used up its generations stays empty for ever.
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            slots.free.push(index);
        }
        Some(value)
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        let slots = self.read();
        slots.entries.iter().filter(|entry| entry.value.is_some()).count()
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots<T>> {
        // No code that could panic half-way runs under the lock.
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<T>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    fn entry(&self, index: u32) -> Option<&Entry<T>> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        self.entries.get_mut(usize::try_from(index).ok()?)
    }
}

impl<T> fmt::Debug for HandleTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleTable")
            .field("what", &self.what)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Not 0, so that the number 0 belongs to no object.
const FIRST_GENERATION: u32 = 1;

fn pack(index: u32, generation: u32) -> i64 {
    i64::from_ne_bytes(((u64::from(generation) << 32) | u64::from(index)).to_ne_bytes())
}

#[expect(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
fn unpack(handle: i64) -> (u32, u32) {
    let bits = u64::from_ne_bytes(handle.to_ne_bytes());
    (bits as u32, (bits >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use kvstore::ErrorCode;

    use super::*;

    #[test]
    fn an_object_is_found_until_it_is_removed() {
        let table = HandleTable::new("thing");
        let handle = table.insert("a").unwrap();
        assert_eq!(*table.get(handle).unwrap(), "a");
        assert_eq!(*table.remove(handle).unwrap(), "a");
        let error = table.get(handle).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (ErrorCode::Closed, "thing is closed")
        );
        assert!(table.remove(handle).is_none());
    }

    #[test]
    fn zero_and_numbers_that_were_never_given_are_closed() {
        let table = HandleTable::<u8>::new("thing");
        for handle in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(table.get(handle).unwrap_err().code(), ErrorCode::Closed);
            assert!(table.remove(handle).is_none());
        }
    }

    #[test]
    fn a_reused_slot_has_another_number() {
        let table = HandleTable::new("thing");
        let old = table.insert(1).unwrap();
        table.remove(old);
        let new = table.insert(2).unwrap();
        assert_ne!(old, new);
        assert_eq!(unpack(old).0, unpack(new).0);
        assert_eq!(table.get(old).unwrap_err().code(), ErrorCode::Closed);
        assert!(table.remove(old).is_none());
        assert_eq!(*table.get(new).unwrap(), 2);
    }

    #[test]
    fn a_slot_without_generations_left_is_not_reused() {
        let table = HandleTable::new("thing");
        let first = table.insert(1).unwrap();
        table.write().entries[0].generation = u32::MAX;
        assert!(table.get(first).is_err());
        let last = pack(0, u32::MAX);
        assert!(last < 0);
        table.remove(last).unwrap();
        let next = table.insert(2).unwrap();
        assert_eq!(unpack(next), (1, FIRST_GENERATION));
    }

    #[test]
    fn an_object_outlives_its_removal_while_somebody_uses_it() {
        let table = HandleTable::new("thing");
        let handle = table.insert(String::from("used")).unwrap();
        let used = table.get(handle).unwrap();
        drop(table.remove(handle));
        assert_eq!(*used, "used");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn threads_never_share_a_number_or_see_each_others_objects() {
        let table = HandleTable::new("thing");
        let kept: Vec<i64> = thread::scope(|scope| {
            let workers: Vec<_> = (0..4_i64)
                .map(|worker| {
                    let table = &table;
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for round in 0..500 {
                            let value = worker * 1000 + round;
                            let handle = table.insert(value).unwrap();
                            assert_eq!(*table.get(handle).unwrap(), value);
                            if round % 2 == 0 {
                                assert_eq!(*table.remove(handle).unwrap(), value);
                                assert!(table.remove(handle).is_none());
                            } else {
                                kept.push(handle);
                            }
                        }
                        kept
                    })
                })
                .collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(kept.iter().collect::<HashSet<_>>().len(), 1000);
        assert_eq!(table.len(), 1000);
    }

    #[test]
    fn of_many_threads_that_remove_one_object_one_gets_it() {
        let table = HandleTable::new("thing");
        for _ in 0..200 {
            let handle = table.insert(()).unwrap();
            let removed: usize = thread::scope(|scope| {
                let table = &table;
                let closers: Vec<_> =
                    (0..3).map(|_| scope.spawn(move || table.remove(handle))).collect();
                closers.into_iter().map(|c| c.join().unwrap().iter().count()).sum()
            });
            assert_eq!(removed, 1);
        }
    }
}

//! [`Slots`] maps numbers to objects.

use kvstore::{Error, fallible};

/// Objects by number. A number consists of an index and a generation, and is positive. It becomes
/// outdated when its object is removed. So a late look-up finds nothing rather than another object
/// in the same slot.
///
/// `slotmap` is not used: its insertions abort if memory is missing, and its generations wrap.
pub(super) struct Slots<T> {
    entries: Vec<Entry<T>>,
    /// The indices of slots that can be reused. The vector has capacity for all slots, so that a
    /// removal needs no memory.
    free: Vec<u32>,
}

/// The reason why an object was not inserted.
#[derive(Debug)]
pub(super) enum InsertError {
    /// All 2^32 slots are in use.
    Full,
    OutOfMemory(Error),
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Inserts an object and returns its number.
    ///
    /// # Errors
    /// - The object and the reason if there is no slot or no memory. The caller drops the object
    ///   outside the table's lock.
    pub(super) fn insert(&mut self, value: T) -> Result<i64, (T, InsertError)> {
        if let Some(index) = self.free.pop()
            && let Some(entry) = self.entry_mut(index)
        {
            entry.value = Some(value);
            return Ok(pack(index, entry.generation));
        }
        match self.reserve() {
            Ok(index) => {
                self.entries.push(Entry { generation: FIRST_GENERATION, value: Some(value) });
                Ok(pack(index, FIRST_GENERATION))
            }
            Err(error) => Err((value, error)),
        }
    }

    /// Reserves memory for another slot and for its removal. Returns the index of the slot.
    fn reserve(&mut self) -> Result<u32, InsertError> {
        let num_slots = self.entries.len();
        let index = u32::try_from(num_slots).map_err(|_| InsertError::Full)?;
        let num_removals = num_slots + 1 - self.free.len();
        fallible::reserve(&mut self.entries, 1)
            .and_then(|()| fallible::reserve(&mut self.free, num_removals))
            .map_err(InsertError::OutOfMemory)?;
        Ok(index)
    }

    /// Returns the object of a number, or `None` if the number is outdated.
    pub(super) fn get(&self, handle: i64) -> Option<&T> {
        let (index, generation) = unpack(handle);
        let entry = self.entries.get(usize::try_from(index).ok()?)?;
        entry.value.as_ref().filter(|_| entry.generation == generation)
    }

    /// Removes and returns the object of a number. Returns `None` if the number is outdated.
    pub(super) fn remove(&mut self, handle: i64) -> Option<T> {
        let (index, generation) = unpack(handle);
        let entry = self.entry_mut(index).filter(|entry| entry.generation == generation)?;
        let value = entry.value.take()?;
        // A slot without generations left is never reused.
        if entry.generation < LAST_GENERATION {
            entry.generation += 1;
            self.free.push(index);
        }
        Some(value)
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.value.is_some()).count()
    }

    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        self.entries.get_mut(usize::try_from(index).ok()?)
    }
}

/// Not 0, so that the number 0 is never valid.
const FIRST_GENERATION: u32 = 1;
/// With a later generation, the number would be negative.
const LAST_GENERATION: u32 = i32::MAX.cast_unsigned();

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
    use super::*;

    #[test]
    fn a_reused_slot_has_another_number() {
        let mut slots = Slots::new();
        let old = slots.insert(1).unwrap();
        slots.remove(old).unwrap();
        let new = slots.insert(2).unwrap();
        assert_ne!(old, new);
        assert_eq!(unpack(old).0, unpack(new).0);
        assert_eq!(slots.get(old), None);
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.get(new), Some(&2));
    }

    #[test]
    fn a_slot_without_generations_left_is_not_reused() {
        let mut slots = Slots::new();
        let first = slots.insert(1).unwrap();
        slots.entries[0].generation = LAST_GENERATION;
        assert_eq!(slots.get(first), None);
        let last = pack(0, LAST_GENERATION);
        assert!(last > 0);
        slots.remove(last).unwrap();
        let next = slots.insert(2).unwrap();
        assert_eq!(unpack(next), (1, FIRST_GENERATION));
    }
}

//! [`Slots`]: which number stands for which object.

/// Objects by number. A number is an index and a generation: it is never 0, and it goes out of date
/// when its object is removed, so a late user gets nothing and not somebody else's object.
pub(super) struct Slots<T> {
    entries: Vec<Entry<T>>,
    /// Has capacity for every entry, so that removing an object takes no memory.
    free: Vec<u32>,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Puts an object in and returns its number; when there are 2^32 objects already or memory is missing,
    /// the object.
    pub(super) fn insert(&mut self, value: T) -> Result<i64, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => match u32::try_from(self.entries.len()) {
                Ok(index) => index,
                Err(_) => return Err(value),
            },
        };
        let generation = if let Some(entry) = self.entry_mut(index) {
            entry.value = Some(value);
            entry.generation
        } else {
            // `free` is empty, or an entry would have been reused.
            if self.entries.try_reserve(1).is_err()
                || self.free.try_reserve(self.entries.len() + 1).is_err()
            {
                return Err(value);
            }
            self.entries.push(Entry { generation: FIRST_GENERATION, value: Some(value) });
            FIRST_GENERATION
        };
        Ok(pack(index, generation))
    }

    /// Returns the object of a number, unless the number is out of date.
    pub(super) fn get(&self, handle: i64) -> Option<&T> {
        let (index, generation) = unpack(handle);
        let entry = self.entries.get(usize::try_from(index).ok()?)?;
        entry.value.as_ref().filter(|_| entry.generation == generation)
    }

    /// Takes the object of a number out, unless the number is out of date.
    pub(super) fn remove(&mut self, handle: i64) -> Option<T> {
        let (index, generation) = unpack(handle);
        let entry = self.entry_mut(index).filter(|entry| entry.generation == generation)?;
        let value = entry.value.take()?;
        // A slot that has used up its generations stays empty for ever.
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
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
    fn every_slot_can_be_freed_without_an_allocation() {
        let mut slots = Slots::new();
        let handles: Vec<i64> = (0..100).map(|object| slots.insert(object).unwrap()).collect();
        let capacity = slots.free.capacity();
        for handle in handles {
            slots.remove(handle).unwrap();
        }
        assert_eq!((slots.free.len(), slots.free.capacity()), (100, capacity));
    }

    #[test]
    fn a_slot_without_generations_left_is_not_reused() {
        let mut slots = Slots::new();
        let first = slots.insert(1).unwrap();
        slots.entries[0].generation = u32::MAX;
        assert_eq!(slots.get(first), None);
        let last = pack(0, u32::MAX);
        assert!(last < 0);
        slots.remove(last).unwrap();
        let next = slots.insert(2).unwrap();
        assert_eq!(unpack(next), (1, FIRST_GENERATION));
    }
}

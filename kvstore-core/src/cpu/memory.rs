//! Host memory: aligned blocks that go back to a pool, so that a warm step allocates nothing.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::Backend;
use crate::device::Device;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::storage::{Span, SpanMut, Storage, open, open_mut};

const WORD: usize = size_of::<u64>();
/// Blocks start at a cache line.
const ALIGNMENT: usize = 64;
/// Long blocks start at different lines of their first pages. What a kernel reads side by side would
/// otherwise stand in the same few places of the first-level cache, whose lines go by the address within
/// a page.
const PAGE: usize = 4096;
/// From one long block to the next, in bytes: an odd number of lines, so that all of a page come up.
const STAGGER: usize = 9 * ALIGNMENT;
/// How many bytes a long block has at least: the page more that it takes is a sixteenth.
const LONG: usize = 16 * PAGE;
/// The pool may always keep this much; beyond it, half of what is in use.
const POOL_FLOOR: usize = 256 << 20;

/// The host's memory for tensors, with the storages kept for reuse.
pub(super) struct Memory {
    /// Storages that nobody holds, by [`SizeClass::index`].
    free: Box<[Mutex<Free>]>,
    pooled: AtomicUsize,
    live: AtomicUsize,
    /// What `live` may not exceed.
    limit: AtomicUsize,
    /// How many long blocks there have been.
    num_long: AtomicUsize,
    /// How many storages have been given back.
    num_recycled: AtomicU64,
}

type Free = Vec<Arc<dyn Storage>>;

impl Memory {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: (0..SizeClass::COUNT).map(|_| Mutex::default()).collect(),
            pooled: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            num_long: AtomicUsize::new(0),
            num_recycled: AtomicU64::new(0),
        })
    }

    pub(super) fn live_bytes(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn pooled_bytes(&self) -> usize {
        self.pooled.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, num_bytes: Option<usize>) {
        self.limit.store(num_bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(super) fn trim(&self) {
        for kept in &self.free {
            let kept = std::mem::take(&mut *lock(kept));
            let bytes = |mut storage: Arc<dyn Storage>| Some(own(&mut storage)?.num_block_bytes());
            let bytes: usize = kept.into_iter().filter_map(bytes).sum();
            self.pooled.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns a storage of arbitrary content.
    pub(super) fn allocate(
        self: &Arc<Self>,
        device: Device,
        num_bytes: usize,
    ) -> Result<Arc<dyn Storage>> {
        let class = SizeClass::of(num_bytes);
        let words = class.words;
        let charge = self.charge(device, words.saturating_mul(WORD))?;
        if let Some(storage) = self.take(class, num_bytes) {
            return Ok(storage);
        }
        let block = self.grow(device, words)?;
        charge.keep();
        // An empty block has no address to align.
        let aligned = match words {
            0 => 0,
            _ => bytemuck::cast_slice::<u64, u8>(&block).as_ptr().align_offset(ALIGNMENT),
        };
        let start = aligned + self.stagger(num_bytes);
        let memory = Arc::clone(self);
        let (is_pooled, owner) = (false, None);
        Ok(Arc::new(CpuStorage { block, start, num_bytes, is_pooled, recycled: 0, memory, owner }))
    }

    /// Returns how far behind its first line a new block of this length starts.
    fn stagger(&self, num_bytes: usize) -> usize {
        if num_bytes < LONG {
            return 0;
        }
        self.num_long.fetch_add(1, Ordering::Relaxed).wrapping_mul(STAGGER) % PAGE
    }

    fn take(&self, class: SizeClass, num_bytes: usize) -> Option<Arc<dyn Storage>> {
        let mut kept = lock(self.free.get(class.index)?);
        // Whoever gave a storage back may not have let go of it yet: that one is for another time.
        let position = kept.iter_mut().rposition(|storage| Arc::get_mut(storage).is_some())?;
        let mut storage = kept.swap_remove(position);
        drop(kept);
        let own = own(&mut storage)?;
        own.num_bytes = num_bytes;
        own.is_pooled = false;
        let bytes = own.num_block_bytes();
        self.pooled.fetch_sub(bytes, Ordering::Relaxed);
        self.live.fetch_add(bytes, Ordering::Relaxed);
        Some(storage)
    }

    /// Counts bytes as live, if they may be.
    fn charge(&self, device: Device, num_bytes: usize) -> Result<Charge<'_>> {
        let in_use = self.live.fetch_add(num_bytes, Ordering::Relaxed);
        let charge = Charge { memory: self, num_bytes };
        let limit = self.limit.load(Ordering::Relaxed);
        if num_bytes > limit.saturating_sub(in_use) {
            let limit = Some(limit);
            return Err(Error::OutOfMemory { device, requested: num_bytes, in_use, limit });
        }
        Ok(charge)
    }

    /// Keeps the storage, unless somebody else holds it or the pool is full.
    pub(super) fn recycle(&self, storage: &mut Arc<dyn Storage>) {
        let Some(own) = own(storage) else { return };
        let (class, bytes) = (SizeClass::of(own.num_bytes), own.num_block_bytes());
        let limit = POOL_FLOOR.max(self.live_bytes().saturating_sub(bytes) / 2);
        if bytes == 0 || bytes > limit {
            return;
        }
        if self.pooled_bytes() + bytes > limit && !self.make_room(bytes, limit) {
            return;
        }
        let Some(kept) = self.free.get(class.index) else { return };
        own.is_pooled = true;
        own.recycled = self.num_recycled.fetch_add(1, Ordering::Relaxed);
        self.live.fetch_sub(bytes, Ordering::Relaxed);
        self.pooled.fetch_add(bytes, Ordering::Relaxed);
        lock(kept).push(Arc::clone(storage));
    }

    /// Lets go of what nobody has asked for the longest, until the pool has room for a long block.
    fn make_room(&self, num_bytes: usize, limit: usize) -> bool {
        // Looking through all sizes takes longer than making a short block.
        while num_bytes >= LONG && self.pooled_bytes() + num_bytes > limit {
            let age = |kept: &Mutex<Free>| {
                let mut kept = lock(kept);
                kept.first_mut().and_then(own).map(|own| own.recycled)
            };
            let ages = self.free.iter().enumerate();
            let ages = ages.filter_map(|(class, kept)| Some((age(kept)?, class)));
            let Some(kept) = ages.min().and_then(|(_, class)| self.free.get(class)) else { break };
            let mut kept = lock(kept);
            let Some(own) = kept.first_mut().and_then(own) else { break };
            self.pooled.fetch_sub(own.num_block_bytes(), Ordering::Relaxed);
            let oldest = kept.remove(0);
            drop(kept);
            drop(oldest);
        }
        self.pooled_bytes() + num_bytes <= limit
    }

    fn grow(&self, device: Device, words: usize) -> Result<Vec<u64>> {
        if let Some(block) = new_block(words) {
            return Ok(block);
        }
        // What the pool keeps may be just what is missing.
        self.trim();
        new_block(words).ok_or_else(|| Error::OutOfMemory {
            device,
            requested: words * WORD,
            // What is asked for counts already.
            in_use: self.live_bytes().saturating_sub(words * WORD),
            limit: None,
        })
    }
}

/// Bytes that count as live until it is dropped.
struct Charge<'a> {
    memory: &'a Memory,
    num_bytes: usize,
}

impl Charge<'_> {
    /// Lets the bytes count on: a block has them.
    fn keep(mut self) {
        self.num_bytes = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.memory.live.fetch_sub(self.num_bytes, Ordering::Relaxed);
    }
}

fn lock(kept: &Mutex<Free>) -> MutexGuard<'_, Free> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a storage of the host that nobody else holds.
fn own(storage: &mut Arc<dyn Storage>) -> Option<&mut CpuStorage> {
    open_mut(Arc::get_mut(storage)?).ok()
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("live", &self.live_bytes())
            .field("pooled", &self.pooled_bytes())
            .finish_non_exhaustive()
    }
}

/// How long a block is: with room to place its first byte, and in eight steps per doubling, so that
/// a block fits the next tensor of about its size.
#[derive(Clone, Copy)]
struct SizeClass {
    /// The number of the class, by size.
    index: usize,
    /// The words of its blocks.
    words: usize,
}

impl SizeClass {
    const STEPS: usize = 8;
    const COUNT: usize = Self::STEPS * (usize::BITS as usize + 1);

    fn of(num_bytes: usize) -> Self {
        if num_bytes == 0 {
            return Self { index: 0, words: 0 };
        }
        let room = if num_bytes < LONG { ALIGNMENT } else { PAGE };
        let needed = num_bytes.saturating_add(room).div_ceil(WORD);
        let above = needed.next_power_of_two();
        let step = (above / (2 * Self::STEPS)).max(1);
        let steps = needed.div_ceil(step);
        let index = Self::STEPS * above.ilog2() as usize + steps - above / 2 / step;
        Self { index, words: steps * step }
    }
}

fn new_block(words: usize) -> Option<Vec<u64>> {
    let mut block = Vec::new();
    block.try_reserve_exact(words).ok()?;
    block.resize(words, 0);
    Some(block)
}

/// A block of host memory.
pub(super) struct CpuStorage {
    block: Vec<u64>,
    start: usize,
    num_bytes: usize,
    /// Whether it counts as kept for reuse and not as live.
    is_pooled: bool,
    /// When it was given back the last time.
    recycled: u64,
    memory: Arc<Memory>,
    owner: Option<Arc<dyn Backend>>,
}

impl CpuStorage {
    fn num_block_bytes(&self) -> usize {
        self.block.len() * WORD
    }

    /// Returns where the bytes stand within the block, which is longer than what was asked for.
    fn range(&self, start: usize, num_bytes: usize) -> Result<Range<usize>> {
        match start.checked_add(num_bytes) {
            Some(end) if end <= self.num_bytes => Ok(self.start + start..self.start + end),
            _ => Err(outside()),
        }
    }
}

impl Storage for CpuStorage {
    fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    fn owner(&self) -> Option<&Arc<dyn Backend>> {
        self.owner.as_ref()
    }

    fn set_owner(&mut self, owner: Option<Arc<dyn Backend>>) -> Option<Arc<dyn Backend>> {
        std::mem::replace(&mut self.owner, owner)
    }
}

impl Drop for CpuStorage {
    fn drop(&mut self) {
        if !self.is_pooled {
            self.memory.live.fetch_sub(self.num_block_bytes(), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for CpuStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuStorage[{} bytes]", self.num_bytes)
    }
}

/// Returns the bytes of a range.
pub(super) fn bytes(span: Span<'_>) -> Result<&[u8]> {
    if let Some(lent) = span.storage.lent() {
        return lent.get(span.start..span.start + span.num_bytes).ok_or_else(outside);
    }
    let storage = open::<CpuStorage>(span.storage)?;
    let range = storage.range(span.start, span.num_bytes)?;
    bytemuck::cast_slice(&storage.block).get(range).ok_or_else(outside)
}

/// Returns the bytes of a range, for writing.
#[allow(clippy::needless_pass_by_value, reason = "the exclusive borrow moves into the result")]
pub(super) fn bytes_mut(span: SpanMut<'_>) -> Result<&mut [u8]> {
    let storage = open_mut::<CpuStorage>(span.storage)?;
    let range = storage.range(span.start, span.num_bytes)?;
    bytemuck::cast_slice_mut(&mut storage.block).get_mut(range).ok_or_else(outside)
}

/// Returns the elements of a range.
pub(super) fn elements<T: Element>(span: Span<'_>) -> Result<&[T]> {
    cast(bytes(span)?)
}

/// Returns the elements of a range, for writing.
pub(super) fn elements_mut<T: Element>(span: SpanMut<'_>) -> Result<&mut [T]> {
    cast_mut(bytes_mut(span)?)
}

/// Returns bytes as the elements that they are.
pub(super) fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    bytemuck::try_cast_slice(bytes).map_err(misaligned)
}

/// Returns bytes as the elements that they are, for writing.
pub(super) fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    bytemuck::try_cast_slice_mut(bytes).map_err(misaligned)
}

/// Returns `len` bytes from a place on.
pub(super) fn part_mut(bytes: &mut [u8], place: usize, len: usize) -> Result<&mut [u8]> {
    let end = place.checked_add(len).ok_or_else(outside)?;
    bytes.get_mut(place..end).ok_or_else(outside)
}

fn outside() -> Error {
    Error::Internal("a range leaves its storage".to_owned())
}

fn misaligned(error: bytemuck::PodCastError) -> Error {
    Error::Internal(format!("a range does not hold whole elements: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn live_bytes_stay_below_the_limit() {
        let memory = Memory::new();
        let first = memory.allocate(Device::cpu(0), 5000).unwrap();
        let in_use = memory.live_bytes();
        memory.set_limit(Some(in_use + 9000));
        let second = memory.allocate(Device::cpu(0), 5000).unwrap();
        let full = memory.live_bytes();
        let refused = memory.allocate(Device::cpu(0), 5000).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::OutOfMemory);
        assert!(refused.to_string().ends_with(&format!("the limit is {}", in_use + 9000)));
        assert_eq!(memory.live_bytes(), full, "what was refused does not count");
        memory.set_limit(None);
        let third = memory.allocate(Device::cpu(0), 5000).unwrap();
        memory.set_limit(Some(1));
        drop((first, second, third));
        assert_eq!(memory.live_bytes(), 0);
        assert!(memory.allocate(Device::cpu(0), 1).is_err());
        assert!(memory.allocate(Device::cpu(0), 0).is_ok());
    }

    #[test]
    fn blocks_are_aligned_and_come_back() {
        let memory = Memory::new();
        let mut storage = memory.allocate(Device::cpu(0), 5000).unwrap();
        let span = Span { storage: &*storage, start: 0, num_bytes: 5000 };
        assert_eq!(bytes(span).unwrap().as_ptr().align_offset(ALIGNMENT), 0);
        assert!(memory.live_bytes() >= 5000);
        let held = Arc::clone(&storage);
        memory.recycle(&mut storage);
        assert_eq!(memory.pooled_bytes(), 0, "somebody still holds it");
        drop(held);
        memory.recycle(&mut storage);
        let too_early = memory.allocate(Device::cpu(0), 5000).unwrap();
        assert!(!Arc::ptr_eq(&too_early, &storage), "whoever gave it back has not let go");
        drop(too_early);
        drop(storage);
        assert_eq!(memory.live_bytes(), 0);
        let kept = memory.pooled_bytes();
        assert!(kept >= 5000);
        let again = memory.allocate(Device::cpu(0), 5010).unwrap();
        assert_eq!(memory.pooled_bytes(), 0);
        drop(again);
        memory.trim();
        assert_eq!(memory.pooled_bytes(), 0);
    }

    // Miri takes minutes to write so much memory.
    #[cfg(not(miri))]
    #[test]
    fn what_nobody_asks_for_makes_room() {
        let memory = Memory::new();
        let give_back = |num_bytes: usize| {
            let mut storage = memory.allocate(Device::cpu(0), num_bytes).unwrap();
            memory.recycle(&mut storage);
        };
        give_back(POOL_FLOOR / 2);
        give_back(POOL_FLOOR / 4);
        let before = memory.pooled_bytes();
        give_back(POOL_FLOOR / 3);
        assert!(memory.pooled_bytes() < before, "the oldest has gone");
        give_back(POOL_FLOOR / 4);
        assert!(memory.pooled_bytes() > POOL_FLOOR / 2, "the others have not");
        give_back(2 * POOL_FLOOR);
        assert!(
            memory.pooled_bytes() > POOL_FLOOR / 2,
            "what is too long for it drives nothing out"
        );
    }

    #[test]
    fn nothing_can_be_allocated_too() {
        let storage = Memory::new().allocate(Device::cpu(0), 0).unwrap();
        let span = Span { storage: &*storage, start: 0, num_bytes: 0 };
        assert!(elements::<f64>(span).unwrap().is_empty());
    }

    #[test]
    fn a_range_in_the_padding_is_refused() {
        let storage = Memory::new().allocate(Device::cpu(0), 8).unwrap();
        assert!(bytes(Span { storage: &*storage, start: 4, num_bytes: 4 }).is_ok());
        assert!(bytes(Span { storage: &*storage, start: 4, num_bytes: 8 }).is_err());
        assert!(bytes(Span { storage: &*storage, start: usize::MAX, num_bytes: 2 }).is_err());
    }

    #[test]
    fn absurd_sizes_are_errors() {
        let memory = Memory::new();
        let error = memory.allocate(Device::cpu(0), usize::MAX / 2 - 4096).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { in_use: 0, limit: None, .. }), "{error}");
        assert_eq!(memory.live_bytes(), 0);
    }

    #[test]
    fn a_size_class_wastes_at_most_an_eighth() {
        for num_bytes in (4096..1_000_000).step_by(997) {
            let class = SizeClass::of(num_bytes).words * WORD;
            let room = if num_bytes < LONG { ALIGNMENT } else { PAGE };
            assert!(class >= num_bytes + room);
            assert!(class <= num_bytes + num_bytes / 8 + 2 * room, "{num_bytes}: {class}");
        }
    }

    #[test]
    fn long_blocks_start_at_every_line_of_a_page() {
        let memory = Memory::new();
        assert_eq!(memory.stagger(LONG - 1), 0);
        let mut starts: Vec<_> = (0..PAGE / ALIGNMENT).map(|_| memory.stagger(LONG)).collect();
        starts.sort_unstable();
        assert!(starts.into_iter().eq((0..PAGE).step_by(ALIGNMENT)));
    }

    #[test]
    fn a_long_block_serves_every_length_of_its_class() {
        let memory = Memory::new();
        assert_eq!(SizeClass::of(LONG).index, SizeClass::of(LONG - 1).index);
        let rounds = if cfg!(miri) { 2 } else { PAGE / ALIGNMENT };
        for _ in 0..rounds {
            for (made, taken) in [(LONG, LONG - 1), (LONG - 1, LONG), (LONG, LONG + 4000)] {
                let mut storage = memory.allocate(Device::cpu(0), made).unwrap();
                memory.recycle(&mut storage);
                drop(storage);
                let storage = memory.allocate(Device::cpu(0), taken).unwrap();
                let span = Span { storage: &*storage, start: 0, num_bytes: taken };
                assert_eq!(bytes(span).unwrap().len(), taken);
                drop(storage);
            }
        }
    }

    #[test]
    fn size_classes_have_one_size_and_one_number() {
        let mut last = SizeClass::of(1);
        let dense = if cfg!(miri) { 1_000 } else { 100_000 };
        for num_bytes in (2..dense).chain((dense..1 << 40).step_by(1 << 31)) {
            let class = SizeClass::of(num_bytes);
            let grows = (class.words > last.words, class.index > last.index);
            assert!(grows.0 == grows.1 && class.words >= last.words, "{num_bytes}");
            last = class;
        }
        assert!(SizeClass::of(usize::MAX).index < SizeClass::COUNT);
    }
}

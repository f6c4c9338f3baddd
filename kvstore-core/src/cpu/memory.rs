//! Host memory: aligned blocks from a pool, so that steps after the first allocate nothing.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::free_blocks::FreeBlocks;
use super::size_class::SizeClass;
use crate::backend::{Backend, Span, SpanMut, Storage, open, open_mut};
use crate::process::Origin;
use crate::types::{Device, Element, Error, Result};

pub(super) const WORD: usize = size_of::<u64>();
/// The alignment of blocks: a cache line.
pub(super) const ALIGNMENT: usize = 64;
/// The size of a page.
///
/// Long blocks start at different cache lines of their first page. The address within a page
/// selects the set of the first-level cache, so tensors that a kernel reads together would
/// otherwise evict each other.
pub(super) const PAGE: usize = 4096;
/// The difference between the offsets of two consecutive long blocks. It is an odd number of cache
/// lines, so that all lines of a page take turns.
const STAGGER: usize = 9 * ALIGNMENT;
/// The minimum size of a long block. The extra page that it needs is at most a sixteenth of it.
pub(super) const LONG: usize = 16 * PAGE;
/// The pool may always keep this many bytes. It may keep more up to half of the live bytes.
const POOL_FLOOR: usize = 256 << 20;

/// The minimum number of bytes to evict at the limit, because finding the oldest block costs more
/// than allocating a short one.
const EVICTED_AT_ONCE: usize = 1 << 20;

/// The host's memory for tensors, with its pool.
pub(super) struct Memory {
    free: FreeBlocks,
    /// The size of all blocks, live and pooled.
    held: AtomicUsize,
    /// The upper bound of `held`.
    limit: AtomicUsize,
    /// The number of long blocks allocated so far.
    num_long: AtomicUsize,
    /// The process that may use the pool. A forked child allocates and frees directly.
    origin: Origin,
}

impl Memory {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            free: FreeBlocks::new(),
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            num_long: AtomicUsize::new(0),
            origin: Origin::current(),
        })
    }

    pub(super) fn live_bytes(&self) -> usize {
        // Reads the size of the pool first: a block that is recycled in between counts as live.
        let pooled = self.pooled_bytes();
        self.held_bytes().saturating_sub(pooled)
    }

    pub(super) fn pooled_bytes(&self) -> usize {
        self.free.num_bytes()
    }

    fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != usize::MAX)
    }

    pub(super) fn set_limit(&self, num_bytes: Option<usize>) {
        let limit = num_bytes.unwrap_or(usize::MAX);
        self.limit.store(limit, Ordering::Relaxed);
        if self.origin.is_inherited() {
            return;
        }
        self.free.evict(self.held_bytes().saturating_sub(limit));
    }

    pub(super) fn trim(&self) {
        if !self.origin.is_inherited() {
            self.free.clear();
        }
    }

    /// Returns a storage with arbitrary contents, from the pool if possible.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`] if the limit is reached or the system has no memory.
    pub(super) fn allocate(
        self: &Arc<Self>,
        device: Device,
        num_bytes: usize,
    ) -> Result<Arc<dyn Storage>> {
        let class = SizeClass::of(num_bytes);
        if let Some(storage) = self.take(class, num_bytes) {
            return Ok(storage);
        }
        let charge = self.charge(device, class.num_bytes())?;
        let block = self.grow(device, class.words)?;
        charge.keep();
        // An empty block has no address to align.
        let aligned = match class.words {
            0 => 0,
            _ => bytemuck::cast_slice::<u64, u8>(&block).as_ptr().align_offset(ALIGNMENT),
        };
        let start = aligned + self.stagger(num_bytes);
        let memory = Arc::clone(self);
        Ok(Arc::new(CpuStorage { block, start, num_bytes, memory, owner: None }))
    }

    /// Returns the offset of a new block of this length from its first aligned byte.
    fn stagger(&self, num_bytes: usize) -> usize {
        if num_bytes < LONG {
            return 0;
        }
        self.num_long.fetch_add(1, Ordering::Relaxed).wrapping_mul(STAGGER) % PAGE
    }

    fn take(&self, class: SizeClass, num_bytes: usize) -> Option<Arc<dyn Storage>> {
        if self.origin.is_inherited() {
            return None;
        }
        let mut storage = self.free.take(class)?;
        own(&mut storage)?.num_bytes = num_bytes;
        Some(storage)
    }

    /// Counts the bytes of a new block as held. At the limit, evicts pooled blocks first.
    fn charge(&self, device: Device, num_bytes: usize) -> Result<Charge<'_>> {
        let is_inherited = self.origin.is_inherited();
        // A forked child never uses the pool of its parent, so the pool does not count there.
        let unused = if is_inherited { self.pooled_bytes() } else { 0 };
        let mut held = self.held_bytes();
        loop {
            let limit = self.limit.load(Ordering::Relaxed);
            let room = limit.saturating_sub(held.saturating_sub(unused));
            let missing = num_bytes.saturating_sub(room);
            if missing == 0 {
                match self.held.compare_exchange_weak(
                    held,
                    held + num_bytes,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Ok(Charge { memory: self, num_bytes }),
                    Err(now) => held = now,
                }
                continue;
            }
            // Evicting the entire pool would not help, so the pool stays.
            if missing > self.pooled_bytes() || is_inherited {
                let (requested, in_use, limit) = (num_bytes, self.live_bytes(), self.limit());
                return Err(Error::OutOfMemory { device, requested, in_use, limit });
            }
            self.free.evict(missing.max(EVICTED_AT_ONCE));
            // Another thread may be freeing the missing bytes.
            thread::yield_now();
            held = self.held_bytes();
        }
    }

    /// Puts the storage into the pool, unless it is referenced elsewhere or the pool is full.
    pub(super) fn recycle(&self, storage: &mut Arc<dyn Storage>) {
        if self.origin.is_inherited() {
            return;
        }
        let Some(own) = own(storage) else { return };
        let class = SizeClass::of(own.num_bytes);
        let bytes = class.num_bytes();
        let most = POOL_FLOOR.max(self.live_bytes().saturating_sub(bytes) / 2);
        // Memory exceeds the limit only after the limit was lowered. Then the pool keeps nothing.
        let is_over = self.held_bytes() > self.limit.load(Ordering::Relaxed);
        if bytes == 0 || bytes > most || is_over {
            return;
        }
        let excess = (self.pooled_bytes() + bytes).saturating_sub(most);
        if excess > 0 {
            // Finding the oldest blocks takes longer than allocating a short block.
            if bytes < LONG {
                return;
            }
            self.free.evict(excess);
        }
        self.free.put(class, Arc::clone(storage));
    }

    fn grow(&self, device: Device, words: usize) -> Result<Vec<u64>> {
        if let Some(block) = new_block(words) {
            return Ok(block);
        }
        // The system has no memory left. Frees the pool and tries again.
        self.trim();
        new_block(words).ok_or_else(|| Error::OutOfMemory {
            device,
            requested: words * WORD,
            // `charge` has already counted the requested bytes.
            in_use: self.live_bytes().saturating_sub(words * WORD),
            limit: None,
        })
    }
}

/// Bytes counted as held until the guard is dropped.
struct Charge<'a> {
    memory: &'a Memory,
    num_bytes: usize,
}

impl Charge<'_> {
    /// Keeps the bytes counted: the new block owns them.
    fn keep(mut self) {
        self.num_bytes = 0;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.num_bytes, Ordering::Relaxed);
    }
}

/// Returns the storage for writing, if it is host memory without another reference.
fn own(storage: &mut Arc<dyn Storage>) -> Option<&mut CpuStorage> {
    open_mut(Arc::get_mut(storage)?).ok()
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("live", &self.live_bytes())
            .field("pooled", &self.pooled_bytes())
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the capacity is reserved first")]
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
    memory: Arc<Memory>,
    owner: Option<Arc<dyn Backend>>,
}

impl CpuStorage {
    /// Returns the range of the bytes within the block. The block is longer than the storage.
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
        self.memory.held.fetch_sub(self.block.len() * WORD, Ordering::Relaxed);
    }
}

impl fmt::Debug for CpuStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuStorage[{} bytes]", self.num_bytes)
    }
}

/// Returns the bytes of a range.
pub(super) fn bytes(span: Span<'_>) -> Result<&[u8]> {
    if let Some(external) = span.storage.external_bytes() {
        return external.get(span.start..span.start + span.num_bytes).ok_or_else(outside);
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

/// Reinterprets bytes as elements.
pub(super) fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    bytemuck::try_cast_slice(bytes).map_err(misaligned)
}

/// Reinterprets bytes as elements, for writing.
pub(super) fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    bytemuck::try_cast_slice_mut(bytes).map_err(misaligned)
}

/// Returns `len` bytes from offset `place` on, for writing.
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
    use crate::types::ErrorCode;

    #[test]
    fn live_bytes_stay_below_the_limit() {
        let memory = Memory::new();
        let first = memory.allocate(Device::cpu(0), 5000).unwrap();
        let in_use = memory.live_bytes();
        memory.set_limit(Some(in_use + 9000));
        let second = memory.allocate(Device::cpu(0), 5000).unwrap();
        let full = memory.live_bytes();
        let error = memory.allocate(Device::cpu(0), 5000).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfMemory);
        assert!(error.to_string().ends_with(&format!("the limit is {}", in_use + 9000)));
        assert_eq!(memory.live_bytes(), full, "a failed allocation does not count");
        memory.set_limit(None);
        let third = memory.allocate(Device::cpu(0), 5000).unwrap();
        memory.set_limit(Some(1));
        drop((first, second, third));
        assert_eq!(memory.live_bytes(), 0);
        assert!(memory.allocate(Device::cpu(0), 1).is_err());
        assert!(memory.allocate(Device::cpu(0), 0).is_ok());
    }

    fn recycled(memory: &Arc<Memory>, num_bytes: usize) -> usize {
        let before = memory.pooled_bytes();
        let mut storage = memory.allocate(Device::cpu(0), num_bytes).unwrap();
        memory.recycle(&mut storage);
        memory.pooled_bytes() - before
    }

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn the_limit_includes_the_pool_and_evicts_its_oldest_blocks() {
        let memory = Memory::new();
        let live = memory.allocate(Device::cpu(0), 1 << 20).unwrap();
        let oldest = recycled(&memory, 3 << 20);
        let newest = recycled(&memory, 2 << 20);
        let full = memory.live_bytes() + oldest + newest;
        assert_eq!(memory.pooled_bytes(), oldest + newest);
        memory.set_limit(Some(full));
        assert_eq!(memory.limit(), Some(full));
        assert_eq!(memory.pooled_bytes(), oldest + newest, "a pool within the limit stays");
        let new = memory.allocate(Device::cpu(0), 1 << 20).unwrap();
        assert_eq!(memory.pooled_bytes(), newest, "the oldest block is evicted");
        assert!(memory.live_bytes() + memory.pooled_bytes() <= full);
        let error = memory.allocate(Device::cpu(0), full).unwrap_err();
        let Error::OutOfMemory { in_use, limit, requested, .. } = error else { panic!() };
        assert!(requested >= full);
        assert_eq!((in_use, limit), (memory.live_bytes(), Some(full)));
        assert_eq!(memory.pooled_bytes(), newest, "a pool that is too small to help stays");
        drop((live, new));
    }

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn a_lower_limit_evicts_the_pool_and_keeps_it_empty() {
        let memory = Memory::new();
        let mut live = memory.allocate(Device::cpu(0), 1 << 20).unwrap();
        let oldest = recycled(&memory, 3 << 20);
        let newest = recycled(&memory, 2 << 20);
        memory.set_limit(Some(memory.live_bytes() + newest));
        assert_eq!(memory.pooled_bytes(), newest);
        memory.set_limit(Some(1));
        assert_eq!(memory.pooled_bytes(), 0);
        memory.recycle(&mut live);
        assert_eq!(memory.pooled_bytes(), 0, "above the limit, nothing is pooled");
        drop(live);
        memory.set_limit(None);
        assert_eq!((memory.limit(), memory.live_bytes()), (None, 0));
        assert_eq!(recycled(&memory, 3 << 20), oldest);
    }

    #[test]
    fn live_and_pooled_bytes_stay_below_the_limit_in_many_threads() {
        let memory = Memory::new();
        // Miri takes minutes for megabytes.
        let (num_turns, least) = if cfg!(miri) { (8, 1) } else { (400, 10) };
        let limit = 1 << (least + 13);
        memory.set_limit(Some(limit));
        let work = |seed: usize| {
            for turn in 0..num_turns {
                let num_bytes = 1 << (least + (seed + 7 * turn) % 12);
                let Ok(mut storage) = memory.allocate(Device::cpu(0), num_bytes) else { continue };
                assert!(memory.held_bytes() <= limit);
                memory.recycle(&mut storage);
            }
        };
        let work = &work;
        std::thread::scope(|scope| {
            (0..4).for_each(|seed| drop(scope.spawn(move || work(seed))));
        });
        assert_eq!(memory.live_bytes(), 0);
        memory.trim();
        assert_eq!(memory.held_bytes(), 0);
    }

    #[test]
    fn blocks_are_aligned_and_reused() {
        let memory = Memory::new();
        let mut storage = memory.allocate(Device::cpu(0), 5000).unwrap();
        let span = Span { storage: &*storage, start: 0, num_bytes: 5000 };
        assert_eq!(bytes(span).unwrap().as_ptr().align_offset(ALIGNMENT), 0);
        assert!(memory.live_bytes() >= 5000);
        // A storage enters the pool while its last reference still exists, and can be taken after
        // that reference is dropped.
        let held = Arc::clone(&storage);
        memory.recycle(&mut storage);
        assert_eq!(memory.pooled_bytes(), 0, "the storage still has a second reference");
        drop(held);
        memory.recycle(&mut storage);
        let too_early = memory.allocate(Device::cpu(0), 5000).unwrap();
        assert!(!Arc::ptr_eq(&too_early, &storage), "the recycled storage is still referenced");
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

    // Too slow under Miri.
    #[cfg(not(miri))]
    #[test]
    fn a_full_pool_evicts_its_oldest_blocks() {
        let memory = Memory::new();
        let give_back = |num_bytes: usize| {
            let mut storage = memory.allocate(Device::cpu(0), num_bytes).unwrap();
            memory.recycle(&mut storage);
        };
        give_back(POOL_FLOOR / 2);
        give_back(POOL_FLOOR / 4);
        let before = memory.pooled_bytes();
        give_back(POOL_FLOOR / 3);
        assert!(memory.pooled_bytes() < before, "the oldest block is evicted");
        give_back(POOL_FLOOR / 4);
        assert!(memory.pooled_bytes() > POOL_FLOOR / 2, "the other blocks stay");
        give_back(2 * POOL_FLOOR);
        assert!(
            memory.pooled_bytes() > POOL_FLOOR / 2,
            "a block that is too long for the pool evicts nothing"
        );
    }

    #[test]
    fn empty_storages_can_be_allocated() {
        let storage = Memory::new().allocate(Device::cpu(0), 0).unwrap();
        let span = Span { storage: &*storage, start: 0, num_bytes: 0 };
        assert!(elements::<f64>(span).unwrap().is_empty());
    }

    #[test]
    fn a_range_in_the_padding_is_rejected() {
        let storage = Memory::new().allocate(Device::cpu(0), 8).unwrap();
        assert!(bytes(Span { storage: &*storage, start: 4, num_bytes: 4 }).is_ok());
        assert!(bytes(Span { storage: &*storage, start: 4, num_bytes: 8 }).is_err());
        assert!(bytes(Span { storage: &*storage, start: usize::MAX, num_bytes: 2 }).is_err());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let memory = Memory::new();
        let error = memory.allocate(Device::cpu(0), usize::MAX / 2 - 4096).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { in_use: 0, limit: None, .. }), "{error}");
        assert_eq!(memory.live_bytes(), 0);
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
        let rounds = if cfg!(miri) { 1 } else { PAGE / ALIGNMENT };
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
}

//! The copy that the store's bandwidth is compared with: every core, nothing but bytes.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Floats per piece of the block copy: 1 MiB, many pieces per core, so that a core which is late
/// does less.
const PIECE: usize = 1 << 18;
/// Floats per block of the block copy: 8 KiB, a quarter of the first-level cache. The C library
/// copies so little with plain stores; a long piece it may copy around the caches.
const BLOCK: usize = 1 << 11;

/// Copies one long piece per core: the C library's `memcpy` at its best.
pub(crate) fn pieces(dst: &mut [f32], src: &[f32]) {
    let piece = dst.len().div_ceil(cores()).next_multiple_of(BLOCK).max(BLOCK);
    in_parallel(dst, src, piece, |dst, src| dst.copy_from_slice(src));
}

/// Copies block by block.
pub(crate) fn blocks(dst: &mut [f32], src: &[f32]) {
    in_parallel(dst, src, PIECE, |dst, src| {
        for (dst, src) in dst.chunks_mut(BLOCK).zip(src.chunks(BLOCK)) {
            dst.copy_from_slice(src);
        }
    });
}

fn in_parallel(dst: &mut [f32], src: &[f32], piece: usize, copy: fn(&mut [f32], &[f32])) {
    let mut each = || {
        let pairs = dst.par_chunks_mut(piece).zip(src.par_chunks(piece));
        pairs.for_each(|(dst, src)| copy(dst, src));
    };
    match pool() {
        Some(pool) => pool.install(each),
        None => each(),
    }
}

fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    POOL.get_or_init(|| ThreadPoolBuilder::new().num_threads(cores()).build().ok()).as_ref()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

//! The copy whose bandwidth is compared with the store's. It uses all cores.

use std::num::NonZeroUsize;
use std::sync::OnceLock;

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The floats per piece of the block copy: 1 MiB. There are many pieces per core, so a slow core
/// copies fewer.
const PIECE: usize = 1 << 18;
/// The floats per block of the block copy: 8 KiB, a quarter of the first-level cache. The C library
/// copies such short blocks with plain stores; a long piece may bypass the caches.
const BLOCK: usize = 1 << 11;

/// Copies one long piece per core with the C library's `memcpy`.
pub(crate) fn pieces(dst: &mut [f32], src: &[f32]) {
    let piece = dst.len().div_ceil(cores()).next_multiple_of(BLOCK).max(BLOCK);
    in_parallel(dst, src, piece, |dst, src| dst.copy_from_slice(src));
}

/// Copies in short blocks.
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

//! The thread pool under every kernel, and how work is cut for it.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::Result;

/// Work of at most this many elements is done by one thread; a piece is rarely smaller. Under Miri,
/// which cannot wait for long work, short work is cut too: that is where it looks for data races.
const GRAIN: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };

/// What a job costs before its first element, in elements: small keys are mostly this.
const JOB: usize = 128;

/// Work that can be cut in two between elements. Cutting never changes a result.
pub(super) trait Split: Sized + Send {
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Returns the elements before `middle` and those from it on.
    fn split_at(self, middle: usize) -> (Self, Self);
}

/// A thread pool, or none for a single thread.
#[derive(Debug)]
pub(super) struct Workers {
    pool: Option<ThreadPool>,
}

impl Workers {
    pub(super) fn new(num_threads: usize) -> Self {
        // Without threads everything still works, in the caller's.
        let pool = (num_threads > 1)
            .then(|| {
                ThreadPoolBuilder::new()
                    .num_threads(num_threads)
                    .thread_name(|index| format!("kvstore-{index}"))
                    .build()
                    .inspect_err(|error| tracing::warn!(%error, "no thread pool"))
                    .ok()
            })
            .flatten();
        Self { pool }
    }

    pub(super) fn num_threads(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Calls `kernel` on pieces that together are `work`.
    pub(super) fn for_each_piece<W: Split>(&self, work: W, kernel: &(impl Fn(W) + Sync)) {
        match self.pool_for(work.len()) {
            None => kernel(work),
            Some(pool) => run_in(pool, &mut Held { work: Some(work), kernel }),
        }
    }

    /// Calls `run` on every job: one parallel piece of work for any number of them. A job that is
    /// long by itself is to be cut with the [`Cut`] that comes with it.
    pub(super) fn for_each_job<J: Send>(
        &self,
        jobs: &mut [J],
        len: &(impl Fn(&J) -> usize + Sync),
        run: &(impl Fn(&mut J, Cut) -> Result<()> + Sync),
    ) -> Result<()> {
        match self.pool_for(cost(jobs, len)) {
            None => jobs.iter_mut().try_for_each(|job| run(job, Cut::Never)),
            Some(pool) => pool.install(|| halve_jobs(jobs, len, run)),
        }
    }

    /// Returns the results of `block` for the blocks `0..num_blocks` in order.
    pub(super) fn map_blocks<R: Send>(
        &self,
        num_blocks: usize,
        block_len: usize,
        block: &(impl Fn(usize) -> R + Sync),
    ) -> Vec<R> {
        match self.pool_for(num_blocks * block_len) {
            None => (0..num_blocks).map(block).collect(),
            Some(pool) => pool.install(|| (0..num_blocks).into_par_iter().map(block).collect()),
        }
    }

    pub(super) fn copy(&self, dst: &mut [u8], src: &[u8]) {
        self.for_each_piece(Copy { dst, src }, &|piece| piece.dst.copy_from_slice(piece.src));
    }

    /// Returns the pool when that many elements are worth waking it, and waiting for it is safe.
    fn pool_for(&self, num_elements: usize) -> Option<&ThreadPool> {
        // A worker of the caller's pool that waits may meanwhile run another task of that pool,
        // which may want a lock that this thread holds. So there the work is done at once.
        let safe = rayon::current_thread_index().is_none();
        self.pool.as_ref().filter(|_| num_elements > GRAIN && safe)
    }
}

/// Whether work may be cut into pieces for several threads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// This thread does it all.
    Never,
    /// This is a thread of the pool, and others may help.
    Halves,
}

impl Cut {
    /// Calls `kernel` on pieces that together are `work`.
    pub(super) fn for_each_piece<W: Split>(self, work: W, kernel: &(impl Fn(W) + Sync)) {
        match self {
            Self::Never => kernel(work),
            Self::Halves => halve(&mut Held { work: Some(work), kernel }),
        }
    }
}

fn cost<J>(jobs: &[J], len: &impl Fn(&J) -> usize) -> usize {
    jobs.iter().map(|job| JOB + len(job)).sum()
}

fn halve_jobs<J: Send>(
    jobs: &mut [J],
    len: &(impl Fn(&J) -> usize + Sync),
    run: &(impl Fn(&mut J, Cut) -> Result<()> + Sync),
) -> Result<()> {
    if let [job] = jobs {
        return run(job, Cut::Halves);
    }
    if cost(jobs, len) <= GRAIN {
        return jobs.iter_mut().try_for_each(|job| run(job, Cut::Never));
    }
    let (left, right) = jobs.split_at_mut(jobs.len() / 2);
    let (left, right) = rayon::join(|| halve_jobs(left, len, run), || halve_jobs(right, len, run));
    left.and(right)
}

/// Work with its kernel, behind a pointer: what cuts it and hands it to threads is compiled once, and
/// not for every kernel.
trait Piece: Send {
    fn len(&self) -> usize;
    fn run(&mut self);
    /// Cuts the work in two and hands over both halves.
    fn cut(&mut self, both: fn(&mut dyn Piece, &mut dyn Piece));
}

struct Held<'k, W, K> {
    work: Option<W>,
    kernel: &'k K,
}

impl<W: Split, K: Fn(W) + Sync> Piece for Held<'_, W, K> {
    fn len(&self) -> usize {
        self.work.as_ref().map_or(0, Split::len)
    }

    fn run(&mut self) {
        if let Some(work) = self.work.take() {
            (self.kernel)(work);
        }
    }

    fn cut(&mut self, both: fn(&mut dyn Piece, &mut dyn Piece)) {
        if let Some(work) = self.work.take() {
            let middle = (work.len() / 2).next_multiple_of(64);
            let (left, right) = work.split_at(middle);
            let kernel = self.kernel;
            both(&mut Self { work: Some(left), kernel }, &mut Self { work: Some(right), kernel });
        }
    }
}

fn run_in(pool: &ThreadPool, piece: &mut dyn Piece) {
    pool.install(|| halve(piece));
}

fn halve(piece: &mut dyn Piece) {
    if piece.len() <= GRAIN {
        piece.run();
    } else {
        piece.cut(|left, right| {
            rayon::join(|| halve(left), || halve(right));
        });
    }
}

impl<T: Send> Split for &mut [T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        self.split_at_mut(middle)
    }
}

struct Copy<'a> {
    dst: &'a mut [u8],
    src: &'a [u8],
}

impl Split for Copy<'_> {
    fn len(&self) -> usize {
        // Counted in words, so that bytes are cut as coarsely as elements.
        self.dst.len() / 4
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left_dst, right_dst) = self.dst.split_at_mut(middle * 4);
        let (left_src, right_src) = self.src.split_at(middle * 4);
        (Self { dst: left_dst, src: left_src }, Self { dst: right_dst, src: right_src })
    }
}

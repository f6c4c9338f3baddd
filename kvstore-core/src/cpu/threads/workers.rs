//! [`Workers`]: splits the work of a kernel into pieces and distributes them over threads.

use std::sync::{Mutex, PoisonError};

use super::pool::Pool;
use super::shared_task::Task;
use crate::types::Result;

/// One thread does work of up to this many elements. Pieces are rarely smaller. It is lower under
/// Miri, so that Miri finds data races in short work.
const GRAIN: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };
/// The fixed cost of a job, in elements. It dominates the cost of a small key.
const JOB: usize = 128;
/// A thread takes several small jobs at once, up to this cost.
const SMALL: usize = GRAIN / 4;
/// A piece of long work is the remaining work, divided by this number and the number of threads.
const SHARE: usize = 8;

/// Work that can be split between elements. Splitting does not change a result.
pub(in crate::cpu) trait Split: Sized + Send {
    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Splits the work into the elements before `middle` and the rest. May split at an element near
    /// `middle` instead.
    fn split_at(self, middle: usize) -> (Self, Self);
}

/// A job of a batch.
pub(in crate::cpu) trait Job: Send {
    /// Some elements of the job.
    type Piece<'j>: Split
    where
        Self: 'j;

    /// Returns the number of elements.
    fn len(&self) -> usize;
    /// Returns the entire job as one piece.
    fn open(&mut self) -> Result<Self::Piece<'_>>;
    /// Does one piece.
    fn run(piece: Self::Piece<'_>) -> Result<()>;
}

/// The calling thread and a pool of others.
#[derive(Debug)]
pub(in crate::cpu) struct Workers {
    others: Option<Pool>,
}

impl Workers {
    pub(in crate::cpu) fn new(num_threads: usize) -> Self {
        // If the pool cannot start, the calling thread does all the work.
        Self { others: (num_threads > 1).then(|| Pool::new(num_threads - 1)).flatten() }
    }

    /// Returns the number of threads, including the calling thread.
    pub(in crate::cpu) fn num_threads(&self) -> usize {
        1 + self.others.as_ref().map_or(0, Pool::num_threads)
    }

    // In the next two functions, every thread takes pieces until no piece is left. The number of
    // helpers is limited to one per grain of work.

    /// Splits `work` into pieces and calls `kernel` on each.
    pub(in crate::cpu) fn for_each_piece<W: Split>(&self, work: W, kernel: impl Fn(W) + Sync) {
        let num_elements = work.len();
        let Some(others) = self.others_for(num_elements) else {
            return kernel(work);
        };
        let rest = Mutex::new(Some(work));
        let threads = self.num_threads();
        let do_piece = || next(&rest, |rest| take_piece(rest, threads)).map(&kernel).is_some();
        others.share(num_elements / GRAIN, Task::of(&do_piece));
    }

    /// Does all jobs in parallel. A thread takes several small jobs at once, and long jobs are
    /// split.
    ///
    /// # Errors
    /// - The error of a failed job. Other jobs may not have run.
    pub(in crate::cpu) fn for_each_job<J: Job>(&self, jobs: &mut [J]) -> Result<()> {
        let num_elements = jobs.iter().map(cost).sum();
        let Some(others) = self.others_for(num_elements) else {
            return jobs.iter_mut().try_for_each(|job| J::run(job.open()?));
        };
        let rest = Mutex::new(Batch { jobs, long: None });
        let threads = self.num_threads();
        let done = Mutex::new(Ok(()));
        let do_unit = || {
            let unit = next(&rest, |rest| rest.next(threads).transpose());
            let result = unit.map(|unit| unit?.run());
            if let Some(Err(error)) = result {
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                return false;
            }
            result.is_some()
        };
        others.share(num_elements / GRAIN, Task::of(&do_unit));
        done.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies `src` to `dst`. Both have the same length.
    pub(in crate::cpu) fn copy(&self, dst: &mut [u8], src: &[u8]) {
        self.for_each_piece(Copy { dst, src }, |piece| piece.dst.copy_from_slice(piece.src));
    }

    /// Returns the pool if `num_elements` are worth waking it, and this thread may wait.
    fn others_for(&self, num_elements: usize) -> Option<&Pool> {
        // If this is a rayon thread of the caller, it must not wait: it might run another task of
        // its pool meanwhile, and that task might need a lock that this thread holds.
        let safe = rayon::current_thread_index().is_none();
        self.others
            .as_ref()
            .filter(|_| num_elements > GRAIN && safe)
            .filter(|pool| pool.num_threads() > 0)
    }
}

/// Takes a piece of the remaining work. Ignores a poisoned lock, because a panicking thread has
/// already taken its piece out of `rest`.
fn next<R, T>(rest: &Mutex<R>, take: impl FnOnce(&mut R) -> Option<T>) -> Option<T> {
    take(&mut rest.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes the next piece. Pieces are a fixed share of the remaining work, so they shrink towards the
/// end.
fn take_piece<W: Split>(rest: &mut Option<W>, threads: usize) -> Option<W> {
    let work = rest.take()?;
    let share = (work.len() / (SHARE * threads)).next_multiple_of(GRAIN).max(GRAIN);
    if work.len() <= share {
        return Some(work);
    }
    let (piece, after) = work.split_at(share);
    *rest = Some(after);
    Some(piece)
}

fn cost<J: Job>(job: &J) -> usize {
    JOB + job.len()
}

/// The remaining jobs of a batch.
struct Batch<'b, J: Job> {
    jobs: &'b mut [J],
    /// The rest of a long job that is being split.
    long: Option<J::Piece<'b>>,
}

/// The work that a thread takes from a batch at once.
enum Unit<'b, J: Job> {
    /// Several small jobs.
    Jobs(&'b mut [J]),
    /// A piece of a long job.
    Part(J::Piece<'b>),
}

impl<'b, J: Job> Batch<'b, J> {
    fn next(&mut self, threads: usize) -> Result<Option<Unit<'b, J>>> {
        if self.long.is_none() {
            let jobs = std::mem::take(&mut self.jobs);
            let mut total = 0;
            let fits = |job: &&J| {
                total += cost(*job);
                total <= SMALL
            };
            let count = jobs.iter().take_while(fits).count();
            if count > 0 {
                let (taken, after) = jobs.split_at_mut(count);
                self.jobs = after;
                return Ok(Some(Unit::Jobs(taken)));
            }
            let Some((job, after)) = jobs.split_first_mut() else { return Ok(None) };
            self.jobs = after;
            self.long = Some(job.open()?);
        }
        Ok(take_piece(&mut self.long, threads).map(Unit::Part))
    }
}

impl<J: Job> Unit<'_, J> {
    fn run(self) -> Result<()> {
        match self {
            Self::Jobs(jobs) => jobs.iter_mut().try_for_each(|job| J::run(job.open()?)),
            Self::Part(piece) => J::run(piece),
        }
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

impl<T: Sync> Split for &[T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        <[T]>::split_at(self, middle)
    }
}

struct Copy<'a> {
    dst: &'a mut [u8],
    src: &'a [u8],
}

impl Split for Copy<'_> {
    fn len(&self) -> usize {
        // Counts words of four bytes, so that pieces are about as large as pieces of elements.
        self.dst.len() / 4
    }

    fn split_at(self, middle: usize) -> (Self, Self) {
        let (left_dst, right_dst) = self.dst.split_at_mut(middle * 4);
        let (left_src, right_src) = self.src.split_at(middle * 4);
        (Self { dst: left_dst, src: left_src }, Self { dst: right_dst, src: right_src })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::types::Error;

    #[test]
    fn pieces_cover_each_element_once() {
        for &threads in if cfg!(miri) { &[1, 3][..] } else { &[1, 2, 3, 7] } {
            let workers = Workers::new(threads);
            for len in [0, 1, GRAIN, GRAIN + 1, 2 * GRAIN, 100 * GRAIN + 7] {
                let mut elements = vec![0u8; len];
                workers.for_each_piece(&mut elements[..], |piece| {
                    assert!(threads == 1 || len == 0 || piece.len() < len || len <= GRAIN);
                    for element in piece {
                        *element += 1;
                    }
                });
                assert!(elements.iter().all(|&element| element == 1), "{threads} threads, {len}");
            }
        }
    }

    /// A job that adds 1 to every element, and then returns an error if `fails`.
    struct Add {
        elements: Vec<u8>,
        fails: bool,
    }

    struct Part<'a>(&'a mut [u8], bool);

    impl Split for Part<'_> {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn split_at(self, middle: usize) -> (Self, Self) {
            let (left, right) = self.0.split_at_mut(middle);
            (Self(left, self.1), Self(right, self.1))
        }
    }

    impl Job for Add {
        type Piece<'j> = Part<'j>;

        fn len(&self) -> usize {
            self.elements.len()
        }

        fn open(&mut self) -> Result<Part<'_>> {
            Ok(Part(&mut self.elements, self.fails))
        }

        fn run(piece: Part<'_>) -> Result<()> {
            for element in piece.0 {
                *element += 1;
            }
            if piece.1 { Err(Error::Internal("as asked".to_owned())) } else { Ok(()) }
        }
    }

    fn jobs(lengths: &[usize], fails: Option<usize>) -> Vec<Add> {
        let job = |(index, &len): (usize, &usize)| Add {
            elements: vec![0; len],
            fails: fails == Some(index),
        };
        lengths.iter().enumerate().map(job).collect()
    }

    #[test]
    fn every_job_is_done_once() {
        let small = vec![3; if cfg!(miri) { 200 } else { 2000 }];
        let mixed = [0, 5, 3 * GRAIN + 1, 1, GRAIN, SMALL, 2 * SMALL, 0, 9 * GRAIN, 2];
        for threads in [1, 2, 7] {
            let workers = Workers::new(threads);
            for lengths in [&[][..], &[0], &[10 * GRAIN], &small, &mixed] {
                let mut jobs = jobs(lengths, None);
                workers.for_each_job(&mut jobs).unwrap();
                assert!(jobs.iter().all(|job| job.elements.iter().all(|&element| element == 1)));
            }
        }
    }

    /// A call with work for several threads ends while the work of another call is in progress.
    #[test]
    fn no_call_waits_for_the_work_of_another() {
        let workers = Workers::new(2);
        let (entered, other_ended) = (Barrier::new(3), AtomicBool::new(false));
        let num_pieces = AtomicUsize::new(0);
        // The first call occupies both threads until the second call has ended.
        let work_until_the_other_ends = |_: &mut [u8]| {
            if num_pieces.fetch_add(1, Ordering::Relaxed) >= 2 {
                return;
            }
            entered.wait();
            let deadline = Instant::now() + Duration::from_secs(20);
            while !other_ended.load(Ordering::Relaxed) {
                assert!(Instant::now() < deadline, "the other call waits for this one");
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut elements = vec![0; 3 * GRAIN];
                workers.for_each_piece(&mut elements[..], work_until_the_other_ends);
            });
            entered.wait();
            let mut elements = vec![0; 3 * GRAIN];
            workers.for_each_piece(&mut elements[..], |piece| piece.fill(1));
            other_ended.store(true, Ordering::Relaxed);
            assert!(elements.iter().all(|&element| element == 1));
        });
    }

    #[test]
    fn the_error_of_any_job_fails_the_batch() {
        for threads in [1, 2, 7] {
            for fails in 0..4 {
                let mut jobs = jobs(&[4, 3 * GRAIN, 5, 2 * GRAIN], Some(fails));
                assert!(Workers::new(threads).for_each_job(&mut jobs).is_err());
            }
        }
    }
}

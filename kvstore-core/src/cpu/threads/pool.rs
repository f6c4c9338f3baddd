//! [`Pool`]: the threads that help a calling thread. They are a rayon pool.
//!
//! Under Miri, each call starts threads of the standard library instead, because rayon's queues
//! violate Miri's strictest rules. This way, Miri checks the multi-threaded code of the core with
//! these rules.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

#[cfg(not(miri))]
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::shared_task::{SharedTask, Task};
use crate::process::OwnedByProcess;

/// The threads besides the calling thread.
#[derive(Debug)]
pub(super) struct Pool {
    /// Locked by the call that the threads help. Other calls do not wait for the lock: they would
    /// wait until that call ends. They work alone instead.
    busy: Mutex<()>,
    /// The threads. A forked child has none.
    threads: OwnedByProcess<Threads>,
}

impl Pool {
    pub(super) fn new(num_threads: usize) -> Option<Self> {
        let threads = OwnedByProcess::new(Threads::new(num_threads)?);
        Some(Self { busy: Mutex::default(), threads })
    }

    pub(super) fn num_threads(&self) -> usize {
        self.threads.get().map_or(0, Threads::number)
    }

    /// Does the pieces of a task in this thread and in up to `num_helpers` pool threads.
    ///
    /// The pool threads join as soon as no other call uses them. At the end, this waits only for
    /// threads that are doing a piece.
    pub(super) fn share(&self, num_helpers: usize, task: Task<'_>) {
        let mut held = None;
        SharedTask::share(task, |shared| {
            loop {
                if held.is_none() {
                    let taken = self.try_take();
                    let spawn = |threads: &Threads| threads.spawn_helpers(num_helpers, shared);
                    held = taken.map(|hold| (hold, self.threads.get().map(spawn)));
                }
                if !task.do_piece() {
                    return;
                }
            }
        });
    }

    fn try_take(&self) -> Option<MutexGuard<'_, ()>> {
        match self.busy.try_lock() {
            Ok(guard) => Some(guard),
            // The call that panicked has ended, and the lock protects no data.
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(not(miri))]
#[derive(Debug)]
struct Threads(ThreadPool);

#[cfg(not(miri))]
impl Threads {
    fn new(number: usize) -> Option<Self> {
        let threads = ThreadPoolBuilder::new()
            .num_threads(number)
            .thread_name(|index| format!("kvstore-{index}"))
            .build()
            .inspect_err(|error| tracing::warn!(%error, "could not start threads; using one"))
            .ok()?;
        Some(Self(threads))
    }

    fn number(&self) -> usize {
        self.0.current_num_threads()
    }

    fn spawn_helpers(&self, count: usize, shared: &Arc<SharedTask>) -> Helpers {
        for _ in 0..count.min(self.number()) {
            let shared = Arc::clone(shared);
            self.0.spawn(move || shared.join());
        }
        Helpers
    }
}

#[cfg(not(miri))]
struct Helpers;

#[cfg(miri)]
#[derive(Debug)]
struct Threads(usize);

#[cfg(miri)]
impl Threads {
    #[allow(clippy::unnecessary_wraps, reason = "same signature as without Miri")]
    fn new(number: usize) -> Option<Self> {
        Some(Self(number))
    }

    fn number(&self) -> usize {
        self.0
    }

    fn spawn_helpers(&self, count: usize, shared: &Arc<SharedTask>) -> Helpers {
        let start = |_| {
            let shared = Arc::clone(shared);
            std::thread::spawn(move || shared.join())
        };
        Helpers((0..count.min(self.number())).map(start).collect())
    }
}

/// Joins the helpers when dropped, because Miri reports threads that outlive `main`.
#[cfg(miri)]
struct Helpers(Vec<std::thread::JoinHandle<()>>);

#[cfg(miri)]
impl Drop for Helpers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|thread| thread.join().unwrap_or_default());
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::{Pool, Task};

    #[test]
    fn a_call_does_not_wait_for_busy_pool_threads() {
        let pool = Pool::new(2).unwrap();
        let (asleep, woken) = (Barrier::new(3), Barrier::new(3));
        let num_pieces = AtomicUsize::new(0);
        pool.threads.get().unwrap().0.in_place_scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|_| {
                    asleep.wait();
                    woken.wait();
                });
            }
            asleep.wait();
            pool.share(2, Task::of(&|| num_pieces.fetch_add(1, Ordering::Relaxed) < 3));
            woken.wait();
        });
        assert_eq!(num_pieces.into_inner(), 4);
    }
}

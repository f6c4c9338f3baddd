//! The threads that help a caller: a pool of rayon's, waiting until there is work.
//!
//! Under Miri they are threads of the standard library, started for each piece of work. A rayon task
//! is passed by value, with the references that it captured, to the function that also reports its
//! end; for a moment after that report they dangle in the arguments of a function that still runs.
//! Nobody reads them, but the rules that Miri checks forbid it (unsafe-code-guidelines issue 511; the
//! standard library wraps its closures against it). The queues of rayon need laxer rules, too. With
//! this Miri checks what the core does on several threads, by its strictest rules.

#[cfg(not(miri))]
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads beside the caller's.
#[derive(Debug)]
pub(super) struct Pool {
    #[cfg(not(miri))]
    threads: ThreadPool,
    #[cfg(miri)]
    num_threads: usize,
}

#[cfg(not(miri))]
impl Pool {
    pub(super) fn new(num_threads: usize) -> Option<Self> {
        let threads = ThreadPoolBuilder::new()
            .num_threads(num_threads)
            .thread_name(|index| format!("kvstore-{index}"))
            .build()
            .inspect_err(|error| tracing::warn!(%error, "no thread pool"))
            .ok()?;
        Some(Self { threads })
    }

    pub(super) fn num_threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Calls `take_part` here and on up to that many other threads, and returns when all calls have.
    pub(super) fn share(&self, num_helpers: usize, take_part: &(dyn Fn() + Sync)) {
        self.threads.in_place_scope(|scope| {
            for _ in 0..num_helpers.min(self.num_threads()) {
                scope.spawn(|_| take_part());
            }
            take_part();
        });
    }
}

#[cfg(miri)]
impl Pool {
    pub(super) fn new(num_threads: usize) -> Option<Self> {
        Some(Self { num_threads })
    }

    pub(super) fn num_threads(&self) -> usize {
        self.num_threads
    }

    pub(super) fn share(&self, num_helpers: usize, take_part: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..num_helpers.min(self.num_threads) {
                scope.spawn(take_part);
            }
            take_part();
        });
    }
}

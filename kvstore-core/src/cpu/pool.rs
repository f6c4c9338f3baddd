//! The threads that help a caller: a pool of rayon's, waiting until there is work.
//!
//! Under Miri they are threads of the standard library, started for each piece of work. A rayon task
//! is passed by value, with the references that it captured, to the function that also reports its
//! end; for a moment after that report they dangle in the arguments of a function that still runs.
//! Nobody reads them, but the rules that Miri checks forbid it (unsafe-code-guidelines issue 511; the
//! standard library wraps its closures against it). The queues of rayon need laxer rules, too. With
//! this Miri checks what the core does on several threads, by its strictest rules.

use std::sync::{Mutex, MutexGuard, TryLockError};

#[cfg(not(miri))]
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads beside the caller's.
#[derive(Debug)]
pub(super) struct Pool {
    /// Taken by the one call that they help. Another call that waited for them would wait for the end of that
    /// call's work; it goes on alone instead.
    busy: Mutex<()>,
    #[cfg(not(miri))]
    threads: ThreadPool,
    #[cfg(miri)]
    num_threads: usize,
}

impl Pool {
    /// Takes part in this thread until nothing is left, and once calls `spawn` when no other call has the others;
    /// `held` is then this call's hold on them.
    fn lead<'p>(
        &'p self,
        held: &mut Option<MutexGuard<'p, ()>>,
        take_part: &dyn Fn() -> bool,
        spawn: impl Fn(),
    ) {
        loop {
            if held.is_none() {
                *held = self.try_take();
                if held.is_some() {
                    spawn();
                }
            }
            if !take_part() {
                return;
            }
        }
    }

    fn try_take(&self) -> Option<MutexGuard<'_, ()>> {
        match self.busy.try_lock() {
            Ok(guard) => Some(guard),
            // Whoever panicked has come to the end of its call.
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
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
        Some(Self { busy: Mutex::default(), threads })
    }

    pub(super) fn num_threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Does work here and on up to that many other threads, and returns when all of it is done: `take_part` does
    /// a piece and returns whether there was one.
    pub(super) fn share(&self, num_helpers: usize, take_part: &(dyn Fn() -> bool + Sync)) {
        let mut held = None;
        self.threads.in_place_scope(|scope| {
            self.lead(&mut held, take_part, || {
                for _ in 0..num_helpers.min(self.num_threads()) {
                    scope.spawn(|_| while take_part() {});
                }
            });
        });
    }
}

#[cfg(miri)]
impl Pool {
    pub(super) fn new(num_threads: usize) -> Option<Self> {
        Some(Self { busy: Mutex::default(), num_threads })
    }

    pub(super) fn num_threads(&self) -> usize {
        self.num_threads
    }

    pub(super) fn share(&self, num_helpers: usize, take_part: &(dyn Fn() -> bool + Sync)) {
        let mut held = None;
        std::thread::scope(|scope| {
            self.lead(&mut held, take_part, || {
                for _ in 0..num_helpers.min(self.num_threads) {
                    scope.spawn(|| while take_part() {});
                }
            });
        });
    }
}

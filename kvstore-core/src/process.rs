//! Support for `fork`: defines which of its parent's state a child uses, and what it creates anew.
//!
//! A child has a copy of its parent's memory, but only the thread that called `fork`. A lock that
//! another thread held is never released there, and the threads of a pool do not exist.
//!
//! - [`Origin`] identifies the process that created a value.
//! - [`OwnedByProcess`] holds a value that a child neither uses nor drops.
//! - [`PerProcess`] is a static value with one instance per process.
//! - `ForkMutex` is a mutex that a child can lock unless another thread held it at the fork.
//!
//! A counter identifies the process, because `getpid` would add a system call to every method of a
//! store.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::types::{Error, Result};

/// The number of forks between the first process that used the library and this process. A fork may
/// count more than once: see `count_forks`.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

fn generation() -> usize {
    GENERATION.load(Ordering::Relaxed)
}

/// Registers the handler that counts forks.
fn count_forks() {
    static IS_COUNTING: AtomicBool = AtomicBool::new(false);
    if IS_COUNTING.load(Ordering::Acquire) {
        return;
    }
    // Two threads may register it at once. A fork then counts twice, which does no harm.
    #[cfg(all(unix, not(miri)))]
    system::pthread_atfork(None, None, Some(system::count));
    IS_COUNTING.store(true, Ordering::Release);
}

#[cfg(all(unix, not(miri)))]
#[expect(unsafe_code, reason = "declares a function of the system")]
mod system {
    use std::ffi::c_int;
    use std::sync::atomic::Ordering;

    use super::GENERATION;

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        /// Registers functions that `fork` calls: before the fork, in the parent, and in the child.
        pub(super) safe fn pthread_atfork(
            prepare: Handler,
            parent: Handler,
            child: Handler,
        ) -> c_int;
    }

    pub(super) extern "C" fn count() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
}

/// The process that created a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(usize);

impl Origin {
    /// Returns the current process.
    pub fn current() -> Self {
        count_forks();
        Self(generation())
    }

    /// Returns whether this process is a forked child of the creator.
    pub fn is_inherited(self) -> bool {
        self.0 != generation()
    }

    /// Checks that this process is the creator.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] in a forked child. The message names `what` and gives the advice
    ///   `to_do`.
    pub fn check(self, what: &str, to_do: &str) -> Result<()> {
        if self.is_inherited() { Err(forked(what, to_do)) } else { Ok(()) }
    }
}

fn forked(what: &str, to_do: &str) -> Error {
    Error::Unsupported(format!("{what} was created before this process was forked: {to_do}"))
}

/// A value for the process that created it. A forked child leaks it, because dropping it could wait
/// for a thread that does not exist there.
#[derive(Clone)]
pub struct OwnedByProcess<T> {
    /// `Some` until the drop.
    value: Option<T>,
    origin: Origin,
}

impl<T> OwnedByProcess<T> {
    /// Wraps a value of this process.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), origin: Origin::current() }
    }

    /// Returns the process that created the value.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns the value, or `None` in a forked child.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| !self.origin.is_inherited())
    }

    /// Returns the value, even in a forked child. Use it only for operations that take no lock and
    /// need no other thread.
    ///
    /// # Errors
    /// - [`Error::Internal`] during the drop, which no caller can observe.
    pub fn peek(&self) -> Result<&T> {
        self.value.as_ref().ok_or_else(|| Error::Internal("a value was dropped".to_owned()))
    }
}

impl<T> Drop for OwnedByProcess<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "dropping could wait for a thread that does not exist"
    )]
    fn drop(&mut self) {
        if self.origin.is_inherited() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnedByProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => f.write_str("<created before this process was forked>"),
        }
    }
}

/// A static with one instance per process. A forked child creates its own.
#[derive(Debug)]
pub struct PerProcess<T> {
    /// One slot per generation, so that a child never waits for an initialisation interrupted by
    /// the fork.
    values: [OnceLock<T>; MOST_FORKS],
    /// The slot of all later generations.
    last: OnceLock<T>,
}

/// The number of generations with a slot of their own. All deeper ones share `last`.
const MOST_FORKS: usize = 32;

impl<T> PerProcess<T> {
    /// Returns a static that no process has initialised.
    pub const fn new() -> Self {
        Self { values: [const { OnceLock::new() }; MOST_FORKS], last: OnceLock::new() }
    }

    /// Returns the value of this process. The first call creates it. `make` receives the value of
    /// the nearest ancestor that has one. It must not wait for the locks of that value, because
    /// they may never be released.
    pub fn get_or_init(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        count_forks();
        let generation = generation();
        let own = self.values.get(generation).unwrap_or(&self.last);
        let mut parents = self.values.iter().take(generation).rev();
        own.get_or_init(|| make(parents.find_map(OnceLock::get)))
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// How long a child waits for a lock whose holder may not exist.
///
/// If a thread of the child locks the mutex and is suspended for longer before it updates
/// `generation`, other threads report an error.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A mutex that a forked child can lock, unless another thread held it at the fork.
pub(crate) struct ForkMutex<T> {
    value: Mutex<T>,
    /// The last generation in which the mutex was created or locked, so that its holder exists.
    generation: AtomicUsize,
    /// The generation in which a wait for the lock timed out.
    dead_in: AtomicUsize,
}

impl<T> ForkMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        count_forks();
        let generation = AtomicUsize::new(generation());
        Self { value: Mutex::new(value), generation, dead_in: AtomicUsize::new(usize::MAX) }
    }

    /// Locks the mutex. Ignores poisoning.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] in a forked child, if the holder of the lock does not exist.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        if self.generation.load(Ordering::Relaxed) == generation() {
            return Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.lock_inherited()
    }

    #[cold]
    fn lock_inherited(&self) -> Result<MutexGuard<'_, T>> {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            match self.value.try_lock() {
                Ok(guard) => return Ok(self.noted(guard)),
                Err(TryLockError::Poisoned(error)) => return Ok(self.noted(error.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
            // Checked again: a thread of this process has locked the mutex since, and will release
            // it.
            if self.generation.load(Ordering::Relaxed) == generation() {
                return Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner));
            }
            let is_dead = self.dead_in.load(Ordering::Relaxed) == generation();
            if is_dead || Instant::now() >= deadline {
                self.dead_in.store(generation(), Ordering::Relaxed);
                let text = "the array was in use by another thread when this process was forked: \
                            create a new one";
                return Err(Error::Unsupported(text.to_owned()));
            }
            thread::yield_now();
        }
    }

    fn noted<'a>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.generation.store(generation(), Ordering::Relaxed);
        guard
    }
}

#[cfg(all(test, unix, not(miri)))]
#[expect(unsafe_code, reason = "declares functions of the system")]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::ffi::c_int;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc::channel;

    use crate::types::ErrorCode;

    use super::*;

    unsafe extern "C" {
        safe fn fork() -> c_int;
        safe fn _exit(code: c_int) -> !;
        safe fn alarm(seconds: u32) -> u32;
        unsafe fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    }

    /// Runs checks in a forked child, which has a deadline.
    pub(crate) fn in_child(checks: impl FnOnce()) {
        let child = fork();
        if child == 0 {
            // SIGALRM kills a child that hangs.
            alarm(60);
            let passed = catch_unwind(AssertUnwindSafe(checks)).is_ok();
            _exit(c_int::from(!passed));
        }
        let mut status = 0;
        // SAFETY: `status` is a valid, writable `c_int`.
        let ended = unsafe { waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0), "the child failed or timed out");
    }

    /// Runs `work` while another thread holds the guard that `hold` returns.
    pub(crate) fn while_held<G>(hold: impl FnOnce() -> G + Send, work: impl FnOnce()) {
        thread::scope(|scope| {
            let ((taken, is_taken), (release, is_released)) = (channel(), channel::<()>());
            scope.spawn(move || {
                let guard = hold();
                taken.send(()).unwrap();
                is_released.recv().unwrap_or_default();
                drop(guard);
            });
            is_taken.recv().unwrap();
            work();
            drop(release);
        });
    }

    #[test]
    fn a_child_neither_uses_nor_drops_a_value_of_its_parent() {
        static DROPS: AtomicU32 = AtomicU32::new(0);
        struct CountsDrops;
        impl Drop for CountsDrops {
            fn drop(&mut self) {
                DROPS.fetch_add(1, Ordering::Relaxed);
            }
        }
        let value = OwnedByProcess::new(CountsDrops);
        assert!(value.get().is_some() && !value.origin().is_inherited());
        in_child(move || {
            assert!(value.get().is_none());
            let error = value.origin().check("the store", "make one").unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unsupported);
            let text = "the store was created before this process was forked: make one";
            assert_eq!(error.to_string(), text);
            drop(value);
            assert_eq!(DROPS.load(Ordering::Relaxed), 0);
            // A grandchild does not own a value of its parent.
            let own = OwnedByProcess::new(7);
            in_child(move || assert!(own.get().is_none()));
        });
    }

    #[test]
    fn every_process_has_its_own_static_value() {
        static NAMES: PerProcess<String> = PerProcess::new();
        let named = |own: &'static str| {
            NAMES.get_or_init(|inherited| {
                inherited.map_or_else(|| own.to_owned(), |parents| format!("{parents} {own}"))
            })
        };
        assert_eq!(named("parent"), "parent");
        assert_eq!(named("again"), "parent");
        in_child(|| {
            assert_eq!(named("child"), "parent child");
            in_child(|| assert_eq!(named("grandchild"), "parent child grandchild"));
        });
        // A grandchild inherits a value that its parent did not use.
        in_child(|| in_child(|| assert_eq!(named("grandchild"), "parent grandchild")));
    }

    #[test]
    fn a_child_locks_only_mutexes_that_were_free_at_the_fork() {
        let (held, free) = (ForkMutex::new(1), ForkMutex::new(2));
        while_held(
            || held.lock().unwrap(),
            || {
                in_child(|| {
                    assert_eq!(held.lock().unwrap_err().code(), ErrorCode::Unsupported);
                    assert_eq!(*free.lock().unwrap(), 2);
                    // Threads of a child can wait for each other.
                    while_held(|| free.lock().unwrap(), || assert!(free.value.try_lock().is_err()));
                    assert_eq!(*free.lock().unwrap(), 2);
                });
            },
        );
        assert_eq!(*held.lock().unwrap(), 1);
    }
}

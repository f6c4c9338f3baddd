//! [`SharedTask`]: a borrowed task that other threads (helpers) may join while it runs.
//!
//! The owner does not wait for helpers that have not joined by the end. The scope of a thread pool
//! would wait until every spawned closure has run. A sleeping thread takes 50 microseconds to
//! start. In this time, the owner completes a small sum alone.

#![expect(unsafe_code, reason = "a helper that borrows the task may start after the task's end")]

use std::any::Any;
use std::fmt;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A reference to a closure that does one piece of the work, and returns `false` if no piece is
/// left.
///
/// It does not use `&dyn Fn`, because that has a table of methods for each of hundreds of closures.
/// When the system loads the library, it writes the address of each method into each table.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    closure: *const (),
    call: unsafe fn(*const ()) -> bool,
    borrow: PhantomData<&'a (dyn Fn() -> bool + Sync)>,
}

// SAFETY: It is a reference to a closure that several threads may call.
unsafe impl Send for Task<'_> {}

impl<'a> Task<'a> {
    pub(super) fn of<F: Fn() -> bool + Sync>(closure: &'a F) -> Self {
        /// # Safety
        /// `closure` is a valid reference to an `F`.
        unsafe fn call<F: Fn() -> bool>(closure: *const ()) -> bool {
            // SAFETY: By the contract of this function.
            let closure = unsafe { &*closure.cast::<F>() };
            closure()
        }
        Self { closure: ptr::from_ref(closure).cast(), call: call::<F>, borrow: PhantomData }
    }

    pub(super) fn do_piece(self) -> bool {
        // SAFETY: `of` stored the function for the type of the closure, which is borrowed for `'a`.
        unsafe { (self.call)(self.closure) }
    }
}

/// How often the owner checks whether all helpers have left before it sleeps. The checks take about
/// ten microseconds. A piece of work takes about thirty.
const CHECKS: usize = if cfg!(miri) { 1 } else { 50 };
/// The number of spin-loop hints between two checks.
const SPINS: usize = 20;

/// A task with the state of its helpers.
#[derive(Debug, Default)]
pub(super) struct SharedTask {
    state: Mutex<State>,
    helper_left: Condvar,
}

/// The state of a task's helpers.
#[derive(Default)]
struct State {
    /// `None` after the end. The reference is valid while this is `Some` or `num_inside` is not 0.
    task: Option<Task<'static>>,
    /// The number of helpers that run the task.
    num_inside: usize,
    /// The first panic of a helper.
    panic: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("num_inside", &self.num_inside).finish_non_exhaustive()
    }
}

impl SharedTask {
    /// Calls `owner` with the shared task. Returns after all helpers have left.
    ///
    /// # Panics
    /// - If the owner panics.
    /// - If the task panics in any thread.
    pub(super) fn share(task: Task<'_>, owner: impl FnOnce(&Arc<Self>)) {
        // SAFETY: The reference does not outlive the borrow.
        // - Only `join` uses the reference, and only between `enter` and `leave`.
        // - `End` is dropped before this function returns or unwinds, so before the borrow ends.
        // - The drop of `End` removes the task, so that no helper enters, and waits until every
        //   helper has left.
        let task = unsafe { transmute::<Task<'_>, Task<'static>>(task) };
        let state = State { task: Some(task), ..State::default() };
        let shared = Arc::new(Self { state: Mutex::new(state), helper_left: Condvar::new() });
        let end = End(&shared);
        owner(&shared);
        drop(end);
        let panic = shared.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs the task until no piece is left. Does nothing if the task has ended.
    pub(super) fn join(&self) {
        if let Some(task) = self.enter() {
            let result = catch_unwind(AssertUnwindSafe(|| while task.do_piece() {}));
            self.leave(result.err());
        }
    }

    /// Returns the task, and counts the thread as a helper. `None` if the task has ended.
    fn enter(&self) -> Option<Task<'static>> {
        let mut state = self.lock();
        state.num_inside += usize::from(state.task.is_some());
        state.task
    }

    fn leave(&self, panic: Option<Box<dyn Any + Send>>) {
        let mut state = self.lock();
        state.num_inside -= 1;
        state.panic = state.panic.take().or(panic);
        self.helper_left.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a shared task when dropped, also if the owner panics.
struct End<'a>(&'a SharedTask);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().task = None;
        for _ in 0..CHECKS {
            if self.0.lock().num_inside == 0 {
                return;
            }
            (0..SPINS).for_each(|_| spin_loop());
        }
        let mut state = self.0.lock();
        while state.num_inside > 0 {
            state = self.0.helper_left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Duration;

    use super::{SharedTask, Task};

    /// Threads do every piece once, and no helper uses the task after the call.
    #[test]
    fn helpers_have_left_at_the_end() {
        thread::scope(|scope| {
            for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                // The task borrows these, so a helper that ran later would use freed memory.
                let (next, mut done) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let task = || {
                    let is_there = next.fetch_add(1, Ordering::Relaxed) < 10;
                    if is_there {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    is_there
                };
                SharedTask::share(Task::of(&task), |shared| {
                    for _ in 0..2 {
                        let shared = Arc::clone(shared);
                        scope.spawn(move || shared.join());
                    }
                    while task() {}
                });
                assert_eq!(*done.get_mut(), 10);
            }
        });
    }

    #[test]
    fn a_late_helper_does_nothing() {
        let (mut kept, num_calls) = (None, AtomicUsize::new(0));
        let task = || {
            num_calls.fetch_add(1, Ordering::Relaxed);
            false
        };
        SharedTask::share(Task::of(&task), |shared| kept = Some(Arc::clone(shared)));
        kept.unwrap().join();
        assert_eq!(num_calls.into_inner(), 0);
    }

    #[test]
    fn the_owner_resumes_the_panic_of_a_helper() {
        let task = || panic!("as asked");
        let panic = catch_unwind(|| {
            SharedTask::share(Task::of(&task), |shared| {
                thread::scope(|scope| {
                    scope.spawn(|| shared.join());
                });
            });
        });
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as asked"));
    }

    #[test]
    fn an_owner_that_panics_waits_for_its_helpers() {
        let (entered, num_left) = (Barrier::new(2), AtomicUsize::new(0));
        let task = || {
            entered.wait();
            thread::park_timeout(Duration::from_millis(20));
            num_left.fetch_add(1, Ordering::Relaxed);
            false
        };
        thread::scope(|scope| {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                SharedTask::share(Task::of(&task), |shared| {
                    let helper = Arc::clone(shared);
                    scope.spawn(move || helper.join());
                    entered.wait();
                    // Skips the panic hook, because it takes longer than the helper.
                    resume_unwind(Box::new("as asked"));
                });
            }));
            assert!(panic.is_err());
            assert_eq!(num_left.load(Ordering::Relaxed), 1);
        });
    }
}

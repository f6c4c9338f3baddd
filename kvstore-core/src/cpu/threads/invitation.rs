//! [`Invitation`]: work of one thread that others may join as long as it lasts.
//!
//! Whoever has not come by its end is not waited for. The scopes of thread pools wait for each task that was handed
//! in to begin; a thread that sleeps takes 50 microseconds to begin, in which a small sum is done without it.

#![expect(unsafe_code, reason = "a task is lent to threads that may come too late for it")]

use std::any::Any;
use std::fmt;
use std::hint::spin_loop;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Does a piece of the work, and returns whether there was one.
type Task<'a> = dyn Fn() -> bool + Sync + 'a;

/// How often the host looks whether the last guest has left before it sleeps: about ten microseconds, and a piece
/// of work takes some thirty.
const LOOKS: usize = if cfg!(miri) { 1 } else { 50 };
/// How long it waits between two looks.
const SPINS: usize = 20;

/// Given to threads that are asked to help.
#[derive(Debug, Default)]
pub(super) struct Invitation {
    guests: Mutex<Guests>,
    left: Condvar,
}

/// Who takes part.
#[derive(Default)]
struct Guests {
    /// Not there before the beginning and after the end. The reference is as good as the borrow that it was made of
    /// while this is there or `num_inside` is not 0.
    task: Option<&'static Task<'static>>,
    num_inside: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl fmt::Debug for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guests").field("num_inside", &self.num_inside).finish_non_exhaustive()
    }
}

impl Invitation {
    /// Calls `host` with an invitation to the task, and returns when no thread is inside of it any more.
    ///
    /// # Panics
    /// Where the host panics, or the task does in any thread.
    pub(super) fn hold(task: &Task<'_>, host: impl FnOnce(&Arc<Self>)) {
        // SAFETY: only `join` uses the reference, and only between `enter` and `leave`. Whatever becomes of the
        // host, `End` is dropped before this returns, hence before the borrow ends: it takes the task away, so that
        // nobody enters any more, and waits until everybody inside has left.
        let task = unsafe { transmute::<&Task<'_>, &'static Task<'static>>(task) };
        let guests = Guests { task: Some(task), ..Guests::default() };
        let invitation = Arc::new(Self { guests: Mutex::new(guests), left: Condvar::new() });
        let end = End(&invitation);
        host(&invitation);
        drop(end);
        let panic = invitation.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Takes part until nothing is left; does nothing where it is over already.
    pub(super) fn join(&self) {
        if let Some(task) = self.enter() {
            let result = catch_unwind(AssertUnwindSafe(|| while task() {}));
            self.leave(result.err());
        }
    }

    fn enter(&self) -> Option<&'static Task<'static>> {
        let mut guests = self.lock();
        guests.num_inside += usize::from(guests.task.is_some());
        guests.task
    }

    fn leave(&self, panic: Option<Box<dyn Any + Send>>) {
        let mut guests = self.lock();
        guests.num_inside -= 1;
        guests.panic = guests.panic.take().or(panic);
        self.left.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Guests> {
        // Nothing panics while this is held.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends an invitation when dropped, also by a panic of its host.
struct End<'a>(&'a Invitation);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().task = None;
        for _ in 0..LOOKS {
            if self.0.lock().num_inside == 0 {
                return;
            }
            (0..SPINS).for_each(|_| spin_loop());
        }
        let mut guests = self.0.lock();
        while guests.num_inside > 0 {
            guests = self.0.left.wait(guests).unwrap_or_else(PoisonError::into_inner);
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

    use super::Invitation;

    /// Every piece is done once, by whoever comes, and the work may change as soon as the call is over.
    #[test]
    fn guests_have_left_when_the_work_is_over() {
        thread::scope(|scope| {
            for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
                let (next, mut done) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let task = || {
                    let is_there = next.fetch_add(1, Ordering::Relaxed) < 10;
                    if is_there {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    is_there
                };
                Invitation::hold(&task, |invitation| {
                    for _ in 0..2 {
                        let invitation = Arc::clone(invitation);
                        scope.spawn(move || invitation.join());
                    }
                    while task() {}
                });
                assert_eq!(*done.get_mut(), 10);
            }
        });
    }

    #[test]
    fn who_comes_too_late_finds_nothing() {
        let (mut kept, num_calls) = (None, AtomicUsize::new(0));
        let task = || {
            num_calls.fetch_add(1, Ordering::Relaxed);
            false
        };
        Invitation::hold(&task, |invitation| kept = Some(Arc::clone(invitation)));
        kept.unwrap().join();
        assert_eq!(num_calls.into_inner(), 0);
    }

    #[test]
    fn a_panic_of_a_guest_is_the_host_s() {
        let task = || panic!("as asked");
        let panic = catch_unwind(|| {
            Invitation::hold(&task, |invitation| {
                thread::scope(|scope| {
                    scope.spawn(|| invitation.join());
                });
            });
        });
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"as asked"));
    }

    #[test]
    fn a_host_that_panics_waits_for_its_guests() {
        let (entered, num_left) = (Barrier::new(2), AtomicUsize::new(0));
        let task = || {
            entered.wait();
            thread::park_timeout(Duration::from_millis(20));
            num_left.fetch_add(1, Ordering::Relaxed);
            false
        };
        thread::scope(|scope| {
            let panic = catch_unwind(AssertUnwindSafe(|| {
                Invitation::hold(&task, |invitation| {
                    let guest = Arc::clone(invitation);
                    scope.spawn(move || guest.join());
                    entered.wait();
                    // Without a report, which takes longer than the guest.
                    resume_unwind(Box::new("as asked"));
                });
            }));
            assert!(panic.is_err());
            assert_eq!(num_left.load(Ordering::Relaxed), 1);
        });
    }
}

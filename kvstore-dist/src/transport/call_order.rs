//! [`CallOrder`]: the calls of a member, one at a time, until a fault ends the collective.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::Result;

use super::call::{Call, Place, Verb};
use super::collective::Wait;
use super::fault::Fault;

/// The order of the calls of one member. Unlike a mutex, it supports waiting with a deadline.
#[derive(Debug, Default)]
pub struct CallOrder {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// The latest call.
    last: Option<Call>,
    /// The fault that ended the collective.
    fault: Option<Fault>,
}

impl CallOrder {
    /// Waits until no other call of this member runs, and starts this one.
    ///
    /// # Errors
    /// - The fault that ended the collective.
    /// - [`Error::Timeout`](kvstore_core::Error::Timeout) if another call runs until the deadline.
    ///   This ends the collective. The other ranks make this call, so this rank would stay one call
    ///   behind.
    pub fn begin<'a>(
        &'a self,
        verb: Verb,
        (rank, size): (usize, usize),
        wait: &'a Wait<'a>,
    ) -> Result<CallGuard<'a>> {
        let mut state = self.state();
        loop {
            if let Some(fault) = &state.fault {
                return Err(fault.to_error());
            }
            let call = state.last.map_or_else(|| Call::first(verb), |last| last.next(verb));
            let place = Place { rank, size, call, wait };
            if !state.is_taken {
                (state.is_taken, state.last) = (true, Some(call));
                return Ok(CallGuard { order: self, place });
            }
            let left = wait.left();
            if left.is_zero() {
                // Ends the collective under the same lock, so that no waiting call starts instead.
                let reason = "another call of this rank is not done yet";
                let fault = Fault::Late(format!("{place} after {:?}, {reason}", wait.timeout()));
                state.fault = Some(fault.clone());
                self.changed.notify_all();
                return Err(fault.to_error());
            }
            state = self.pause(state, left);
        }
    }

    /// Returns the fault that ended the collective, or `None`.
    pub fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    /// Ends the collective with this fault, if it has not ended.
    pub fn fail(&self, fault: Fault) {
        self.state().fault.get_or_insert(fault);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A running call. Dropping it ends the call. Dropping it during a panic also ends the collective.
#[derive(Debug)]
pub struct CallGuard<'a> {
    order: &'a CallOrder,
    /// The rank, the call and the deadline.
    pub place: Place<'a>,
}

impl CallGuard<'_> {
    /// Sleeps for `time`, or until the collective ends.
    ///
    /// # Errors
    /// - The fault that ended the collective.
    pub fn pause(&self, time: Duration) -> Result<(), Fault> {
        let state = self.order.state();
        let state = match &state.fault {
            None => self.order.pause(state, time),
            Some(_) => state,
        };
        state.fault.clone().map_or(Ok(()), Err)
    }

    /// Ends the call. A fault also ends the collective.
    ///
    /// # Errors
    /// - The error of the first fault of the collective, if `result` is a fault.
    pub fn end<T>(self, result: Result<T, Fault>) -> Result<T> {
        let mut state = self.order.state();
        match result {
            Ok(done) => Ok(done),
            Err(fault) => Err(state.fault.get_or_insert(fault).to_error()),
        }
    }

    /// Ends the call and closes the collective. Later calls report `what` as closed.
    pub fn close(self, what: &'static str) {
        self.order.state().fault = Some(Fault::Closed(what));
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.order.state();
        state.is_taken = false;
        if std::thread::panicking() {
            let fault = Fault::Failed {
                operation: self.place.to_string(),
                reason: "the call panicked".to_owned(),
            };
            state.fault.get_or_insert(fault);
        }
        self.order.changed.notify_all();
    }
}

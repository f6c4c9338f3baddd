//! [`Turns`]: the calls of a member, one after the other, until one of them ends the collective.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kvstore_core::Result;

use crate::call::{Call, Place, Verb};
use crate::collective::Wait;
use crate::fault::Fault;

/// Whose turn it is. A lock would do, if one could be waited for with a deadline.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// The call that was made last.
    last: Option<Call>,
    /// What ended the collective.
    fault: Option<Fault>,
}

impl Turns {
    /// Waits until it is this call's turn, as which rank of how many it is made.
    ///
    /// # Errors
    /// The fault, where there is one. A call that gets no turn before its deadline ends the collective too: other ranks
    /// make it, and from then on this one would be a call behind.
    pub(crate) fn take<'a>(
        &'a self,
        verb: Verb,
        (rank, size): (usize, usize),
        wait: &'a Wait<'a>,
    ) -> Result<Turn<'a>> {
        let mut state = self.state();
        loop {
            if let Some(fault) = &state.fault {
                return Err(fault.to_error());
            }
            let call = state.last.map_or_else(|| Call::first(verb), |last| last.next(verb));
            let place = Place { rank, size, call, wait };
            if !state.is_taken {
                (state.is_taken, state.last) = (true, Some(call));
                return Ok(Turn { turns: self, place });
            }
            let left = wait.left();
            if left.is_zero() {
                let behind = "another call of this rank is not done yet";
                let fault = Fault::Late(format!("{place} after {:?}, {behind}", wait.timeout()));
                state.fault = Some(fault.clone());
                self.changed.notify_all();
                return Err(fault.to_error());
            }
            state = self.pause(state, left);
        }
    }

    /// Returns what ended the collective, if it has ended.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.state().fault.clone()
    }

    /// Ends the collective, where nothing has.
    pub(crate) fn fail(&self, fault: Fault) {
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

/// A call that is being made.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    pub(crate) place: Place<'a>,
}

impl Turn<'_> {
    /// Sleeps for so long, less where the collective is ended meanwhile.
    ///
    /// # Errors
    /// What ended it.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), Fault> {
        let state = self.turns.state();
        let state = match &state.fault {
            None => self.turns.pause(state, time),
            Some(_) => state,
        };
        state.fault.clone().map_or(Ok(()), Err)
    }

    /// Ends the call, and with a fault the collective.
    ///
    /// # Errors
    /// The fault, and where it is not the first one the first.
    pub(crate) fn end<T>(self, result: Result<T, Fault>) -> Result<T> {
        let mut state = self.turns.state();
        match result {
            Ok(done) => Ok(done),
            Err(fault) => Err(state.fault.get_or_insert(fault).to_error()),
        }
    }

    /// Ends the call and the collective.
    pub(crate) fn close(self, what: &'static str) {
        self.turns.state().fault = Some(Fault::Closed(what));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.is_taken = false;
        if std::thread::panicking() {
            let fault = Fault::Failed {
                operation: self.place.to_string(),
                reason: "a panic has ended it half-way".to_owned(),
            };
            state.fault.get_or_insert(fault);
        }
        self.turns.changed.notify_all();
    }
}

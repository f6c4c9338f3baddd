//! [`Operations`]: the operations of a store that change several servers. Recovery points of these
//! servers have all calls of an operation or none, also after the servers have gone back to one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::proto;

/// The operations of a store that change several servers.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    open: BTreeSet<u64>,
}

/// An operation that changes several servers, until it is dropped.
#[derive(Debug)]
pub(super) struct Operation {
    operations: Arc<Operations>,
    number: u64,
    servers: Vec<u32>,
}

/// What a call knows of the operation that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Joint {
    message: proto::JointCall,
    /// The calls that are made at the same time.
    calls: Option<Arc<JointCalls>>,
}

/// Calls of an operation on several servers, which must be answered in the same history: between
/// two moments at which all servers go back to a recovery point.
#[derive(Debug)]
struct JointCalls {
    num_calls: usize,
    answered: Mutex<Answered>,
    /// Wakes the calls in their order, unlike a channel, so that simulations are repeatable.
    changed: Notify,
}

impl JointCalls {
    fn change(&self, change: impl FnOnce(&mut Answered)) {
        change(&mut self.answered.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_waiters();
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    /// The newest history in which a call is made.
    history: u64,
    /// The number of calls that were answered in it.
    num_calls: usize,
    /// Whether all were. Then later histories do not matter any more.
    is_complete: bool,
    has_failed: bool,
}

impl Answered {
    fn reach(&mut self, history: u64) {
        if history > self.history {
            (self.history, self.num_calls) = (history, 0);
        }
    }
}

/// What becomes of a call of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    Complete,
    /// Another call was answered in this later history, so the call must be made again.
    Repeat(u64),
}

impl Operations {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number below which all operations have ended.
    pub(super) fn ended_below(&self) -> u64 {
        let numbers = self.numbers();
        numbers.open.first().copied().unwrap_or(numbers.last + 1)
    }

    /// Begins an operation, if it changes more than one server.
    pub(super) fn begin(
        self: &Arc<Self>,
        servers: impl IntoIterator<Item = usize>,
    ) -> Option<Operation> {
        let servers = servers.into_iter().map(|server| u32::try_from(server).unwrap_or(u32::MAX));
        let servers: Vec<u32> = servers.collect();
        if servers.len() < 2 {
            return None;
        }
        let number = {
            let mut numbers = self.numbers();
            numbers.last += 1;
            let number = numbers.last;
            numbers.open.insert(number);
            number
        };
        Some(Operation { operations: Arc::clone(self), number, servers })
    }

    /// Makes calls on several servers calls of one operation, until the result is dropped. Calls
    /// that belong to one already keep it. Each call has the index of its server.
    pub(super) fn join(
        self: &Arc<Self>,
        calls: &mut [(usize, &mut Option<Joint>)],
    ) -> Option<Operation> {
        if calls.len() < 2 {
            return None;
        }
        let mut operation = None;
        if calls.iter().all(|(_, joint)| joint.is_none()) {
            operation = self.begin(calls.iter().map(|(server, _)| *server));
            for (_, joint) in &mut *calls {
                **joint = operation.as_ref().map(Operation::joint);
            }
        }
        let (answered, changed) = (Mutex::default(), Notify::new());
        let all = Arc::new(JointCalls { num_calls: calls.len(), answered, changed });
        for joint in calls.iter_mut().filter_map(|(_, joint)| joint.as_mut()) {
            joint.calls = Some(Arc::clone(&all));
        }
        operation
    }
}

impl Operation {
    /// Returns what the calls of the operation know of it.
    pub(super) fn joint(&self) -> Joint {
        let ended_below = self.operations.ended_below();
        let servers = self.servers.clone();
        // The call knows its history when it is made.
        let number = self.number;
        let message = proto::JointCall { number, ended_below, servers, history: 0 };
        Joint { message, calls: None }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.operations.numbers().open.remove(&self.number);
    }
}

impl Joint {
    /// Returns what a call in this history tells the server.
    pub(super) fn message(&self, history: u64) -> proto::JointCall {
        proto::JointCall { history, ..self.message.clone() }
    }

    /// Records that a call is made in a history.
    pub(super) fn reach(&self, history: u64) {
        if let Some(calls) = &self.calls {
            calls.change(|answered| answered.reach(history));
        }
    }

    /// Records that a call was answered in a history.
    pub(super) fn answered(&self, history: u64) {
        if let Some(calls) = &self.calls {
            calls.change(|answered| {
                answered.reach(history);
                answered.num_calls += usize::from(history == answered.history);
                answered.is_complete |= answered.num_calls == calls.num_calls;
            });
        }
    }

    /// Waits until all calls are answered in this history, or one is made in a later one.
    pub(super) async fn settled(&self, history: u64) -> Answering {
        let Some(calls) = &self.calls else { return Answering::Complete };
        loop {
            // Enabled before the state is read, so that no change is missed.
            let changed = calls.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = *calls.answered.lock().unwrap_or_else(PoisonError::into_inner);
            if now.has_failed || now.is_complete {
                return Answering::Complete;
            }
            if now.history > history {
                return Answering::Repeat(now.history);
            }
            changed.await;
        }
    }

    /// Records that a call has no answer, so that the others do not wait for it.
    pub(super) fn fail(&self) {
        if let Some(calls) = &self.calls {
            calls.change(|answered| answered.has_failed = true);
        }
    }
}

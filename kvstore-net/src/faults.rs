//! [`Fault`]: faults that tests plant into the code, to show that the simulation finds them.

use std::cell::Cell;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server accepts calls of processes that were replaced.
    SkipFence,
    /// A barrier call of a process that was replaced holds up the join of the later process.
    HoldName,
    /// A replaced process gets its name back when the later process has left.
    ReturnName,
    /// The server makes a repeated call again.
    ForgetCall,
    /// The server does not record the outcome of a call.
    DropOutcome,
    /// A new process of a name continues with the calls of the earlier one.
    KeepCalls,
    /// The client confirms the reply to a call before it has one.
    ConfirmEarly,
    /// The client uses the number of a call that has failed for the next one.
    ReuseNumber,
    /// The client repeats a call in doubt as another incarnation, for example after a restart of
    /// the server.
    RepeatElsewhere,
    /// The clock of a member advances twice for a push.
    AdvanceTwice,
    /// Bounded pulls do not wait.
    IgnoreStaleness,
    /// A dead member that has arrived at a barrier is counted instead of a live one.
    CountDead,
}

thread_local! {
    /// The fault that is planted. A simulation runs in one thread.
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

impl Fault {
    /// All faults.
    pub(crate) const ALL: [Self; 12] = [
        Self::SkipFence,
        Self::HoldName,
        Self::ReturnName,
        Self::ForgetCall,
        Self::DropOutcome,
        Self::KeepCalls,
        Self::ConfirmEarly,
        Self::ReuseNumber,
        Self::RepeatElsewhere,
        Self::AdvanceTwice,
        Self::IgnoreStaleness,
        Self::CountDead,
    ];

    /// Returns whether this fault is planted in this thread.
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Runs a function with this fault in the code.
    pub(crate) fn plant<R>(self, run: impl FnOnce() -> R) -> R {
        PLANTED.set(Some(self));
        let result = run();
        PLANTED.set(None);
        result
    }
}

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
    /// The server makes some calls long after they have begun.
    DelayCall,
    /// The server answers a pull with the value of the pull before.
    OldValue,
    /// The server reports a version without the last push.
    OldVersion,
    /// A new process of a name continues with the calls of the earlier one.
    KeepCalls,
    /// The client confirms the reply to a call before it has one.
    ConfirmEarly,
    /// The client uses the number of a call that has failed for the next one.
    ReuseNumber,
    /// The client repeats a call in doubt as another incarnation, for example after a restart of
    /// the server.
    RepeatElsewhere,
    /// Leases never end.
    KeepLease,
    /// The clock of a member advances twice for a push.
    AdvanceTwice,
    /// Bounded pulls do not wait.
    IgnoreStaleness,
    /// A dead member that has arrived at a barrier is counted instead of a live one.
    CountDead,
    /// A server makes calls with the layout of a value that has been replaced.
    IgnoreLayout,
    /// Members see a new key before all servers have their parts.
    ShowEarly,
    /// Members use a value that replaces another one before all servers have their parts.
    UseEarly,
    /// The client repeats a push that some of the servers have made.
    RepeatPart,
    /// The client does not repeat the parts of a push that some of the servers have not made.
    DropPart,
    /// The keys of a member that died during `init` stay.
    KeepUnfinished,
    /// A server forgets the layouts of keys that were given up.
    ReuseLayouts,
    /// The values of a snapshot are those of the store when they are read.
    ReadNewest,
    /// A server forgets the snapshots of live members.
    ForgetSnapshots,
    /// A round accepts pushes that are late.
    AcceptLate,
    /// A round folds the values of its members in another order.
    FoldReversed,
    /// The push of a member that gives up stays in a round that has closed.
    KeepGivenUp,
    /// A recovery point is made without waiting for the calls that run.
    PointInCall,
    /// A server that continues from a recovery point does not know the calls in it.
    ForgetSavedCalls,
    /// A server takes its state for a cut without the calls whose operations are in the states of
    /// other servers.
    CutJointCalls,
    /// Calls take effect again before a server takes its state for a cut.
    CutLate,
    /// The first server commits a round before the other servers have its sum.
    CommitEarly,
    /// A server applies the sum of a round before the first server has committed it.
    ApplyEarly,
    /// A server sums the members of an earlier list of a round.
    KeepOldList,
}

thread_local! {
    /// The fault that is planted in this thread.
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

impl Fault {
    /// The faults that one server or its clients can have, each with the first seed that finds it,
    /// and a part of what the simulation reports.
    pub(crate) const OF_ONE_SERVER: [(Self, u64, &str); 16] = [
        (Self::SkipFence, 78, "has the name"),
        (Self::HoldName, 4232, "do not finish"),
        (Self::ReturnName, 62, "gets the name"),
        (Self::ForgetCall, 10, "took effect twice"),
        (Self::DropOutcome, 10, "do not finish"),
        (Self::KeepCalls, 7, "has been answered"),
        (Self::ConfirmEarly, 10, "has been answered"),
        (Self::ReuseNumber, 247, "acknowledged without an effect"),
        (Self::RepeatElsewhere, 83, "took effect twice"),
        (Self::KeepLease, 14, "do not finish"),
        (Self::AdvanceTwice, 0, "the clock of"),
        (Self::IgnoreStaleness, 6, "with staleness"),
        (Self::CountDead, 77, "was passed without"),
        (Self::DelayCall, 13, "took effect after"),
        (Self::OldValue, 2, "pushes after"),
        (Self::OldVersion, 0, "version"),
    ];

    /// The faults that need several servers, with their seeds.
    pub(crate) const OF_SEVERAL_SERVERS: [(Self, u64, &str); 8] = [
        (Self::IgnoreLayout, 44, "pulled parts of generations"),
        (Self::ShowEarly, 627, "has not been initialised"),
        (Self::UseEarly, 498, "pulled"),
        (Self::RepeatPart, 1, "took effect twice"),
        (Self::DropPart, 813, "acknowledged without an effect"),
        (Self::KeepUnfinished, 62, "failed after the last event"),
        (Self::DelayCall, 137, "took effect after"),
        (Self::OldValue, 2, "pushes of"),
    ];

    /// The faults of snapshots, with their seeds among the schedules with snapshots.
    pub(crate) const OF_SNAPSHOTS: [(Self, u64, &str); 3] = [
        (Self::ReadNewest, 4, "has changed"),
        (Self::ForgetSnapshots, 0, "does not keep it any more"),
        (Self::ReuseLayouts, 3360, "failed after the last event"),
    ];

    /// The faults of rounds, with their seeds among the schedules with rounds.
    pub(crate) const OF_ROUNDS: [(Self, u64, &str); 3] = [
        (Self::AcceptLate, 2, "is late"),
        (Self::FoldReversed, 0, "was not folded"),
        (Self::KeepGivenUp, 4, "failed"),
    ];

    /// The faults of recovery, with their seeds among its schedules.
    pub(crate) const OF_RECOVERY: [(Self, u64, &str); 2] =
        [(Self::PointInCall, 944, "twice"), (Self::ForgetSavedCalls, 66, "twice")];
    /// The faults of recovery points of several servers, with their seeds.
    pub(crate) const OF_CUTS: [(Self, u64, &str); 2] =
        [(Self::CutJointCalls, 0, "in only one"), (Self::CutLate, 17, "in only one")];
    /// The faults of rounds over several servers, with their seeds.
    pub(crate) const OF_QUORUM: [(Self, u64, &str); 5] = [
        (Self::CommitEarly, 1, "cannot push at the end"),
        (Self::ApplyEarly, 0, "failed, but is in"),
        (Self::KeepOldList, 40, "but elsewhere"),
        (Self::FoldReversed, 2, "was not folded"),
        (Self::AcceptLate, 18, "is late"),
    ];

    /// Returns the fault that is planted in this thread.
    pub(crate) fn planted() -> Option<Self> {
        PLANTED.get()
    }

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

//! Who makes the call that runs in this thread.

use std::cell::RefCell;

use super::heads::Participant;

/// The members of the call that runs in this thread, and the number of their round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callers {
    pub(crate) participants: Vec<Participant>,
    pub(crate) round: Option<u64>,
}

thread_local! {
    static CALLERS: RefCell<Callers> = const {
        RefCell::new(Callers { participants: Vec::new(), round: None })
    };
}

/// Makes a call for these members: one that calls, or those of a round in the order in which their
/// values were summed.
pub(crate) fn with_callers<R>(callers: Callers, make: impl FnOnce() -> R) -> R {
    /// Restores the callers, also if an updater panics.
    struct Reset(Callers);
    impl Drop for Reset {
        fn drop(&mut self) {
            CALLERS.set(std::mem::take(&mut self.0));
        }
    }
    let _reset = Reset(CALLERS.replace(callers));
    make()
}

/// Makes a call for one member: its name, its incarnation and the number of the call.
pub(crate) fn with_caller<R>(
    name: &str,
    (incarnation, call): (u64, u64),
    make: impl FnOnce() -> R,
) -> R {
    let name = name.to_owned();
    let participants = Vec::from([Participant { name, incarnation, call, weight: None }]);
    with_callers(Callers { participants, round: None }, make)
}

/// Returns the callers of the call that runs in this thread. A change that the program of the
/// server makes has none.
pub(super) fn callers() -> Callers {
    CALLERS.with_borrow(Clone::clone)
}

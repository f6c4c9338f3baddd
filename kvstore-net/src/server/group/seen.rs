//! What the simulation sees of a group.

use kvstore_core::Key;

use super::{Group, State};

/// What the simulation sees of a group.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of barriers that the group has passed.
    pub(crate) round: u64,
    /// The number of changes of the live members.
    pub(crate) num_changes: u64,
    /// The live workers.
    pub(crate) workers: Vec<SeenWorker>,
    /// The processes of all names, live or dead, with their incarnations.
    pub(crate) processes: Vec<(u64, u64)>,
    /// How many repeated calls got the outcome of the first attempt.
    pub(crate) num_repeated: usize,
}

/// A live worker.
#[derive(Clone, Debug)]
pub(crate) struct SeenWorker {
    pub(crate) name: String,
    pub(crate) incarnation: u64,
    pub(crate) process: u64,
    pub(crate) clock: u64,
}

impl Group {
    /// Returns the members, with the clocks of the live workers for a key.
    pub(crate) fn seen(&self, key: &Key) -> Seen {
        let state = self.state();
        let workers = state.workers().into_iter().filter_map(|name| {
            let member = state.members.get(&name)?;
            let (incarnation, process) = (member.incarnation, member.process());
            let clock = state.clocks.clock(key, &name);
            Some(SeenWorker { name, incarnation, process, clock })
        });
        let (round, num_changes) = (state.barrier.round, state.members.num_changes());
        let known = state.calls.keys().filter_map(|name| state.members.get(name));
        let processes = known.map(|member| (member.process(), member.incarnation)).collect();
        let num_repeated = state.num_repeated;
        Seen { round, num_changes, workers: workers.collect(), processes, num_repeated }
    }
}

impl State {
    /// Counts a repeated call that gets the outcome of the first attempt.
    pub(super) fn count_repeated(&mut self) {
        self.num_repeated += 1;
    }
}

//! [`JointCalls`]: which calls of operations that change several servers a server has made.

use std::collections::{BTreeMap, BTreeSet};

/// An operation that changes several servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JointId {
    /// The name of the member.
    pub name: String,
    /// The random number of its process.
    pub process: u64,
    /// The number among the operations of the process.
    pub number: u64,
}

/// The positions of the servers that an operation changes.
pub type JointServers = BTreeSet<u32>;

/// The most operations of a process that a server remembers. Further ones wait until earlier ones
/// have ended.
pub const MOST_OPERATIONS: usize = 4096;

/// The calls of joint operations that a server has made.
///
/// A member says below which number all its operations have ended. Those are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JointCalls(BTreeMap<String, OfProcess>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfProcess {
    process: u64,
    ended_below: u64,
    made: BTreeMap<u64, JointServers>,
    given_up: BTreeSet<u64>,
}

impl OfProcess {
    fn end(&mut self, ended_below: u64) {
        if ended_below > self.ended_below {
            self.ended_below = ended_below;
            self.made = self.made.split_off(&ended_below);
            self.given_up = self.given_up.split_off(&ended_below);
        }
    }
}

impl JointCalls {
    /// Records that a call was made here. Forgets the calls of another process with this name.
    pub fn make(&mut self, id: JointId, ended_below: u64, servers: JointServers) {
        let number = id.number;
        let own = self.of_process(id);
        own.end(ended_below);
        if number >= own.ended_below {
            own.made.insert(number, servers);
        }
    }

    fn of_process(&mut self, JointId { name, process, .. }: JointId) -> &mut OfProcess {
        let own = self.0.entry(name).or_default();
        if own.process != process {
            *own = OfProcess { process, ..OfProcess::default() };
        }
        own
    }

    /// Records that all operations of a process below a number have ended. Returns whether some of
    /// them are forgotten now.
    pub fn end(&mut self, name: &str, process: u64, ended_below: u64) -> bool {
        let own = self.0.get_mut(name).filter(|own| own.process == process);
        own.is_some_and(|own| {
            let before = own.made.len() + own.given_up.len();
            own.end(ended_below);
            own.made.len() + own.given_up.len() < before
        })
    }

    /// Returns whether the server can remember another operation of a process, if those below
    /// `ended_below` have ended.
    pub fn has_room(&self, id: &JointId, ended_below: u64) -> bool {
        let own = self.0.get(&id.name).filter(|own| own.process == id.process);
        own.is_none_or(|own| {
            own.made.len() < MOST_OPERATIONS
                || own.made.range(ended_below..).count() < MOST_OPERATIONS
        })
    }

    /// Decides that the call of an operation is never made here, because the member has not been
    /// connected for long. Has no effect if another process has the name, because the call is
    /// rejected then.
    pub fn give_up(&mut self, id: JointId) {
        if !self.has_other(&id) {
            let number = id.number;
            self.of_process(id).given_up.insert(number);
        }
    }

    /// Returns whether calls of another process with this name are known.
    pub fn has_other(&self, id: &JointId) -> bool {
        self.0.get(&id.name).is_some_and(|own| own.process != id.process)
    }

    /// Returns whether the call of an operation is never made here.
    pub fn is_given_up(&self, id: &JointId) -> bool {
        let own = self.0.get(&id.name);
        own.is_some_and(|own| own.process == id.process && own.given_up.contains(&id.number))
    }

    /// Forgets a member that has left.
    pub fn remove_member(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the operations whose calls were made here, unless they are known to have ended.
    pub fn made(&self) -> impl Iterator<Item = (JointId, &JointServers)> {
        self.0.iter().flat_map(|(name, own)| {
            own.made.iter().map(|(number, servers)| {
                let id = JointId { name: name.clone(), process: own.process, number: *number };
                (id, servers)
            })
        })
    }

    /// Returns whether the call of an operation was made here, or the operation has ended.
    pub fn is_made(&self, id: &JointId) -> bool {
        self.0.get(&id.name).is_some_and(|own| {
            own.process == id.process
                && (id.number < own.ended_below || own.made.contains_key(&id.number))
        })
    }
}

/// Returns for each server the operations whose calls other servers have made, but this one has
/// not. `made` has the operations of each server.
pub fn made_elsewhere(made: &[BTreeMap<JointId, JointServers>]) -> Vec<BTreeSet<JointId>> {
    let missing = |server: usize, own: &BTreeMap<JointId, JointServers>| {
        let number = u32::try_from(server).unwrap_or(u32::MAX);
        let is_missing = |(id, servers): &(&JointId, &JointServers)| {
            servers.contains(&number) && !own.contains_key(*id)
        };
        let all = made.iter().flatten();
        all.filter(is_missing).map(|(id, _)| id.clone()).collect()
    };
    made.iter().enumerate().map(|(server, own)| missing(server, own)).collect()
}

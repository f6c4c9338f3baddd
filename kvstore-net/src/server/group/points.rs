//! [`Cut`] and [`GoingBack`]: what a server knows of the recovery points of all servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kvstore_core::Error;

use crate::rules::{JointId, JointServers};

/// How long calls wait at most for a cut.
pub(crate) const LONGEST_CUT: Duration = Duration::from_secs(5);

/// Whether all servers go back to a recovery point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoingBack {
    Never,
    /// When one of them is restarted.
    AtRestart,
    /// This server has told the others to.
    Now,
}

/// Whether a call may take effect.
pub(crate) enum Admission {
    /// With the operation of a joint call.
    Now(Option<JointId>),
    Later,
}

/// A cut that is being made.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) number: u64,
    /// The operations whose calls are made before the state is taken, when the leader knows them.
    pub(super) made_elsewhere: Option<BTreeSet<JointId>>,
    /// Whether this server has its state.
    pub(super) is_taken: bool,
    /// When all servers have their states: the newest point that all have, or 0.
    pub(super) complete: Option<u64>,
    /// What the followers have made, if this server leads.
    pub(super) closed: BTreeMap<usize, Closed>,
    /// The followers that have their states, and those whose points are written.
    pub(super) taken: BTreeSet<usize>,
    pub(super) kept: BTreeSet<usize>,
    pub(super) failure: Option<Error>,
}

/// What a server has made when it lets no more calls take effect.
#[derive(Debug, Default)]
pub(super) struct Closed {
    pub(super) made: BTreeMap<JointId, JointServers>,
    pub(super) state: ClosedState,
}

/// What has changed at a server that lets no more calls take effect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClosedState {
    /// The newest point, if nothing has changed since, or 0.
    pub(crate) same_as: u64,
    /// Whether keys are being added, so that there is no state now.
    pub(crate) adds_keys: bool,
}

impl Cut {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            made_elsewhere: None,
            is_taken: false,
            complete: None,
            closed: BTreeMap::new(),
            taken: BTreeSet::new(),
            kept: BTreeSet::new(),
            failure: None,
        }
    }
}

/// A step of a cut that the leader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutStep {
    Closed,
    Taken,
    Kept,
}

/// The error of a cut without a connection to a server.
pub(super) fn lost(address: &str) -> Error {
    Error::Transport {
        operation: "a recovery point of all servers".to_owned(),
        source: format!("server `{address}` is not connected").into(),
    }
}

/// The error of a cut while a server has another state.
pub(super) fn restarted(address: &str) -> Error {
    Error::Transport {
        operation: "a recovery point of all servers".to_owned(),
        source: format!("server `{address}` was restarted").into(),
    }
}

/// The error of a cut that lacks a call of a member.
pub(super) fn absent(member: &str) -> Error {
    Error::Transport {
        operation: "a recovery point of all servers".to_owned(),
        source: format!(
            "member `{member}`, which has changed other servers with one operation, is not \
             connected to this one"
        )
        .into(),
    }
}

/// The error of a cut that another server has ended.
pub(super) fn cancelled() -> Error {
    Error::Timeout("a recovery point of all servers: another server was not ready".to_owned())
}

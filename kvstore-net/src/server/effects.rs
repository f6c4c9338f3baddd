//! When the calls of members may take effect: not while a recovery point is made.

use kvstore_core::{Error, Result};
use tokio::sync::RwLockReadGuard;
use tokio::time::{Instant, timeout_at};

use super::group::{Admission, Caller};
use super::service::Service;
use crate::proto;
use crate::rules::JointId;

/// A call that may take effect. No recovery point is made until it is dropped.
pub(super) struct Entered<'a> {
    /// The operation of a joint call.
    pub(super) joint: Option<JointId>,
    _effects: RwLockReadGuard<'a, ()>,
}

impl Service {
    /// Waits until a call may take effect. No recovery point is made until the result is dropped.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if that takes too long.
    /// - [`Error::Transport`] if the other servers have continued without this joint call.
    /// - [`Error::Closed`] if this run of the server ends, or the process of a joint call is not a
    ///   member any more.
    pub(super) async fn enter(
        &self,
        caller: &Caller,
        joint: Option<&proto::JointCall>,
        deadline: Instant,
    ) -> Result<Entered<'_>> {
        loop {
            let effects = timeout_at(deadline, self.effects()).await.map_err(|_| {
                Error::Timeout("waiting for a call before a recovery point or snapshot".to_owned())
            })??;
            if let Admission::Now(joint) = self.group.admits(caller, joint)? {
                return Ok(Entered { joint, _effects: effects });
            }
            drop(effects);
            self.group.admitted(caller, joint, deadline).await?;
        }
    }

    /// Keeps recovery points from being made until the result is dropped.
    ///
    /// # Errors
    /// - [`Error::Closed`] if this run of the server ends.
    pub(super) async fn effects(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let over = || Error::Closed { what: "this run of the server".to_owned() };
        let effects = if let Ok(effects) = self.effects.try_read() {
            effects
        } else {
            tokio::select! {
                biased;
                effects = self.effects.read() => effects,
                () = self.end.cancelled() => return Err(over()),
            }
        };
        if self.group.is_over() { Err(over()) } else { Ok(effects) }
    }
}

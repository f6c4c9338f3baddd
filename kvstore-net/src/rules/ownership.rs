//! [`Ownership`]: whether a server still owns its place in a group.

use std::time::Duration;

/// Whether a server owns its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Its lease lasts, so no other server can have the place.
    Owner,
    /// Its lease may have ended at this time, so another server may have the place.
    Lapsed(Duration),
    /// Another server has the place, or had it since.
    Replaced,
}

/// The ownership of a place in a group, which lasts as long as a lease of a coordinator.
///
/// The coordinator counts the time of a lease from when it gets a request. The owner counts it from
/// when it sends the request, so it stops before the coordinator gives the place to another server,
/// however long messages take. Both clocks must run at the same rate, but need not show the same
/// time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    end: Duration,
    is_replaced: bool,
}

impl Ownership {
    /// Returns the ownership of a server that has sent the request for its lease at `sent`.
    pub fn new(sent: Duration, lease: Duration) -> Self {
        Self { end: sent.saturating_add(lease), is_replaced: false }
    }

    /// Records that the coordinator has renewed the lease, and that the place still belongs to this
    /// server. The request was sent at `sent`.
    pub fn renew(&mut self, sent: Duration, lease: Duration) {
        self.end = self.end.max(sent.saturating_add(lease));
    }

    /// Records that the lease has ended, although it was to last longer.
    pub fn lapse(&mut self, now: Duration) {
        self.end = self.end.min(now);
    }

    /// Records that another server has taken the place. This server never owns it again.
    pub fn replace(&mut self) {
        self.is_replaced = true;
    }

    /// Returns whether this server owns its place.
    pub fn standing(&self, now: Duration) -> Standing {
        match self {
            Self { is_replaced: true, .. } => Standing::Replaced,
            Self { end, .. } if now < *end => Standing::Owner,
            Self { end, .. } => Standing::Lapsed(*end),
        }
    }
}

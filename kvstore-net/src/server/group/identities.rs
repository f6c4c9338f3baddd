//! [`Identities`]: with which certificates the members of a group have joined.

use std::collections::HashMap;

use tonic::Status;

use crate::server::access::Identity;

/// The identity of each member's current incarnation, also of a dead member.
///
/// Names and incarnations are no secrets, so they do not prove who makes a call.
#[derive(Debug, Default)]
pub(super) struct Identities(HashMap<String, Identity>);

impl Identities {
    pub(super) fn set(&mut self, name: &str, identity: &Identity) {
        self.0.insert(name.to_owned(), identity.clone());
    }

    pub(super) fn public_key(&self, name: &str) -> Option<Vec<u8>> {
        self.0.get(name).and_then(Identity::public_key)
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Checks that a caller has the certificate with which the member has joined.
    ///
    /// # Errors
    /// - [`Code::PermissionDenied`](tonic::Code::PermissionDenied) if it has another one.
    pub(super) fn check(&self, name: &str, identity: &Identity) -> Result<(), Status> {
        if self.0.get(name) == Some(identity) {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "the member `{name}` has joined with another certificate than that of this connection"
        )))
    }
}

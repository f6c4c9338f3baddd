//! [`Access`]: what a caller may do and who it is, from its certificate, and what its calls hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::Status;
use tonic::codegen::http::Extensions;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::accounts::{Account, Charge, ConnectionCount, MemberCount};
use crate::rules::Role;

/// What a caller may do. A later one includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Permission {
    Nothing,
    Read,
    Work,
    /// Lead another server.
    Serve,
    Administer,
}

/// What is known about the other side of a connection. The connection counts until all clones are
/// dropped.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    count: Arc<ConnectionCount>,
    /// The number of requests that have arrived.
    num_requests: Arc<AtomicUsize>,
}

impl Peer {
    pub(crate) fn new(count: ConnectionCount) -> Self {
        Self { count: Arc::new(count), num_requests: Arc::default() }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        self.count.account()
    }

    pub(super) fn num_requests(&self) -> usize {
        self.num_requests.load(Ordering::Relaxed)
    }

    pub(super) fn count_request(&self) {
        self.num_requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// The public key in the certificate of a caller. Callers without a certificate are all equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(Option<Arc<[u8]>>);

impl Identity {
    pub(crate) const NONE: Self = Self(None);

    /// Returns the identity of a certificate with this public key.
    pub(super) fn of_public_key(key: Option<Vec<u8>>) -> Self {
        Self(key.map(Into::into))
    }

    pub(super) fn public_key(&self) -> Option<Vec<u8>> {
        self.0.as_deref().map(Into::into)
    }
}

/// What a caller may do, who it is, and the account that counts what its calls hold.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) permission: Permission,
    pub(crate) identity: Identity,
    pub(crate) account: Option<Arc<Account>>,
}

impl Access {
    /// Returns the access of a caller about whom nothing is known, without limits.
    pub(crate) fn unknown(has_certificates: bool) -> Self {
        let permission =
            if has_certificates { Permission::Nothing } else { Permission::Administer };
        Self { permission, identity: Identity::NONE, account: None }
    }

    /// Returns the access of a caller with a certificate, without limits.
    pub(super) fn of_certificate(certificate: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Self::unknown(true);
        };
        let permission = Permission::in_certificate(&certificate);
        let identity = Identity(Some(certificate.public_key().raw.into()));
        Self { permission, identity, account: None }
    }

    /// Returns the access of a request, which has that of its connection. This is the access of
    /// requests without a connection.
    pub(crate) fn of(&self, extensions: &Extensions) -> Self {
        extensions.get().unwrap_or(self).clone()
    }

    /// Counts a member until the returned value is dropped.
    ///
    /// # Errors
    /// - The errors of [`Account::count_member`].
    pub(crate) fn count_member(&self) -> Result<Option<MemberCount>, Status> {
        self.account.as_ref().map(Account::count_member).transpose()
    }

    /// Counts the bytes of a reply until the returned value is dropped.
    ///
    /// # Errors
    /// - The errors of [`Account::charge_reply`].
    pub(crate) fn charge_reply(&self, num_bytes: usize) -> Result<Option<Charge>, Status> {
        self.account.as_ref().map(|account| account.charge_reply(num_bytes)).transpose()
    }

    /// Counts bytes that a call holds until the returned value is dropped.
    ///
    /// # Errors
    /// - The errors of [`Account::charge`].
    pub(crate) fn charge(&self, num_bytes: usize) -> Result<Option<Charge>, Status> {
        self.account.as_ref().map(|account| account.charge(num_bytes)).transpose()
    }
}

impl Permission {
    /// Returns the permission of the role in a certificate.
    fn in_certificate(certificate: &X509Certificate<'_>) -> Self {
        let mut units = certificate.subject().iter_organizational_unit();
        match (units.next().and_then(|unit| unit.as_str().ok()), units.next()) {
            (Some("reader"), None) => Self::Read,
            (Some("worker"), None) => Self::Work,
            (Some("server"), None) => Self::Serve,
            (Some("admin"), None) => Self::Administer,
            _ => Self::Nothing,
        }
    }

    fn role(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Read => "reader",
            Self::Work => "worker",
            Self::Serve => "server",
            Self::Administer => "admin",
        }
    }

    /// Checks that the caller may see the state of the server.
    pub(super) fn check_read(self) -> Result<(), Status> {
        self.check(Self::Read, "a request")
    }

    /// Checks that the caller may do what `what` names.
    pub(super) fn check(self, needed: Self, what: &str) -> Result<(), Status> {
        if self >= needed {
            return Ok(());
        }
        let (needed, found) = (needed.role(), self.role());
        Err(Status::permission_denied(format!(
            "{what} needs a certificate with the role `{needed}`, found `{found}`"
        )))
    }

    /// Checks that the caller may join with this role.
    pub(crate) fn check_role(self, role: Role) -> Result<(), Status> {
        match role {
            Role::Reader => self.check(Self::Read, "joining as a reader"),
            Role::Worker => self.check(Self::Work, "joining as a worker"),
        }
    }
}

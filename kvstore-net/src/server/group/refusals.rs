//! Why calls and joins are refused.

use kvstore_core::Error;
use tonic::Status;

use crate::rules::Refusal;

/// The error of a call that waits while its member leaves or is replaced.
pub(super) fn left() -> Error {
    Error::Closed { what: "the membership".to_owned() }
}

/// The error of a call that waits while the server ends.
pub(super) fn ending() -> Error {
    Error::Closed { what: "the server".to_owned() }
}

/// The status of a join that is refused.
pub(super) fn refused(name: &str, refusal: Refusal) -> Status {
    match refusal {
        Refusal::NameInUse => Status::already_exists(format!(
            "the name `{name}` belongs to another live member: choose another name, or wait until \
             its lease ends"
        )),
        Refusal::Fenced => fenced(),
    }
}

/// The status of a call of an earlier incarnation, or of a member that the server does not know.
pub(crate) fn fenced() -> Status {
    Status::failed_precondition("this process is not a member, or a later one has its name")
}

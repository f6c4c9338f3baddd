//! Errors of the store as messages.

use kvstore_core::{Device, Error, ErrorCode, Key, Result};

use super::values::{parse_spec, spec_of};
use crate::proto::Failure;
use crate::same_process::take_error;

/// Returns the message for an error.
pub(crate) fn failure_of(error: &Error) -> Failure {
    let mut failure = Failure {
        code: u32::from(error.code() as u8),
        message: error.chain(),
        key: error.key().map(|key| key.as_str().to_owned()),
        ..Failure::default()
    };
    match error {
        Error::LengthMismatch { what, expected, found } => {
            failure.subject.clone_from(what);
            (failure.expected_len, failure.found_len) = (*expected as u64, *found as u64);
        }
        Error::SpecMismatch { subject, expected, found, .. } => {
            failure.subject.clone_from(subject);
            (failure.expected, failure.found) = (Some(spec_of(expected)), Some(spec_of(found)));
        }
        Error::OutOfMemory { requested, in_use, limit, .. } => {
            (failure.requested, failure.in_use) = (*requested as u64, *in_use as u64);
            failure.limit = limit.map(|limit| limit as u64);
        }
        Error::Updater { .. } => {
            // The copy has the messages of all sources as text.
            if let Error::Updater { source, .. } = error.duplicate() {
                failure.message = source.to_string();
            }
        }
        Error::Corrupt { subject, reason } => {
            failure.subject.clone_from(subject);
            failure.message.clone_from(reason);
        }
        Error::Timeout(text) | Error::Internal(text) => failure.message.clone_from(text),
        // The client names this server.
        Error::Server { source, .. } => return failure_of(source),
        Error::Closed { what } => failure.subject.clone_from(what),
        // As numbers of the protocol, the rounds use the fields of lengths.
        Error::LatePush { pushed, current, .. } => {
            (failure.expected_len, failure.found_len) = (*current, *pushed);
        }
        _ => {}
    }
    failure
}

/// Returns the error that the message of a server describes. It names the server if the cause may
/// be there, instead of in the call.
pub(crate) fn error_of(failure: Failure, server: &str) -> Error {
    let text = failure.message.clone();
    let failed = |text: String| Error::Transport {
        operation: format!("server `{server}` failed"),
        source: text.into(),
    };
    match parse(failure) {
        Ok(Some(error)) => match error.code() {
            ErrorCode::OutOfMemory | ErrorCode::Internal => {
                Error::Server { server: server.to_owned(), source: Box::new(error) }
            }
            _ => error,
        },
        Ok(None) | Err(_) => failed(text),
    }
}

/// Returns the error that a message describes, or `None` if the client has no variant for it.
fn parse(failure: Failure) -> Result<Option<Error>> {
    let Failure { code, message, key, subject, expected, found, .. } = failure;
    let code = ErrorCode::ALL.into_iter().find(|known| u32::from(*known as u8) == code);
    let key = key.map(|key| Key::new(&key)).transpose()?;
    let need_key = || key.clone().ok_or_else(|| Error::invalid("an error without its key"));
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Some(match code {
        Some(ErrorCode::KeyNotFound) => Error::KeyNotFound { key: need_key()? },
        Some(ErrorCode::KeyExists) => Error::KeyExists { key: need_key()? },
        Some(ErrorCode::LengthMismatch) => Error::LengthMismatch {
            what: subject,
            expected: number(failure.expected_len),
            found: number(failure.found_len),
        },
        Some(ErrorCode::SpecMismatch) => Error::SpecMismatch {
            subject,
            key,
            expected: Box::new(parse_spec(expected.as_ref())?),
            found: Box::new(parse_spec(found.as_ref())?),
        },
        Some(ErrorCode::InvalidArgument) => Error::InvalidArgument(message),
        Some(ErrorCode::Unsupported) => Error::Unsupported(message),
        Some(ErrorCode::OutOfMemory) => Error::OutOfMemory {
            device: Device::cpu(0),
            requested: number(failure.requested),
            in_use: number(failure.in_use),
            limit: failure.limit.map(number),
        },
        Some(ErrorCode::Updater) => {
            let object = Some(failure.error_object).filter(|number| *number != 0);
            let source = object.and_then(take_error).unwrap_or_else(|| message.into());
            Error::Updater { key: need_key()?, source }
        }
        Some(ErrorCode::Corrupt) => Error::Corrupt { subject, reason: message },
        Some(ErrorCode::Timeout) => Error::Timeout(message),
        Some(ErrorCode::Closed) => Error::Closed { what: subject },
        Some(ErrorCode::Poisoned) => Error::Poisoned { key: need_key()? },
        Some(ErrorCode::Internal) => Error::Internal(message),
        Some(ErrorCode::LatePush) => Error::LatePush {
            key: need_key()?,
            pushed: failure.found_len,
            current: failure.expected_len,
        },
        Some(ErrorCode::DeviceUnavailable | ErrorCode::Io | ErrorCode::Backend) | None => {
            return Ok(None);
        }
    }))
}

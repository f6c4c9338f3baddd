//! [`Error`]: the errors of this crate, with the values that caused them.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;

use super::device::Device;
use super::key::Key;
use super::shape::TensorSpec;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of any type that can cross threads, as a user's updater returns it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The reason why an operation failed.
///
/// The message names the key or device, what was expected and what was found. Programs should use
/// [`Error::code`], because messages may change. If an error has a source, its message ends with
/// the message of the source. [`Error::chain`] appends the deeper sources.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key was never initialised, or was removed.
    #[error("key `{key}` has not been initialised")]
    KeyNotFound {
        /// The missing key.
        key: Key,
    },
    /// The key is already initialised, or is twice in the list of one `init`.
    #[error("key `{key}` is already initialised")]
    KeyExists {
        /// The key to initialise.
        key: Key,
    },
    /// Two parallel lists have different lengths.
    #[error("{what}: expected {expected}, found {found}")]
    LengthMismatch {
        /// A description of both lists.
        what: String,
        /// The expected length.
        expected: usize,
        /// The length that was found.
        found: usize,
    },
    /// A tensor has the wrong shape or dtype.
    #[error("{subject}: expected {expected}, found {found}")]
    SpecMismatch {
        /// The purpose of the tensor: ``key `w1` `` or the name of an operation.
        subject: String,
        /// The key of the tensor, if it has one.
        key: Option<Key>,
        /// The expected shape and dtype.
        expected: Box<TensorSpec>,
        /// The shape and dtype that were found.
        found: Box<TensorSpec>,
    },
    /// An argument is not valid.
    #[error("{0}")]
    InvalidArgument(String),
    /// The operation is not supported. The message gives the reason.
    #[error("{0}")]
    Unsupported(String),
    /// The device does not exist on this machine or cannot be used.
    #[error("device {device} is not available: {reason}")]
    DeviceUnavailable {
        /// The requested device.
        device: Device,
        /// The reason why the device is not available.
        reason: String,
    },
    /// There is not enough memory.
    #[error(
        "out of memory on {device}: {requested} bytes requested{}",
        usage(*in_use, *limit)
    )]
    OutOfMemory {
        /// The device on which memory was requested.
        device: Device,
        /// The number of bytes that were requested.
        requested: usize,
        /// The number of bytes in use on the device, or 0 if it is not known.
        in_use: usize,
        /// The memory limit in bytes, if one is set.
        limit: Option<usize>,
    },
    /// The user's updater failed. Its key keeps its old value.
    #[error("updater failed on key `{key}`: {source}")]
    Updater {
        /// The key that the updater was called for.
        key: Key,
        /// The error of the updater.
        source: BoxError,
    },
    /// A file could not be read or written.
    #[error("{}: {operation}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the library was doing with the file.
        operation: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file or message is damaged.
    #[error("{subject} is damaged: {reason}")]
    Corrupt {
        /// A description of the file or message.
        subject: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An operation did not finish in time.
    #[error("timed out: {0}")]
    Timeout(String),
    /// A device, or a library that a backend uses, failed.
    #[error("{device}: {operation}: {source}")]
    Backend {
        /// The device.
        device: Device,
        /// What the backend was doing.
        operation: String,
        /// The error of the library.
        source: BoxError,
    },
    /// The transport of bytes between processes failed.
    #[error("{operation}: {source}")]
    Transport {
        /// What the transport was doing.
        operation: String,
        /// The error of the library.
        source: BoxError,
    },
    /// A server could not make its part of a call, for example because it has no memory. The error
    /// has the code of its source.
    #[error("server `{server}`: {source}")]
    Server {
        /// The address of the server.
        server: String,
        /// The error on the server.
        source: Box<Error>,
    },
    /// The object has been closed.
    #[error("{what} is closed")]
    Closed {
        /// A description of the object.
        what: String,
    },
    /// A panic interrupted an earlier update of the key. Its value is not reliable.
    #[error(
        "key `{key}` was poisoned by a panic in an earlier update; remove and initialise it again"
    )]
    Poisoned {
        /// The key that was being updated.
        key: Key,
    },
    /// A bug in this library, or a failure of another rank that ended the group.
    #[error("internal error: {0}")]
    Internal(String),
    /// A push belongs to a round that has closed without it. The worker pulls, and pushes to the
    /// current round.
    #[error("push of `{key}` for round {pushed}: the current round is {current}")]
    LatePush {
        /// A key of the push.
        key: Key,
        /// The round of the push, counted from 1.
        pushed: u64,
        /// The round that the next push of the key belongs to.
        current: u64,
    },
}

/// Returns the end of the message of [`Error::OutOfMemory`]: the memory in use and the limit, if
/// known.
fn usage(in_use: usize, limit: Option<usize>) -> String {
    match (in_use, limit) {
        (0, None) => String::new(),
        (_, None) => format!(", {in_use} bytes in use"),
        (_, Some(limit)) => format!(", {in_use} bytes in use, the limit is {limit}"),
    }
}

impl Error {
    /// Returns an [`Error::InvalidArgument`] with this message.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::InvalidArgument(text.into())
    }

    /// Returns an [`Error::SpecMismatch`] for a tensor of `key`.
    pub fn spec_mismatch(key: &Key, expected: &TensorSpec, found: &TensorSpec) -> Self {
        Self::SpecMismatch {
            subject: format!("key `{key}`"),
            key: Some(key.clone()),
            expected: Box::new(expected.clone()),
            found: Box::new(found.clone()),
        }
    }

    /// Returns an [`Error::SpecMismatch`] for operands of `operation`.
    pub fn operand_mismatch(operation: &str, expected: &TensorSpec, found: &TensorSpec) -> Self {
        Self::SpecMismatch {
            subject: operation.to_owned(),
            key: None,
            expected: Box::new(expected.clone()),
            found: Box::new(found.clone()),
        }
    }

    /// Returns the error for external memory whose address or stride is unaligned for its dtype.
    pub(crate) fn unaligned(spec: &TensorSpec, device: Device, address: usize) -> Self {
        Self::invalid(format!(
            "unaligned external memory for {spec} on {device}: address {address:#x} or a stride \
             is not a multiple of {} bytes",
            spec.dtype().size()
        ))
    }

    /// Returns the stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::KeyNotFound { .. } => ErrorCode::KeyNotFound,
            Self::KeyExists { .. } => ErrorCode::KeyExists,
            Self::LengthMismatch { .. } => ErrorCode::LengthMismatch,
            Self::SpecMismatch { .. } => ErrorCode::SpecMismatch,
            Self::InvalidArgument(_) => ErrorCode::InvalidArgument,
            Self::Unsupported(_) => ErrorCode::Unsupported,
            Self::DeviceUnavailable { .. } => ErrorCode::DeviceUnavailable,
            Self::OutOfMemory { .. } => ErrorCode::OutOfMemory,
            Self::Updater { .. } => ErrorCode::Updater,
            Self::Io { .. } => ErrorCode::Io,
            Self::Corrupt { .. } => ErrorCode::Corrupt,
            Self::Timeout(_) => ErrorCode::Timeout,
            Self::Server { source, .. } => source.code(),
            Self::Backend { .. } | Self::Transport { .. } => ErrorCode::Backend,
            Self::Closed { .. } => ErrorCode::Closed,
            Self::Poisoned { .. } => ErrorCode::Poisoned,
            Self::Internal(_) => ErrorCode::Internal,
            Self::LatePush { .. } => ErrorCode::LatePush,
        }
    }

    /// Returns the key that caused the error, if there is one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::KeyNotFound { key }
            | Self::KeyExists { key }
            | Self::Updater { key, .. }
            | Self::Poisoned { key }
            | Self::LatePush { key, .. } => Some(key),
            Self::SpecMismatch { key, .. } => key.as_ref(),
            Self::Server { source, .. } => source.key(),
            _ => None,
        }
    }

    /// Returns the expected length, spec or round as a string, or `None` for errors without one.
    pub fn expected(&self) -> Option<String> {
        match self {
            Self::SpecMismatch { expected, .. } => Some(expected.to_string()),
            Self::LengthMismatch { expected, .. } => Some(expected.to_string()),
            Self::LatePush { current, .. } => Some(current.to_string()),
            Self::Server { source, .. } => source.expected(),
            _ => None,
        }
    }

    /// Returns the found length, spec or round as a string, or `None` for errors without one.
    pub fn found(&self) -> Option<String> {
        match self {
            Self::SpecMismatch { found, .. } => Some(found.to_string()),
            Self::LengthMismatch { found, .. } => Some(found.to_string()),
            Self::LatePush { pushed, .. } => Some(pushed.to_string()),
            Self::Server { source, .. } => source.found(),
            _ => None,
        }
    }

    /// Returns the message and the messages of all sources, joined with `": "`. Skips a source
    /// whose message the text already ends with.
    pub fn chain(&self) -> String {
        chain(self)
    }

    /// Returns a copy for a second caller, with the same kind and message. The sources are
    /// converted to strings.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        match self {
            Self::KeyNotFound { key } => Self::KeyNotFound { key: key.clone() },
            Self::KeyExists { key } => Self::KeyExists { key: key.clone() },
            Self::LengthMismatch { what, expected, found } => {
                Self::LengthMismatch { what: what.clone(), expected: *expected, found: *found }
            }
            Self::SpecMismatch { subject, key, expected, found } => Self::SpecMismatch {
                subject: subject.clone(),
                key: key.clone(),
                expected: expected.clone(),
                found: found.clone(),
            },
            Self::InvalidArgument(text) => Self::InvalidArgument(text.clone()),
            Self::Unsupported(text) => Self::Unsupported(text.clone()),
            Self::DeviceUnavailable { device, reason } => {
                Self::DeviceUnavailable { device: *device, reason: reason.clone() }
            }
            Self::OutOfMemory { device, requested, in_use, limit } => Self::OutOfMemory {
                device: *device,
                requested: *requested,
                in_use: *in_use,
                limit: *limit,
            },
            Self::Updater { key, source } => {
                Self::Updater { key: key.clone(), source: chain(&**source).into() }
            }
            Self::Io { path, operation, source } => Self::Io {
                path: path.clone(),
                operation: operation.clone(),
                source: std::io::Error::new(source.kind(), chain(source)),
            },
            Self::Corrupt { subject, reason } => {
                Self::Corrupt { subject: subject.clone(), reason: reason.clone() }
            }
            Self::Timeout(text) => Self::Timeout(text.clone()),
            Self::Backend { device, operation, source } => Self::Backend {
                device: *device,
                operation: operation.clone(),
                source: chain(&**source).into(),
            },
            Self::Transport { operation, source } => {
                Self::Transport { operation: operation.clone(), source: chain(&**source).into() }
            }
            Self::Server { server, source } => {
                Self::Server { server: server.clone(), source: Box::new(source.duplicate()) }
            }
            Self::Closed { what } => Self::Closed { what: what.clone() },
            Self::Poisoned { key } => Self::Poisoned { key: key.clone() },
            Self::Internal(text) => Self::Internal(text.clone()),
            Self::LatePush { key, pushed, current } => {
                Self::LatePush { key: key.clone(), pushed: *pushed, current: *current }
            }
        }
    }
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// The kind of an [`Error`]. It is the same in every language.
///
/// The numbers are append-only, because bindings send them as integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variant of `Error` with the same name explains it")]
pub enum ErrorCode {
    KeyNotFound = 0,
    KeyExists = 1,
    LengthMismatch = 2,
    SpecMismatch = 3,
    InvalidArgument = 4,
    Unsupported = 5,
    DeviceUnavailable = 6,
    OutOfMemory = 7,
    Updater = 8,
    Io = 9,
    Corrupt = 10,
    Timeout = 11,
    Backend = 12,
    Closed = 13,
    Poisoned = 14,
    Internal = 15,
    LatePush = 16,
}

impl ErrorCode {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 17] = [
        Self::KeyNotFound,
        Self::KeyExists,
        Self::LengthMismatch,
        Self::SpecMismatch,
        Self::InvalidArgument,
        Self::Unsupported,
        Self::DeviceUnavailable,
        Self::OutOfMemory,
        Self::Updater,
        Self::Io,
        Self::Corrupt,
        Self::Timeout,
        Self::Backend,
        Self::Closed,
        Self::Poisoned,
        Self::Internal,
        Self::LatePush,
    ];

    /// Returns the name, such as `KeyNotFound`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeyNotFound => "KeyNotFound",
            Self::KeyExists => "KeyExists",
            Self::LengthMismatch => "LengthMismatch",
            Self::SpecMismatch => "SpecMismatch",
            Self::InvalidArgument => "InvalidArgument",
            Self::Unsupported => "Unsupported",
            Self::DeviceUnavailable => "DeviceUnavailable",
            Self::OutOfMemory => "OutOfMemory",
            Self::Updater => "Updater",
            Self::Io => "Io",
            Self::Corrupt => "Corrupt",
            Self::Timeout => "Timeout",
            Self::Backend => "Backend",
            Self::Closed => "Closed",
            Self::Poisoned => "Poisoned",
            Self::Internal => "Internal",
            Self::LatePush => "LatePush",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_codes() {
        for (number, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
        }
    }

    #[test]
    fn chain_joins_the_sources() {
        let key = Key::new("w").unwrap();
        let error = Error::Updater { key, source: "no".into() };
        assert_eq!(error.chain(), "updater failed on key `w`: no");
        let source = Error::Updater { key: Key::new("a").unwrap(), source: "deep".into() };
        let error = Error::Transport { operation: "push".to_owned(), source: Box::new(source) };
        assert_eq!(error.chain(), "push: updater failed on key `a`: deep");
    }

    #[test]
    fn a_late_push_has_its_round_and_the_current_one() {
        let error = Error::LatePush { key: Key::new("w").unwrap(), pushed: 2, current: 5 };
        assert_eq!(error.to_string(), "push of `w` for round 2: the current round is 5");
        assert_eq!(error.key().map(Key::as_str), Some("w"));
        assert_eq!(error.expected().as_deref(), Some("5"));
        assert_eq!(error.found().as_deref(), Some("2"));
    }

    #[test]
    fn a_message_ends_with_its_source() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let cause = missing.to_string();
        let error = Error::Io {
            path: "model".into(),
            operation: "reading a checkpoint".to_owned(),
            source: missing,
        };
        assert_eq!(error.to_string(), format!("model: reading a checkpoint: {cause}"));
        assert_eq!(error.chain(), error.to_string());
    }

    #[test]
    fn a_duplicate_has_the_same_code_and_message() {
        let key = Key::new("w").unwrap();
        let errors = [
            Error::Updater { key: key.clone(), source: "no".into() },
            Error::Io {
                path: "model".into(),
                operation: "writing".to_owned(),
                source: std::io::Error::other("no room"),
            },
            Error::Backend {
                device: Device::cpu(0),
                operation: "sum".to_owned(),
                source: "no".into(),
            },
            Error::KeyNotFound { key },
        ];
        for error in errors {
            let other = error.duplicate();
            assert_eq!((other.code(), other.chain()), (error.code(), error.chain()));
            assert_eq!(other.key(), error.key());
        }
    }
}

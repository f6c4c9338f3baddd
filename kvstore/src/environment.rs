//! Settings from environment variables.

use std::time::Duration;

use kvstore_core::{Error, Result};

/// The environment variable with the deadline of a call, in seconds.
const TIMEOUT: &str = "KVSTORE_DIST_TIMEOUT";

/// Returns an environment variable. Returns `None` if it is empty, as if it were not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns the deadline of calls that wait for other processes, if the environment has one.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the text is not a number above 0.
pub(crate) fn timeout() -> Result<Option<Duration>> {
    let Some(text) = variable(TIMEOUT) else { return Ok(None) };
    seconds(&text).map(Some).ok_or_else(|| {
        Error::invalid(format!("{TIMEOUT}: expected a number of seconds, found `{text}`"))
    })
}

/// Returns the duration that a text states in seconds, or `None` if it is not a number above 0.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    duration(text).filter(|seconds| !seconds.is_zero())
}

/// Returns the duration that a text states in seconds, or `None` if it is not a number of at least
/// 0.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

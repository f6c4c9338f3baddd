//! Settings from environment variables.

use std::time::Duration;

use kvstore_core::{Error, Result};

/// Returns the number of seconds in an environment variable. An empty variable counts as not set.
///
/// # Errors
/// - [`Error::InvalidArgument`] if the text is not a number above 0.
pub(crate) fn seconds(name: &str) -> Result<Option<Duration>> {
    let Some(text) = std::env::var(name).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let seconds =
        text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let found = seconds.filter(|seconds| !seconds.is_zero());
    found.map(Some).ok_or_else(|| {
        Error::invalid(format!("{name}: expected a number of seconds, found `{text}`"))
    })
}

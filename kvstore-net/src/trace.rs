//! [`TraceContext`]: connects the calls of a program with its traces.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use kvstore_core::{Error, Result};

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// The flag of a trace that the caller records.
const SAMPLED: u8 = 1;

/// The position in a distributed trace, as W3C Trace Context defines it
/// (<https://www.w3.org/TR/trace-context/>, version 00).
///
/// The calls inside of [`TraceContext::scope`] send it to the servers, whose `tracing` spans have
/// it in the fields `trace_id` and `parent_id`. If the flags have the bit `sampled`, the spans have
/// the level `INFO`, and otherwise `DEBUG`.
///
/// ```
/// use kvstore_net::TraceContext;
///
/// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context: TraceContext = text.parse()?;
/// assert_eq!(context.to_string(), text);
/// assert_eq!(context.scope(TraceContext::current), Some(context));
/// assert_eq!(TraceContext::current(), None);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    parent_id: u64,
    flags: u8,
}

impl TraceContext {
    /// Returns the context of the innermost scope of this thread.
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Runs a function with this context. Later calls of this thread have the earlier one again.
    pub fn scope<R>(self, run: impl FnOnce() -> R) -> R {
        struct Restore(Option<TraceContext>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(Some(self)));
        run()
    }
}

impl fmt::Display for TraceContext {
    /// Writes the value of the header `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, parent_id, flags } = self;
        write!(f, "00-{trace_id:032x}-{parent_id:016x}-{flags:02x}")
    }
}

impl FromStr for TraceContext {
    type Err = Error;

    /// Parses the value of the header `traceparent`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if it is not one of version 00.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            Error::invalid(format!(
                "trace context: expected 00-TRACE_ID-PARENT_ID-FLAGS with 32, 16 and 2 lowercase \
                 hexadecimal digits, found `{text}`"
            ))
        })
    }
}

fn parse(text: &str) -> Option<TraceContext> {
    let TraceIds { trace_id, parent_id, flags } = TraceIds::in_header(text)?;
    let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
    let parent_id = u64::from_str_radix(parent_id, 16).ok()?;
    Some(TraceContext { trace_id, parent_id, flags })
}

/// The IDs of a trace and of the caller, as hexadecimal digits, and the flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceIds<'a> {
    pub(crate) trace_id: &'a str,
    pub(crate) parent_id: &'a str,
    flags: u8,
}

impl<'a> TraceIds<'a> {
    /// Returns the IDs in the value of a header `traceparent`, or `None` if it is not valid.
    pub(crate) fn in_header(text: &'a str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut hex = |len: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            parts.next().filter(|part| part.len() == len && part.bytes().all(is_digit))
        };
        let (version, trace_id, parent_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let is_zero = |digits: &str| digits.bytes().all(|digit| digit == b'0');
        if version != "00" || is_zero(trace_id) || is_zero(parent_id) || parts.next().is_some() {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace_id, parent_id, flags })
    }

    /// Returns whether the caller records the trace.
    pub(crate) fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn invalid_trace_contexts_are_rejected() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(valid.parse::<TraceContext>().is_ok());
        for text in [
            "",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            let error = text.parse::<TraceContext>().unwrap_err().to_string();
            assert!(error.contains(&format!("found `{text}`")), "{error}");
        }
    }

    #[test]
    fn scopes_are_nested_and_end_with_a_panic() {
        let context = |id: u64| TraceContext { trace_id: 1, parent_id: id, flags: 0 };
        context(1).scope(|| {
            let inner = || context(2).scope(|| panic!("this panic is part of the test"));
            assert!(std::panic::catch_unwind(inner).is_err());
            assert_eq!(TraceContext::current(), Some(context(1)));
        });
        assert_eq!(TraceContext::current(), None);
    }
}

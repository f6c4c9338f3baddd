//! [`Deadline`]: when the caller of a stream gives up.
//!
//! Libraries of gRPC end such a stream themselves. The server must learn the deadline, too:
//! otherwise, a call that waits for other members would wait for a caller that has gone.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::codegen::http::HeaderMap;

/// The header with the time that the caller waits.
const HEADER: &str = "grpc-timeout";

/// The most digits of the header.
const MOST_DIGITS: usize = 8;

/// When the caller of a stream gives up.
#[derive(Debug)]
pub(super) struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    pub(super) fn new(end: Option<Instant>) -> Self {
        Self(end.map(|end| Box::pin(sleep_until(end))))
    }

    /// Checks that the deadline has not passed. Otherwise, the task is woken when it passes.
    ///
    /// # Errors
    /// - [`Code::DeadlineExceeded`](tonic::Code::DeadlineExceeded) if it has.
    pub(super) fn check(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        let Some(sleep) = &mut self.0 else { return Ok(()) };
        // The timer may be late after work that has blocked its thread.
        let has_passed = Instant::now() >= sleep.deadline();
        match sleep.as_mut().poll(context) {
            Poll::Pending if !has_passed => Ok(()),
            _ => Err(Status::deadline_exceeded("the deadline of the stream has passed")),
        }
    }
}

/// Returns when the caller of a request gives up. Returns `None` if it never does, or if the header
/// is not valid.
pub(super) fn end_of(headers: &HeaderMap) -> Option<Instant> {
    Instant::now().checked_add(timeout_in(headers.get(HEADER)?.to_str().ok()?)?)
}

fn timeout_in(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > MOST_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(3600 * count)),
        "M" => Some(Duration::from_secs(60 * count)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_units() {
        for (text, nanoseconds) in [
            ("2H", 7_200_000_000_000),
            ("3M", 180_000_000_000),
            ("4S", 4_000_000_000),
            ("5m", 5_000_000),
            ("6u", 6000),
            ("00000007n", 7),
            ("0S", 0),
        ] {
            assert_eq!(timeout_in(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        assert_eq!(timeout_in("99999999H"), Some(Duration::from_secs(359_999_996_400)));
        for text in ["", "S", "1", "1s", "1 S", "-1S", "+1S", "1.5S", "123456789S", "1é", "é"] {
            assert_eq!(timeout_in(text), None, "{text}");
        }
    }
}

//! [`Backoff`]: the waits between the attempts of a call.

use std::time::Duration;

/// The wait before the second attempt.
const FIRST: Duration = Duration::from_millis(10);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(1);

/// The waits between the attempts of a call: each twice as long as the one before, up to a second,
/// until the deadline.
#[derive(Clone, Debug)]
pub struct Backoff {
    deadline: Duration,
    next: Duration,
}

impl Backoff {
    /// Returns the waits of a call that must end before `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Self { deadline, next: FIRST }
    }

    /// Returns how long to wait before the next attempt, or `None` if it is too late for one.
    /// `jitter`, from 0 to 1, shortens the wait by up to a half. It should differ between
    /// processes, so that they do not all come back at the same moment.
    pub fn wait(&mut self, now: Duration, jitter: f64) -> Option<Duration> {
        let wait = self.next.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0);
        self.next = (self.next * 2).min(LONGEST);
        (now + wait < self.deadline).then_some(wait)
    }

    /// Returns the time that is left.
    pub fn left(&self, now: Duration) -> Duration {
        self.deadline.saturating_sub(now)
    }
}

//! [`Patience`]: how long to pause between two checks of a transfer.

use std::time::{Duration, Instant};

/// Chooses the pauses while a thread polls MPI.
///
/// MPI has no wait with a deadline, and it makes progress only during calls. So the thread polls
/// continuously while bytes may be moving, and then less and less often. The rank that it waits for
/// may need the core, and a wait of minutes should use no processor time.
#[derive(Debug)]
pub(super) struct Patience {
    begun: Instant,
    /// The time to poll without sleeping.
    busy: Duration,
}

/// The pause until the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Check again at once: the answer usually takes only a few microseconds.
    Spin,
    /// Yield the core to other threads.
    Yield,
    /// Sleep.
    Sleep(Duration),
}

impl Patience {
    /// The time to spin.
    const SPIN: Duration = Duration::from_micros(20);
    /// The time to poll without sleeping. The time that the bytes take on a slow network is added.
    const BUSY: Duration = Duration::from_millis(2);
    /// The throughput of a slow network.
    const BYTES_PER_MILLISECOND: usize = 250_000;
    /// A sleep takes at most this fraction of the time waited so far, to bound the delay by the
    /// same fraction.
    const PART: u32 = 20;
    /// The longest sleep.
    const LONGEST: Duration = Duration::from_millis(1);

    /// Starts a wait for `num_bytes` bytes.
    pub(super) fn for_bytes(num_bytes: usize) -> Self {
        let moving = u64::try_from(num_bytes / Self::BYTES_PER_MILLISECOND).unwrap_or(u64::MAX);
        let busy = Self::BUSY.saturating_add(Duration::from_millis(moving));
        Self { begun: Instant::now(), busy }
    }

    /// Returns the pause until the next check.
    pub(super) fn rest(&self) -> Pause {
        self.rest_after(self.begun.elapsed())
    }

    fn rest_after(&self, waited: Duration) -> Pause {
        if waited < Self::SPIN {
            return Pause::Spin;
        }
        if waited < self.busy {
            return Pause::Yield;
        }
        Pause::Sleep((waited / Self::PART).min(Self::LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_become_rare_in_a_long_wait() {
        let rest = |num_bytes, micros| {
            Patience::for_bytes(num_bytes).rest_after(Duration::from_micros(micros))
        };
        assert_eq!([rest(0, 1), rest(0, 100)], [Pause::Spin, Pause::Yield]);
        assert_eq!(rest(0, 4000), Pause::Sleep(Duration::from_micros(200)));
        assert_eq!(rest(64 << 20, 200_000), Pause::Yield);
        assert_eq!(rest(0, 300_000_000), Pause::Sleep(Duration::from_millis(1)));
    }
}

//! [`Patience`]: what to do between two looks at a transfer.

use std::time::{Duration, Instant};

/// MPI can be asked whether a transfer is done, not waited for with a deadline; and it moves bytes only while it is
/// asked. So whoever waits asks often as long as bytes may be moving, and then ever more rarely: the rank that is
/// waited for may need the core, and a wait of minutes should cost nothing.
#[derive(Debug)]
pub(super) struct Patience {
    begun: Instant,
    busy: Duration,
}

/// What to do until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// Nothing: the answer is a few microseconds away.
    Spin,
    /// Let others have the core, if there are any.
    Yield,
    /// Sleep.
    Sleep(Duration),
}

impl Patience {
    const SPIN: Duration = Duration::from_micros(20);
    /// Asked all the time for so long, and longer by the time that the bytes need on a slow network.
    const BUSY: Duration = Duration::from_millis(2);
    const BYTES_PER_MILLISECOND: usize = 250_000;
    /// A sleep is at most this part of the time before, and so late by that part at most.
    const PART: u32 = 20;
    const LONGEST: Duration = Duration::from_millis(1);

    /// Begins a wait for so many bytes.
    pub(super) fn for_bytes(num_bytes: usize) -> Self {
        let moving = u64::try_from(num_bytes / Self::BYTES_PER_MILLISECOND).unwrap_or(u64::MAX);
        let busy = Self::BUSY.saturating_add(Duration::from_millis(moving));
        Self { begun: Instant::now(), busy }
    }

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
    fn whoever_waits_long_asks_rarely() {
        let rest = |num_bytes, micros| {
            Patience::for_bytes(num_bytes).rest_after(Duration::from_micros(micros))
        };
        assert_eq!([rest(0, 1), rest(0, 100)], [Pause::Spin, Pause::Yield]);
        assert_eq!(rest(0, 4000), Pause::Sleep(Duration::from_micros(200)));
        assert_eq!(rest(64 << 20, 200_000), Pause::Yield);
        assert_eq!(rest(0, 300_000_000), Pause::Sleep(Duration::from_millis(1)));
    }
}

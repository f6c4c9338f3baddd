//! Measures the time of calls.

use std::time::{Duration, Instant};

use kvstore::{Result, synchronize};

/// A call. It gets the number of its turn, which selects its buffers.
pub(crate) type Call = Box<dyn FnMut(usize) -> Result<()>>;

/// The number of calls before the measurement.
const WARM_UP: usize = 5;

/// The moment when the clock stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// When all work is complete.
    Done,
    /// When all work is queued. Measures the time of the host.
    Queued,
}

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of groups. Each gives one time, and the result is their median.
    pub(crate) groups: usize,
    /// The number of calls in a group. They are queued one after the other.
    pub(crate) per_group: usize,
    /// The approximate time limit. Slow calls run less often.
    pub(crate) at_most: Duration,
}

/// The seconds per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The number of calls that were timed.
    pub(crate) calls: usize,
}

impl Plan {
    /// Times a call. Queues all calls of a group, then waits once.
    pub(crate) fn time(&self, clock: Clock, call: &mut Call) -> Result<Times> {
        let mut turns = 0..;
        let mut group = |count: usize| -> Result<f64> {
            let start = Instant::now();
            for turn in turns.by_ref().take(count) {
                call(turn)?;
            }
            let queued = start.elapsed();
            synchronize()?;
            let elapsed = if clock == Clock::Queued { queued } else { start.elapsed() };
            Ok(elapsed.as_secs_f64() / times(count))
        };
        let start = Instant::now();
        let mut once = 0.0;
        for _ in 0..WARM_UP {
            once = group(1)?;
            if start.elapsed() > self.at_most / 2 {
                break;
            }
        }
        // The warm-up shows how many calls fit into the time limit.
        let affordable = self.at_most.as_secs_f64() / once.max(1e-9);
        let afford = |most: usize, each: usize| -> usize {
            (1..=most).rev().find(|count| times(count * each) <= affordable).unwrap_or(1)
        };
        let per_group = afford(self.per_group, self.groups);
        let groups = afford(self.groups, per_group).max(3);
        let mut seconds = (0..groups).map(|_| group(per_group)).collect::<Result<Vec<_>>>()?;
        seconds.sort_by(f64::total_cmp);
        Ok(Times {
            median: median(&seconds),
            least: seconds.first().copied().unwrap_or_default(),
            most: seconds.last().copied().unwrap_or_default(),
            calls: groups * per_group,
        })
    }
}

/// Returns the median of ascending numbers.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(one), Some(other)) if sorted.len().is_multiple_of(2) => f64::midpoint(*one, *other),
        (_, Some(one)) => *one,
        _ => 0.0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn times(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[1.0]).to_bits(), 1f64.to_bits());
        assert_eq!(median(&[1.0, 2.0, 9.0]).to_bits(), 2f64.to_bits());
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]).to_bits(), 3f64.to_bits());
    }
}

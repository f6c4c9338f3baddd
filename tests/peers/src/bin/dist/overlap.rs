//! Measures how much of a transfer overlaps with the computation of the next layers.
//!
//! A step simulates a backward pass. It computes and pushes the gradient of the last key, then that
//! of the key before it, with a higher priority, and so on. It pulls all weights at the end.

use std::hint::black_box;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use kvstore::{Error, Result, Store};

use super::{Workload, timed};

/// The simulated processor.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// An accelerator: the step waits for this time and uses no core.
    Wait(Duration),
    /// A core: the step does as much work as the core does alone in this time.
    Work(Duration),
}

impl Kind {
    /// Returns the kind with this name. `step` is the time of a computation.
    pub(crate) fn of(name: &str, step: Duration) -> Result<Self> {
        match name {
            "wait" => Ok(Self::Wait(step)),
            "work" => Ok(Self::Work(step)),
            _ => Err(Error::InvalidArgument(format!("computation by `{name}`"))),
        }
    }

    /// Returns the computation of one of `num_layers` layers.
    fn layer(self, num_layers: usize) -> Box<dyn FnMut()> {
        let divisor = u32::try_from(num_layers).unwrap_or(u32::MAX);
        match self {
            Self::Wait(step) => {
                let time = step / divisor;
                Box::new(move || wait(time))
            }
            Self::Work(step) => {
                let mut work = Work::new();
                let num_pieces = work.num_pieces(step / divisor);
                Box::new(move || work.pieces(num_pieces))
            }
        }
    }
}

fn wait(time: Duration) {
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        park_timeout(left);
    }
}

/// Arithmetic on data in the first-level cache.
struct Work(Vec<f32>);

impl Work {
    fn new() -> Self {
        Self(vec![1.0; 2048])
    }

    fn pieces(&mut self, count: u32) {
        for _ in 0..count {
            for number in black_box(&mut self.0) {
                *number = *number * 0.5 + 0.5;
            }
        }
    }

    /// Returns the number of pieces that a core computes in this time.
    fn num_pieces(&mut self, time: Duration) -> u32 {
        const TRIED: u32 = 10_000;
        self.pieces(TRIED);
        let begun = Instant::now();
        self.pieces(TRIED);
        let of_one = begun.elapsed().as_secs_f64() / f64::from(TRIED);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let count = (time.as_secs_f64() / of_one) as u32;
        count.max(1)
    }
}

/// Returns the seconds of steps of each kind, as JSON: computation only, transfer only, and both.
pub(crate) fn measured(
    store: &Store,
    workload: &Workload,
    kind: Kind,
    count: usize,
) -> Result<String> {
    // All ranks measure at the same time. With two ranks, each has its own core.
    store.barrier()?;
    let mut compute = kind.layer(workload.each.len());
    let [mut computation, mut transfer, mut both] = [const { Vec::new() }; 3];
    for _ in 0..count {
        for (computes, transfers, seconds) in
            [(true, false, &mut computation), (false, true, &mut transfer), (true, true, &mut both)]
        {
            store.barrier()?;
            let mut compute = || {
                if computes {
                    compute();
                }
            };
            seconds.extend(timed(0, 1, || step(store, workload, &mut compute, transfers))?);
        }
    }
    let json =
        format!("{{\"compute\": {computation:?}, \"transfer\": {transfer:?}, \"both\": {both:?}}}");
    Ok(json)
}

fn step(
    store: &Store,
    workload: &Workload,
    compute: &mut dyn FnMut(),
    transfers: bool,
) -> Result<()> {
    let priorities = (0..).map(|index: i32| -index);
    let layers: Vec<_> = workload.each.iter().zip(priorities).collect();
    for ((pushed, _), priority) in layers.into_iter().rev() {
        compute();
        if transfers {
            store.push_pairs(pushed, priority)?;
        }
    }
    if transfers { store.pull_pairs(&workload.pulled, 0) } else { Ok(()) }
}

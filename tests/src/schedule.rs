//! Schedules of the learning rate as `MXNet` has them: stateful objects that must be called for
//! every update in turn.

use kvstore::{LrScheduler, Result, Warmup};

/// The kind of a schedule, with its parameters.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of MXNet")]
pub enum Kind {
    Factor { step: u64, factor: f64, stop_factor_lr: f64 },
    MultiFactor { steps: Vec<u64>, factor: f64 },
    Poly { max_update: u64, power: f64, final_lr: f64 },
    Cosine { max_update: u64, final_lr: f64 },
}

/// The warm-up of a schedule.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of MXNet")]
pub struct WarmingUp {
    pub steps: u64,
    pub begin_lr: f64,
    pub is_linear: bool,
}

/// A schedule with the state after some updates.
#[derive(Clone, Debug)]
pub struct Stateful {
    kind: Kind,
    warmup: Option<WarmingUp>,
    base: f64,
    /// The last rate, or the rate that is multiplied next.
    current: f64,
    /// The update of the last multiplication, or the number of steps that have passed.
    behind: u64,
}

impl Stateful {
    /// Returns a schedule before its first update.
    pub fn new(kind: Kind, warmup: Option<WarmingUp>, base: f64) -> Self {
        Self { kind, warmup, base, current: base, behind: 0 }
    }

    /// Returns the learning rate of the next update, `n`.
    #[expect(clippy::cast_precision_loss, reason = "tests count to some hundreds")]
    pub fn learning_rate(&mut self, n: u64) -> f64 {
        let warmup_steps = self.warmup.map_or(0, |warmup| warmup.steps);
        if let Some(warmup) = self.warmup.filter(|warmup| n < warmup.steps) {
            let part = if warmup.is_linear { n as f64 / warmup.steps as f64 } else { 0.0 };
            return warmup.begin_lr + (self.base - warmup.begin_lr) * part;
        }
        let part = |max: u64| (n - warmup_steps) as f64 / (max - warmup_steps) as f64;
        match &self.kind {
            Kind::Factor { step, factor, stop_factor_lr } => {
                // A loop, because a run may begin at a later update (`begin_num_update`).
                while n > self.behind + step {
                    self.behind += step;
                    self.current = (self.current * factor).max(*stop_factor_lr);
                }
            }
            Kind::MultiFactor { steps, factor } => {
                let is_behind = |step: &&u64| n > **step;
                let behind = steps.iter().filter(is_behind).count() as u64;
                while self.behind < behind {
                    self.behind += 1;
                    self.current *= factor;
                }
            }
            Kind::Poly { max_update, power, final_lr } if n <= *max_update => {
                let left = (1.0 - part(*max_update)).powf(*power);
                self.current = final_lr + (self.base - final_lr) * left;
            }
            Kind::Cosine { max_update, final_lr } if n <= *max_update => {
                let left = 0.5 * (1.0 + (std::f64::consts::PI * part(*max_update)).cos());
                self.current = final_lr + (self.base - final_lr) * left;
            }
            Kind::Poly { .. } | Kind::Cosine { .. } => {}
        }
        self.current
    }

    /// Returns the same schedule for a store.
    pub fn scheduler(&self) -> Result<LrScheduler> {
        let scheduler = match self.kind.clone() {
            Kind::Factor { step, factor, stop_factor_lr } => {
                LrScheduler::factor(step, factor)?.with_stop(stop_factor_lr)?
            }
            Kind::MultiFactor { steps, factor } => LrScheduler::multi_factor(steps, factor)?,
            Kind::Poly { max_update, power, final_lr } => {
                LrScheduler::poly(max_update, power, final_lr)?
            }
            Kind::Cosine { max_update, final_lr } => LrScheduler::cosine(max_update, final_lr)?,
        };
        let Some(WarmingUp { steps, begin_lr, is_linear }) = self.warmup else {
            return Ok(scheduler);
        };
        let mode = if is_linear { Warmup::Linear } else { Warmup::Constant };
        scheduler.with_warmup(steps, begin_lr, mode)
    }
}

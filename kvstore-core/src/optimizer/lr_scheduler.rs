//! Schedules of the learning rate. They are pure functions of the base and the update number.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::file::{MAX_ITEMS, short_list};
use crate::types::{Error, Result};

/// A schedule: how the learning rate changes with the update number of a key.
///
/// ```
/// use kvstore_core::LrScheduler;
/// let scheduler = LrScheduler::factor(2, 0.5)?;
/// let rates: Vec<f64> = (1..=5).map(|n| scheduler.learning_rate(0.1, n)).collect();
/// assert_eq!(rates, [0.1, 0.1, 0.05, 0.05, 0.025]);
/// # Ok::<(), kvstore_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedScheduler")]
pub struct LrScheduler {
    decay: Decay,
    warmup: Option<WarmupPhase>,
}

/// A schedule from a file, before its values are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedScheduler {
    decay: Decay,
    warmup: Option<WarmupPhase>,
}

/// How the learning rate changes during the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warmup {
    /// It grows linearly to the base.
    Linear,
    /// It stays at its first value until the warm-up ends.
    Constant,
}

/// A warm-up: the updates before update number `steps`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WarmupPhase {
    steps: u64,
    begin_lr: f64,
    mode: Warmup,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Decay {
    Factor {
        step: u64,
        factor: f64,
        stop: f64,
    },
    MultiFactor {
        #[serde(deserialize_with = "short_list")]
        steps: Vec<u64>,
        factor: f64,
    },
    Poly {
        max_update: u64,
        power: f64,
        final_lr: f64,
    },
    Cosine {
        max_update: u64,
        final_lr: f64,
    },
}

impl LrScheduler {
    /// Returns the schedule that multiplies the learning rate by `factor` after every `step`
    /// updates, down to 1e-8.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `step` is 0.
    /// - [`Error::InvalidArgument`] if `factor` is not in `[0, 1]`.
    pub fn factor(step: u64, factor: f64) -> Result<Self> {
        if step == 0 {
            return Err(Error::invalid("step: expected at least 1, found 0"));
        }
        check_factor(factor)?;
        Ok(Self::of(Decay::Factor { step, factor, stop: 1e-8 }))
    }

    /// Returns the factor schedule with another lower bound. Returns other schedules unchanged.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the bound is negative or not finite.
    pub fn with_stop(mut self, stop_factor_lr: f64) -> Result<Self> {
        if !stop_factor_lr.is_finite() || stop_factor_lr < 0.0 {
            let text =
                format!("stop_factor_lr: expected a number of at least 0, found {stop_factor_lr}");
            return Err(Error::invalid(text));
        }
        if let Decay::Factor { stop, .. } = &mut self.decay {
            *stop = stop_factor_lr;
        }
        Ok(self)
    }

    /// Returns the schedule that multiplies the learning rate by `factor` after each of these
    /// update numbers.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `steps` is empty, contains 0, or is not strictly ascending.
    /// - [`Error::InvalidArgument`] if there are more than 4096 steps.
    /// - [`Error::InvalidArgument`] if `factor` is not in `[0, 1]`.
    pub fn multi_factor(steps: Vec<u64>, factor: f64) -> Result<Self> {
        if steps.len() > MAX_ITEMS {
            return Err(Error::invalid(format!(
                "steps: expected at most {MAX_ITEMS} numbers, found {}",
                steps.len()
            )));
        }
        check_steps(&steps)?;
        check_factor(factor)?;
        Ok(Self::of(Decay::MultiFactor { steps, factor }))
    }

    /// Returns the schedule that decays polynomially from the base to `final_lr`, which it reaches
    /// at update `max_update`.
    ///
    /// The learning rate is `final + (base - final) * (1 - n / N)^power`, where `n` of `N` updates
    /// after the warm-up are done.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `max_update` is 0.
    /// - [`Error::InvalidArgument`] if `power` is negative.
    /// - [`Error::InvalidArgument`] if `power` or `final_lr` is not finite.
    pub fn poly(max_update: u64, power: f64, final_lr: f64) -> Result<Self> {
        if power < 0.0 {
            return Err(Error::invalid(format!(
                "pwr: expected a number of at least 0, found {power}"
            )));
        }
        check_finite("pwr", power)?;
        check_finite("final_lr", final_lr)?;
        check_end(max_update, 0)?;
        Ok(Self::of(Decay::Poly { max_update, power, final_lr }))
    }

    /// Returns the schedule that decays from the base to `final_lr` along half a cosine wave, and
    /// reaches it at update `max_update`.
    ///
    /// The learning rate is `final + (base - final) * (1 + cos(pi * n / N)) / 2`, where `n` of `N`
    /// updates after the warm-up are done.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if `max_update` is 0.
    /// - [`Error::InvalidArgument`] if `final_lr` is not finite.
    pub fn cosine(max_update: u64, final_lr: f64) -> Result<Self> {
        check_finite("final_lr", final_lr)?;
        check_end(max_update, 0)?;
        Ok(Self::of(Decay::Cosine { max_update, final_lr }))
    }

    /// Returns the schedule with a warm-up. Before update number `steps`, the learning rate grows
    /// linearly from `begin_lr` to the base, or stays at `begin_lr`.
    ///
    /// # Errors
    /// - [`Error::InvalidArgument`] if the schedule does not end after the warm-up.
    /// - [`Error::InvalidArgument`] if `begin_lr` is not finite.
    pub fn with_warmup(mut self, steps: u64, begin_lr: f64, mode: Warmup) -> Result<Self> {
        let end = match self.decay {
            Decay::Poly { max_update, .. } | Decay::Cosine { max_update, .. } => max_update,
            Decay::Factor { .. } | Decay::MultiFactor { .. } => u64::MAX,
        };
        check_finite("warmup_begin_lr", begin_lr)?;
        check_end(end, steps)?;
        self.warmup = Some(WarmupPhase { steps, begin_lr, mode });
        Ok(self)
    }

    fn of(decay: Decay) -> Self {
        Self { decay, warmup: None }
    }

    /// Returns the learning rate of update number `num_update` of a key, counted from 1. `base` is
    /// the learning rate of the optimizer.
    #[allow(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
    pub fn learning_rate(&self, base: f64, num_update: u64) -> f64 {
        let warm = match self.warmup {
            Some(WarmupPhase { steps, begin_lr: begin, mode }) if num_update < steps => {
                let share = num_update as f64 / steps as f64;
                return match mode {
                    Warmup::Linear => begin + (base - begin) * share,
                    Warmup::Constant => begin,
                };
            }
            Some(WarmupPhase { steps, .. }) => steps,
            None => 0,
        };
        // The fraction of the decay that is done. From `max_update` on it is 1.
        let done = |max_update: u64| {
            (num_update.min(max_update) - warm.min(num_update)) as f64 / (max_update - warm) as f64
        };
        match &self.decay {
            Decay::Factor { step, factor, stop } => {
                let times = num_update.saturating_sub(1) / step;
                let reached = base * libm::pow(*factor, times as f64);
                if times > 0 && reached < *stop { *stop } else { reached }
            }
            Decay::MultiFactor { steps, factor } => {
                let times = steps.iter().filter(|step| num_update > **step).count();
                base * libm::pow(*factor, times as f64)
            }
            Decay::Poly { max_update, power, final_lr } => {
                final_lr + (base - final_lr) * libm::pow(1.0 - done(*max_update), *power)
            }
            Decay::Cosine { max_update, final_lr } => {
                final_lr + (base - final_lr) * (1.0 + libm::cos(PI * done(*max_update))) / 2.0
            }
        }
    }
}

impl TryFrom<UncheckedScheduler> for LrScheduler {
    type Error = Error;

    fn try_from(unchecked: UncheckedScheduler) -> Result<Self> {
        let scheduler = match unchecked.decay {
            Decay::Factor { step, factor, stop } => Self::factor(step, factor)?.with_stop(stop)?,
            Decay::MultiFactor { steps, factor } => Self::multi_factor(steps, factor)?,
            Decay::Poly { max_update, power, final_lr } => Self::poly(max_update, power, final_lr)?,
            Decay::Cosine { max_update, final_lr } => Self::cosine(max_update, final_lr)?,
        };
        match unchecked.warmup {
            Some(WarmupPhase { steps, begin_lr, mode }) => {
                scheduler.with_warmup(steps, begin_lr, mode)
            }
            None => Ok(scheduler),
        }
    }
}

fn check_factor(factor: f64) -> Result<()> {
    if (0.0..=1.0).contains(&factor) {
        return Ok(());
    }
    Err(Error::invalid(format!("factor: expected a number from 0 to 1, found {factor}")))
}

fn check_steps(steps: &[u64]) -> Result<()> {
    let found = match steps {
        [] => "none".to_owned(),
        [0, ..] => "0".to_owned(),
        _ => match steps.iter().zip(&steps[1..]).find(|(step, next)| step >= next) {
            Some((step, next)) => format!("{next} after {step}"),
            None => return Ok(()),
        },
    };
    Err(Error::invalid(format!("steps: expected ascending numbers of at least 1, found {found}")))
}

fn check_end(max_update: u64, warmup_steps: u64) -> Result<()> {
    if max_update > warmup_steps {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "max_update: expected more than the {warmup_steps} steps of the warm-up, found {max_update}"
    )))
}

fn check_finite(name: &str, number: f64) -> Result<()> {
    if number.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(format!("{name}: expected a finite number, found {number}")))
}

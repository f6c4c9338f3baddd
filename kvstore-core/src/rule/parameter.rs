//! Hyper-parameters by name: what an optimizer has, and which values it takes.

use crate::types::Key;

/// An optimizer: its name, its hyper-parameters, and the function that folds them into a rule `R`.
#[derive(Debug)]
pub(crate) struct Definition<R: 'static> {
    pub(crate) name: &'static str,
    /// The default of `learning_rate`.
    pub(crate) learning_rate: f64,
    /// The default of `wd`.
    pub(crate) weight_decay: f64,
    /// The hyper-parameters that not every optimizer has.
    pub(crate) own: &'static [Parameter],
    /// Folds the hyper-parameters of one update of one key into a rule.
    pub(crate) rule: fn(&mut KeyUpdate<'_>) -> R,
}

/// A hyper-parameter: its name, its default and the values it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) default: f64,
    pub(crate) domain: Domain,
}

impl Parameter {
    pub(crate) const fn new(name: &'static str, default: f64, domain: Domain) -> Self {
        Self { name, default, domain }
    }
}

/// Whether a gradient of rows changes weight and state in those rows only. `MXNet` 1.9 has it as an argument
/// of `sgd` and `adam`, with this default, and does so always with `adagrad` and `ftrl`.
pub(crate) const LAZY_UPDATE: Parameter = Parameter::new("lazy_update", 1.0, Domain::Flag);

/// The values that a hyper-parameter takes, all of them finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Any number.
    Any,
    /// 0 or more.
    NonNegative,
    /// At least 0 and below 1.
    Fraction,
    /// 0 or 1.
    Flag,
    /// A whole number of at most 53 bits.
    Count,
}

impl Domain {
    pub(crate) fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Any => true,
                Self::NonNegative => value >= 0.0,
                Self::Fraction => (0.0..1.0).contains(&value),
                Self::Flag => value == 0.0 || value == 1.0,
                Self::Count => {
                    value >= 0.0 && value.fract() == 0.0 && value <= 9_007_199_254_740_992.0
                }
            }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Any => "a finite number",
            Self::NonNegative => "a number of at least 0",
            Self::Fraction => "a number of at least 0 and below 1",
            Self::Flag => "0 or 1",
            Self::Count => "a whole number of at least 0",
        }
    }
}

/// One update of one key: its number, and the hyper-parameters that apply to it.
#[derive(Debug)]
pub(crate) struct KeyUpdate<'a> {
    pub(crate) key: &'a Key,
    /// The number of this update of the key, from 1.
    pub(crate) count: u64,
    /// Scheduled, and multiplied for the key.
    pub(crate) learning_rate: f64,
    /// Multiplied for the key.
    pub(crate) weight_decay: f64,
    pub(crate) rescale: f64,
    /// Infinite when gradients are not clipped.
    pub(crate) clip: f64,
    /// A scalar that an optimizer keeps for each key, initially 1. Nadam: the product of its
    /// momentum factors. FTML: 1 plus the number of skipped updates.
    pub(crate) momentum_product: &'a mut f64,
    pub(crate) own: &'a [f64],
}

impl KeyUpdate<'_> {
    /// Returns the optimizer's own hyper-parameters in the order of their definition.
    pub(crate) fn own<const N: usize>(&self) -> [f64; N] {
        debug_assert_eq!(self.own.len(), N, "as many as are defined");
        std::array::from_fn(|index| self.own.get(index).copied().unwrap_or_default())
    }

    /// Returns the learning rate as a divisor: 0 for a skipped update, otherwise a number whose
    /// reciprocal does not overflow `f32`.
    pub(crate) fn divisor(&self) -> f64 {
        /// 2^-100
        const SMALLEST: f64 = f64::from_bits((1023 - 100) << 52);
        if self.learning_rate.abs() < SMALLEST { 0.0 } else { self.learning_rate }
    }

    /// Subtracts the skipped updates of the key from the count, so that the bias corrections ignore
    /// them. `is_skipped` says whether this update is one of them.
    #[allow(clippy::cast_possible_truncation, reason = "a cast saturates")]
    #[allow(clippy::cast_sign_loss, reason = "a cast saturates")]
    pub(crate) fn subtract_skipped(&mut self, is_skipped: bool) {
        if is_skipped {
            *self.momentum_product += 1.0;
        }
        let num_skipped = (*self.momentum_product - 1.0) as u64;
        // A damaged file may contain more skipped updates than updates.
        self.count = self.count.saturating_sub(num_skipped).max(1);
    }

    /// Returns `1 - base^count`: what corrects a moving average that started at 0.
    pub(crate) fn bias_correction(&self, base: f64) -> f64 {
        1.0 - self.power(base, 0)
    }

    /// Returns `base^(count + shift)`.
    #[allow(clippy::cast_precision_loss, reason = "nobody counts to 2^53")]
    pub(crate) fn power(&self, base: f64, shift: i32) -> f64 {
        // Not `powf`: the system's mathematics library differs from machine to machine.
        libm::pow(base, self.count as f64 + f64::from(shift))
    }
}

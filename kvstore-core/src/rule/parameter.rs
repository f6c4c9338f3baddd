//! Hyper-parameters by name: what an optimizer has, and which values it takes.

use crate::types::Key;

/// An optimizer: its names, its hyper-parameters, and the function that folds them into a rule `R`.
///
/// The documentation of the function that returns a definition becomes that of the constructors in
/// every language: a title, the formula, and its source. In it `lr` is the learning rate, `rescale`
/// is `rescale_grad`, and `clip` bounds every element by `clip_gradient`.
#[derive(Debug)]
pub struct Definition<R: 'static> {
    /// The name by which [`Optimizer::new`](crate::optimizer::Optimizer::new) finds it.
    pub name: &'static str,
    /// The name of its class, for languages that have one for each optimizer.
    pub class: &'static str,
    /// The method that returns it, for languages that have one for each optimizer.
    pub factory: Factory,
    /// The default of `learning_rate`.
    pub learning_rate: f64,
    /// The default of `wd`.
    pub weight_decay: f64,
    /// The hyper-parameters that not every optimizer has.
    pub own: &'static [Parameter],
    /// Folds the hyper-parameters of one update of one key into a rule.
    pub(crate) rule: fn(&mut KeyUpdate<'_>) -> R,
}

impl<R> Definition<R> {
    /// Returns every hyper-parameter with its default: [`COMMON`], then its own.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter> + use<'_, R> {
        let common = COMMON.into_iter().map(|parameter| match parameter.name {
            "learning_rate" => Parameter { default: self.learning_rate, ..parameter },
            "wd" => Parameter { default: self.weight_decay, ..parameter },
            _ => parameter,
        });
        common.chain(self.own.iter().copied())
    }
}

/// A method that returns an optimizer.
#[derive(Debug)]
pub struct Factory {
    /// Its name in camel case.
    pub name: &'static str,
    /// Defaults that differ from those of the definition, because those of `MXNet`'s factories do.
    pub defaults: &'static [(&'static str, f64)],
}

/// A hyper-parameter: its name, its default, the values it takes and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The default.
    pub default: f64,
    /// The values it takes.
    pub domain: Domain,
    /// What it is, without a full stop.
    pub about: &'static str,
}

impl Parameter {
    pub(crate) const fn new(
        name: &'static str,
        default: f64,
        domain: Domain,
        about: &'static str,
    ) -> Self {
        Self { name, default, domain, about }
    }

    pub(crate) const fn momentum(default: f64) -> Self {
        let about = "The share of the last step that is kept; 0 for none";
        Self::new("momentum", default, Domain::Any, about)
    }

    pub(crate) const fn beta1(default: f64) -> Self {
        Self::new("beta1", default, Domain::Fraction, "Decay of the mean of the gradients")
    }

    pub(crate) const fn beta2(default: f64) -> Self {
        Self::new("beta2", default, Domain::Fraction, "Decay of the mean of their squares")
    }

    pub(crate) const fn epsilon(default: f64) -> Self {
        let about = "Is added so that the quotient is finite";
        Self::new("epsilon", default, Domain::NonNegative, about)
    }
}

/// The hyper-parameters that every optimizer has; the defaults of the first two are its own.
pub const COMMON: [Parameter; 5] = [
    Parameter::new(
        "learning_rate",
        0.0,
        Domain::NonNegative,
        "Size of a step; with a schedule, where that starts",
    ),
    Parameter::new("wd", 0.0, Domain::Any, "Weight decay"),
    Parameter::new("rescale_grad", 1.0, Domain::Any, "Factor on the gradient"),
    Parameter::new(
        "clip_gradient",
        0.0,
        Domain::NonNegative,
        "Bound on each element of the rescaled gradient; 0 for none",
    ),
    Parameter::new(
        "begin_num_update",
        0.0,
        Domain::Count,
        "How many updates a key is taken to have had before",
    ),
];

/// Whether a gradient of rows changes weight and state in those rows only. `MXNet` 1.9 has it as an argument
/// of `sgd` and `adam`, with this default, and does so always with `adagrad` and `ftrl`.
pub(crate) const LAZY_UPDATE: Parameter = Parameter::new(
    "lazy_update",
    1.0,
    Domain::Flag,
    "Whether a gradient of some rows changes weight and state in those rows only; otherwise the other rows count as 0",
);

/// Where the weight decay enters.
pub(crate) const DECOUPLED_WD: Parameter = Parameter::new(
    "decoupled_wd",
    0.0,
    Domain::Flag,
    "Whether the weight decay is subtracted from the weight, and not part of the gradient",
);

/// The place of epsilon in the divisor.
pub(crate) const PYTORCH_EPSILON: Parameter = Parameter::new(
    "pytorch_epsilon",
    0.0,
    Domain::Flag,
    "Whether epsilon is added after the square root and the bias correction, as `PyTorch` does",
);

/// The values that a hyper-parameter takes, all of them finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
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
    /// Returns whether the value is one of them.
    pub fn holds(self, value: f64) -> bool {
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

    /// Returns what they are, for a message.
    pub fn description(self) -> &'static str {
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
    /// momentum factors. FTML: 1 plus the number of skipped updates. LARS: the negated learning rate
    /// of the last update.
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

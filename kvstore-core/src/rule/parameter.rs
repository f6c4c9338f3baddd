//! The definition of an optimizer, its hyper-parameters with their valid values, and [`KeyUpdate`].

use std::cell::Cell;

use crate::types::Key;

/// The definition of an optimizer: its names, its hyper-parameters, and the function that folds
/// them into a rule `R`.
///
/// `make kernels` copies the documentation of the function that returns a definition to the
/// constructors of every language and to the manual: a title, the formula, and its source. In the
/// formula, `lr` is the learning rate, `rescale` is `rescale_grad`, and `clip` clamps every element
/// to plus or minus `clip_gradient`.
#[derive(Debug)]
pub struct Definition<R: 'static> {
    /// The name for [`Optimizer::new`](crate::optimizer::Optimizer::new).
    pub name: &'static str,
    /// The name of its class, in languages with a class for each optimizer.
    pub class: &'static str,
    /// The method that returns it, in languages with a method for each optimizer.
    pub factory: Factory,
    /// The default of `learning_rate`.
    pub learning_rate: f64,
    /// The default of `wd`.
    pub weight_decay: f64,
    /// The hyper-parameters that [`COMMON`] does not have.
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
    /// Defaults that differ from those of the definition, as in the factories of `MXNet`.
    pub defaults: &'static [(&'static str, f64)],
}

/// A hyper-parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The default.
    pub default: f64,
    /// The valid values.
    pub domain: Domain,
    /// A description, without a full stop.
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
        let about = "Fraction of the last step that is added; 0 for no momentum";
        Self::new("momentum", default, Domain::Any, about)
    }

    pub(crate) const fn beta1(default: f64) -> Self {
        Self::new("beta1", default, Domain::Fraction, "Decay of the mean gradient")
    }

    pub(crate) const fn beta2(default: f64) -> Self {
        Self::new("beta2", default, Domain::Fraction, "Decay of the mean squared gradient")
    }

    pub(crate) const fn epsilon(default: f64) -> Self {
        let about = "Added to the divisor to avoid division by 0";
        Self::new("epsilon", default, Domain::NonNegative, about)
    }
}

/// The hyper-parameters of every optimizer. A definition sets the defaults of the first two.
pub const COMMON: [Parameter; 6] = [
    Parameter::new(
        "learning_rate",
        0.0,
        Domain::NonNegative,
        "Step size; with a schedule, its base",
    ),
    Parameter::new("wd", 0.0, Domain::Any, "Weight decay"),
    Parameter::new("rescale_grad", 1.0, Domain::Any, "Factor on the gradient"),
    Parameter::new(
        "clip_gradient",
        0.0,
        Domain::NonNegative,
        "Bound on each element of the rescaled gradient; 0 for none",
    ),
    Parameter::new("begin_num_update", 0.0, Domain::Count, "Update count that keys start with"),
    Parameter::new(
        "staleness_power",
        0.0,
        Domain::NonNegative,
        "Stores on servers divide the learning rate by `1 + staleness` to this power",
    ),
];

/// Whether a row-sparse gradient changes only its own rows. In `MXNet` 1.9, `sgd` and `adam` have
/// this argument with this default, and `adagrad` and `ftrl` always do so.
pub(crate) const LAZY_UPDATE: Parameter = Parameter::new(
    "lazy_update",
    1.0,
    Domain::Flag,
    "Whether a row-sparse gradient changes only its own rows of weight and state; otherwise \
     missing rows count as 0",
);

/// Whether weight decay is decoupled from the gradient.
pub(crate) const DECOUPLED_WD: Parameter = Parameter::new(
    "decoupled_wd",
    0.0,
    Domain::Flag,
    "Whether weight decay is subtracted from the weight instead of added to the gradient",
);

/// Where the divisor contains epsilon.
pub(crate) const PYTORCH_EPSILON: Parameter = Parameter::new(
    "pytorch_epsilon",
    0.0,
    Domain::Flag,
    "Whether epsilon is added after the square root and the bias correction, as by `PyTorch`",
);

/// The valid values of a hyper-parameter. All are finite.
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
    /// An integer from 0 to 2^53.
    Count,
}

impl Domain {
    /// Returns whether the value is valid.
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

    /// Returns a description for error messages.
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
    /// From the schedule, multiplied by the factor of the key.
    pub(crate) learning_rate: f64,
    /// Multiplied by the factor of the key.
    pub(crate) weight_decay: f64,
    pub(crate) rescale: f64,
    /// Infinite if gradients are not clipped.
    pub(crate) clip: f64,
    /// A scalar that an optimizer keeps for each key, initially 1. Nadam: the product of its
    /// momentum factors. FTML: 1 plus the number of skipped updates. LARS: the negated learning
    /// rate of the last update.
    pub(crate) momentum_product: &'a mut f64,
    pub(crate) own: &'a [f64],
}

impl KeyUpdate<'_> {
    /// Returns the values of [`Definition::own`], in the same order.
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
    #[allow(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
    pub(crate) fn power(&self, base: f64, shift: i32) -> f64 {
        power(base, self.count as f64 + f64::from(shift))
    }
}

/// A base, an exponent, and the power.
type Power = (f64, f64, f64);

thread_local! {
    /// The last powers of this thread. The keys of a push mostly have the same count, and computing
    /// a power takes longer than everything else that the host does for a key.
    static POWERS: Cell<[Power; 4]> = const { Cell::new([(1.0, 0.0, 1.0); 4]) };
}

/// Returns `base^exponent`.
fn power(base: f64, exponent: f64) -> f64 {
    let [a, b, c, d] = POWERS.get();
    let is_same = |known: &&Power| {
        known.0.to_bits() == base.to_bits() && known.1.to_bits() == exponent.to_bits()
    };
    if let Some(known) = [&a, &b, &c, &d].into_iter().find(is_same) {
        return known.2;
    }
    // Not `powf`: the system's mathematics library differs from machine to machine.
    let power = libm::pow(base, exponent);
    POWERS.set([(base, exponent, power), a, b, c]);
    power
}

#[cfg(test)]
mod tests {
    use super::power;

    #[test]
    fn powers_are_those_of_libm() {
        let bases = [0.9, 0.999, -0.0, 0.0, 1.0, f64::INFINITY];
        for count in [1.0, 2.0, 2.0, 1e9, 1.0] {
            for base in bases.into_iter().chain(bases.into_iter().rev()) {
                let expected = libm::pow(base, count);
                assert_eq!(power(base, count).to_bits(), expected.to_bits(), "{base}^{count}");
            }
        }
    }
}

//! FTRL: follows the regularized leader, per coordinate.

use super::parameter::{Definition, Domain, Factory, LAZY_UPDATE, Parameter};
use super::step::{Real, Step, scalars};

/// FTRL: follows the regularized leader, per coordinate. Gives sparse weights of linear models.
///
/// With `q = clip(rescale * gradient)`:
/// - `z = z + q - (sqrt(n + q^2) - sqrt(n)) * w / lr`
/// - `n = n + q^2`
/// - `w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)` if `|z| > lamda1`, else 0
///
/// With learning rate 0, an update changes neither weight nor state.
///
/// Source: `McMahan` and others, "Ad click prediction: a view from the trenches", 2013.
pub(super) const fn ftrl<R: From<Ftrl>>() -> Definition<R> {
    Definition {
        name: "ftrl",
        class: "Ftrl",
        factory: Factory { name: "ftrl", defaults: &[] },
        learning_rate: 0.1,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::new("lamda1", 0.01, Domain::NonNegative, "Strength of the L1 penalty"),
                Parameter::new(
                    "beta",
                    1.0,
                    Domain::NonNegative,
                    "A larger value makes the first steps smaller",
                ),
                LAZY_UPDATE,
            ]
        },
        rule: |update| {
            let [lamda1, beta, _] = update.own();
            let (learning_rate, weight_decay) = (update.divisor(), update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            Ftrl { learning_rate, weight_decay, lamda1, beta, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is `z` and the sum of the squared gradients.
    Ftrl<2> [Zero, Zero] {
        /// Step size; 0 if the update is skipped.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// The weight is 0 if the absolute value of `z` is not larger.
        lamda1,
        /// A larger value makes the first steps smaller.
        beta,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 2> for Ftrl<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [z, n]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let sum = n + q * q;
        let z = z + q - (sum.sqrt() - n.sqrt()) * weight / self.learning_rate;
        let strength = (self.beta + sum.sqrt()) / self.learning_rate + self.weight_decay;
        let leader = (z.sign() * self.lamda1 - z) / strength;
        // The comparison is false for a NaN in `z`, so the weight becomes NaN and not 0.
        let weight = if z.abs() <= self.lamda1 { A::ZERO } else { leader };
        (weight, [z, sum])
    }
}

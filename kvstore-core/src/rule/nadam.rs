//! Nadam: Adam with Nesterov momentum that grows on a schedule.

use super::parameter::{Definition, Domain, Factory, KeyUpdate, Parameter};
use super::step::{Real, Step, scalars};

/// Nadam: Adam with Nesterov momentum that grows on a schedule.
///
/// With `q = clip(rescale * gradient + wd * w)`, update number `t`,
/// `f(t) = beta1 * (1 - 0.5 * 0.96^(t * schedule_decay))`, `S = f(1) * .. * f(t)` and
/// `S' = S * f(t + 1)`:
/// - `m = beta1 * m + (1 - beta1) * q`
/// - `v = beta2 * v + (1 - beta2) * q^2`
/// - `d = (1 - f(t)) * q / (1 - S) + f(t + 1) * m / (1 - S')`
/// - `w = w - lr * d / (sqrt(v / (1 - beta2^t)) + epsilon)`
///
/// Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.
pub(super) const fn nadam<R: From<Nadam>>() -> Definition<R> {
    Definition {
        name: "nadam",
        class: "Nadam",
        factory: Factory { name: "nadam", defaults: &[] },
        learning_rate: 0.001,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::beta1(0.9),
                Parameter::beta2(0.999),
                Parameter::epsilon(1e-8),
                Parameter::new(
                    "schedule_decay",
                    0.004,
                    Domain::NonNegative,
                    "Speed at which the momentum approaches `beta1`",
                ),
            ]
        },
        rule: |update| {
            let [beta1, beta2, epsilon, schedule_decay] = update.own();
            let factor = |update: &KeyUpdate<'_>, shift| {
                let slow = libm::pow(0.96, schedule_decay);
                beta1 * (1.0 - 0.5 * update.power(slow, shift))
            };
            let (now, next) = (factor(update, 0), factor(update, 1));
            *update.momentum_product *= now;
            let product = *update.momentum_product;
            Nadam {
                learning_rate: update.learning_rate,
                gradient_share: (1.0 - now) / (1.0 - product),
                mean_share: next / (1.0 - product * next),
                beta1,
                rest1: 1.0 - beta1,
                beta2,
                rest2: 1.0 - beta2,
                correction: update.bias_correction(beta2),
                epsilon,
                weight_decay: update.weight_decay,
                rescale: update.rescale,
                clip: update.clip,
            }
            .into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient and the mean squared gradient.
    Nadam<2> [Zero, Zero] {
        /// Step size.
        learning_rate,
        /// `(1 - f(t)) / (1 - S)`
        gradient_share,
        /// `f(t + 1) / (1 - S')`
        mean_share,
        /// Decay of the mean.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the variance.
        beta2,
        /// `1 - beta2`
        rest2,
        /// `1 - beta2^t`
        correction,
        /// Added to the divisor to avoid division by 0.
        epsilon,
        /// Weight decay.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 2> for Nadam<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, v]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let m = self.beta1 * m + self.rest1 * q;
        let v = self.beta2 * v + self.rest2 * (q * q);
        let ahead = self.gradient_share * q + self.mean_share * m;
        let size = (v / self.correction).sqrt() + self.epsilon;
        (weight - self.learning_rate * ahead / size, [m, v])
    }
}

//! `AdaBelief`: Adam with the variance of the gradient around its mean.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// `AdaBelief`: Adam with the variance of the gradient around its mean, so an expected gradient
/// makes a large step.
///
/// With `q = clip(rescale * gradient)` and update number `t`:
/// - `m = beta1 * m + (1 - beta1) * q`
/// - `s = beta2 * s + (1 - beta2) * (q - m)^2 + epsilon`
/// - `w = (1 - lr * wd) * w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)`
///
/// Source: Zhuang et al., "`AdaBelief` optimizer: adapting stepsizes by the belief in observed
/// gradients", 2020, algorithm 2, with decoupled weight decay.
pub(super) const fn adabelief<R: From<AdaBelief>>() -> Definition<R> {
    Definition {
        name: "adabelief",
        class: "AdaBelief",
        factory: Factory { name: "adaBelief", defaults: &[] },
        learning_rate: 0.001,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::beta1(0.9),
                Parameter::new("beta2", 0.999, Domain::Fraction, "Decay of the variance"),
                Parameter::epsilon(1e-8),
            ]
        },
        rule: |update| {
            let [beta1, beta2, epsilon] = update.own();
            AdaBelief {
                learning_rate: update.learning_rate / update.bias_correction(beta1),
                beta1,
                rest1: 1.0 - beta1,
                beta2,
                rest2: 1.0 - beta2,
                correction: update.bias_correction(beta2),
                epsilon,
                keep: 1.0 - update.learning_rate * update.weight_decay,
                rescale: update.rescale,
                clip: update.clip,
            }
            .into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient and the variance around it.
    AdaBelief<2> [Zero, Zero] {
        /// Step size, multiplied by the bias correction of the mean.
        learning_rate,
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
        /// `1 - lr * wd`
        keep,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 2> for AdaBelief<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, s]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.beta1 * m + self.rest1 * q;
        let surprise = q - m;
        let s = self.beta2 * s + self.rest2 * (surprise * surprise) + self.epsilon;
        let size = (s / self.correction).sqrt() + self.epsilon;
        (self.keep * weight - self.learning_rate * m / size, [m, s])
    }
}

//! LAMB: Adam with weight decay that scales the step of each key by the norm of the weight.

use super::layerwise::LayerFormula;
use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// LAMB: Adam with weight decay that scales the step of each key by the norm of the weight.
///
/// With `q = clip(rescale * gradient)`, update number `t` and Euclidean norms over all elements of
/// a key:
/// - `m = beta1 * m + (1 - beta1) * q`
/// - `v = beta2 * v + (1 - beta2) * q^2`
/// - `u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * w`
/// - `w = w - lr * |w| / |u| * u`
///
/// `|w|` is first clamped to `lower_bound` and `upper_bound`. If `|w|` or `|u|` is 0, the quotient
/// counts as 1. Without `bias_correction`, the divisors `1 - beta1^t` and `1 - beta2^t` are 1.
///
/// Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
/// 2020, algorithm 2, with the options of `MXNet` 1.9.
pub(super) const fn lamb<R: From<Lamb>>() -> Definition<R> {
    Definition {
        name: "lamb",
        class: "LAMB",
        factory: Factory { name: "lamb", defaults: &[] },
        learning_rate: 0.001,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::beta1(0.9),
                Parameter::beta2(0.999),
                Parameter::epsilon(1e-6),
                Parameter::new(
                    "lower_bound",
                    0.0,
                    Domain::NonNegative,
                    "Lower limit of the weight norm; 0 for none",
                ),
                Parameter::new(
                    "upper_bound",
                    0.0,
                    Domain::NonNegative,
                    "Upper limit of the weight norm; 0 for none",
                ),
                Parameter::new(
                    "bias_correction",
                    1.0,
                    Domain::Flag,
                    "Whether to correct the bias of means that start at 0",
                ),
            ]
        },
        rule: |update| {
            let [beta1, beta2, epsilon, lower_bound, upper_bound, is_corrected] = update.own();
            let (bias1, root2) = if is_corrected == 0.0 {
                (1.0, 1.0)
            } else {
                (update.bias_correction(beta1), update.bias_correction(beta2).sqrt())
            };
            Lamb {
                learning_rate: update.learning_rate,
                beta1,
                rest1: 1.0 - beta1,
                beta2,
                rest2: 1.0 - beta2,
                correction: root2 / bias1,
                epsilon: epsilon * root2,
                weight_decay: update.weight_decay,
                lower_bound,
                upper_bound,
                rescale: update.rescale,
                clip: update.clip,
            }
            .into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient and the mean squared gradient.
    Lamb<2> [Zero, Zero] {
        /// Step size. Once the norms are known, the step size of the key.
        learning_rate,
        /// Decay of the mean.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the variance.
        beta2,
        /// `1 - beta2`
        rest2,
        /// `sqrt(1 - beta2^t) / (1 - beta1^t)`
        correction,
        /// `epsilon * sqrt(1 - beta2^t)`
        epsilon,
        /// Weight decay.
        weight_decay,
        /// Lower limit of the weight norm; 0 for none.
        lower_bound,
        /// Upper limit of the weight norm; 0 for none.
        upper_bound,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Lamb<A> {
    /// Returns the direction of the step, and the new state.
    #[inline]
    fn direction(&self, weight: A, m: A, v: A, gradient: A) -> (A, A, A) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.beta1 * m + self.rest1 * q;
        let v = self.beta2 * v + self.rest2 * (q * q);
        (self.correction * m / (v.sqrt() + self.epsilon) + self.weight_decay * weight, m, v)
    }
}

impl LayerFormula<2> for Lamb {
    #[inline]
    fn measure<A: Real>(step: &Lamb<A>, weight: A, [m, v]: [A; 2], gradient: A) -> [A; 2] {
        let (u, _, _) = step.direction(weight, m, v, gradient);
        [weight, u]
    }

    fn with_norms(self, [weight, direction]: [f64; 2]) -> Self {
        // Comparisons keep a NaN; `max` and `min` would hide a broken weight behind a bound.
        let mut weight = if weight < self.lower_bound { self.lower_bound } else { weight };
        if self.upper_bound > 0.0 && weight > self.upper_bound {
            weight = self.upper_bound;
        }
        let is_zero = weight == 0.0 || direction == 0.0;
        let ratio = if is_zero { 1.0 } else { weight / direction };
        Self { learning_rate: self.learning_rate * ratio, ..self }
    }
}

impl<A: Real> Step<A, 2> for Lamb<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, v]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let (u, m, v) = self.direction(weight, m, v, gradient);
        (weight - self.learning_rate * u, [m, v])
    }
}

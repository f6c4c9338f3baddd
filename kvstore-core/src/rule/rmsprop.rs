//! `RMSProp`, plain or centered.

use super::parameter::{DECOUPLED_WD, Definition, Domain, Factory, PYTORCH_EPSILON, Parameter};
use super::step::{Real, Step, scalars};

/// `RMSProp`: divides the gradient by the root of the mean squared gradient, plain or centered.
///
/// With `q = clip(rescale * gradient + wd * w)` and `n = gamma1 * n + (1 - gamma1) * q^2`:
/// - plain: `w = w - lr * q / sqrt(n + epsilon)`
/// - centered: `G = gamma1 * G + (1 - gamma1) * q`,
///   `d = gamma2 * d - lr * q / sqrt(n - G^2 + epsilon)`, `w = w + d`; a negative `n - G^2` counts
///   as 0
///
/// With `decoupled_wd`, `wd * w` is added to the quotient, and not part of `q`. With `clip_weights`
/// above 0, the new weight is clipped. With `pytorch_epsilon`, epsilon is added to the root, not
/// under it.
///
/// Source: Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5, 2012; Graves,
/// "Generating sequences with recurrent neural networks", 2013, equations 38 to 45.
pub(super) const fn rmsprop<R: From<RmsProp> + From<RmsPropCentered>>() -> Definition<R> {
    Definition {
        name: "rmsprop",
        class: "RMSProp",
        factory: Factory {
            name: "rmsProp",
            defaults: &[
                ("learning_rate", 0.002),
                ("gamma1", 0.95),
                ("centered", 1.0),
                ("epsilon", 1e-4),
                ("decoupled_wd", 1.0),
            ],
        },
        learning_rate: 0.001,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::new(
                    "gamma1",
                    0.9,
                    Domain::Fraction,
                    "Decay of the mean gradient and the mean squared gradient",
                ),
                Parameter::new(
                    "gamma2",
                    0.9,
                    Domain::Any,
                    "Fraction of the last step that is added, if `centered`",
                ),
                Parameter::epsilon(1e-8),
                Parameter::new(
                    "centered",
                    0.0,
                    Domain::Flag,
                    "Whether the mean gradient is subtracted, as by Graves",
                ),
                Parameter::new(
                    "clip_weights",
                    0.0,
                    Domain::NonNegative,
                    "Bound on each element of the new weight; 0 for none",
                ),
                DECOUPLED_WD,
                PYTORCH_EPSILON,
            ]
        },
        rule: |update| {
            let [gamma1, gamma2, epsilon, centered, clip_weights, decoupled, pytorch_epsilon] =
                update.own();
            let (epsilon_under, epsilon_beside) =
                if pytorch_epsilon == 0.0 { (epsilon, 0.0) } else { (0.0, epsilon) };
            let (rest, learning_rate) = (1.0 - gamma1, update.learning_rate);
            let (rescale, clip) = (update.rescale, update.clip);
            let clip_weights = if clip_weights == 0.0 { f64::INFINITY } else { clip_weights };
            let (weight_decay, decay) = if decoupled == 0.0 {
                (update.weight_decay, 0.0)
            } else {
                (0.0, update.weight_decay)
            };
            if centered == 0.0 {
                RmsProp {
                    gamma1,
                    rest,
                    learning_rate,
                    epsilon_under,
                    epsilon_beside,
                    weight_decay,
                    decay,
                    rescale,
                    clip,
                    clip_weights,
                }
                .into()
            } else {
                RmsPropCentered {
                    gamma1,
                    rest,
                    gamma2,
                    learning_rate,
                    epsilon_under,
                    epsilon_beside,
                    weight_decay,
                    decay,
                    rescale,
                    clip,
                    clip_weights,
                }
                .into()
            }
        },
    }
}

scalars! {
    /// The scalars of the plain step; the state is the mean squared gradient.
    RmsProp<1> [Zero] {
        /// Decay of the mean.
        gamma1,
        /// `1 - gamma1`
        rest,
        /// Step size.
        learning_rate,
        /// Epsilon, if it is added under the root.
        epsilon_under,
        /// Epsilon, if it is added to the root.
        epsilon_beside,
        /// Weight decay that is added to the gradient.
        weight_decay,
        /// Decoupled weight decay.
        decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
        /// Bound on the weight.
        clip_weights,
    }
}

scalars! {
    /// The scalars of the centered step; the state is the mean squared gradient, the mean gradient
    /// and the last step.
    RmsPropCentered<3> [Zero, Zero, Zero] {
        /// Decay of the means.
        gamma1,
        /// `1 - gamma1`
        rest,
        /// The fraction of the last step that is added.
        gamma2,
        /// Step size.
        learning_rate,
        /// Epsilon, if it is added under the root.
        epsilon_under,
        /// Epsilon, if it is added to the root.
        epsilon_beside,
        /// Weight decay that is added to the gradient.
        weight_decay,
        /// Decoupled weight decay.
        decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
        /// Bound on the weight.
        clip_weights,
    }
}

impl<A: Real> Step<A, 1> for RmsProp<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [n]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let n = self.gamma1 * n + self.rest * (q * q);
        let root = (n + self.epsilon_under).sqrt() + self.epsilon_beside;
        let slope = q / root + self.decay * weight;
        ((weight - self.learning_rate * slope).clip(self.clip_weights), [n])
    }
}

impl<A: Real> Step<A, 3> for RmsPropCentered<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [n, mean, d]: [A; 3], gradient: A) -> (A, [A; 3]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let n = self.gamma1 * n + self.rest * (q * q);
        let mean = self.gamma1 * mean + self.rest * q;
        let variance = n - mean * mean;
        let variance = if variance < A::ZERO { A::ZERO } else { variance };
        let root = (variance + self.epsilon_under).sqrt() + self.epsilon_beside;
        let slope = q / root + self.decay * weight;
        let d = self.gamma2 * d - self.learning_rate * slope;
        ((weight + d).clip(self.clip_weights), [n, mean, d])
    }
}

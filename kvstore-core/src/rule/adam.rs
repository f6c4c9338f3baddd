//! Adam and `AdamW`.

use super::parameter::{
    DECOUPLED_WD, Definition, Domain, Factory, KeyUpdate, LAZY_UPDATE, PYTORCH_EPSILON, Parameter,
};
use super::step::{Real, Step, scalars};

/// Adam: divides the mean gradient by the root of the mean squared gradient.
///
/// With `q = clip(rescale * gradient + wd * w)`, update number `t` and
/// `b1 = beta1 * decay_factor^(t - 1)`:
/// - `m = b1 * m + (1 - b1) * q`
/// - `v = beta2 * v + (1 - beta2) * q^2`
/// - `w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`
///
/// With `decoupled_wd`, the step subtracts `lr * wd * w`, and `q` does not contain `wd * w`. With
/// `pytorch_epsilon`, the step is `lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon)`.
///
/// Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, the efficient order
/// of section 2.
pub(super) const fn adam<R: From<Adam>>() -> Definition<R> {
    Definition {
        name: "adam",
        class: "Adam",
        factory: Factory {
            name: "adam",
            defaults: &[
                ("learning_rate", 0.002),
                ("decay_factor", 1.0 - 1e-8),
                ("decoupled_wd", 1.0),
            ],
        },
        learning_rate: 0.001,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::beta1(0.9),
                Parameter::beta2(0.999),
                Parameter::epsilon(1e-8),
                Parameter::new(
                    "decay_factor",
                    1.0,
                    Domain::NonNegative,
                    "Factor on `beta1` after each update",
                ),
                DECOUPLED_WD,
                PYTORCH_EPSILON,
                LAZY_UPDATE,
            ]
        },
        rule: |update| {
            let [beta1, beta2, epsilon, decay_factor, decoupled, pytorch_epsilon, _] = update.own();
            let beta1_now = beta1 * update.power(decay_factor, -1);
            let epsilon = if pytorch_epsilon == 0.0 {
                epsilon
            } else {
                epsilon * update.bias_correction(beta2).sqrt()
            };
            scalars_of(update, beta1, beta1_now, beta2, epsilon, decoupled != 0.0).into()
        },
    }
}

/// `AdamW`: Adam with decoupled weight decay.
///
/// With `q = clip(rescale * gradient)` and update number `t`:
/// - `m = beta1 * m + (1 - beta1) * q`
/// - `v = beta2 * v + (1 - beta2) * q^2`
/// - `w = w - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr * wd * w`
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
pub(super) const fn adamw<R: From<Adam>>() -> Definition<R> {
    Definition {
        name: "adamw",
        class: "AdamW",
        factory: Factory { name: "adamw", defaults: &[] },
        learning_rate: 0.001,
        weight_decay: 0.01,
        own: const { &[Parameter::beta1(0.9), Parameter::beta2(0.999), Parameter::epsilon(1e-8)] },
        rule: |update| {
            let [beta1, beta2, epsilon] = update.own();
            let epsilon = epsilon * update.bias_correction(beta2).sqrt();
            scalars_of(update, beta1, beta1, beta2, epsilon, true).into()
        },
    }
}

fn scalars_of(
    update: &KeyUpdate<'_>,
    beta1: f64,
    beta1_now: f64,
    beta2: f64,
    epsilon: f64,
    decoupled: bool,
) -> Adam {
    let learning_rate = update.learning_rate * update.bias_correction(beta2).sqrt();
    let (coupled, decay) = if decoupled {
        (0.0, update.learning_rate * update.weight_decay)
    } else {
        (update.weight_decay, 0.0)
    };
    Adam {
        learning_rate: learning_rate / update.bias_correction(beta1),
        beta1: beta1_now,
        rest1: 1.0 - beta1_now,
        beta2,
        rest2: 1.0 - beta2,
        epsilon,
        weight_decay: coupled,
        decay,
        rescale: update.rescale,
        clip: update.clip,
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient and the mean squared gradient.
    Adam<2> [Zero, Zero] {
        /// Step size, multiplied by the bias corrections.
        learning_rate,
        /// Decay of the mean.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the variance.
        beta2,
        /// `1 - beta2`
        rest2,
        /// Added to the divisor to avoid division by 0.
        epsilon,
        /// Weight decay that is added to the gradient.
        weight_decay,
        /// Decoupled weight decay: the fraction of the weight that a step subtracts.
        decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 2> for Adam<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, v]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let m = self.beta1 * m + self.rest1 * q;
        let v = self.beta2 * v + self.rest2 * (q * q);
        let step = self.learning_rate * m / (v.sqrt() + self.epsilon);
        (weight - step - self.decay * weight, [m, v])
    }
}

//! Lion: steps of one size, in the direction of the sign of a mean gradient.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// Lion: steps of one size, in the direction of the sign of a mean gradient.
///
/// With `q = clip(rescale * gradient)`:
/// - `c = beta1 * m + (1 - beta1) * q`
/// - `w = w - lr * (sign(c) + wd * w)`
/// - `m = beta2 * m + (1 - beta2) * q`
///
/// The state is half of Adam's. The authors recommend a third to a tenth of the learning rate of
/// `AdamW`, and a weight decay that is larger by the same factor.
///
/// Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.
pub(super) const fn lion<R: From<Lion>>() -> Definition<R> {
    Definition {
        name: "lion",
        class: "Lion",
        factory: Factory { name: "lion", defaults: &[] },
        learning_rate: 1e-4,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::new(
                    "beta1",
                    0.9,
                    Domain::Fraction,
                    "Weight of the mean gradient in the direction of a step",
                ),
                Parameter::new("beta2", 0.99, Domain::Fraction, "Decay of the mean gradient"),
            ]
        },
        rule: |update| {
            let [beta1, beta2] = update.own();
            Lion {
                learning_rate: update.learning_rate,
                beta1,
                rest1: 1.0 - beta1,
                beta2,
                rest2: 1.0 - beta2,
                keep: 1.0 - update.learning_rate * update.weight_decay,
                rescale: update.rescale,
                clip: update.clip,
            }
            .into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient.
    Lion<1> [Zero] {
        /// Step size.
        learning_rate,
        /// Weight of the mean gradient in the direction of a step.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the mean.
        beta2,
        /// `1 - beta2`
        rest2,
        /// `1 - lr * wd`
        keep,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 1> for Lion<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let direction = (self.beta1 * m + self.rest1 * q).sign();
        let m = self.beta2 * m + self.rest2 * q;
        (self.keep * weight - self.learning_rate * direction, [m])
    }
}

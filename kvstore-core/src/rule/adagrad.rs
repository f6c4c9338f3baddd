//! `AdaGrad`: divides the gradient by the root of the sum of all squared gradients.

use super::parameter::{Definition, Factory, LAZY_UPDATE, Parameter};
use super::step::{Real, Step, scalars};

/// `AdaGrad`: divides the gradient by the root of the sum of all squared gradients.
///
/// With `q = clip(rescale * gradient)`:
/// - `h = h + q^2`
/// - `w = w - lr * (q / sqrt(h + epsilon) + wd * w)`
///
/// Source: Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and
/// stochastic optimization", 2011.
pub(super) const fn adagrad<R: From<AdaGrad>>() -> Definition<R> {
    Definition {
        name: "adagrad",
        class: "AdaGrad",
        factory: Factory { name: "adaGrad", defaults: &[("learning_rate", 0.05)] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::epsilon(1e-7), LAZY_UPDATE] },
        rule: |update| {
            let [epsilon, _] = update.own();
            let (learning_rate, weight_decay) = (update.learning_rate, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            AdaGrad { learning_rate, weight_decay, epsilon, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the sum of the squared gradients.
    AdaGrad<1> [Zero] {
        /// Step size.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Added to the divisor to avoid division by 0.
        epsilon,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 1> for AdaGrad<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [history]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let history = history + q * q;
        let slope = q / (history + self.epsilon).sqrt() + self.weight_decay * weight;
        (weight - self.learning_rate * slope, [history])
    }
}

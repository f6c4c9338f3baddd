//! `AdaDelta`: scales steps by the size of earlier steps.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// `AdaDelta`: scales steps by the size of earlier steps, and ignores the learning rate.
///
/// With `q = clip(rescale * gradient)`:
/// - `a = rho * a + (1 - rho) * q^2`
/// - `d = sqrt(D + epsilon) / sqrt(a + epsilon) * q`
/// - `D = rho * D + (1 - rho) * d^2`
/// - `w = w - (d + wd * w)`
///
/// Source: Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
pub(super) const fn adadelta<R: From<AdaDelta>>() -> Definition<R> {
    Definition {
        name: "adadelta",
        class: "AdaDelta",
        factory: Factory { name: "adaDelta", defaults: &[("rho", 0.05), ("epsilon", 1e-8)] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::new(
                    "rho",
                    0.9,
                    Domain::Fraction,
                    "Decay of the mean squared gradient and the mean squared step",
                ),
                Parameter::epsilon(1e-5),
            ]
        },
        rule: |update| {
            let [rho, epsilon] = update.own();
            let (weight_decay, rescale, clip) = (update.weight_decay, update.rescale, update.clip);
            AdaDelta { rho, rest: 1.0 - rho, epsilon, weight_decay, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean squared gradient and the mean squared step.
    AdaDelta<2> [Zero, Zero] {
        /// Decay of both means.
        rho,
        /// `1 - rho`
        rest,
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

impl<A: Real> Step<A, 2> for AdaDelta<A> {
    #[inline]
    fn apply(
        &self,
        _index: u64,
        weight: A,
        [gradients, steps]: [A; 2],
        gradient: A,
    ) -> (A, [A; 2]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let gradients = self.rho * gradients + self.rest * (q * q);
        let step = (steps + self.epsilon).sqrt() / (gradients + self.epsilon).sqrt() * q;
        let steps = self.rho * steps + self.rest * (step * step);
        (weight - (step + self.weight_decay * weight), [gradients, steps])
    }
}

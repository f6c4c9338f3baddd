//! Adamax: Adam with the infinity norm instead of the variance.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// Adamax: Adam with the infinity norm instead of the variance.
///
/// With `q = clip(rescale * gradient + wd * w)` and update number `t`:
/// - `m = beta1 * m + (1 - beta1) * q`
/// - `u = max(beta2 * u, |q|)`
/// - `w = w - lr / (1 - beta1^t) * m / u`; the weight stays if `u` is 0
///
/// Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.
pub(super) const fn adamax<R: From<Adamax>>() -> Definition<R> {
    Definition {
        name: "adamax",
        class: "Adamax",
        factory: Factory { name: "adaMax", defaults: &[] },
        learning_rate: 0.002,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::beta1(0.9),
                Parameter::new("beta2", 0.999, Domain::Fraction, "Decay of the largest gradient"),
            ]
        },
        rule: |update| {
            let [beta1, beta2] = update.own();
            let learning_rate = update.learning_rate / update.bias_correction(beta1);
            let (rest1, weight_decay) = (1.0 - beta1, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            Adamax { learning_rate, beta1, rest1, beta2, weight_decay, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of a step; the state is the mean gradient and the largest absolute gradient.
    Adamax<2> [Zero, Zero] {
        /// Step size, multiplied by the bias correction.
        learning_rate,
        /// Decay of the mean.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the largest absolute gradient.
        beta2,
        /// Weight decay.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 2> for Adamax<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, u]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let m = self.beta1 * m + self.rest1 * q;
        let (faded, size) = (self.beta2 * u, q.abs());
        // Unlike `max`, this keeps a NaN of the gradient. A NaN of an earlier one is still in `m`.
        let u = if faded > size { faded } else { size };
        let step = if u == A::ZERO { A::ZERO } else { self.learning_rate * m / u };
        (weight - step, [m, u])
    }
}

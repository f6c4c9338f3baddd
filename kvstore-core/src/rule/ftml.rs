//! FTML: follows the moving leader.

use super::parameter::{Definition, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// FTML: follows the moving leader.
///
/// With `q = clip(rescale * gradient + wd * w)` and update number `t`:
/// - `v = beta2 * v + (1 - beta2) * q^2`
/// - `D = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon)`
/// - `z = beta1 * z + (1 - beta1) * q - (D - beta1 * d) * w`
/// - `d = D`, `w = -z / d`
///
/// With learning rate 0, an update changes neither weight nor state, and `t` does not count it.
///
/// Source: Zheng and Kwok, "Follow the moving leader in deep learning", 2017.
pub(super) const fn ftml<R: From<Ftml>>() -> Definition<R> {
    Definition {
        name: "ftml",
        class: "FTML",
        factory: Factory { name: "ftml", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::beta1(0.6), Parameter::beta2(0.999), Parameter::epsilon(1e-8)] },
        rule: |update| {
            let [beta1, beta2, epsilon] = update.own();
            let learning_rate = update.divisor();
            update.subtract_skipped(learning_rate == 0.0);
            Ftml {
                strength: update.bias_correction(beta1) / learning_rate,
                correction: update.bias_correction(beta2),
                beta1,
                rest1: 1.0 - beta1,
                beta2,
                rest2: 1.0 - beta2,
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
    /// The scalars of a step; the state is `d`, `v` and `z`.
    Ftml<3> [Zero, Zero, Zero] {
        /// `(1 - beta1^t) / lr`; infinite if the update is skipped.
        strength,
        /// `1 - beta2^t`
        correction,
        /// Decay of `z`.
        beta1,
        /// `1 - beta1`
        rest1,
        /// Decay of the variance.
        beta2,
        /// `1 - beta2`
        rest2,
        /// Keeps `d` away from 0.
        epsilon,
        /// Weight decay.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 3> for Ftml<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [d, v, z]: [A; 3], gradient: A) -> (A, [A; 3]) {
        let q = (self.rescale * gradient + self.weight_decay * weight).clip(self.clip);
        let v = self.beta2 * v + self.rest2 * (q * q);
        let next = self.strength * ((v / self.correction).sqrt() + self.epsilon);
        let sigma = next - self.beta1 * d;
        let z = self.beta1 * z + self.rest1 * q - sigma * weight;
        (-z / next, [next, v, z])
    }
}

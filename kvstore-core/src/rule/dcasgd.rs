//! Gradient descent with delay compensation.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// Gradient descent with delay compensation: corrects gradients that belong to an older weight.
///
/// With `q = clip(rescale * gradient)`, the weight `p` before the previous step, and
/// `u = -lr * (q + wd * w + lamda * q * q * (w - p))`:
/// - without momentum: `w = w + u`
/// - with momentum: `m = momentum * m + u`, `w = w + m`
///
/// Source: Zheng and others, "Asynchronous stochastic gradient descent with delay compensation",
/// 2017.
pub(super) const fn dcasgd<R: From<Dcasgd> + From<DcasgdMomentum>>() -> Definition<R> {
    Definition {
        name: "dcasgd",
        class: "DCASGD",
        factory: Factory { name: "dcasgd", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::momentum(0.0),
                Parameter::new("lamda", 0.04, Domain::Any, "Strength of the compensation"),
            ]
        },
        rule: |update| {
            let [momentum, lamda] = update.own();
            let (learning_rate, weight_decay) = (update.learning_rate, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            if momentum == 0.0 {
                Dcasgd { learning_rate, weight_decay, lamda, rescale, clip }.into()
            } else {
                DcasgdMomentum { momentum, learning_rate, weight_decay, lamda, rescale, clip }
                    .into()
            }
        },
    }
}

scalars! {
    /// The scalars of a step without momentum; the state is the weight before the previous
    /// step.
    Dcasgd<1> [Weight] {
        /// Step size.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Strength of the compensation.
        lamda,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of a step with momentum; the state is the momentum and the weight before the
    /// previous step.
    DcasgdMomentum<2> [Zero, Weight] {
        /// The fraction of the last step that is added.
        momentum,
        /// Step size.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Strength of the compensation.
        lamda,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 1> for Dcasgd<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [previous]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let slope = q + self.weight_decay * weight + self.lamda * q * q * (weight - previous);
        (weight - self.learning_rate * slope, [weight])
    }
}

impl<A: Real> Step<A, 2> for DcasgdMomentum<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m, previous]: [A; 2], gradient: A) -> (A, [A; 2]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let slope = q + self.weight_decay * weight + self.lamda * q * q * (weight - previous);
        let m = self.momentum * m - self.learning_rate * slope;
        (weight + m, [m, weight])
    }
}

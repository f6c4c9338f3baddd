//! Nesterov's accelerated gradient, in two variants that define the momentum differently.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::sgd::Sgd;
use super::step::{Real, Step, scalars};

/// Nesterov's accelerated gradient, as the operator of `MXNet` computes it.
///
/// With `q = clip(rescale * gradient)` and the new weight `w'`:
/// - `m = momentum * m`
/// - `w' = w - m + (momentum + 1) * (m - lr * (q + wd * w))`
/// - `m = m - lr * (q + wd * w')`
///
/// Without momentum, it is the same as `sgd`.
///
/// Source: the operator `nag_mom_update` of Apache `MXNet` 1.9.
pub(super) const fn nag<R: From<Sgd> + From<Nag>>() -> Definition<R> {
    Definition {
        name: "nag",
        class: "NAG",
        factory: Factory { name: "nagOperator", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::momentum(0.0)] },
        rule: |update| {
            let [momentum] = update.own();
            if momentum == 0.0 {
                return Sgd::of(update).into();
            }
            let ahead = momentum + 1.0;
            let decay = update.learning_rate * update.weight_decay;
            let (learning_rate, rescale, clip) =
                (update.learning_rate, update.rescale, update.clip);
            Nag { momentum, ahead, learning_rate, decay, rescale, clip }.into()
        },
    }
}

/// Nesterov's accelerated gradient, as most libraries compute it.
///
/// With `q = clip(rescale * gradient)` and `r = q + wd * w`:
/// - `m = momentum * m + r`
/// - `w = w - lr * (r + momentum * m)`
///
/// Without momentum, it is the same as `sgd`.
///
/// Source: Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum
/// in deep learning", 2013.
pub(super) const fn nesterov<R: From<Sgd> + From<Nesterov>>() -> Definition<R> {
    Definition {
        name: "nesterov",
        class: "Nesterov",
        factory: Factory { name: "nag", defaults: &[("wd", 1e-4)] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const {
            &[Parameter::new(
                "momentum",
                0.0,
                Domain::Any,
                "Decay of the sum of gradients; 0 for no momentum",
            )]
        },
        rule: |update| {
            let [momentum] = update.own();
            if momentum == 0.0 {
                return Sgd::of(update).into();
            }
            let (learning_rate, weight_decay) = (update.learning_rate, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            Nesterov { momentum, learning_rate, weight_decay, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of `nag`; the state is the momentum.
    Nag<1> [Zero] {
        /// The fraction of the last step that is added.
        momentum,
        /// `momentum + 1`
        ahead,
        /// Step size.
        learning_rate,
        /// `lr * wd`
        decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of `nesterov`; the state is the momentum.
    Nesterov<1> [Zero] {
        /// Decay of the sum of gradients.
        momentum,
        /// Step size.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 1> for Nag<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.momentum * m;
        let change = self.learning_rate * q + self.decay * weight;
        let weight = weight - m + self.ahead * (m - change);
        let m = m - (self.learning_rate * q + self.decay * weight);
        (weight, [m])
    }
}

impl<A: Real> Step<A, 1> for Nesterov<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let r = q + self.weight_decay * weight;
        let m = self.momentum * m + r;
        (weight - self.learning_rate * (r + self.momentum * m), [m])
    }
}

//! Nesterov's accelerated gradient, in two forms that differ in what momentum keeps.
//!
//! With `q = clip(rescale * gradient)`; without momentum both are gradient descent:
//! - `nag`, as the operator `nag_mom_update` of Apache `MXNet` 1.9 computes it: `m = momentum * m`,
//!   then `w' = w - m + (momentum + 1) * (m - lr * (q + wd * w))` and
//!   `m = m - lr * (q + wd * w')`, with the new weight in the last term;
//! - `nesterov`: `m = momentum * m + r` and `w = w - lr * (r + momentum * m)` with
//!   `r = q + wd * w` (Sutskever, Martens, Dahl and Hinton, "On the importance of initialization
//!   and momentum in deep learning", 2013, as most libraries write it).

use super::parameter::{Definition, Domain, Parameter};
use super::sgd::Sgd;
use super::step::{Real, Step, scalars};

/// Returns the definition of `nag`.
pub(super) const fn nag<R: From<Sgd> + From<Nag>>() -> Definition<R> {
    Definition {
        name: "nag",
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::new("momentum", 0.0, Domain::Any)] },
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

/// Returns the definition of `nesterov`.
pub(super) const fn nesterov<R: From<Sgd> + From<Nesterov>>() -> Definition<R> {
    Definition {
        name: "nesterov",
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::new("momentum", 0.0, Domain::Any)] },
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
        /// The share of the last change that is repeated.
        momentum,
        /// `momentum + 1`
        ahead,
        /// Step size.
        learning_rate,
        /// `lr * wd`
        decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of `nesterov`; the state is the momentum.
    Nesterov<1> [Zero] {
        /// The share of the last gradients that is kept.
        momentum,
        /// Step size.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on the rescaled gradient.
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

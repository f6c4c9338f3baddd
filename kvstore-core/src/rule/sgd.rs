//! Stochastic gradient descent, with or without momentum.

use super::parameter::{Definition, Factory, KeyUpdate, LAZY_UPDATE, Parameter};
use super::step::{Real, Step, scalars};

/// Stochastic gradient descent, with or without momentum.
///
/// With `q = clip(rescale * gradient)`:
/// - without momentum: `w = (1 - lr * wd) * w - lr * q`
/// - with momentum: `m = momentum * m - lr * wd * w - lr * q`, `w = w + m`
///
/// Source: the operators `sgd_update` and `sgd_mom_update` of Apache `MXNet` 1.9.
pub(super) const fn sgd<R: From<Sgd> + From<SgdMomentum>>() -> Definition<R> {
    Definition {
        name: "sgd",
        class: "SGD",
        factory: Factory { name: "sgd", defaults: &[("wd", 1e-4)] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::momentum(0.0), LAZY_UPDATE] },
        rule: |update| {
            let [momentum, _] = update.own();
            if momentum == 0.0 {
                Sgd::of(update).into()
            } else {
                SgdMomentum::of(update, momentum).into()
            }
        },
    }
}

scalars! {
    /// The scalars of a step without momentum.
    Sgd<0> [] {
        /// `1 - lr * wd`
        keep,
        /// Step size.
        learning_rate,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of a step with momentum; the state is the momentum.
    SgdMomentum<1> [Zero] {
        /// The fraction of the last step that is added.
        momentum,
        /// `lr * wd`
        decay,
        /// Step size.
        learning_rate,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl Sgd {
    pub(super) fn of(update: &KeyUpdate<'_>) -> Self {
        Self {
            keep: 1.0 - update.learning_rate * update.weight_decay,
            learning_rate: update.learning_rate,
            rescale: update.rescale,
            clip: update.clip,
        }
    }
}

impl SgdMomentum {
    pub(super) fn of(update: &KeyUpdate<'_>, momentum: f64) -> Self {
        Self {
            momentum,
            decay: update.learning_rate * update.weight_decay,
            learning_rate: update.learning_rate,
            rescale: update.rescale,
            clip: update.clip,
        }
    }
}

impl<A: Real> Step<A, 0> for Sgd<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, _state: [A; 0], gradient: A) -> (A, [A; 0]) {
        let q = (self.rescale * gradient).clip(self.clip);
        (self.keep * weight - self.learning_rate * q, [])
    }
}

impl<A: Real> Step<A, 1> for SgdMomentum<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.momentum * m - self.decay * weight - self.learning_rate * q;
        (weight + m, [m])
    }
}

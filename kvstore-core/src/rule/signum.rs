//! Signum: steps of one size, in the direction of the sign of the momentum.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Real, Step, scalars};

/// Signum: steps of one size, in the direction of the sign of the momentum.
///
/// With `q = clip(rescale * gradient)`:
/// - with momentum: `m = momentum * m - (1 - momentum) * (q + wd * w)`,
///   `w = (1 - lr * wd_lh) * w + lr * sign(m)`
/// - without momentum: `w = (1 - lr * (wd + wd_lh)) * w - lr * sign(q)`
///
/// Source: Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation for
/// non-convex problems", 2018.
pub(super) const fn signum<R: From<SignSgd> + From<Signum>>() -> Definition<R> {
    Definition {
        name: "signum",
        class: "Signum",
        factory: Factory { name: "signum", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::new(
                    "momentum",
                    0.9,
                    Domain::Any,
                    "Decay of the momentum; if 0, the step uses the sign of the gradient",
                ),
                Parameter::new("wd_lh", 0.0, Domain::NonNegative, "Decoupled weight decay"),
            ]
        },
        rule: |update| {
            let [momentum, wd_lh] = update.own();
            let (learning_rate, weight_decay) = (update.learning_rate, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            if momentum == 0.0 {
                let keep = 1.0 - learning_rate * (weight_decay + wd_lh);
                return SignSgd { keep, learning_rate, rescale, clip }.into();
            }
            let (rest, keep) = (1.0 - momentum, 1.0 - learning_rate * wd_lh);
            Signum { momentum, rest, keep, learning_rate, weight_decay, rescale, clip }.into()
        },
    }
}

scalars! {
    /// The scalars of a step with momentum, which is the state.
    Signum<1> [Zero] {
        /// Decay of the momentum.
        momentum,
        /// `1 - momentum`
        rest,
        /// `1 - lr * wd_lh`
        keep,
        /// Step size.
        learning_rate,
        /// Weight decay that is added to the gradient.
        weight_decay,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of a step without momentum.
    SignSgd<0> [] {
        /// `1 - lr * (wd + wd_lh)`
        keep,
        /// Step size.
        learning_rate,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

impl<A: Real> Step<A, 1> for Signum<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.momentum * m - self.rest * (q + self.weight_decay * weight);
        (self.keep * weight + self.learning_rate * m.sign(), [m])
    }
}

impl<A: Real> Step<A, 0> for SignSgd<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, _state: [A; 0], gradient: A) -> (A, [A; 0]) {
        let q = (self.rescale * gradient).clip(self.clip);
        (self.keep * weight - self.learning_rate * q.sign(), [])
    }
}

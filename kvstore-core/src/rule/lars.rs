//! LARS: gradient descent that scales the learning rate of each key by two norms.

use super::layerwise::LayerFormula;
use super::parameter::{Definition, Domain, Factory, KeyUpdate, Parameter};
use super::sgd::{Sgd, SgdMomentum};
use super::step::{Real, Step, scalars};

/// LARS: gradient descent that scales the learning rate of each key by the norms of weight and
/// gradient.
///
/// With `q = clip(rescale * gradient)` and Euclidean norms over all elements of a key:
/// - `rate = lr * eta * |w| / (|rescale * gradient| + wd * |w| + epsilon)`, or `lr` if a norm is 0
/// - `m = momentum * m - rate * wd * w - rate * q`
/// - `w = w + m`
///
/// Keys that end in `gamma`, `beta` or `bias` use `rate = lr`. With `momentum_correction`,
/// `momentum` is multiplied by `lr` and divided by the `lr` of the key's last update.
///
/// Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017, with
/// the options of `MXNet` 1.9; the correction is from Goyal et al., "Accurate, large minibatch
/// SGD", 2017.
pub(super) const fn lars<R: From<Lars> + From<LarsMomentum> + From<Sgd> + From<SgdMomentum>>()
-> Definition<R> {
    Definition {
        name: "lars",
        class: "LARS",
        factory: Factory { name: "lars", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const {
            &[
                Parameter::momentum(0.0),
                Parameter::new(
                    "eta",
                    0.001,
                    Domain::NonNegative,
                    "Trust coefficient: norm of a step over norm of the weight, at learning rate 1",
                ),
                Parameter::epsilon(0.0),
                Parameter::new(
                    "momentum_correction",
                    1.0,
                    Domain::Flag,
                    "Whether a change of the learning rate also scales the momentum",
                ),
            ]
        },
        rule: |update| {
            let [momentum, eta, epsilon, has_correction] = update.own();
            // The option selects the formula, because a corrected momentum may be 0 for one update.
            let has_momentum = momentum != 0.0;
            let momentum = momentum * correction(update, has_correction != 0.0);
            let is_exempt =
                ["gamma", "beta", "bias"].iter().any(|end| update.key.as_str().ends_with(end));
            let (learning_rate, weight_decay) = (update.learning_rate, update.weight_decay);
            let (rescale, clip) = (update.rescale, update.clip);
            match (has_momentum, is_exempt) {
                (false, true) => Sgd::of(update).into(),
                (true, true) => SgdMomentum::of(update, momentum).into(),
                (false, false) => {
                    Lars { learning_rate, weight_decay, eta, epsilon, rescale, clip }.into()
                }
                (true, false) => LarsMomentum {
                    momentum,
                    learning_rate,
                    weight_decay,
                    eta,
                    epsilon,
                    rescale,
                    clip,
                }
                .into(),
            }
        },
    }
}

/// Returns the learning rate divided by the learning rate of the key's last update, and stores it
/// for the next update. Returns 1 if the last learning rate was 0, or if there has been no update.
fn correction(update: &mut KeyUpdate<'_>, is_on: bool) -> f64 {
    // The stored number is 1 before the first update, then the negated learning rate.
    let last = -*update.momentum_product;
    *update.momentum_product = -update.learning_rate;
    if is_on && last > 0.0 { update.learning_rate / last } else { 1.0 }
}

scalars! {
    /// The scalars of a step without momentum.
    Lars<0> [] {
        /// Step size. Once the norms are known, the step size of the key.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Norm of a step divided by the norm of the weight, at learning rate 1.
        eta,
        /// Added to the divisor of the norms.
        epsilon,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

scalars! {
    /// The scalars of a step with momentum; the state is the momentum.
    LarsMomentum<1> [Zero] {
        /// The fraction of the last step that is added.
        momentum,
        /// Step size. Once the norms are known, the step size of the key.
        learning_rate,
        /// Weight decay.
        weight_decay,
        /// Norm of a step divided by the norm of the weight, at learning rate 1.
        eta,
        /// Added to the divisor of the norms.
        epsilon,
        /// Factor on the gradient.
        rescale,
        /// Bound on each element of the rescaled gradient.
        clip,
    }
}

/// Returns the factor on the learning rate of the optimizer.
fn ratio([weight, gradient]: [f64; 2], eta: f64, weight_decay: f64, epsilon: f64) -> f64 {
    if weight > 0.0 && gradient > 0.0 {
        eta * weight / (gradient + weight_decay * weight + epsilon)
    } else {
        1.0
    }
}

impl LayerFormula<0> for Lars {
    #[inline]
    fn measure<A: Real>(step: &Lars<A>, weight: A, _state: [A; 0], gradient: A) -> [A; 2] {
        [weight, step.rescale * gradient]
    }

    fn with_norms(self, norms: [f64; 2]) -> Self {
        let ratio = ratio(norms, self.eta, self.weight_decay, self.epsilon);
        Self { learning_rate: self.learning_rate * ratio, ..self }
    }
}

impl LayerFormula<1> for LarsMomentum {
    #[inline]
    fn measure<A: Real>(step: &LarsMomentum<A>, weight: A, _state: [A; 1], gradient: A) -> [A; 2] {
        [weight, step.rescale * gradient]
    }

    fn with_norms(self, norms: [f64; 2]) -> Self {
        let ratio = ratio(norms, self.eta, self.weight_decay, self.epsilon);
        Self { learning_rate: self.learning_rate * ratio, ..self }
    }
}

impl<A: Real> Step<A, 0> for Lars<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, _state: [A; 0], gradient: A) -> (A, [A; 0]) {
        let q = (self.rescale * gradient).clip(self.clip);
        (weight - self.learning_rate * (q + self.weight_decay * weight), [])
    }
}

impl<A: Real> Step<A, 1> for LarsMomentum<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [m]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let m = self.momentum * m - self.learning_rate * (q + self.weight_decay * weight);
        (weight + m, [m])
    }
}

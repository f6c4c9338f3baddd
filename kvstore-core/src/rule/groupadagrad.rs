//! `GroupAdaGrad`: `AdaGrad` with one learning rate for each row of the weight.

use super::parameter::{Definition, Factory, LAZY_UPDATE, Parameter};
use super::rowwise::RowFormula;
use super::step::{Real, Step, scalars};

/// `GroupAdaGrad`: `AdaGrad` with one learning rate for each row of the weight.
///
/// With `q = clip(rescale * gradient)`, for each row along the first axis:
/// - `h = h + mean(q^2)`, with the mean over the row
/// - `w = w - lr * (q / sqrt(h + epsilon) + wd * w)`
///
/// Source: the operator `group_adagrad_update` of Apache `MXNet` 1.9, which has no weight decay,
/// after Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
/// optimization", 2011.
pub(super) const fn groupadagrad<R: From<GroupAdaGrad>>() -> Definition<R> {
    Definition {
        name: "groupadagrad",
        class: "GroupAdaGrad",
        factory: Factory { name: "groupAdaGrad", defaults: &[] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::epsilon(1e-5), LAZY_UPDATE] },
        rule: |update| {
            let [epsilon, _] = update.own();
            GroupAdaGrad {
                learning_rate: update.learning_rate,
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
    /// The scalars of a step; the state is the sum of the mean squared gradients of each row.
    GroupAdaGrad<1> [RowZero] {
        /// Step size.
        learning_rate,
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

impl RowFormula<1> for GroupAdaGrad {
    #[inline]
    fn measure<A: Real>(step: &GroupAdaGrad<A>, gradient: A) -> A {
        (step.rescale * gradient).clip(step.clip)
    }

    #[inline]
    fn row_state<A: Real>(_step: &GroupAdaGrad<A>, [h]: [A; 1], mean: A) -> [A; 1] {
        [h + mean]
    }
}

impl<A: Real> Step<A, 1> for GroupAdaGrad<A> {
    #[inline]
    fn apply(&self, _index: u64, weight: A, [h]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let slope = q / (h + self.epsilon).sqrt() + self.weight_decay * weight;
        (weight - self.learning_rate * slope, [h])
    }
}

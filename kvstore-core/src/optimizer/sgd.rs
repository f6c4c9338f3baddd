//! Stochastic gradient descent, with and without momentum.
//!
//! With `q = clip(rescale * gradient)`:
//! - without momentum `w = (1 - lr * wd) * w - lr * q`;
//! - with momentum `m = momentum * m - lr * wd * w - lr * q` and `w = w + m`.
//!
//! The formulas are those of the operators `sgd_update` and `sgd_mom_update` of Apache `MXNet` 1.9.

use super::{Common, Real, Step, UpdateRule};
use crate::dtype::Scalar;

/// The scalars of a step without momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The hyper-parameters that apply to this update.
    pub common: Common,
}

/// The scalars of a step with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdMomentum {
    /// The hyper-parameters that apply to this update.
    pub common: Common,
    /// The share of the last change that is repeated.
    pub momentum: f64,
}

pub(super) fn rule(common: Common, momentum: f64) -> UpdateRule {
    if momentum == 0.0 {
        UpdateRule::Sgd(Sgd { common })
    } else {
        UpdateRule::SgdMomentum(SgdMomentum { common, momentum })
    }
}

impl Sgd {
    /// Returns the step in one arithmetic; each hyper-parameter is rounded once.
    pub fn step<A: Real>(&self) -> SgdStep<A> {
        let learning_rate: A = round(self.common.learning_rate);
        SgdStep {
            keep: A::from_f64(1.0) - learning_rate * round(self.common.weight_decay),
            learning_rate,
            rescale: round(self.common.rescale_grad),
            clip: round(self.common.clip_gradient),
        }
    }
}

impl SgdMomentum {
    /// Returns the step in one arithmetic; each hyper-parameter is rounded once.
    pub fn step<A: Real>(&self) -> SgdMomentumStep<A> {
        let learning_rate: A = round(self.common.learning_rate);
        SgdMomentumStep {
            momentum: round(self.momentum),
            decay: learning_rate * round(self.common.weight_decay),
            learning_rate,
            rescale: round(self.common.rescale_grad),
            clip: round(self.common.clip_gradient),
        }
    }
}

fn round<A: Real>(number: f64) -> A {
    Scalar::Float(number).to_element()
}

/// [`Sgd`] in the arithmetic `A`.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep<A> {
    keep: A,
    learning_rate: A,
    rescale: A,
    clip: A,
}

impl<A: Real> Step<A, 0> for SgdStep<A> {
    #[inline]
    fn apply(self, weight: A, _state: [A; 0], gradient: A) -> (A, [A; 0]) {
        let gradient = (self.rescale * gradient).clip(self.clip);
        (self.keep * weight - self.learning_rate * gradient, [])
    }
}

/// [`SgdMomentum`] in the arithmetic `A`.
#[derive(Clone, Copy, Debug)]
pub struct SgdMomentumStep<A> {
    momentum: A,
    decay: A,
    learning_rate: A,
    rescale: A,
    clip: A,
}

impl<A: Real> Step<A, 1> for SgdMomentumStep<A> {
    #[inline]
    fn apply(self, weight: A, [momentum]: [A; 1], gradient: A) -> (A, [A; 1]) {
        let gradient = (self.rescale * gradient).clip(self.clip);
        let momentum =
            self.momentum * momentum - self.decay * weight - self.learning_rate * gradient;
        (weight + momentum, [momentum])
    }
}

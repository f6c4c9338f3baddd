//! Stochastic gradient Langevin dynamics: gradient descent with noise.

use super::parameter::{Definition, Domain, Factory, Parameter};
use super::step::{Formula, Initial, MAX_SCALARS, Real, Step, padded};
use crate::noise::standard_normal;
use crate::types::Key;
use crate::types::key::stable_hash;

/// Stochastic gradient Langevin dynamics: gradient descent with noise, which samples the posterior
/// of the weights.
///
/// With `q = clip(rescale * gradient)` and standard normal noise `e`:
/// - `w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e`
///
/// The noise depends only on `seed`, the key, the number of the update and the index of the
/// element.
///
/// Source: Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011.
pub(super) const fn sgld<R: From<Sgld>>() -> Definition<R> {
    Definition {
        name: "sgld",
        class: "SGLD",
        factory: Factory { name: "sgld", defaults: &[("wd", 1e-4)] },
        learning_rate: 0.01,
        weight_decay: 0.0,
        own: const { &[Parameter::new("seed", 0.0, Domain::Count, "Seed of the noise")] },
        rule: |update| {
            let [seed] = update.own();
            Sgld {
                half_rate: update.learning_rate / 2.0,
                weight_decay: update.weight_decay,
                deviation: update.learning_rate.max(0.0).sqrt(),
                rescale: update.rescale,
                clip: update.clip,
                stream: stream(seed, update.key),
                count: update.count,
            }
            .into()
        },
    }
}

/// The scalars of a step; there is no state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgld<A = f64> {
    /// `lr / 2`
    pub half_rate: A,
    /// Weight decay.
    pub weight_decay: A,
    /// `sqrt(lr)`: the standard deviation of the noise.
    pub deviation: A,
    /// Factor on the gradient.
    pub rescale: A,
    /// Bound on each element of the rescaled gradient.
    pub clip: A,
    /// The key of the random number generator, from `seed` and the key of the store.
    pub stream: [u32; 2],
    /// The number of the update, part of the generator's counter.
    pub count: u64,
}

impl Formula<0> for Sgld {
    type RoundedStep<A: Real> = Sgld<A>;

    const INITIAL: [Initial; 0] = [];

    fn round<A: Real>(&self) -> Sgld<A> {
        Sgld {
            half_rate: A::from_f64(self.half_rate),
            weight_decay: A::from_f64(self.weight_decay),
            deviation: A::from_f64(self.deviation),
            rescale: A::from_f64(self.rescale),
            clip: A::from_f64(self.clip),
            stream: self.stream,
            count: self.count,
        }
    }

    fn scalars(&self) -> [f64; MAX_SCALARS] {
        let Self { half_rate, weight_decay, deviation, rescale, clip, .. } = *self;
        padded([half_rate, weight_decay, deviation, rescale, clip])
    }
}

impl<A: Real> Step<A, 0> for Sgld<A> {
    #[inline]
    fn apply(&self, index: u64, weight: A, _state: [A; 0], gradient: A) -> (A, [A; 0]) {
        let q = (self.rescale * gradient).clip(self.clip);
        let noise = A::from_f64(standard_normal(self.stream, self.count, index));
        let drift = self.half_rate * (q + self.weight_decay * weight);
        (weight - drift + self.deviation * noise, [])
    }
}

/// Returns the key of the generator: the hash of the store's key, offset by the seed.
#[allow(clippy::cast_possible_truncation, reason = "each half is used")]
#[allow(clippy::cast_sign_loss, reason = "the seed is a whole number of at least 0")]
fn stream(seed: f64, key: &Key) -> [u32; 2] {
    let mixed =
        stable_hash(key.as_str()).wrapping_add((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    [mixed as u32, (mixed >> 32) as u32]
}

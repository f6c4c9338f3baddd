//! Stochastic gradient Langevin dynamics: gradient descent with noise, so that the weights become
//! samples of the posterior.
//!
//! With `q = clip(rescale * gradient)`: `w = w - lr / 2 * (q + wd * w) + sqrt(lr) * e`, where `e` is
//! standard normal. The noise is a function of the hyper-parameter `seed`, the key, the number of
//! the update and the element's index, so it does not depend on threads or on other keys.
//!
//! Welling and Teh, "Bayesian learning via stochastic gradient Langevin dynamics", 2011. The random
//! bits are those of Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
//! easy as 1, 2, 3", 2011), made normal by the method of Box and Muller (1958).

use std::f64::consts::TAU;

use super::parameter::{Definition, Domain, Parameter};
use super::rule::{Initial, Real, Rule, Step, UpdateRule};
use crate::key::Key;

pub(super) const SGLD: Definition = Definition {
    name: "sgld",
    learning_rate: 0.01,
    weight_decay: 0.0,
    own: &[Parameter::new("seed", 0.0, Domain::Count)],
    rule: |due| {
        let [seed] = due.own();
        Sgld {
            half_rate: due.learning_rate / 2.0,
            weight_decay: due.weight_decay,
            deviation: due.learning_rate.max(0.0).sqrt(),
            rescale: due.rescale,
            clip: due.clip,
            stream: stream(seed, due.key),
            count: due.count,
        }
        .into()
    },
};

/// The scalars of a step; there is no state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgld<A = f64> {
    /// `lr / 2`
    pub half_rate: A,
    /// Weight decay.
    pub weight_decay: A,
    /// `sqrt(lr)`: the standard deviation of the noise.
    pub deviation: A,
    /// Factor on the gradient.
    pub rescale: A,
    /// Bound on the rescaled gradient.
    pub clip: A,
    /// The key of the random number generator: seed and key of the store.
    pub stream: [u32; 2],
    /// The number of the update, part of the generator's counter.
    pub count: u64,
}

impl Rule<0> for Sgld {
    type Rounded<A: Real> = Sgld<A>;

    const INITIAL: [Initial; 0] = [];

    fn of(rule: &UpdateRule) -> Option<&Self> {
        match rule {
            UpdateRule::Sgld(rule) => Some(rule),
            _ => None,
        }
    }

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

/// Returns the generator's key: a hash of the store's key (FNV-1a, 64 bits), offset by the seed.
#[allow(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
#[allow(clippy::cast_sign_loss, reason = "the seed is a whole number of at least 0")]
fn stream(seed: f64, key: &Key) -> [u32; 2] {
    let hash = key.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = hash.wrapping_add((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    [mixed as u32, (mixed >> 32) as u32]
}

/// 2³², written out: how exact a power is depends on the machine.
const NUM_WORDS: f64 = 4_294_967_296.0;

/// Returns a standard normal number.
fn standard_normal(stream: [u32; 2], count: u64, index: u64) -> f64 {
    let [a, b] = [index, count].map(|word| {
        #[allow(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
        let halves = [word as u32, (word >> 32) as u32];
        halves
    });
    let [first, second, ..] = philox([a[0], a[1], b[0], b[1]], stream);
    // In (0, 1), and in [0, 1). Not the system's logarithm and cosine: those differ by machine.
    let radius = (f64::from(first) + 0.5) / NUM_WORDS;
    let angle = f64::from(second) / NUM_WORDS;
    (-2.0 * libm::log(radius)).sqrt() * libm::cos(TAU * angle)
}

/// Philox 4x32 with ten rounds: random bits as a function of a counter and a key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let [c0, c1, c2, c3] = counter;
        let (high0, low0) = wide_product(c0, 0xd251_1f53);
        let (high1, low1) = wide_product(c2, 0xcd9e_8d57);
        counter = [high1 ^ c1 ^ key[0], low1, high0 ^ c3 ^ key[1], low0];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    counter
}

#[allow(clippy::cast_possible_truncation, reason = "each half is taken on purpose")]
fn wide_product(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_its_authors_known_answers() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits_of_pi = philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        assert_eq!(digits_of_pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}

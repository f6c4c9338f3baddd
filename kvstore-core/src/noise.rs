//! Random numbers as a function of the seed, the index of the call and the index of the element.
//! They are the same on every machine and for any number of threads.
//!
//! The random bits come from Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", 2011). The Box-Muller transform (1958) makes them normally
//! distributed.

use std::f64::consts::TAU;

use crate::types::{Error, Result};

/// A distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// The uniform distribution over `low` to `high`.
    Uniform {
        /// The smallest number.
        low: f64,
        /// The end of the range. A number equals it only through rounding.
        high: f64,
    },
    /// The normal distribution.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
}

impl Distribution {
    /// Returns the random number for a stream, a call and an element index.
    pub fn sample(&self, stream: [u32; 2], call: u64, index: u64) -> f64 {
        match self {
            Self::Uniform { low, high } => low + (high - low) * uniform(stream, call, index),
            Self::Normal { mean, deviation } => {
                mean + deviation * standard_normal(stream, call, index)
            }
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let is_possible = match self {
            Self::Uniform { low, high } => low <= high && (high - low).is_finite(),
            Self::Normal { mean, deviation } => {
                mean.is_finite() && deviation.is_finite() && *deviation >= 0.0
            }
        };
        if is_possible {
            Ok(())
        } else {
            Err(Error::invalid(format!("invalid distribution {self:?}")))
        }
    }
}

/// 2³², written as a literal because the precision of a computed power differs between machines.
const NUM_WORDS: f64 = 4_294_967_296.0;

/// 2⁵³, written as a literal for the same reason.
const NUM_FRACTIONS: f64 = 9_007_199_254_740_992.0;

/// Returns a uniform number in [0, 1), one of 2⁵³ equally spaced numbers.
#[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn uniform(stream: [u32; 2], call: u64, index: u64) -> f64 {
    let [high, low, ..] = words(stream, call, index);
    let bits = (u64::from(high) << 21) | (u64::from(low) >> 11);
    bits as f64 / NUM_FRACTIONS
}

/// Returns a standard normal number.
pub(crate) fn standard_normal(stream: [u32; 2], call: u64, index: u64) -> f64 {
    let [first, second, ..] = words(stream, call, index);
    // `first` maps into (0, 1), because the logarithm of 0 is infinite. `libm`, because the
    // system's logarithm and cosine differ between machines.
    let radius = (f64::from(first) + 0.5) / NUM_WORDS;
    let angle = f64::from(second) / NUM_WORDS;
    (-2.0 * libm::log(radius)).sqrt() * libm::cos(TAU * angle)
}

/// Returns the 128 random bits of an element.
#[allow(clippy::cast_possible_truncation, reason = "splits the number into its halves")]
fn words(stream: [u32; 2], call: u64, index: u64) -> [u32; 4] {
    let counter = [index as u32, (index >> 32) as u32, call as u32, (call >> 32) as u32];
    philox(counter, stream)
}

/// Computes Philox 4x32 with ten rounds: random bits as a function of a counter and a key.
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

#[allow(clippy::cast_possible_truncation, reason = "splits the number into its halves")]
fn wide_product(a: u32, b: u32) -> (u32, u32) {
    let product = u64::from(a) * u64::from(b);
    ((product >> 32) as u32, product as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_known_answers_of_its_authors() {
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

    #[test]
    fn uniform_numbers_are_in_their_interval() {
        let dice = Distribution::Uniform { low: -1.0, high: 3.0 };
        let len = if cfg!(miri) { 400_u32 } else { 4000 };
        let numbers: Vec<f64> = (0..len.into()).map(|n| dice.sample([1, 2], 3, n)).collect();
        assert!(numbers.iter().all(|x| (-1.0..3.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / f64::from(len);
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
        for quarter in 0..4 {
            let low = f64::from(quarter) - 1.0;
            let count = numbers.iter().filter(|x| (low..low + 1.0).contains(*x)).count();
            let percent = count * 100 / numbers.len();
            assert!((21..29).contains(&percent), "{percent} % from {low} on");
        }
    }
}

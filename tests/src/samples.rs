//! Pseudo-random values that are the same in every run.

use crate::operations::nasty_numbers;
use crate::value::{Number, Spec, Value};

/// Returns a value of the spec. About half of its numbers are difficult ones, the others have
/// arbitrary bits.
pub fn nasty(spec: Spec, seed: u64) -> Value {
    let nasty = nasty_numbers();
    let dtype = spec.dtype;
    let numbers =
        words(seed).take(spec.num_elements()).map(|word| match usize::try_from(word % 64) {
            Ok(index) if index < nasty.len() => nasty[index].cast(dtype),
            _ => Number::from_bits(dtype, word.cast_signed()),
        });
    Value { numbers: numbers.collect(), spec }
}

/// Returns a value of the spec with numbers between -8 and 8, like gradients and weights.
#[expect(clippy::cast_precision_loss, reason = "what is cast has 16 bits")]
pub fn tame(spec: Spec, seed: u64) -> Value {
    let numbers = words(seed).take(spec.num_elements());
    let fraction = |word: u64| (word % 65_536) as f64 / 4096.0 - 8.0;
    let numbers: Vec<_> = numbers.map(|word| Number::Float(fraction(word))).collect();
    Value::new(spec, &numbers)
}

/// The generator `splitmix64`.
pub fn words(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

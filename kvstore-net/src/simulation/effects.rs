//! Values of simulated pushes. Each push adds 1 to an element of its own, and a number to the first
//! element whose sum shows the order of the additions.

use kvstore_core::{Device, Tensor, Value};

use super::backends;
use super::history::mark;

/// Returns a value of several parts, each of this length, with these numbers at these positions of
/// every part.
pub(super) fn value_of_parts(num_parts: usize, length: usize, numbers: &[(usize, f32)]) -> Value {
    let mut elements = vec![0.0_f32; num_parts * length];
    for part in elements.chunks_mut(length) {
        for (position, number) in numbers {
            part[*position] = *number;
        }
    }
    let shape = [elements.len()];
    Tensor::from_slice(backends(), Device::cpu(0), shape, &elements).unwrap().into()
}

/// Returns the value after these pushes, with the bits of the server. Pushes that were added
/// together are added in the order of the names of their members.
fn value_after(
    effects: &[Vec<usize>],
    length: usize,
    name: impl Fn(usize) -> &'static str,
) -> Vec<f32> {
    let mut value = vec![0.0; length];
    for together in effects {
        let mut ordered = together.clone();
        ordered.sort_by_key(|element| name(*element));
        let marks = ordered.iter().map(|element| mark(*element));
        value[0] += marks.reduce(|left, right| left + right).unwrap_or_default();
        for element in together {
            value[*element] += 1.0;
        }
    }
    value
}

/// Returns how many of the effects a value has, if it has the first ones.
pub(super) fn prefix(
    effects: &[Vec<usize>],
    value: &[f32],
    name: impl Fn(usize) -> &'static str,
) -> Option<usize> {
    let num = effects.iter().take_while(|together| value[together[0]] != 0.0).count();
    let expected = value_after(&effects[..num], value.len(), name);
    let bits = |value: &[f32]| value.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    (bits(&expected) == bits(value)).then_some(num)
}

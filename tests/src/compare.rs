//! Comparison bit for bit. Any NaN equals any NaN.

use std::fmt::Debug;

use crate::value::{Number, Value};

/// Returns whether two numbers have the same bits. Any NaN equals any NaN.
pub fn same_number(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (Number::Int(a), Number::Int(b)) => a == b,
        _ => false,
    }
}

/// Returns a description of the first difference between two values, or `None`.
pub fn difference(expected: &Value, found: &Value) -> Option<String> {
    if expected.spec != found.spec {
        return Some(format!("expected {:?}, found {:?}", expected.spec, found.spec));
    }
    let mut pairs = expected.numbers.iter().zip(&found.numbers);
    let index = pairs.position(|(a, b)| !same_number(*a, *b))?;
    let (expected, found) = (expected.numbers[index], found.numbers[index]);
    Some(format!("element {index}: expected {expected:?}, found {found:?}"))
}

/// Panics unless the values have the same spec and the same bits.
#[track_caller]
pub fn assert_same_bits(expected: &Value, found: &Value, what: &impl Debug) {
    if let Some(difference) = difference(expected, found) {
        panic!("{what:?}: {difference}");
    }
}

//! Arithmetic of the model, one element at a time: casts, the four operations, the sum of a push.

#![expect(
    clippy::cast_possible_truncation,
    reason = "casts that round or wrap are what is modelled"
)]
#![expect(clippy::cast_precision_loss, reason = "an integer becomes the nearest float")]

use std::cmp::Ordering;

use kvstore::DType;

use crate::format::Format;
use crate::value::{Number, Value};

/// The four arithmetic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Operator {
    Add,
    Sub,
    Mul,
    Div,
}

impl Number {
    /// Returns this number converted to `dtype`.
    #[must_use]
    pub fn cast(self, dtype: DType) -> Self {
        Format::of(dtype).nearest(self)
    }

    /// Returns the nearest f32.
    pub fn to_f32(self) -> f32 {
        match self {
            Self::Float(x) => x as f32,
            Self::Int(i) => i as f32,
        }
    }

    /// Returns the nearest f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Float(x) => x,
            Self::Int(i) => i as f64,
        }
    }

    /// Returns the f64 that rounds to the same half-precision number as the exact number: the
    /// nearest f64 towards zero, with the last bit set if any bits were cut off. Rounding to
    /// nearest twice would be wrong if the first result is half-way between two half-precision
    /// numbers.
    pub(crate) fn to_f64_for_rounding(self) -> f64 {
        let nearest = self.to_f64();
        let Self::Int(i) = self else { return nearest };
        match (nearest as i128).abs().cmp(&i128::from(i).abs()) {
            Ordering::Less => f64::from_bits(nearest.to_bits() | 1),
            Ordering::Equal => nearest,
            Ordering::Greater => f64::from_bits((nearest.to_bits() - 1) | 1),
        }
    }

    /// Returns the integer part, saturating, and NaN as 0.
    pub(crate) fn to_i64(self) -> i64 {
        match self {
            Self::Float(x) => x as i64,
            Self::Int(i) => i,
        }
    }

    /// Returns the result of an operation on two elements of `dtype`. f64 and integers compute in
    /// their own type; integers wrap and divide towards zero. Other floats compute in f32 and are
    /// then rounded.
    #[must_use]
    pub fn operate(self, operator: Operator, other: Self, dtype: DType) -> Self {
        let result = match (self, other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(operate_i64(operator, a, b)),
            _ if dtype == DType::F64 => {
                Self::Float(operate_f64(operator, self.to_f64(), other.to_f64()))
            }
            _ => Self::Float(operate_f32(operator, self.to_f32(), other.to_f32()).into()),
        };
        result.cast(dtype)
    }
}

fn operate_i64(operator: Operator, a: i64, b: i64) -> i64 {
    match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Sub => a.wrapping_sub(b),
        Operator::Mul => a.wrapping_mul(b),
        Operator::Div => a.wrapping_div(b),
    }
}

fn operate_f32(operator: Operator, a: f32, b: f32) -> f32 {
    match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div => a / b,
    }
}

fn operate_f64(operator: Operator, a: f64, b: f64) -> f64 {
    match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div => a / b,
    }
}

impl Value {
    /// Returns the value with `operator` applied to each pair of elements.
    #[must_use]
    pub fn operate(&self, operator: Operator, other: &Self) -> Self {
        let dtype = self.spec.dtype;
        let pairs = self.numbers.iter().zip(&other.numbers);
        let numbers = pairs.map(|(a, b)| a.operate(operator, *b, dtype)).collect();
        Self { spec: self.spec.clone(), numbers }
    }

    /// Returns the value with `operator` applied to each element and the same number.
    #[must_use]
    pub fn operate_scalar(&self, operator: Operator, scalar: Number) -> Self {
        let scalars = vec![scalar; self.numbers.len()];
        self.operate(operator, &Self::new(self.spec.clone(), &scalars))
    }
}

/// Returns the sum of values of one spec: a left fold in the order given. Half precision adds in
/// f32 and is rounded once, at the end.
pub fn sum(addends: &[Value]) -> Value {
    let dtype = addends[0].spec.dtype;
    let adds_in = if is_half(dtype) { DType::F32 } else { dtype };
    let mut total = addends[0].cast(adds_in);
    for addend in &addends[1..] {
        total = total.operate(Operator::Add, &addend.cast(adds_in));
    }
    total.cast(dtype)
}

/// Returns whether `dtype` is a half-precision dtype.
pub fn is_half(dtype: DType) -> bool {
    Format::of(dtype).half().is_some()
}

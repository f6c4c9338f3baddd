//! [`Approximate`]: an exact value with a bound of the error that rounding after every operation
//! can cause in a computation with fewer bits.
//!
//! A formula that uses these numbers returns its result together with the tolerance for an
//! evaluation of the same formula in the lower precision. The tolerance is tight where the formula
//! is well-conditioned, and wide where it cancels.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// More than the distance between the smallest floats, whose rounding error is not relative.
const SMALLEST: f64 = 1e-44;

/// A value, and a bound of the error that a computation with rounding can have.
#[derive(Clone, Copy, Debug)]
pub struct Approximate {
    /// The value, as `f64` computes it.
    pub value: f64,
    /// The bound of the error.
    pub error: f64,
    /// The error of one rounding, relative to the result.
    unit: f64,
}

impl Approximate {
    /// Returns a number without error. `unit` is the error of one rounding.
    pub fn exact(value: f64, unit: f64) -> Self {
        Self { value, error: 0.0, unit }
    }

    /// Returns a number that has been rounded once.
    pub fn rounded(value: f64, unit: f64) -> Self {
        Self::exact(value, unit).round(0.0)
    }

    /// Returns a number that was computed in `f64` with an error, and then rounded once.
    pub fn folded(value: f64, error: f64, unit: f64) -> Self {
        Self::exact(value, unit).round(error)
    }

    /// Returns the error of one rounding, relative to the result.
    pub fn unit(self) -> f64 {
        self.unit
    }

    /// Returns the result of an operation, whose error is the propagated error of the operands plus
    /// the rounding of the result.
    ///
    /// Each operation counts as two roundings, because an implementation may use one operation more
    /// or compute its scalars in another order.
    fn round(self, propagated: f64) -> Self {
        let is_exact_zero = self.value == 0.0 && propagated == 0.0;
        let smallest = if is_exact_zero { 0.0 } else { SMALLEST };
        let error = propagated + 2.0 * self.unit * self.value.abs() + smallest;
        Self { error, ..self }
    }

    fn with(self, other: Self, value: f64, propagated: f64) -> Self {
        Self { value, error: 0.0, unit: self.unit.max(other.unit) }.round(propagated)
    }

    /// Returns the largest possible distance from zero.
    fn magnitude(self) -> f64 {
        self.value.abs() + self.error
    }

    /// Returns the square root. The error is unbounded if the number may be negative.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let lowest = self.value - self.error;
        let root = self.value.sqrt();
        let propagated = if self.error == 0.0 {
            0.0
        } else if lowest < 0.0 {
            f64::INFINITY
        } else {
            root - lowest.sqrt()
        };
        Self { value: root, ..self }.round(propagated)
    }

    /// Returns zero with the error of this number.
    #[must_use]
    pub fn as_zero(self) -> Self {
        Self { value: 0.0, ..self }
    }

    /// Returns the absolute value.
    #[must_use]
    pub fn abs(self) -> Self {
        Self { value: self.value.abs(), ..self }
    }

    /// Returns -1, 0 or 1. The error is up to 2 if the sign is uncertain.
    #[must_use]
    pub fn sign(self) -> Self {
        let value = if self.value == 0.0 { 0.0 } else { self.value.signum() };
        let is_certain = self.error < self.value.abs() || self.error == 0.0;
        Self { value, error: if is_certain { 0.0 } else { 2.0 }, ..self }
    }

    /// Returns the larger number.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        // `f64::max` drops a NaN, but the result must stay unknown.
        if self.value.is_nan() || other.value.is_nan() {
            return Self { value: f64::NAN, error: f64::INFINITY, ..self };
        }
        let error = self.error.max(other.error);
        Self { value: self.value.max(other.value), error, ..self }
    }

    /// Returns the number clamped to `[-bound, bound]`. A bound of 0 does not clamp.
    #[must_use]
    pub fn clip(self, bound: f64) -> Self {
        if bound == 0.0 {
            return self;
        }
        Self { value: self.value.clamp(-bound, bound), ..self }.round(self.error)
    }
}

impl Add for Approximate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, self.value + other.value, self.error + other.error)
    }
}

impl Sub for Approximate {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Neg for Approximate {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

impl Mul for Approximate {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let propagated = self.error * other.magnitude() + self.value.abs() * other.error;
        self.with(other, self.value * other.value, propagated)
    }
}

impl Mul<Approximate> for f64 {
    type Output = Approximate;

    fn mul(self, other: Approximate) -> Approximate {
        Approximate::rounded(self, other.unit) * other
    }
}

impl Add<f64> for Approximate {
    type Output = Self;

    fn add(self, other: f64) -> Self {
        self + Self::rounded(other, self.unit)
    }
}

impl Div for Approximate {
    type Output = Self;

    /// Divides. The error is unbounded if the divisor may be zero.
    fn div(self, other: Self) -> Self {
        let smallest = other.value.abs() - other.error;
        let quotient = self.value / other.value;
        let propagated = if smallest > 0.0 {
            (self.error + quotient.abs() * other.error) / smallest
        } else {
            f64::INFINITY
        };
        self.with(other, quotient, propagated)
    }
}

impl Div<f64> for Approximate {
    type Output = Self;

    fn div(self, other: f64) -> Self {
        self / Self::rounded(other, self.unit)
    }
}

//! [`Arithmetic`]: the elementwise operations on single elements. Half precision has no
//! implementation: it is computed in `f32` and rounded.

use super::rounding::Rounding;
use crate::types::{Element, UnaryOp, cast, full_types, half_types, integer_types};

/// The operations on one or two elements.
pub(super) trait Arithmetic: Ordered {
    /// Whether division by zero is an error.
    const ZERO_DIVISOR_IS_ERROR: bool;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    fn unary(self, op: UnaryOp) -> Self;
}

/// The larger and the smaller of two elements.
pub(super) trait Ordered: Element {
    fn is_nan(self) -> bool;

    /// Returns the larger element, or NaN if one of the two is NaN.
    #[inline]
    fn larger(self, other: Self) -> Self {
        if self.is_nan() || self > other { self } else { other }
    }

    /// Returns the smaller element, or NaN if one of the two is NaN.
    #[inline]
    fn smaller(self, other: Self) -> Self {
        if self.is_nan() || self < other { self } else { other }
    }
}

/// Returns 1 for `true` and 0 for `false`.
#[inline]
pub(super) fn truth<T: Element>(holds: bool) -> T {
    T::from_i64(i64::from(holds))
}

/// Evaluates an expression in which a name is the function of a binary operation.
///
/// `with_binary!(op, f => run(f))` expands to a `match` on `op` with one arm per operation, such as
/// `BinaryOp::Add => { fn f<C: Arithmetic>(x: C, y: C) -> C { x.add(y) } run(f) }`. So the loop
/// inside is compiled once per operation, and does not branch on the operation. A closure that uses
/// `f` captures nothing, because `f` is not a variable.
macro_rules! with_binary {
    ($op:expr, $f:ident => $body:expr) => {
        with_binary!(@ $op, $f => $body, x, y,
            Add: x.add(y),
            Sub: x.sub(y),
            Mul: x.mul(y),
            Div: x.div(y),
            Rem: x.rem(y),
            Pow: x.pow(y),
            Maximum: x.larger(y),
            Minimum: x.smaller(y),
            Equal: truth(x == y),
            NotEqual: truth(x != y),
            Greater: truth(x > y),
            GreaterEqual: truth(x >= y),
            Less: truth(x < y),
            LessEqual: truth(x <= y))
    };
    (@ $op:expr, $f:ident => $body:expr, $x:ident, $y:ident, $($name:ident: $result:expr),+) => {
        match $op {
            $(BinaryOp::$name => {
                #[inline]
                fn $f<C: Arithmetic>($x: C, $y: C) -> C {
                    $result
                }
                $body
            })+
        }
    };
}
pub(super) use with_binary;

/// Evaluates an expression in which a name is the function of a unary operation.
///
/// Like [`with_binary`], `with_unary!(op, f => run(f))` expands to a `match` with one arm per
/// operation, such as
/// `UnaryOp::Abs => { fn f<C: Arithmetic>(x: C) -> C { x.unary(UnaryOp::Abs) } run(f) }`.
macro_rules! with_unary {
    ($op:expr, $f:ident => $body:expr) => {
        with_unary!(@ $op, $f => $body,
            Negate Abs Sign Square Sqrt Rsqrt Exp Log Sin Cos Tanh Sigmoid Relu Ceil Floor Round
            Rint Fix)
    };
    (@ $op:expr, $f:ident => $body:expr, $($name:ident)+) => {
        match $op {
            $(UnaryOp::$name => {
                #[inline]
                fn $f<C: Arithmetic>(x: C) -> C {
                    x.unary(UnaryOp::$name)
                }
                $body
            })+
        }
    };
}
pub(super) use with_unary;

/// Returns the remainder, with the sign of the divisor. Returns 0 for a zero divisor.
fn floored_remainder(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return 0.0;
    }
    let remainder = a % b;
    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
}

macro_rules! float_arithmetic {
    ($($Variant:ident: $type:ty),+) => {$(
        impl Arithmetic for $type {
            const ZERO_DIVISOR_IS_ERROR: bool = false;

            #[inline]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline]
            fn div(self, other: Self) -> Self {
                self / other
            }
            #[inline]
            fn rem(self, other: Self) -> Self {
                cast(floored_remainder(cast(self), cast(other)))
            }
            #[inline]
            fn pow(self, other: Self) -> Self {
                self.powf(other)
            }
            #[inline]
            fn unary(self, op: UnaryOp) -> Self {
                // In all loops over elements, `op` is a constant, so the match costs nothing.
                match op {
                    UnaryOp::Negate => -self,
                    UnaryOp::Abs => self.abs(),
                    UnaryOp::Sign if self > 0.0 => 1.0,
                    UnaryOp::Sign if self < 0.0 => -1.0,
                    UnaryOp::Sign => self,
                    UnaryOp::Square => self * self,
                    UnaryOp::Sqrt => self.sqrt(),
                    UnaryOp::Rsqrt => 1.0 / self.sqrt(),
                    UnaryOp::Exp => self.exp(),
                    UnaryOp::Log => self.ln(),
                    UnaryOp::Sin => self.sin(),
                    UnaryOp::Cos => self.cos(),
                    UnaryOp::Tanh => self.tanh(),
                    UnaryOp::Sigmoid => 1.0 / (1.0 + (-self).exp()),
                    UnaryOp::Relu => self.larger(0.0),
                    UnaryOp::Ceil => Rounding::ceil(self),
                    UnaryOp::Floor => Rounding::floor(self),
                    UnaryOp::Round => Rounding::round(self),
                    UnaryOp::Rint => self.half_down(),
                    UnaryOp::Fix => self.fix(),
                }
            }
        }
    )+};
}

macro_rules! integer_arithmetic {
    ($($Variant:ident: $type:ty),+) => {$(
        impl Arithmetic for $type {
            const ZERO_DIVISOR_IS_ERROR: bool = true;

            #[inline]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline]
            fn div(self, other: Self) -> Self {
                // The loop's caller has rejected zero divisors. This check only avoids a panic.
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline]
            fn rem(self, other: Self) -> Self {
                if other == 0 {
                    return 0;
                }
                let remainder = self.wrapping_rem(other);
                #[allow(unused_comparisons, reason = "the unsigned types share this text")]
                let flip = remainder != 0 && (remainder < 0) != (other < 0);
                if flip { remainder + other } else { remainder }
            }
            #[inline]
            fn pow(self, other: Self) -> Self {
                cast(self.to_f64().powf(other.to_f64()))
            }
            #[inline]
            fn unary(self, op: UnaryOp) -> Self {
                #[allow(unused_comparisons, reason = "the unsigned types share this text")]
                let is_negative = self < 0;
                match op {
                    UnaryOp::Negate => self.wrapping_neg(),
                    UnaryOp::Square => self.wrapping_mul(self),
                    UnaryOp::Abs if is_negative => self.wrapping_neg(),
                    UnaryOp::Abs => self,
                    UnaryOp::Sign => Self::from(self > 0).wrapping_sub(Self::from(is_negative)),
                    UnaryOp::Relu => self.larger(0),
                    UnaryOp::Ceil
                    | UnaryOp::Floor
                    | UnaryOp::Round
                    | UnaryOp::Rint
                    | UnaryOp::Fix => self,
                    // These have no integer arithmetic: computed in `f64`, then converted back.
                    UnaryOp::Sqrt
                    | UnaryOp::Rsqrt
                    | UnaryOp::Exp
                    | UnaryOp::Log
                    | UnaryOp::Sin
                    | UnaryOp::Cos
                    | UnaryOp::Tanh
                    | UnaryOp::Sigmoid => cast(self.to_f64().unary(op)),
                }
            }
        }
    )+};
}

full_types!(float_arithmetic);
integer_types!(integer_arithmetic);

macro_rules! ordered_floats {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Ordered for $type {
            #[inline]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
        })+
    };
}
full_types!(ordered_floats);
half_types!(ordered_floats);

macro_rules! ordered_integers {
    ($($Variant:ident: $type:ty),+) => {
        $(impl Ordered for $type {
            #[inline]
            fn is_nan(self) -> bool {
                false
            }
        })+
    };
}
integer_types!(ordered_integers);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainder_takes_the_sign_of_the_divisor() {
        assert_eq!(Arithmetic::rem(-5i32, 3), 1);
        assert_eq!(Arithmetic::rem(5.5f32, -3.0), -0.5);
        assert_eq!(Arithmetic::rem(7i8, 0), 0);
        assert_eq!(Arithmetic::rem(i64::MIN, -1), 0);
    }

    #[test]
    fn rint_rounds_ties_down() {
        let rounded = [0.5f32, 1.5, 2.5, -0.5, -1.5].map(|x| x.unary(UnaryOp::Rint));
        assert_eq!(rounded, [0.0, 1.0, 2.0, -1.0, -2.0]);
    }

    #[test]
    fn maximum_and_minimum_propagate_nan() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(a.larger(b).is_nan() && a.smaller(b).is_nan());
        }
    }
}

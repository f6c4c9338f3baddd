//! [`Step`]: the formula for one element. [`Formula`]: its scalars.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::types::Element;

/// A floating-point type of optimizer arithmetic: `f32` or `f64`.
pub trait Real:
    Element
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The number 0.
    const ZERO: Self;
    /// The number 1.
    const ONE: Self;

    /// Returns the square root, correctly rounded.
    #[must_use]
    fn sqrt(self) -> Self;
    /// Returns the absolute value.
    #[must_use]
    fn abs(self) -> Self;

    /// Clamps to `[-bound, bound]`. NaN stays NaN.
    #[inline]
    #[must_use]
    fn clip(self, bound: Self) -> Self {
        let below = if self > bound { bound } else { self };
        if below < -bound { -bound } else { below }
    }

    /// Returns -1, 0 or 1. Returns 0 for NaN.
    #[inline]
    #[must_use]
    fn sign(self) -> Self {
        let positive = if self > Self::ZERO { Self::ONE } else { Self::ZERO };
        if self < Self::ZERO { -Self::ONE } else { positive }
    }
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
            #[inline]
            fn abs(self) -> Self {
                self.abs()
            }
        }
    };
}
real!(f32);
real!(f64);

/// The formula of an optimizer for one element with `N` numbers of state.
///
/// Backends evaluate it in exactly this order of operations, without fused multiply-adds, so that
/// all of them compute the same bits.
pub trait Step<A: Real, const N: usize>: Copy + Send + Sync {
    /// Returns the new weight and the new state of the element at `index`.
    fn apply(&self, index: u64, weight: A, state: [A; N], gradient: A) -> (A, [A; N]);
}

/// The initial value of a number of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initial {
    /// 0.
    Zero,
    /// A copy of the weight.
    Weight,
    /// 0, with one number for each row of the weight.
    RowZero,
}

/// The scalars of a formula with `N` numbers of state per element, as `f64`.
pub trait Formula<const N: usize>: Sized {
    /// The formula with its scalars rounded to `A`.
    type RoundedStep<A: Real>: Step<A, N>;

    /// The initial value of each number of state.
    const INITIAL: [Initial; N];

    /// Rounds each scalar once, to `A`.
    fn round<A: Real>(&self) -> Self::RoundedStep<A>;

    /// Returns the scalars in the order of the fields, padded with zeros.
    fn scalars(&self) -> [f64; MAX_SCALARS];
}

/// Declares a struct with the scalars of a formula, and implements [`Formula`] for it.
macro_rules! scalars {
    (
        $(#[$doc:meta])*
        $Name:ident<$N:literal> [$($initial:ident),*] { $($(#[$field_doc:meta])* $field:ident,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $Name<A = f64> {
            $($(#[$field_doc])* pub $field: A,)+
        }

        impl $crate::rule::step::Formula<$N> for $Name {
            type RoundedStep<A: $crate::rule::step::Real> = $Name<A>;

            const INITIAL: [$crate::rule::step::Initial; $N] =
                [$($crate::rule::step::Initial::$initial),*];

            fn round<A: $crate::rule::step::Real>(&self) -> $Name<A> {
                $Name { $($field: A::from_f64(self.$field)),+ }
            }

            fn scalars(&self) -> [f64; $crate::rule::step::MAX_SCALARS] {
                $crate::rule::step::padded([$(self.$field),+])
            }
        }
    };
}
pub(super) use scalars;

/// Returns the numbers, padded with zeros.
pub(super) fn padded<const N: usize>(numbers: [f64; N]) -> [f64; MAX_SCALARS] {
    const { assert!(N <= MAX_SCALARS, "a rule has more scalars") };
    let mut all = [0.0; MAX_SCALARS];
    for (slot, number) in all.iter_mut().zip(numbers) {
        *slot = number;
    }
    all
}

/// The largest number of state tensors of a rule, including a master copy of the weight.
pub const MAX_STATES: usize = 4;

/// The largest number of scalars of a rule.
pub const MAX_SCALARS: usize = 12;
